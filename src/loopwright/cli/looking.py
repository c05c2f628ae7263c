"""Which loop and which iteration of a recorded run is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ConfigurationError, listed, nearest
from ..journal import Entry, RunInfo, surviving
from ..records import Iteration
from ..replay import Replay
from .progress import depth_of

__all__ = ["iteration_of", "loop_of", "other_loops", "rounds_of"]


def rounds_of(entries: Sequence[Entry]) -> dict[str, list[Iteration]]:
    """Return the iterations of each loop by its path, loops in the order of their first one.

    One that a person edited is returned as edited.
    """
    rounds = Replay(surviving(entries)).rounds
    return {path: [entry.value for entry in found] for path, found in rounds.items()}


def loop_of(info: RunInfo, rounds: Mapping[str, Sequence[Iteration]], wanted: str) -> str:
    """Return the path of the loop that `wanted` names by path or name; the outermost by default.

    Of several loops of that name the latest is meant.

    Raises:
        ConfigurationError: naming the nearest loop.
    """
    if not rounds:
        raise ConfigurationError(f"{info.run_id}: no iteration is recorded in it")
    if not wanted:
        return min(rounds, key=depth_of)
    found = [path for path in rounds if wanted == path or wanted == path.rsplit("/", 1)[-1]]
    if not found:
        names = {path.rsplit("/", 1)[-1] for path in rounds}
        hint = nearest(wanted, {*names, *rounds}) or listed(wanted, sorted(names), lead="there are")
        raise ConfigurationError(f"--loop: there is no loop {wanted!r} in {info.run_id}{hint}")
    return found[-1]


def other_loops(rounds: Mapping[str, Sequence[Iteration]], path: str, wanted: str) -> str:
    """Return how to ask for another loop than the one at `path`, where nobody named one and there are several."""
    names = sorted({one.rsplit("/", 1)[-1] for one in rounds if one != path})
    return f"--loop {' or '.join(names[:5])}" if names and not wanted else ""


def iteration_of(path: str, items: Sequence[Iteration], number: int, others: str = "") -> Iteration:
    """Return an iteration of a loop by its number, from 1; `others` is how to ask for another loop.

    Raises:
        ConfigurationError: saying how many there are.
    """
    if not 1 <= number <= len(items):
        hint = f"; for another loop give {others}" if others else ""
        raise ConfigurationError(f"{path} has iterations 1 to {len(items)}, not {number}{hint}")
    return items[number - 1]
