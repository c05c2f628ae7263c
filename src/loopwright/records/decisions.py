"""The iterations of a loop with an objective as a table: what was tried, its value, and why it was kept or not."""

from __future__ import annotations

from collections.abc import Iterable

from .excerpts import CELL, cut, idea_of, one_line
from .history import History
from .iteration import Iteration
from .metrics import MINIMISE, Measure, number_text

__all__ = ["table_text", "why"]

ROWS = 100  # a prompt must stay short; of more iterations, the latest count


def why(item: Iteration) -> str:
    """Return why an iteration was accepted or not, as a few words; "" in a loop without an objective."""
    if item.accepted is None:
        return ""
    measure = item.objective
    if measure is None or not item.eligible or item.passed is False:
        return cut(one_line(item.feedback.strip().partition("\n")[0]), CELL) or "it has no value"
    if item.files is not None and item.files.get("files") == 0:
        return "no file changed"
    if measure.change is None:
        return "the first value"
    base = f"{number_text(measure.value - measure.change)} {measure.unit}".rstrip()
    if item.accepted:
        return f"better than {base}"
    return (
        f"better than {base}, but by too little" if _gains(measure) else f"not better than {base}"
    )


def _gains(measure: Measure) -> bool:
    gain = measure.change or 0.0
    return gain < 0 if measure.direction == MINIMISE else gain > 0


def table_text(history: History) -> str:
    """Return the iterations as a Markdown table; "" in a loop without an objective.

    >>> from loopwright.records import Evaluation
    >>> item = Iteration(1, output="halve the rate", accepted=True, evaluation=Evaluation(),
    ...     measures=(Measure("val_loss", 0.93, direction="minimise", objective=True),))
    >>> print(table_text(History([item])))
    | iteration | idea | val_loss | accepted | why |
    |---|---|---|---|---|
    | 1 | halve the rate | 0.93 | yes | the first value |
    """
    if history.last is None or history.last.accepted is None:
        return ""
    items = history[-ROWS:]
    names = [item.objective.name for item in history if item.objective is not None]
    head = ("iteration", "idea", names[0] if names else "value", "accepted", "why")
    lines = [_row(head), _row(["---"] * len(head)).replace(" ", "")]
    lines += [_row(_cells(item)) for item in items]
    if len(history) > len(items):
        lines.append(f"The first {len(history) - len(items)} iterations are left out.")
    return "\n".join(lines)


def _cells(item: Iteration) -> Iterable[str]:
    measure = item.objective
    value = "" if measure is None else str(measure).removeprefix(f"{measure.name} ")
    return str(item.number), idea_of(item), value, "yes" if item.accepted else "no", why(item)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
