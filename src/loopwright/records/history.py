"""The history that conditions see.

`History` is a window on an append-only list: taking one costs nothing, and an earlier history stays a
prefix of each later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from .. import codec
from .iteration import Iteration
from .rounds import Rounds
from .usage import NOTHING, Usage

_new = object.__new__


class History(Sequence[Iteration]):
    """The iterations so far, and all that a condition may see.

    `elapsed` is the loop's active seconds, `usage` what it spent, `now` the wall clock (seconds
    since the epoch); the three are recorded with each decision.

    >>> history = History([Iteration(1, evaluation=Evaluation(0.4)), Iteration(2, evaluation=Evaluation(0.9))])
    >>> len(history), history.best.number, history.scores
    (2, 2, [0.4, 0.9])
    """

    __slots__ = ("_length", "_rounds", "elapsed", "now", "usage")

    def __init__(
        self,
        iterations: Iterable[Iteration] = (),
        *,
        elapsed: float = 0.0,
        usage: Usage = NOTHING,
        now: float = 0.0,
    ) -> None:
        self._rounds = Rounds()
        for item in iterations:
            self._rounds.append(item)
        self._length = len(self._rounds.items)
        self.elapsed, self.usage, self.now = elapsed, usage, now

    def _at(self, elapsed: float, usage: Usage, now: float) -> History:
        window = _new(History)
        window._rounds = self._rounds
        window._length = self._length
        window.elapsed, window.usage, window.now = elapsed, usage, now
        return window

    def seen_at(self, *, elapsed: float, usage: Usage, now: float) -> History:
        """Return the same iterations as seen at another moment."""
        return self._at(elapsed, usage, now)

    def appended(self, item: Iteration, elapsed: float, usage: Usage, now: float = 0.0) -> History:
        """Return the history that follows this one by `item`; this one stays as it is."""
        if self._length != len(self._rounds.items):  # someone else went on from here: copy
            return History([*self, item], elapsed=elapsed, usage=usage, now=now)
        rounds = self._rounds
        rounds.append(item)
        window = _new(History)
        window._rounds = rounds
        window._length = self._length + 1
        window.elapsed, window.usage, window.now = elapsed, usage, now
        return window

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Iteration: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Iteration]: ...
    def __getitem__(self, index: int | slice) -> Iteration | Sequence[Iteration]:
        if isinstance(index, slice):
            return self._rounds.items[: self._length][index]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"iteration {index + 1} of {self._length}")
        return self._rounds.items[index]

    def __iter__(self) -> Iterator[Iteration]:
        return iter(self._rounds.items[: self._length])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<History of {self._length} iterations>"

    @property
    def last(self) -> Iteration | None:
        """The latest iteration."""
        return self._rounds.items[self._length - 1] if self._length else None

    @property
    def best(self) -> Iteration | None:
        """The eligible iteration with the highest score, the earliest on ties; without scores, the
        latest one."""
        if not self._length:
            return None
        index = self._rounds.marks[self._length][0]
        return self._rounds.items[index] if index >= 0 else None

    @property
    def latest_eligible(self) -> Iteration | None:
        """The latest iteration whose output is whole and was judged."""
        return next((item for item in reversed(self) if item.eligible), None)

    @property
    def scores(self) -> list[float]:
        """The valid scores, in order: those of eligible iterations."""
        return self._rounds.over_scores().scores[: self._count]

    @property
    def _count(self) -> int:
        return self._rounds.marks[self._length][1]

    def stalled(self, count: int, min_delta: float) -> bool:
        """Whether the last `count` valid scores all failed to beat the best before them by more
        than `min_delta`."""
        end = self._count
        if end < count:
            return False
        columns = self._rounds.over_scores()
        scores, peaks = columns.scores, columns.peaks
        return all(scores[i] <= peaks[i] + min_delta for i in range(end - count, end))

    @property
    def fall(self) -> float:
        """How far the mean of the two latest valid scores lies below the best such mean."""
        end = self._count
        if end < 2:
            return 0.0
        columns = self._rounds.over_scores()
        scores = columns.scores
        return columns.crests[end - 2] - (scores[end - 2] + scores[end - 1]) / 2

    def recent_scores(self, count: int) -> list[float]:
        """Return the latest `count` valid scores, or fewer."""
        end = self._count
        return self._rounds.over_scores().scores[max(0, end - count) : end]

    @property
    def streaks(self) -> tuple[int, int]:
        """How many iterations in a row failed, and how many are undecided, up to the latest."""
        return self._rounds.marks[self._length][2:]

    @property
    def failures(self) -> int:
        """How many iterations in a row failed, up to the latest."""
        return self._rounds.marks[self._length][2]

    @property
    def undecided(self) -> int:
        """How many iterations in a row are undecided, up to the latest."""
        return self._rounds.marks[self._length][3]

    def label(self, index: int, field_name: str, volatile: tuple[str, ...]) -> str:
        """Return the canonical digest of an iteration's `output` or `input`, made once."""
        key = (index, field_name, volatile)
        labels = self._rounds.labels
        if labels is None:
            labels = self._rounds.labels = {}
        found = labels.get(key)
        if found is None:
            value = getattr(self._rounds.items[index], field_name)
            found = codec.digest(codec.canonical(value, volatile=volatile))
            labels[key] = found
        return found
