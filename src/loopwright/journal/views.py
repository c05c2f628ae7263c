"""One recorded run as a page looks at it: by loop, by iteration, by what came since.

A store that can answer these by index has a view of its own; `EntriesView` answers them from the
entries of any journal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ..errors import RunNotFound
from ..records import Iteration, StepOutcome
from ..records.codec import Json
from . import Entry, RunInfo, surviving
from .replay import RecordedRun

__all__ = ["EntriesView", "RunView", "enclosing", "outermost", "step_outcomes"]

Mark = tuple[int, Iteration]  # the number of an entry and the iteration that it records


class RunView(Protocol):
    """A recorded run, read at one moment."""

    info: RunInfo

    @property
    def last(self) -> int:
        """The number of the last entry."""

    def loops(self, under: str = "") -> list[str]:
        """Return the paths of the outermost loops at or below a path, in the order of paths."""

    def count(self, loop: str) -> int:
        """Return how many iterations of a loop are recorded."""

    def total(self) -> int:
        """Return how many iterations the run has: those of all its loops, and the items of lists."""

    def steps(self) -> list[StepOutcome]:
        """Return how the steps of the workflow ended, and which are running."""

    def inputs(self, loop: str, offset: int, limit: int) -> list[tuple[int, Json]]:
        """Return so many numbers of iterations of a loop, with their inputs."""

    def outline(self, loop: str, *, offset: int = 0, limit: int = -1) -> list[Mark]:
        """Return iterations of a loop without their inputs and outputs; a negative `offset` counts
        from the end."""

    def iteration(self, loop: str, number: int) -> Iteration:
        """Return an iteration, whole. Raises RunNotFound."""

    def effects(self, loop: str, number: int) -> list[Entry]:
        """Return what happened inside an iteration, finished or not, but for loops inside it."""

    def retries(self, loop: str, after: int = 0) -> dict[int, int]:
        """Return how often something was tried again in iterations of a loop, by their numbers, among
        the entries after a number."""

    def since(self, seq: int, limit: int = -1) -> list[Entry]:
        """Return the entries after a number; long values may be left out as None."""

    def between(self, seq: int, limit: int) -> list[Entry]:
        """Return so many entries after a number, whole; a `limit` of 0 is all."""

    def ending(self) -> dict[str, Json] | None:
        """Return what was recorded of the run's end or suspension, if it is where it stands."""


def outermost(path: str) -> str:
    """Return the path of the outermost loop around a path: a round's number follows a loop's."""
    parts = path.split("/")
    first = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts))
    return "/".join(parts[:first])


def enclosing(loop: str) -> tuple[str, int] | None:
    """Return the loop and the iteration that a loop is inside of; None for an outermost one."""
    parts = loop.split("/")
    for i in range(len(parts) - 1, 0, -1):
        if parts[i].isdigit():
            return "/".join(parts[:i]), int(parts[i])
    return None


def directly(entries: Sequence[Entry], loop: str, number: int) -> list[Entry]:
    """Return the entries below an iteration that are not inside an iteration of a loop in it."""
    start = f"{loop}/{number}/"
    return [
        entry
        for entry in entries
        if entry.path.startswith(start)
        and not any(part.isdigit() for part in entry.path[len(start) :].split("/"))
        and entry.kind != "iteration"
    ]


_AGAIN = re.compile(r"(\d+)/.*\battempt-(?!1$)\d+")


def retried(begun: Iterable[str], loop: str) -> dict[int, int]:
    """Return how often something was tried again in iterations of a loop, by the paths of what
    began: those inside loops in it count too."""
    under = f"{loop}/"
    found: Counter[int] = Counter()
    for path in dict.fromkeys(begun):
        again = _AGAIN.fullmatch(path.removeprefix(under)) if path.startswith(under) else None
        if again is not None:
            found[int(again[1])] += 1
    return dict(found)


