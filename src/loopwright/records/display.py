"""What people see of recorded values: excerpts, figures, verdicts, curves, and whole results and histories.

A result or history is one line for `repr`, three for `print`, HTML for notebooks. An excerpt is the beginning and the
end around a marker with the number of omitted bytes, or the beginning alone.

All texts are escaped, and the HTML has no scripts and no style sheets. Curves are SVG without scripts and style
attributes: their colours are presentation attributes, so that a drawing also shows in a notebook, in the colour of
its text, light or dark. The style sheet of the page replaces them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import codec
from .codec import Json, text_of
from .evaluation import number_text
from .iteration import Iteration, Usage

if TYPE_CHECKING:
    from .history import History
    from .result import Result

PROMPT_CHARS = 32_000  # of the result of a tool call, in a prompt
VALUE_CHARS = 500_000  # of one value in a prompt template, unless the run sets another limit
CELL = 120  # characters of a cell of a table
# The characters of the Unicode property Default_Ignorable_Code_Point, which have no width.
IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Format characters that are not ignorable, separators of lines and paragraphs, and a blank that is no space.
_FORMAT = (
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u2028\u2029\u2800\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f"
)
# Characters that a terminal interprets: C0 and C1 controls except tab and newline, and characters that
# change the direction of text.
_CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
# In an emoji two of them change the visible sign: the selector after a symbol, and the joiner before one.
_SYMBOL = "[\u2190-\u2bff\U0001f000-\U0001faff]"
_UNSEEN = (
    f"(?!(?<={_SYMBOL})\ufe0f|\u200d{_SYMBOL})[\x00-\x08\x0b-\x1f\x7f-\x9f{IGNORABLE}{_FORMAT}]"
)
_BLANKS = re.compile(r"\s+")


def shown(output: Json, limit: int = PROMPT_CHARS) -> str:
    """Return an output as text for a prompt, cut to `limit` characters; other values become JSON."""
    text = codec.text_of(output)
    if len(text) <= limit:
        return text
    room = max(0, limit - 60)
    # Three quarters from the beginning: the errors of programs are usually at the end.
    head, tail = text[: room - room // 4], text[len(text) - room // 4 :] if room // 4 else ""
    omitted = len(text[len(head) : len(text) - len(tail)].encode())
    return f"{head}\n{marker(omitted)}\n{tail}"


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text with a sign where it was cut.

    Redaction removes parts of secrets before such a sign.
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}\u2026"


def excerpt_line(text: str, limit: int) -> str:
    """Return the beginning of a text on one line, with a sign where it was cut."""
    return cut(" ".join(text.split()), limit)


def shortened(value: Json, limit: int) -> Json:
    """Return a value whose texts are excerpts of at most `limit` characters.

    A value without long texts is returned unchanged.
    """
    if isinstance(value, str):
        return shown(value, limit) if len(value) > limit else value
    if type(value) is list:
        items = [shortened(item, limit) for item in value]
        # The same object if nothing is cut, so that a declared type and identity survive.
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if type(value) is dict:
        parts = {key: shortened(item, limit) for key, item in value.items()}
        return value if all(parts[key] is value[key] for key in parts) else parts
    return value


def marker(count: int) -> str:
    """Return the marker for omitted bytes."""
    return f"[... {count} bytes omitted ...]"


def clean(text: str) -> str:
    """Return text with control characters made visible.

    >>> clean("\x1b]0;title\x07")
    '\\\\x1b]0;title\\\\x07'
    """
    if re.search(_CONTROLS, text) is None:  # nearly every text
        return text
    return re.sub(_CONTROLS, _visible, text.replace("\r\n", "\n"))


def clean_json(text: str) -> str:
    """Return JSON text with control characters escaped; its value is unchanged."""
    return re.sub(_CONTROLS, lambda match: json.dumps(match[0])[1:-1], text)


def reveal(text: str) -> str:
    """Return text in which every character is seen: control characters and invisible ones are escaped.

    >>> reveal("rm\u200b \U000e0041x")
    'rm\\\\u200b \\\\U000e0041x'
    """
    return re.sub(_UNSEEN, _visible, text)


def numbered(text: str) -> list[str]:
    """Return the lines of a text as `reveal` shows them; several lines are numbered.

    >>> numbered("echo ok # fine\\ntouch x")
    ['1  echo ok # fine', '2  touch x']
    """
    lines = reveal(text).split("\n")
    return lines if len(lines) == 1 else [f"{n}  {line}" for n, line in enumerate(lines, 1)]


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """Return text on one line, as `reveal` shows it, with single spaces."""
    return reveal(_BLANKS.sub(" ", text)).strip()


def idea_of(item: Iteration) -> str:
    """Return a line on what an iteration tried: `idea` in the details, else the first line of its output."""
    details = {} if item.evaluation is None else item.evaluation.details
    idea = details.get("idea")
    if not isinstance(idea, str) or not idea.strip():
        idea = "" if item.output is None else codec.text_of(item.output)
    return cut(one_line(idea.strip().partition("\n")[0]), CELL)


def value_line(value: Json) -> str:
    """Return a value on one line, with its numbers for people; `--json` and exports keep them exact.

    >>> value_line({"score": 0.1 + 0.2, "votes": [True, None]})
    '{"score": 0.3, "votes": [true, null]}'
    """
    return one_line(text_of(_rounded(value)))


def _rounded(value: Json) -> Json:
    if isinstance(value, float):
        # Of an integer, six digits would be another number.
        return value if value.is_integer() else float(number_text(value))
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def score(value: float | None) -> str:
    """Return a score with two decimals, or three if two would round it."""
    if value is None:
        return ""
    return f"{value:.2f}" if abs(round(value, 2) - value) < 1e-9 else f"{value:.3f}"


def money(usd: float) -> str:
    """Return US dollars: four decimals below 1, two above."""
    if 0 < usd < 0.0001:
        return "<$.0001"
    return f"${usd:.4f}" if usd < 1 else f"${usd:.2f}"


def cost(usage: Usage, *, scripted: bool = False) -> str:
    """Return the cost for a column: US dollars, `unknown`, or the number of calls that cost nothing.

    The calls of a `scripted` run reach no model.
    """
    if usage.usd:
        return f"{_bound(usage)}{money(usage.usd)}"
    if scripted and usage.calls:
        return "scripted"
    if usage.unpriced:
        return "unknown"
    return plural(usage.calls, "call") if usage.calls else ""


def _most(usage: Usage) -> str:
    """Return the prefix of figures that are upper bounds, because a call did not report its usage."""
    return "at most " if usage.estimated else ""


def _bound(usage: Usage) -> str:
    """Return the prefix of dollars that are a bound, because a call has no known price or reported no usage."""
    return "at least " if usage.unpriced else _most(usage)


def spent(usage: Usage, *, scripted: bool = False) -> str:
    """Return the usage in words: calls, tokens and US dollars."""
    kind = "scripted call" if scripted else "call"
    parts = [plural(usage.calls, kind)] if usage.calls else []
    if usage.tokens:
        parts.append(_most(usage) + plural(usage.tokens, "token"))
    if usage.usd:
        parts.append(_bound(usage) + money(usage.usd))
    if usage.unpriced:
        known = f"{plural(usage.unpriced, 'call')} without a known price"
        parts.append(known if usage.usd else "cost unknown")
    if usage.cached:
        calls, saved = from_cache(usage)
        parts += [f"{calls} from the cache", *([saved] if saved else [])]
    return ", ".join(parts)


def from_cache(usage: Usage) -> tuple[str, str]:
    """Return how many of all calls a kept reply answered, and what they would have cost."""
    calls = f"{usage.cached} of {plural(usage.cached + usage.calls, 'call')}"
    return calls, f"{money(usage.saved)} saved" if usage.saved else ""


def duration(seconds: float) -> str:
    """Return seconds as a text for people."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:  # 59.96 would be shown as 60.0 s
        return f"{seconds:.1f} s"
    total = round(seconds)
    if total < 3600:
        return f"{total // 60}m {total % 60:02d}s"
    return f"{total // 3600}h {total % 3600 // 60:02d}m"


