"""One iteration as one line: for a terminal in columns, for a pipe as a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..codec import text_of
from ..records import Iteration, Reason, Result
from . import texts
from .output import Part
from .progress import Ending, Note, Row
from .texts import Signs

__all__ = [
    "Columns",
    "ending_line",
    "ending_text",
    "indented",
    "label_of",
    "note_line",
    "row_line",
    "row_text",
]

LOOKED_AT = 2000  # characters of what may be a book, of which a line shows the beginning
SHOWN = 200  # characters of feedback on a plain line
NARROW = 76  # columns; below that verdicts are signs without words
WIDE = 96  # columns; below that labels and bars are shorter, for what a judge says


class Columns(NamedTuple):
    """How wide each column is; what is left of the line is the feedback's."""

    label: int
    bar: int
    verdict: int
    cost: int
    time: int
    gap: int
    feedback: int = 0

    @classmethod
    def within(cls, width: int) -> Columns:
        """Return the columns of a line of `width` cells."""
        fixed = cls(min(24, width // 5), 10, 11, 8, 7, 2)
        if width < NARROW:
            fixed = cls(10, 5, 1, 7, 7, 1)
        elif width < WIDE:
            fixed = cls(12, 10, 11, 8, 7, 1)
        taken = sum(fixed[:5]) + 5 * fixed.gap + 6  # 6: a space and the score behind its bar
        return fixed._replace(feedback=max(8, width - taken))


def indented(row: Row) -> str:
    """Return a row's label behind two spaces for each loop around it."""
    return "  " * row.depth + texts.one_line(row.label)


def label_of(row: Row, cells: int, signs: Signs) -> str:
    """Return the label within `cells`: the number stays whole, the loop's name is cut."""
    indent, number = "  " * min(row.depth, 4), f" {row.iteration.number}"
    name = texts.one_line(row.path.rsplit("/", 1)[-1])
    return indent + texts.fit(name, cells - len(indent) - len(number), signs) + number


def row_line(row: Row, columns: Columns, signs: Signs) -> list[Part]:
    """Return a row in columns: label, score, verdict, feedback, cost, time."""
    item = row.iteration
    sign, word, style = texts.verdict(item, signs)
    verdict = sign if columns.verdict == 1 else f"{sign} {word}"
    feedback = texts.fit(texts.one_line(_told(item)), columns.feedback, signs)
    gap = " " * columns.gap
    return [
        (_padded(label_of(row, columns.label, signs), columns.label) + gap, "bold"),
        (texts.bar(item.score, columns.bar, signs), style or "cyan"),
        f" {texts.score(item.score):5}{gap}",
        (_padded(verdict, columns.verdict) + gap, style),
        (_padded(feedback, columns.feedback) + gap, "red" if item.error else ""),
        (f"{texts.cost(item.usage):>{columns.cost}}{gap}", "dim"),
        (f"{texts.duration(item.seconds):>{columns.time}}", "dim"),
    ]


def row_text(row: Row, signs: Signs) -> str:
    """Return a row as a plain line: `refine 2: score 0.85, passed, $0.0012, 1.2 s: feedback`."""
    item = row.iteration
    told = texts.fit(texts.one_line(_told(item)), SHOWN, signs)
    facts = [
        f"score {texts.score(item.score)}" if item.score is not None else "",
        texts.verdict(item, signs)[1],
        texts.cost(item.usage),
        texts.duration(item.seconds),
    ]
    line = f"{indented(row)}: {', '.join(fact for fact in facts if fact)}"
    return f"{line}: {told}" if told else line


def _told(item: Iteration) -> str:
    text = item.feedback
    if not text and item.evaluation is None:
        text = text_of(item.output)  # nobody judged it: the output is what there is to see
    return text[:LOOKED_AT]


def _padded(text: str, cells: int) -> str:
    return text + " " * (cells - texts.width(text))


def ending_line(ending: Ending) -> str:
    """Return how a loop inside the run ended, as a line."""
    name = texts.one_line(ending.path.rsplit("/", 1)[-1])
    stop = ending.stop
    return f"{'  ' * ending.depth}{name} {stop.reason.status.value}: {texts.one_line(stop.detail)}"


def note_line(note: Note, signs: Signs) -> str:
    """Return what a person is asked or has answered, as a line."""
    return f"{'  ' * note.depth}{texts.fit(texts.one_line(note.text), SHOWN, signs)}"


def ending_text(result: Result, status: str = "") -> str:
    """Return in one sentence why a run ended and what it took.

    `status` is that of a run that did not end: `running`, `interrupted`.
    """
    word = status or result.status.value
    detail = texts.one_line(result.detail)
    parts = [f"{word.capitalize()}: {detail}" if detail else word.capitalize()]
    loops: Sequence[Result] = list(result.loops.values()) or [result]
    count = result.iterations or sum(loop.iterations for loop in loops)
    took = [texts.plural(count, "iteration")] if count else []
    took.append(texts.duration(result.seconds))
    if result.usage:
        took.append(texts.spent(result.usage))
        if result.judging:
            work, judging = result.usage.less(result.judging), result.judging
            took.append(
                f"{texts.cost(work) or 'nothing'} on working and {texts.cost(judging)} on judging"
            )
    best = result.best
    if best is not None and best.score is not None and result.reason is not Reason.CONDITION_MET:
        took.append(f"best was iteration {best.number} with {texts.score(best.score)}")
    if result.reported_score is not None:
        took.append(f"judged again {texts.score(result.reported_score)}")
    return f"{parts[0]} ({', '.join(took)})"
