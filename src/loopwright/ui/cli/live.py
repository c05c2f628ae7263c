"""A run as people watch it: live rows on a terminal, plain lines on a pipe.

One iteration as one line: for a terminal in columns, for a pipe as a sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from ...conditions import Budget
from ...journal import Entry
from ...records import Iteration, Reason, Result, Status, StepOutcome
from ...records.codec import Json, text_of
from .. import formatting as texts
from ..formatting import Signs
from ..progress import Ending, IterationRow, Notice, Progress, Shown, judged
from .output import Output, Part

if TYPE_CHECKING:
    from rich.live import Live

__all__ = [
    "ColumnWidths",
    "LinesView",
    "LiveView",
    "RunDisplay",
    "ending_line",
    "ending_text",
    "indented",
    "label_of",
    "note_line",
    "row_line",
    "row_text",
    "step_line",
    "steps_text",
    "tells_conditions",
    "view_of",
]


LOOKED_AT = 2000  # characters of what may be a book, of which a line shows the beginning
SHOWN = 200  # characters of feedback on a plain line
ITEM = 60  # characters of the item that a plain line is about
NARROW = 76  # columns; below that verdicts are signs without words
WIDE = 96  # columns; below that labels and bars are shorter, for what a judge says


class ColumnWidths(NamedTuple):
    """How wide each column is; what is left of the line is the feedback's."""

    label: int
    bar: int
    verdict: int
    cost: int
    time: int
    gap: int
    feedback: int = 0

    @classmethod
    def within(cls, width: int) -> ColumnWidths:
        """Return the columns of a line of `width` cells."""
        fixed = cls(label=min(24, width // 5), bar=10, verdict=11, cost=8, time=7, gap=2)
        if width < NARROW:
            fixed = cls(label=10, bar=5, verdict=1, cost=7, time=7, gap=1)
        elif width < WIDE:
            fixed = cls(label=12, bar=10, verdict=11, cost=8, time=7, gap=1)
        taken = sum(fixed[:5]) + 5 * fixed.gap + 6  # 6: a space and the score behind its bar
        return fixed._replace(feedback=max(8, width - taken))


def indented(row: IterationRow) -> str:
    """Return a row's label behind two spaces for each loop around it."""
    return "  " * row.depth + texts.one_line(row.label)


def label_of(row: IterationRow, cells: int, signs: Signs) -> str:
    """Return the label within `cells`: the number stays whole, the loop's name is cut."""
    indent, number = "  " * min(row.depth, 4), f" {row.iteration.number}"
    name = texts.one_line(row.path.rsplit("/", 1)[-1])
    return indent + texts.fit(name, cells - len(indent) - len(number), signs) + number


def row_line(row: IterationRow, columns: ColumnWidths, signs: Signs) -> list[Part]:
    """Return a row in columns: label, score, verdict, feedback, cost, time."""
    item = row.iteration
    sign, word, style = texts.verdict(item, signs)
    verdict = sign if columns.verdict == 1 else f"{sign} {word}"
    told = texts.one_line(_told(item))
    if row.item:
        named = texts.fit(_item(row), max(8, columns.feedback // 2), signs)
        told = f"{named}: {told}" if told else named
    feedback = texts.fit(told, columns.feedback, signs)
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


def row_text(row: IterationRow, signs: Signs) -> str:
    """Return a row as a plain line: `refine 2: score 0.85, passed, $0.0012, 1.2 s: feedback`."""
    item = row.iteration
    told = texts.fit(texts.one_line(_told(item)), SHOWN, signs)
    facts = [
        f"score {texts.score(item.score)}" if item.score is not None else "",
        texts.verdict(item, signs)[1],
        texts.cost(item.usage),
        texts.duration(item.seconds),
    ]
    line = f"{indented(row)}{_of_item(row, signs)}: {', '.join(fact for fact in facts if fact)}"
    return f"{line}: {told}" if told else line


def _item(row: IterationRow) -> str:
    return texts.one_line(row.item[:LOOKED_AT])


def _of_item(row: IterationRow, signs: Signs) -> str:
    return f" ({texts.fit(_item(row), ITEM, signs)})" if row.item else ""


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


def note_line(note: Notice, signs: Signs) -> str:
    """Return what a person is asked or has answered, as a line."""
    return f"{'  ' * note.depth}{texts.fit(texts.one_line(note.text), SHOWN, signs)}"


def steps_text(outcomes: Collection[StepOutcome]) -> str:
    """Return how many steps there are, and how many of them ended well where not all did."""
    good = sum(one.status is Status.SATISFIED for one in outcomes)
    whole = texts.plural(len(outcomes), "step")
    return whole if good == len(outcomes) else f"{good} of {whole}"


def step_line(one: StepOutcome, columns: ColumnWidths, signs: Signs) -> list[Part]:
    """Return a step of a workflow in columns: name, how it ended, how long it took, its output."""
    word = one.status.value if one.status is not None else one.detail or "not run"
    if one.status is Status.SATISFIED and one.detail.endswith(" skipped"):
        word = "skipped"
    style = _OF_STATUS[one.status] if one.status is not None else "dim"
    failed = one.status is not None and one.status is not Status.SATISFIED
    told = one.detail if failed else text_of("" if one.output is None else one.output)
    room = columns.feedback + columns.bar
    return [
        (_padded(texts.fit(texts.one_line(one.name), columns.label, signs), columns.label), "bold"),
        (f"  {word:11}  ", style),
        (f"{texts.duration(one.seconds) if one.reason or one.seconds else '':>8}  ", "dim"),
        texts.fit(texts.one_line(told[:LOOKED_AT]), room, signs),
    ]


_OF_STATUS = {
    Status.SATISFIED: "green",
    Status.EXHAUSTED: "yellow",
    Status.FAILED: "red",
    Status.IMPOSSIBLE: "red",
    Status.CANCELLED: "red",
    Status.SUSPENDED: "cyan",
}


def ending_text(result: Result, status: str = "") -> str:
    """Return in one sentence why a run ended and what it took.

    `status` is that of a run that did not end: `running`, `interrupted`.
    """
    word = status or result.status.value
    detail = texts.one_line(result.detail)
    parts = [f"{word.capitalize()}: {detail}" if detail else word.capitalize()]
    count = result.total or result.iterations
    took = [texts.plural(count, "iteration")] if count else []
    if not count and result.outcomes:
        took.append(steps_text(result.outcomes.values()))
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


BEAT = 0.1  # seconds between two looks at what is in flight


class RunDisplay(Protocol):
    """What watches a run through its journal entries."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None: ...
    def recall(self, title: str, entries: Sequence[Entry]) -> None:
        """Take up what is on record of the run; shown, under the title, once it goes on."""

    def hear(self, entry: Entry) -> None:
        """Show an entry that has just become durable."""

    def hear_text(self, path: str, piece: str) -> None:
        """Show text that the model called at a path has just said."""


class LinesView:
    """A run as plain lines: one per iteration; verbose, one per effect too.

    `conditions` is whether a line tells what each condition was answered, as users of `workflow/v2.0`
    expect: once, when it is answered.
    """

    def __init__(self, output: Output, *, verbose: bool = False, conditions: bool = False) -> None:
        self.output = output
        self.verbose = verbose
        self.conditions = conditions
        self.progress = Progress()
        self._waiting: list[Part | Shown] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        return None

    def recall(self, title: str, entries: Sequence[Entry]) -> None:
        """Take up what is on record of the run; shown, under the title, once it goes on."""
        self._waiting = [(title, "bold"), *self.progress.recall(entries)]

    def hear(self, entry: Entry) -> None:
        """Show an entry that has just become durable."""
        waiting, self._waiting = self._waiting, []
        shown = self.progress.hear(entry)
        if self.verbose and entry.kind in ("finished", "cut"):
            waiting.append((effect_line(entry, self.output), "dim"))
        for item in waiting:
            self._show(item)
        for item in shown:
            if self.conditions and isinstance(item, IterationRow):
                self._conditions(item)
            self._show(item)

    def hear_text(self, path: str, piece: str) -> None:
        """Take note of text that a model has just said: a pipe is shown what came of it."""

    def _show(self, item: Part | Shown) -> None:
        if isinstance(item, str | tuple):
            self.output.say(item, wrap=True)
            return
        if isinstance(item, Ending):
            self.output.say((ending_line(item), "dim"))
            return
        if isinstance(item, Notice):
            self.output.say((note_line(item, self.output.signs), "yellow"), wrap=True)
            return
        self._row(item)

    def _conditions(self, row: IterationRow) -> None:
        for condition, answer in judged(row.iteration.evaluation):
            asked = texts.one_line(condition)
            self.output.say((f"[INFO] Condition evaluation: '{asked}' -> {answer}", "dim"))

    def _row(self, row: IterationRow) -> None:
        self.output.say(row_text(row, self.output.signs))


class LiveView(LinesView):
    """A run on a terminal: finished iterations as rows, a line on what is in flight, and below it the
    end of what a model is saying.

    `cap` is what the run may spend and `seconds` how long it may take, for that line.
    """

    def __init__(
        self,
        output: Output,
        *,
        verbose: bool = False,
        conditions: bool = False,
        cap: Budget | None = None,
        seconds: float = math.inf,
    ) -> None:
        super().__init__(output, verbose=verbose, conditions=conditions)
        self.cap = cap
        self.seconds = seconds
        self._live: Live | None = None
        self._beat: asyncio.Task[None] | None = None
        self._shift = 0.0  # active seconds of the run, less this process's clock

    async def __aenter__(self) -> Self:
        from rich.live import Live

        self._shift = self.progress.active - time.monotonic()
        self._live = Live(console=self.output.console, auto_refresh=False, transient=True)
        self._live.start()
        self._beat = asyncio.ensure_future(self._beating())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._beat is not None:
            self._beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beat
        if self._live is not None:
            self._live.stop()

    def hear(self, entry: Entry) -> None:
        """Show an entry that has just become durable."""
        self._shift = max(self._shift, entry.at - time.monotonic())
        super().hear(entry)

    def hear_text(self, path: str, piece: str) -> None:
        """Show text that the model called at a path has just said."""
        self.progress.hear_text(path, piece)

    async def _beating(self) -> None:
        while True:
            self._refresh()
            await asyncio.sleep(BEAT)

    def _refresh(self) -> None:
        from rich.text import Text

        assert self._live is not None
        now, room = time.monotonic() + self._shift, self.output.width - 1
        lines = [Text(line, style="cyan", no_wrap=True) for line in self.lines(now, room)]
        if said := self.saying(room):
            lines.append(Text(said, style="dim", no_wrap=True))
        self._live.update(Text("\n").join(lines), refresh=True)

    def lines(self, now: float, room: int) -> list[str]:
        """Return what is in flight and what was used, on one line of `room` cells or on two."""
        flight = self.flight(now)
        if texts.width(flight) <= room:
            return [flight]
        head, _, used = flight.partition(" | ")
        return [texts.fit(line, room, self.output.signs) for line in (head, f"  {used}")]

    def saying(self, room: int) -> str:
        """Return the end of what the model that spoke last is saying, in at most `room` cells."""
        heard = [text for path, text in self.progress.heard.items() if path in self.progress.flying]
        said = texts.one_line(heard[-1]) if heard else ""
        return f"  {texts.fit_end(said, room - 2, self.output.signs)}" if said else ""

    def flight(self, now: float) -> str:
        """Return the line on what is in flight at the run's active second `now`."""
        spin = self.output.signs.spin
        parts = [spin[int(now * 10) % len(spin)]]
        flying = list(self.progress.flying.items())
        if flying:
            path, started = flying[-1]
            name = texts.fit_end(texts.one_line(path), self.output.width // 2, self.output.signs)
            parts.append(f"{name} {texts.duration(max(0.0, now - started))}")
            if path in self.progress.models:  # its provider is told by `show`
                model = self.progress.models[path].rpartition(":")[2]
                parts.append(f"({texts.fit(texts.one_line(model), 24, self.output.signs)})")
            if len(flying) > 1:
                parts.append(f"and {len(flying) - 1} more")
        most = f"of {texts.duration(self.seconds)}" if self.seconds < math.inf else "in all"
        parts.append(f"| {texts.duration(max(0.0, now))} {most}")
        if spent := self._spent():
            judging = texts.cost(self.progress.judging)
            parts.append(f"| {spent}, {judging} of it on judging" if judging else f"| {spent}")
        return " ".join(parts)

    def _spent(self) -> str:
        spent, cap = self.progress.spent, self.cap
        told = []
        if cap is not None and cap.usd is not None:
            most = "at most " if spent.estimated else ""
            told.append(f"{most}{texts.money(spent.usd)} of {texts.money(cap.usd)}")
        if cap is not None and cap.calls is not None:
            told.append(f"{spent.calls} of {cap.calls} calls")
        if cap is not None and cap.tokens is not None:
            told.append(f"{spent.tokens} of {cap.tokens} tokens")
        return ", ".join(told) or texts.cost(spent)

    def _row(self, row: IterationRow) -> None:
        columns = ColumnWidths.within(self.output.width - 1)
        self.output.say(*row_line(row, columns, self.output.signs))


def effect_line(entry: Entry, output: Output) -> str:
    """Return an effect's end as a line: its path, how long it took, what it cost and gave."""
    facts = [texts.duration(entry.seconds), texts.cost(entry.usage)]
    if entry.kind == "cut":
        facts.append("cut short")
    line = f"  {texts.one_line(entry.path)}: {', '.join(fact for fact in facts if fact)}"
    told = entry.error.message if entry.error else text_of(entry.value)
    return f"{line}: {texts.fit(texts.one_line(told), 80, output.signs)}" if told else line


def tells_conditions(source: Mapping[str, Json]) -> bool:
    """Return whether a run is of a document whose users look for lines on its conditions."""
    return source.get("dialect") == "workflow/v2.0"


def view_of(
    output: Output,
    *,
    verbose: bool,
    conditions: bool = False,
    cap: Budget | None = None,
    seconds: float = math.inf,
    beside: bool = False,
) -> RunDisplay:
    """Return the view that fits the output: live if people watch, else plain lines.

    `beside` is whether others write to the same terminal: a line that is drawn again and again would
    break theirs.
    """
    if output.terminal and not beside:
        return LiveView(output, verbose=verbose, conditions=conditions, cap=cap, seconds=seconds)
    return LinesView(output, verbose=verbose, conditions=conditions)
