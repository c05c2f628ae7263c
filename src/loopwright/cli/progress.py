"""What a run is doing, folded from its journal entries: the one source of every view of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..codec import Json
from ..journal import Entry, surviving
from ..records import NOTHING, Evaluation, Iteration, Stop, Usage, is_judging
from ..replay import Replay

__all__ = ["Ending", "Progress", "Row", "depth_of", "judged"]


@dataclass(frozen=True, slots=True)
class Row:
    """A finished iteration of the loop at `path`."""

    path: str
    iteration: Iteration

    @property
    def label(self) -> str:
        """The loop's name and the number of the iteration."""
        return f"{self.path.rsplit('/', 1)[-1]} {self.iteration.number}"

    @property
    def depth(self) -> int:
        """How many loops enclose it."""
        return depth_of(self.path)


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a loop inside the run."""

    path: str
    stop: Stop

    @property
    def depth(self) -> int:
        """How many loops enclose it."""
        return depth_of(self.path)


def depth_of(path: str) -> int:
    """Return how many loops enclose a path: each leaves the number of its round in it."""
    return sum(part.isdigit() for part in path.split("/"))


def judged(evaluation: Evaluation | None) -> Iterator[tuple[str, str]]:
    """Iterate over (condition, answer) of the votes that say which condition they judged."""
    for vote in evaluation.votes if evaluation is not None else ():
        if isinstance(vote, dict) and "condition" in vote and "answer" in vote:
            yield str(vote["condition"]), _answer(vote["answer"])


def _answer(given: Json) -> str:
    if isinstance(given, bool):
        return "YES" if given else "NO"
    return str(given).upper()


class Progress:
    """How far a run is: what is in flight, what was spent, how long it was alive.

    `flying` maps the path of each effect in flight to the active second of its start.
    """

    def __init__(self) -> None:
        self.flying: dict[str, float] = {}
        self.spent: Usage = NOTHING
        self.judging: Usage = NOTHING  # the part of it that went into judging
        self.active = 0.0

    def recall(self, entries: Sequence[Entry]) -> list[Row | Ending]:
        """Take up what an earlier process recorded, and return what there is to show of it."""
        kept = surviving(entries)
        shown = [item for entry in kept for item in self.hear(entry)]
        replay = Replay(kept)
        self.flying.clear()  # what was in flight went down with its process
        self.spent, self.active = replay.spent(""), replay.active
        self.judging = replay.judging
        return shown

    def hear(self, entry: Entry) -> list[Row | Ending]:
        """Take up an entry, and return what there is to show of it."""
        self.active = max(
            self.active, entry.at + entry.seconds if entry.kind in _DONE else entry.at
        )
        if entry.kind == "started":
            self.flying[entry.path] = entry.at
        elif entry.kind in _DONE:
            self.flying.pop(entry.path, None)
            self.spent += entry.usage
            if is_judging(entry.path):
                self.judging += entry.usage
        elif entry.kind == "iteration":
            return [Row(entry.path, entry.value)]
        elif entry.kind == "ended" and "/" in entry.path:
            return [Ending(entry.path, Stop.from_json(entry.value["stop"]))]
        return []


_DONE = ("finished", "cut")
