"""The history that conditions see.

`History` is a window on an append-only list: taking one costs nothing, and an earlier history stays a
prefix of each later one.

The columns behind histories: a decision looks up, it never recomputes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any, overload

from . import codec
from .iteration import Iteration
from .usage import NOTHING, Usage

_BEGINNING = (-1, 0, 0, 0)


class ScoreIndex:
    """The shared, append-only columns behind histories: a decision looks up, it never recomputes.

    A mark is (index of the best so far or -1, number of valid scores, failures in a row, undecided
    in a row). The columns over scores are made when a condition first asks, and then kept up.
    """

    __slots__ = ("columns", "items", "labels", "marks", "redact", "top")

    def __init__(self) -> None:
        self.items: list[Iteration] = []
        self.marks: list[tuple[int, int, int, int]] = [_BEGINNING]  # one more than items
        self.top: float | None = None  # the best score
        self.columns: Columns | None = None
        self.labels: dict[Any, str] | None = None  # digests, made when a guard first asks
        self.redact: Callable[[str], str] | None = None  # takes known secrets out of a text

    def append(self, item: Iteration) -> None:
        items, marks = self.items, self.marks
        best, scored, failures, undecided = marks[-1]
        if item.eligible:
            evaluation = item.evaluation
            score = None if evaluation is None else evaluation.score
            top = self.top
            if score is not None:
                scored += 1
                if top is None or score > top:
                    best, self.top = len(items), score
            elif top is None:
                best = len(items)  # nothing is scored so far: the latest whole output stands
            marks.append((best, scored, 0, 0))
        else:
            failures = failures + 1 if item.error is not None else 0
            marks.append((best, scored, failures, undecided + 1 if item.undecided else 0))
        items.append(item)

    def over_scores(self) -> Columns:
        """Return the columns over valid scores, up to the latest."""
        if self.columns is None:
            self.columns = Columns()
        self.columns.extend(self.items)
        return self.columns


class Columns:
    """What conditions on the course of the scores look up: one entry per valid score."""

    __slots__ = ("crests", "peaks", "scores", "taken")

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.peaks: list[float] = []  # the best before each score; -inf before the first
        self.crests: list[float] = []  # the best mean of two neighbouring scores, so far
        self.taken = 0

    def extend(self, items: list[Iteration]) -> None:
        for item in items[self.taken :] if self.taken < len(items) else ():
            score = item.score
            if item.eligible and score is not None:
                self._add(score)
        self.taken = len(items)

    def _add(self, score: float) -> None:
        scores, peaks, crests = self.scores, self.peaks, self.crests
        peaks.append(max(peaks[-1], scores[-1]) if scores else -math.inf)
        if scores:
            mean = (scores[-1] + score) / 2
            crests.append(max(mean, crests[-1]) if crests else mean)
        scores.append(score)


_new = object.__new__


def agents_history(phases: Iterable[Iterable[Iteration]]) -> History:
    """Return the iterations of an agent's phases as those of the agent, numbered in their order.

    One that a capability did not let begin is none.
    """
    begun = (
        item for phase in phases for item in phase if not (item.steps or {}).get("not_started")
    )
    return History(replace(item, number=number) for number, item in enumerate(begun, start=1))


class History(Sequence[Iteration]):
    """The iterations so far, and all that a condition may see.

    `elapsed` is the loop's active seconds, `usage` what it spent, `effects` how many effects of it
    began (counted only where a budget limits them), `now` the wall clock (seconds since the epoch).

    >>> history = History([Iteration(1, evaluation=Evaluation(0.4)), Iteration(2, evaluation=Evaluation(0.9))])
    >>> len(history), history.best.number, history.scores
    (2, 2, [0.4, 0.9])
    """

    __slots__ = ("_length", "_rounds", "effects", "elapsed", "now", "usage")

    def __init__(
        self,
        iterations: Iterable[Iteration] = (),
        *,
        elapsed: float = 0.0,
        usage: Usage = NOTHING,
        now: float = 0.0,
        effects: int = 0,
    ) -> None:
        self._rounds = ScoreIndex()
        for item in iterations:
            self._rounds.append(item)
        self._length = len(self._rounds.items)
        self.elapsed, self.usage, self.now, self.effects = elapsed, usage, now, effects

    @property
    def redact(self) -> Callable[[str], str] | None:
        """What takes known secrets out of the error of a condition that fails."""
        return self._rounds.redact

    def redact_with(self, redact: Callable[[str], str]) -> None:
        """Let `redact` take known secrets out of errors of conditions that see these iterations."""
        self._rounds.redact = redact

    def _at(self, elapsed: float, usage: Usage, now: float) -> History:
        window = _new(History)
        window._rounds = self._rounds
        window._length = self._length
        window.elapsed, window.usage, window.now = elapsed, usage, now
        window.effects = self.effects
        return window

    def view(self) -> History:
        """Return the same iterations for one reader, who gets copies of the values in them."""
        window = _new(_View)
        _fill(window, self, self.elapsed, self.usage, self.now)
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
        window.elapsed, window.usage, window.now, window.effects = elapsed, usage, now, 0
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


class _View(History):
    """A history for one reader: its iterations are views, made when they are first read."""

    __slots__ = ("_views",)
    _views: dict[int, Iteration]

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"a history on record cannot be changed: {name!r} stays as it is")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"a history on record cannot be changed: {name!r} stays as it is")

    def _item(self, index: int) -> Iteration:
        found: Iteration | None = self._views.get(index)
        if found is None:
            found = self._views[index] = self._rounds.items[index].view()
        return found

    def _at(self, elapsed: float, usage: Usage, now: float) -> History:
        window = _new(_View)
        _fill(window, self, elapsed, usage, now)
        return window

    def appended(self, item: Iteration, elapsed: float, usage: Usage, now: float = 0.0) -> History:
        """Return the history that follows this one by `item`; what is on record stays as it is."""
        return History([*self, item], elapsed=elapsed, usage=usage, now=now)

    @overload
    def __getitem__(self, index: int) -> Iteration: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Iteration]: ...
    def __getitem__(self, index: int | slice) -> Iteration | Sequence[Iteration]:
        if isinstance(index, slice):
            return [self._item(place) for place in range(self._length)[index]]
        super().__getitem__(index)  # which refuses what is out of range
        return self._item(index % self._length)

    def __iter__(self) -> Iterator[Iteration]:
        return map(self._item, range(self._length))

    @property
    def last(self) -> Iteration | None:
        """The latest iteration."""
        return self._item(self._length - 1) if self._length else None

    @property
    def best(self) -> Iteration | None:
        """The best iteration; see History.best."""
        index = self._rounds.marks[self._length][0] if self._length else -1
        return self._item(index) if index >= 0 else None


def _fill(window: _View, source: History, elapsed: float, usage: Usage, now: float) -> None:
    put = object.__setattr__
    put(window, "_rounds", source._rounds)
    put(window, "_length", source._length)
    put(window, "effects", source.effects)
    put(window, "_views", {})
    put(window, "elapsed", elapsed)
    put(window, "usage", usage)
    put(window, "now", now)