class EntriesView:
    """A run's view made of all its entries: right for any journal, slow for long runs."""

    def __init__(self, info: RunInfo, entries: Sequence[Entry]) -> None:
        self.info = info
        self.last = entries[-1].seq if entries else 0
        self._all = entries
        self._kept = surviving(entries)
        self._rounds: dict[str, list[Mark]] = {}
        for entry in self._kept:
            if entry.kind == "iteration":
                self._rounds.setdefault(entry.path, []).append((entry.seq, entry.value))

    def loops(self, under: str = "") -> list[str]:
        found: list[str] = []
        for path in sorted(self._rounds):
            inside = not under or path.startswith(f"{under}/")
            if inside and not any(path.startswith(f"{known}/") for known in found):
                found.append(path)
        return found

    def count(self, loop: str) -> int:
        return len(self._rounds.get(loop, ()))

    def total(self) -> int:
        return sum(len(items) for items in self._rounds.values())

    def steps(self) -> list[StepOutcome]:
        return step_outcomes(self.info, self._all)

    def inputs(self, loop: str, offset: int, limit: int) -> list[tuple[int, Json]]:
        found = self._rounds.get(loop, [])[offset : offset + limit]
        return [(item.number, item.input) for _, item in found]

    def outline(self, loop: str, *, offset: int = 0, limit: int = -1) -> list[Mark]:
        items = self._rounds.get(loop, [])[offset:]
        light = [(seq, replace_values(item)) for seq, item in items]
        return light if limit < 0 else light[:limit]

    def iteration(self, loop: str, number: int) -> Iteration:
        for _, item in self._rounds.get(loop, ()):
            if item.number == number:
                return item
        raise no_iteration(self.info.run_id, loop, number)

    def effects(self, loop: str, number: int) -> list[Entry]:
        return directly(self._kept, loop, number)

    def retries(self, loop: str, after: int = 0) -> dict[int, int]:
        begun = [e.path for e in self._kept if e.kind == "started" and e.seq > after]
        return retried(begun, loop)

    def since(self, seq: int, limit: int = -1) -> list[Entry]:
        found = [entry for entry in self._all if entry.seq > seq]
        return found if limit < 0 else found[:limit]

    def between(self, seq: int, limit: int) -> list[Entry]:
        return self.since(seq, limit or -1)

    def ending(self) -> dict[str, Json] | None:
        return ending_of(self._all[-ENDING:])


def step_outcomes(info: RunInfo, entries: Sequence[Entry]) -> list[StepOutcome]:
    """Return how the steps of a run's workflow ended, in the order in which they did.

    A step that has begun and not ended has no reason, and its detail is the status of the run.
    """
    replay = RecordedRun(surviving(entries))
    end = replay.ended.get("")
    outputs = end["steps"] if end is not None else None
    found = replay.outcomes(outputs)
    if not replay.steps and any("/" not in path for path in replay.rounds):
        return []  # the root is a loop
    for path in [] if end is not None else [*replay.finished, *replay.doubts]:
        parts = [part for part in path.split("/") if part != "within"]
        if len(parts) < 2 or parts[1] in found:
            continue
        began = replay.began("/".join(path.split("/")[: path.split("/").index(parts[1]) + 1]))
        seconds = max(0.0, replay.active - (began or 0.0))
        found[parts[1]] = StepOutcome(parts[1], None, None, info.status, seconds)
    return list(found.values())


ENDING = 6  # entries among which the one that says how a run ended is


def ending_of(entries: Sequence[Entry]) -> dict[str, Json] | None:
    """Return the value of the latest end or suspension of a run, unless it went on after it."""
    for entry in reversed(entries):
        if entry.kind in ("ended", "suspended") and not entry.path:
            value: dict[str, Json] = entry.value
            return value
        if entry.kind not in ("answered", "asked", "accepted"):
            return None
    return None


def replace_values(item: Iteration) -> Iteration:
    """Return an iteration without its input and output."""
    return replace(item, input=None, output=None, steps=None)


def no_iteration(run_id: str, loop: str, number: int) -> RunNotFound:
    """Return the error for an iteration that is not on record."""
    return RunNotFound(f"{run_id}: there is no iteration {number} of {loop!r}; reload the page")
