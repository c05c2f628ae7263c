"""One recorded run within one screen: which lines of it are left out, and the commands that show them.

1. Lines of a fixed number are always shown. The room that they leave is shared by steps, iterations and the output.
2. Of iterations that do not fit, the failed ones are shown first, then the best one and the latest ones.
3. What is left out is counted, with the command that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..rows import Row, Shown, status_of
from .output import Line, Output

LEAST = 3  # lines of a part, however small the terminal is


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of a part of the screen; `cut` returns those for a number of lines, None keeps all."""

    lines: list[Line]
    cut: Callable[[int], list[Line]] | None = None


def beginning(lines: list[Line], more: Callable[[int], Line]) -> Block:
    """Return a part of which the first lines are shown; `more` names the number of the others."""
    return Block(lines, lambda room: [*lines[: room - 1], more(len(lines) - room + 1)])


def write_screen(blocks: Sequence[Block], output: Output) -> None:
    """Write parts so that they fit the screen together."""
    needs = [output.height_of(block.lines) for block in blocks]
    room = output.height - sum(need for need, b in zip(needs, blocks, strict=True) if b.cut is None)
    shares = list(needs)
    flexible = sorted(
        (i for i, b in enumerate(blocks) if b.cut is not None), key=lambda i: needs[i]
    )
    # The shortest first, so that the others share what it does not need.
    for place, i in enumerate(flexible):
        shares[i] = min(needs[i], max(LEAST, room // (len(flexible) - place)))
        room -= shares[i]
    for block, need, share in zip(blocks, needs, shares, strict=True):
        for parts, wrap in block.lines if block.cut is None or need <= share else block.cut(share):
            output.write(*parts, wrap=wrap)


def chosen(items: Sequence[Shown], room: int) -> list[Shown]:
    """Return the most important rows of a run: failures first, then the best and the latest of the others."""
    rows = [item for item in items if isinstance(item, Row)]
    failed = [row for row in rows if status_of(row.iteration) == "failed"][: max(1, room // 2)]
    known = {id(row) for row in failed}
    rated = [row for row in rows if row.iteration.eligible and row.iteration.score is not None]
    best = max(rated, key=lambda row: row.iteration.score or 0.0, default=None)
    accepted = [row for row in rows if row.iteration.accepted]
    marked = accepted[-1] if accepted else best
    others = [item for item in items if id(item) not in known]
    left = max(0, room - len(failed))
    latest = others[len(others) - left :] if left else []
    if marked is not None and left and not any(item is marked for item in (*latest, *failed)):
        latest[0] = marked
    return [*failed, *latest]
