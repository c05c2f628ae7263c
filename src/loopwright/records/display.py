"""Results and histories for people: one line for `repr`, three for `print`, HTML for notebooks.

All texts are escaped, and the HTML has no scripts and no style sheets. Colours follow the text colour of
the notebook, so it suits light and dark themes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from .charts import curve
from .codec import Json, text_of
from .excerpts import clean, cut, one_line
from .figures import cost, duration, plural, rated, score, spent, verdict_word
from .iteration import Iteration

if TYPE_CHECKING:
    from .history import History
    from .result import Result

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
    facts = ", ".join([*_figures(result, costs=False), duration(result.seconds), *_spent(result)])
    parts = [f"<p><strong>{_shown(_sentence(result))}</strong><br>{_shown(facts)}</p>"]
    if result.error is not None and result.error.traceback:
        parts.append(_folded("traceback", result.error.traceback))
    parts += [f"<p>warning: {_shown(warning)}</p>" for warning in result.warnings]
    parts.append(_iterations(result.history))
    if not len(result.history):
        loops = list(result.loops.values())
        parts += [_loop(loop) for loop in loops[:LOOPS]]
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


def _loop(loop: Result) -> str:
    return f"<details open><summary>{_shown(_sentence(loop))}</summary>{_iterations(loop.history)}</details>"


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


def _spent(result: Result) -> list[str]:
    return [text] if (text := spent(result.usage)) else []


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
    return escape(clean(text))