def when(moment: float) -> str:
    """Return a time (seconds since the epoch) as local date and time; "" for 0."""
    from datetime import datetime  # most runs show no time

    return f"{datetime.fromtimestamp(moment):%Y-%m-%d %H:%M}" if moment else ""


def wait_text(path: str, words: str, due: float | None) -> str:
    """Return what a wait at a path waits for, and until when; None is never."""
    return f"{path} waits for {words}{'' if due is None else f' until {when(due)}'}"


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_MAX_DURATION = 60  # characters of a duration
# No month and no year: they have no fixed number of seconds.
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float:
    """Return the seconds of a text such as `500ms`, `30s`, `5m`, `1h30m`. Raises ValueError.

    >>> seconds_of("1h30m")
    5400.0
    """
    # The pattern needs quadratic time, so only the start of a long text is read.
    short = text[:_MAX_DURATION].strip().lower()
    parts = _DURATION.findall(short)
    whole = "".join(number + unit for number, unit in parts) == short.replace(" ", "")
    if len(text) > _MAX_DURATION or not parts or not whole:
        raise ValueError(f"{text!r:.80} is not a duration")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 call`, `2 calls`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def measured(item: Iteration, separator: str = ", ") -> str:
    """Return the metrics of an iteration with units and changes: the declared ones, else all."""
    if item.measures:
        tested = f" ({text})" if (text := confirmed(item)) else ""
        return separator.join(
            one_line(str(measure)) + (tested if measure is item.objective else "")
            for measure in item.measures
        )
    metrics = {} if item.evaluation is None else item.evaluation.metrics
    return separator.join(
        f"{one_line(name)} {number_text(value)}" for name, value in metrics.items()
    )


def confirmed(item: Iteration) -> str:
    """Return how the objective of an iteration was tested: `confirmed, p .0011, 12 + 12 measurements`, or ""."""
    details = {} if item.evaluation is None or item.accepted is None else item.evaluation.details
    record = details.get("confirm")
    if not isinstance(record, Mapping) or not record.get("tests"):
        return ""
    count, p = len(record.get("candidate", ())), record.get("p")
    chance = "" if p is None else "p < .0001, " if p < 0.0001 else f"p {p:.2g}, ".replace("0.", ".")
    return f"{'' if item.accepted else 'not '}confirmed, {chance}{count} + {count} measurements"


def rated(item: Iteration | None) -> str:
    """Return the objective of an iteration with its unit, else its score; "" without both."""
    if item is None:
        return ""
    objective = item.objective
    return score(item.score) if objective is None else one_line(objective.text)


def verdict_word(item: Iteration) -> str:
    """Return the verdict of an iteration as a word; "" without one."""
    if item.interrupted:
        return "cut short"
    if item.error is not None:
        return "failed"
    if item.undecided:
        return "undecided"
    if item.evaluation is not None and item.evaluation.impossible:
        return "impossible"
    if item.accepted is not None:
        return "accepted" if item.accepted else "rejected"
    if item.passed is None:
        return ""
    return "passed" if item.passed else "not yet"


POINTS = 300  # of a curve; of more, the highest of each group is drawn
DOTTED = 60  # a curve with more points has no dots
LEFT, RIGHT, ABOVE, BELOW = 52, 8, 8, 18  # margins of a curve
Point = tuple[float, float]


def sparkline(scores: Sequence[float], *, width: int = 96, height: int = 22) -> str:
    """Return scores from 0 to 1 as a small line with a dot at its end, and a label for screen readers."""
    if not scores:
        return ""
    label = "scores " + ", ".join(score(value) for value in scores)
    step = (width - 6) / max(1, len(scores) - 1)
    points = [(3 + i * step, height - 3 - score * (height - 6)) for i, score in enumerate(scores)]
    x, y = points[-1]
    line = f'<polyline points="{_joined(points)}"/>' if len(points) > 1 else ""
    return (
        f'<svg class="spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{_escaped(label)}">{line}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/></svg>'
    )


def curve(
    points: Sequence[Point],
    label: str,
    *,
    top: float = 0.0,
    line_at: float | None = None,
    shown: Callable[[float], str] = score,
    width: int = 340,
    height: int = 130,
    marked: Collection[float] | None = None,
) -> str:
    """Return values by iteration as a curve from 0, or the lowest value, to `top` (default: the highest).

    `line_at` is the value of a horizontal line; `shown` formats the values at the axis; `marked` are the iterations
    with a dot (default: all of a short curve).
    """
    if not points:
        return ""
    if len(points) > POINTS:
        size = math.ceil(len(points) / (POINTS - 1))
        groups = [points[i : i + size] for i in range(0, len(points), size)]
        # The highest of each group and not the mean: the best score is what a reader searches for.
        points = [*(max(group, key=lambda point: point[1]) for group in groups[:-1]), points[-1]]
    highest = top or max(value for _, value in points) or 1.0
    # Scores and costs begin at 0; a metric may be negative.
    lowest = min(0.0, *(value for _, value in points))
    height_of = (highest - lowest) or 1.0
    first, last = points[0][0], points[-1][0]
    span = (last - first) or 1.0

    right, low = width - RIGHT, height - BELOW

    def place(x: float, y: float) -> Point:
        across = (x - first) / span if last != first else 0.5
        return LEFT + across * (right - LEFT), low - (y - lowest) / height_of * (low - ABOVE)

    placed = [place(x, y) for x, y in points]
    # More dots would cover the line.
    dotted = placed if len(placed) <= DOTTED else []
    if marked is not None:
        dotted = [at for at, (x, _) in zip(placed, points, strict=True) if x in marked]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in dotted)
    drawn = ""
    if line_at is not None:
        y = place(first, line_at)[1]
        drawn = (
            f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="wanted" '
            'stroke="#c2571a" stroke-dasharray="5 4"/>'
        )
    return (
        f'<svg class="curve" viewBox="0 0 {width} {height}" role="img" aria-label="{_escaped(label)}" '
        'fill="currentColor" font-size="9">'
        f"{_axes(first, last, (lowest, height_of), shown=shown, right=right, low=low)}"
        f'{drawn}<polyline points="{_joined(placed)}" fill="none" stroke="#3b82c4" stroke-width="2"/>'
        f'<g fill="#3b82c4">{dots}</g></svg>'
    )


def _axes(
    first: float,
    last: float,
    values: tuple[float, float],
    *,
    shown: Callable[[float], str],
    right: int,
    low: int,
) -> str:
    """Return both axes with labels at their ends, and at half of the vertical one."""
    drawn = ""
    lowest, height = values
    for part in (0.0, 0.5, 1.0):
        y = low - part * (low - ABOVE)
        drawn += (
            f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="axis" '
            'stroke="currentColor" stroke-opacity="0.25"/>'
            f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{_escaped(shown(lowest + part * height))}</text>'
        )
    for number, x, anchor in ((first, LEFT, "start"), (last, right, "end")):
        if number != first or anchor == "start":
            drawn += f'<text x="{x}" y="{low + 12}" text-anchor="{anchor}">{number:g}</text>'
    middle = (LEFT + right) / 2
    return drawn + f'<text x="{middle:.0f}" y="{low + 12}" text-anchor="middle">iteration</text>'


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


ROWS = 50  # iterations in a table
LOOPS = 10  # inner loops of a workflow
OUTPUT = 2000  # characters of an output in a table: a notebook stores the HTML
LINE = 100  # characters of an output on one line
_FEEDBACK = 300
_CELL = 'style="text-align:left;vertical-align:top"'


def result_line(result: Result) -> str:
    """Return a result as one line: status, reason, best score, iterations and cost."""
    facts = [f"reason {result.reason.value}", *_figures(result)]
    name = f" of {one_line(result.name)!r}" if result.name else ""
    return f"<Result{name}: {result.status.value}, {', '.join(facts)}>"


def history_line(history: History) -> str:
    """Return a history as one line."""
    best = history.best
    at = f", best {best.number} with {_scored(best)}" if best is not None and rated(best) else ""
    return f"<History of {plural(len(history), 'iteration')}{at}>"


def result_text(result: Result) -> str:
    """Return a result as three lines: the end, the figures, the output."""
    facts = ", ".join([*_figures(result), duration(result.seconds)])
    # "output: None" would be the text of that word.
    text = None if result.output is None else cut(one_line(_text(result.output)), LINE)
    shown = "no output" if text is None else f"output: {text}" if text else "output: empty text"
    return f"{_sentence(result)}\n{facts}\n{shown}"


def result_html(result: Result) -> str:
    """Return a result as HTML: the end, the score curve, the iterations and the output."""
    figures = [*_figures(result, costs=False), duration(result.seconds), spent(result.usage)]
    facts = ", ".join(filter(None, figures))
    parts = [f"<p><strong>{_shown(_sentence(result))}</strong><br>{_shown(facts)}</p>"]
    if result.error is not None and result.error.traceback:
        parts.append(_folded("traceback", result.error.traceback))
    parts += [f"<p>warning: {_shown(warning)}</p>" for warning in result.warnings]
    parts.append(_iterations(result.history))
    if not len(result.history):
        loops = list(result.loops.values())
        parts += [
            f"<details open><summary>{_shown(_sentence(loop))}</summary>{_iterations(loop.history)}</details>"
            for loop in loops[:LOOPS]
        ]
        if len(loops) > LOOPS:
            parts.append(
                f"<p>{plural(len(loops) - LOOPS, 'more loop')}: see <code>loops</code></p>"
            )
    if result.output is not None:
        parts.append(_folded(f"output: {_first(result.output)}", _text(result.output)))
    return _box(parts)


def history_html(history: History) -> str:
    """Return a history as HTML: the score curve and the latest iterations."""
    return _box([f"<p>{_shown(history_line(history)[1:-1])}</p>", _iterations(history)])


def table_html(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a title and a table of two columns as HTML."""
    lines = "".join(
        f"<tr><th {_CELL}>{_shown(name)}</th><td {_CELL}>{_shown(value)}</td></tr>"
        for name, value in rows
    )
    return _box([f"<p><strong>{_shown(title)}</strong></p><table>{lines}</table>"])


def _box(parts: Iterable[str]) -> str:
    return f'<div class="loopwright">{"".join(parts)}</div>'


def _sentence(result: Result) -> str:
    """Return the name, the status and the reason with its figures."""
    name = f"{result.name}: " if result.name else ""
    detail = f": {result.detail}" if result.detail else ""
    return one_line(f"{name}{result.status.value} ({result.reason.value}){detail}")


def _figures(result: Result, *, costs: bool = True) -> list[str]:
    best = result.best
    facts = []
    if best is not None and rated(best):
        facts.append(_scored(best))
    count = result.iterations or result.total
    if count:
        facts.append(plural(count, "iteration"))
    if costs and (paid := cost(result.usage)):
        facts.append(paid)
    return facts


def _scored(item: Iteration) -> str:
    objective = item.objective
    return f"score {score(item.score)}" if objective is None else f"{objective.name} {rated(item)}"


def _iterations(history: Sequence[Iteration]) -> str:
    if not len(history):
        return ""
    points = [
        (float(item.number), item.score)
        for item in history
        if item.eligible and item.score is not None
    ]
    drawing = ""
    if points:
        label = f"scores of {plural(len(points), 'iteration')}, the last {score(points[-1][1])}"
        drawing = f'<div style="max-width:34em">{curve(points, label, top=1.0)}</div>'
    # A notebook keeps the output of each cell in its file.
    latest = history[-ROWS:]
    left = len(history) - len(latest)
    note = f"<p>The last {ROWS} of {len(history)} iterations.</p>" if left > 0 else ""
    heads = "".join(
        f"<th {_CELL}>{head}</th>"
        for head in ("iteration", "score", "verdict", "feedback", "time", "cost", "output")
    )
    rows = "".join(_row(item) for item in latest)
    return f"{drawing}{note}<table><tr>{heads}</tr>{rows}</table>"


def _row(item: Iteration) -> str:
    cells = (
        str(item.number), rated(item), verdict_word(item), cut(item.feedback, _FEEDBACK),
        duration(item.seconds), cost(item.usage),
    )  # fmt: skip
    shown = "".join(f"<td {_CELL}>{_shown(cell)}</td>" for cell in cells)
    output = "" if item.output is None else _folded(_first(item.output), _text(item.output))
    return f"<tr>{shown}<td {_CELL}>{output}</td></tr>"


def _text(value: object) -> str:
    """Return a value as text: JSON, otherwise as Python shows it."""
    try:
        return text_of(value)
    except (TypeError, ValueError):  # a value of a declared type, such as a dataclass or a date
        pass
    try:
        return repr(value)
    except Exception:  # of a class of the user
        return object.__repr__(value)


def _first(value: Json) -> str:
    return cut(one_line(cut(_text(value), OUTPUT)), 60)


def _folded(summary: str, text: str) -> str:
    lines = "\n".join(_shown(line) for line in cut(text, OUTPUT).expandtabs(4).split("\n"))
    return (
        f"<details><summary>{_shown(summary)}</summary>"
        f'<pre style="white-space:pre-wrap">{lines}</pre></details>'
    )


def _shown(text: str) -> str:
    """Return text as HTML, with control characters made visible."""
    return _escaped(clean(text))


def _escaped(text: str) -> str:
    from html import escape  # only for HTML

    return escape(text)
