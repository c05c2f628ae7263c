"""The history that conditions read.

`History` is a window on an append-only list, so that a new one costs nothing and an earlier one stays a
prefix of every later one. The columns behind it keep figures such as the best score up to date, so that
no decision recomputes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import FrozenInstanceError, replace
from typing import ClassVar, Generic, overload

from . import codec, display
from .iteration import In, Iteration, Out
from .metrics import Measure
from .usage import NOTHING, Usage

_BEGINNING = (-1, 0, 0, 0)
Label = tuple[int, str, tuple[str, ...]]  # the number, the field and the volatile keys


class ScoreIndex:
    """The shared, append-only columns behind histories.

    A mark is (index of the best so far or -1, number of valid scores, failures in a row, undecided in a
    row). The columns of scores and the labels are created when a condition first reads them.
    """

    __slots__ = ("columns", "items", "labels", "marks", "redact", "top")

    def __init__(self) -> None:
        self.items: list[Iteration] = []
        self.marks: list[tuple[int, int, int, int]] = [_BEGINNING]  # one more than items
        self.top: float | None = None  # the best score
        self.columns: Columns | None = None
        self.labels: dict[Label, str] | None = None  # digests of values
        self.redact: Callable[[str], str] | None = None  # removes known secrets from a text

    def append(self, item: Iteration) -> None:
        items, marks = self.items, self.marks
        best, scored, failures, undecided = marks[-1]
        if item.accepted is not None:
            best, ranked = self._by_objective(item, best)
            scored += ranked
            failures = failures + 1 if item.error is not None else 0
            marks.append((best, scored, failures, undecided + 1 if item.undecided else 0))
        elif item.eligible:
            evaluation = item.evaluation
            score = None if evaluation is None else evaluation.score
            top = self.top
            if score is not None:
                scored += 1
                if top is None or score > top:
                    best, self.top = len(items), score
            elif top is None:
                best = len(items)  # without scores, the latest complete output is the best
            marks.append((best, scored, 0, 0))
        else:
            failures = failures + 1 if item.error is not None else 0
            marks.append((best, scored, failures, undecided + 1 if item.undecided else 0))
        items.append(item)

    def _by_objective(self, item: Iteration, best: int) -> tuple[int, bool]:
        """Return the index of the best iteration in the order of the objective, and whether it has a value."""
        # The record decides: a comparison here could differ from the one that put the files back.
        if item.accepted:
            best = len(self.items)
        return best, item.eligible and item.rank is not None

    def over_scores(self) -> Columns:
        """Return the columns over valid scores, up to the latest."""
        if self.columns is None:
            self.columns = Columns()
        self.columns.extend(self.items)
        return self.columns


class Columns:
    """Columns with one entry per valid score, for conditions on the progress of scores.

    In a loop with an objective, the scores are the values of the objective as numbers to maximise.
    """

    __slots__ = ("best_means", "count", "peaks", "scores")

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.peaks: list[float] = []  # the best before each score; -inf before the first
        self.best_means: list[float] = []  # the best mean of two neighbouring scores so far
        self.count = 0

    def extend(self, items: list[Iteration]) -> None:
        for item in items[self.count :] if self.count < len(items) else ():
            rank = item.rank
            if item.eligible and rank is not None:
                self._add(rank, item)
        self.count = len(items)

    def _add(self, score: float, item: Iteration) -> None:
        scores, peaks, means = self.scores, self.peaks, self.best_means
        # Of the scores before this one, so that a condition compares a score with its past.
        if item.accepted is None:
            peaks.append(max(peaks[-1], scores[-1]) if scores else -math.inf)
        else:
            peaks.append(_base_of(item))
        if scores:
            mean = (scores[-1] + score) / 2
            means.append(max(mean, means[-1]) if means else mean)
        scores.append(score)


def _base_of(item: Iteration) -> float:
    """Return the rank that an iteration had to exceed; one that was not accepted is no improvement."""
    objective = item.objective
    if not item.accepted or objective is None:
        return math.inf
    return -math.inf if objective.change is None else _rank_before(objective)


def _rank_before(measure: Measure) -> float:
    assert measure.change is not None
    return replace(measure, value=measure.value - measure.change).rank


_new = object.__new__


def agents_history(phases: Iterable[Iterable[Iteration]]) -> History:
    """Return the iterations of an agent's phases as one history, numbered in their order.

    An iteration that a capability prevented does not count.
    """
    started = (
        item for phase in phases for item in phase if not (item.steps or {}).get("not_started")
    )
    return History(replace(item, number=number) for number, item in enumerate(started, start=1))


class History(Sequence[Iteration[In, Out]], Generic[In, Out]):
    """The iterations so far, and the other figures that a condition may read.

    Args:
        iterations: in order.
        elapsed: active seconds of the loop.
        usage: calls, tokens and dollars of the loop.
        now: the wall clock, in seconds since the epoch.
        effects: effects that began, counted only if a budget limits them.

    >>> from loopwright.records import Evaluation
    >>> history = History([Iteration(1, evaluation=Evaluation(0.4)), Iteration(2, evaluation=Evaluation(0.9))])
    >>> len(history), history.best.number, history.scores
    (2, 2, [0.4, 0.9])
    """

    __slots__ = ("_index", "_length", "effects", "elapsed", "now", "usage")

    def __init__(
        self,
        iterations: Iterable[Iteration[In, Out]] = (),
        *,
        elapsed: float = 0.0,
        usage: Usage = NOTHING,
        now: float = 0.0,
        effects: int = 0,
    ) -> None:
        self._index = ScoreIndex()
        for item in iterations:
            self._index.append(item)
        self._length = len(self._index.items)
        self.elapsed, self.usage, self.now, self.effects = elapsed, usage, now, effects

    @property
    def redact(self) -> Callable[[str], str] | None:
        """Removes known secrets from the error of a condition that fails."""
        return self._index.redact

    def redact_with(self, redact: Callable[[str], str]) -> None:
        """Remove known secrets with `redact` from errors of conditions on these iterations."""
        self._index.redact = redact

    def _at(self, elapsed: float, usage: Usage, now: float) -> History[In, Out]:
        window = _new(History)
        window._index = self._index
        window._length = self._length
        window.elapsed, window.usage, window.now = elapsed, usage, now
        window.effects = self.effects
        return window

    def view(self, *, typed: bool = True) -> History[In, Out]:
        """Return the same iterations for one reader, who receives copies of their values."""
        window = _new(_View if typed else _JsonView)
        _fill(window, self, self.elapsed, self.usage, self.now)
        return window

    def at_time(self, *, elapsed: float, usage: Usage, now: float) -> History[In, Out]:
        """Return the same iterations at another moment."""
        return self._at(elapsed, usage, now)

    def with_iteration(
        self, item: Iteration, elapsed: float, usage: Usage, now: float = 0.0, effects: int = 0
    ) -> History[In, Out]:
        """Return the history that follows this one by `item`; this one is unchanged."""
        index, length = self._index, self._length
        # Another history continues from here, so its iterations must not become part of this one.
        if length != len(index.items):
            return History([*self, item], elapsed=elapsed, usage=usage, now=now, effects=effects)
        index.append(item)
        window = _new(History)
        window._index = index
        window._length = length + 1
        window.elapsed, window.usage, window.now, window.effects = elapsed, usage, now, effects
        return window

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Iteration[In, Out]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Iteration[In, Out]]: ...
    def __getitem__(self, index: int | slice) -> Iteration[In, Out] | Sequence[Iteration[In, Out]]:
        if isinstance(index, slice):
            # The list may be longer: later histories share it.
            return self._index.items[: self._length][index]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"iteration {index + 1} of {self._length}")
        return self._index.items[index]

    def __iter__(self) -> Iterator[Iteration[In, Out]]:
        return iter(self._index.items[: self._length])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return display.history_line(self)

    def _repr_html_(self) -> str:
        return display.history_html(self)

    @property
    def last(self) -> Iteration[In, Out] | None:
        """The latest iteration."""
        return self._index.items[self._length - 1] if self._length else None

    @property
    def best(self) -> Iteration[In, Out] | None:
        """The eligible iteration with the highest score, the earliest of several; without scores, the latest.

        In a loop with an objective: the last accepted iteration.
        """
        if not self._length:
            return None
        index = self._index.marks[self._length][0]
        return self._index.items[index] if index >= 0 else None

    @property
    def put_backs(self) -> int:
        """How many iterations were not the best one when they ended."""
        marks = self._index.marks
        return sum(marks[number][0] != number - 1 for number in range(1, self._length + 1))

    @property
    def latest_eligible(self) -> Iteration[In, Out] | None:
        """The latest iteration with a complete output that was judged."""
        return next((item for item in reversed(self) if item.eligible), None)

    @property
    def scores(self) -> list[float]:
        """The valid scores, in order: those of eligible iterations."""
        if self._length and self[0].accepted is not None:
            return [item.score for item in self if item.eligible and item.score is not None]
        return self._index.over_scores().scores[: self._count]

    @property
    def _count(self) -> int:
        return self._index.marks[self._length][1]

    def stalled(self, count: int, min_delta: float) -> bool:
        """Return whether none of the last `count` valid scores exceeds the best before it by more than
        `min_delta`."""
        end = self._count
        if end < count:
            return False
        columns = self._index.over_scores()
        scores, peaks = columns.scores, columns.peaks
        return all(scores[i] <= peaks[i] + min_delta for i in range(end - count, end))

    @property
    def fall(self) -> float:
        """The difference between the best mean of two neighbouring valid scores and the latest such mean."""
        end = self._count
        if end < 2:
            return 0.0
        columns = self._index.over_scores()
        scores = columns.scores
        return columns.best_means[end - 2] - (scores[end - 2] + scores[end - 1]) / 2

    def recent_scores(self, count: int) -> list[float]:
        """Return the latest `count` valid scores, or ranks of the objective; all if there are fewer."""
        end = self._count
        return self._index.over_scores().scores[max(0, end - count) : end]

    @property
    def streaks(self) -> tuple[int, int]:
        """The numbers of failed and of undecided iterations in a row, up to the latest."""
        return self._index.marks[self._length][2:]

    @property
    def failures(self) -> int:
        """The number of failed iterations in a row, up to the latest."""
        return self._index.marks[self._length][2]

    @property
    def undecided(self) -> int:
        """The number of undecided iterations in a row, up to the latest."""
        return self._index.marks[self._length][3]

    def label(self, index: int, field_name: str, volatile: tuple[str, ...]) -> str:
        """Return the canonical digest of an iteration's `output` or `input`; it is computed once."""
        key = (index, field_name, volatile)
        labels = self._index.labels
        if labels is None:
            labels = self._index.labels = {}
        # Computed once, as every iteration compares the same outputs again.
        if key not in labels:
            value = getattr(self._index.items[index], field_name)
            labels[key] = codec.digest(codec.canonical(value, volatile=volatile))
        return labels[key]


class _View(History):
    """A history for one reader; its iterations are views, created when they are first read."""

    __slots__ = ("_views",)
    _views: dict[int, Iteration]
    _typed: ClassVar[bool] = True

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"a recorded history cannot be changed: {name!r} is read-only")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"a recorded history cannot be changed: {name!r} is read-only")

    def _item(self, index: int) -> Iteration:
        if index not in self._views:
            self._views[index] = self._index.items[index].view(typed=self._typed)
        return self._views[index]

    def _at(self, elapsed: float, usage: Usage, now: float) -> History:
        window = _new(type(self))
        _fill(window, self, elapsed, usage, now)
        return window

    def with_iteration(
        self, item: Iteration, elapsed: float, usage: Usage, now: float = 0.0, effects: int = 0
    ) -> History:
        """Return the history that follows this one by `item`; the recorded one is unchanged."""
        return History([*self, item], elapsed=elapsed, usage=usage, now=now, effects=effects)

    @overload
    def __getitem__(self, index: int) -> Iteration: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Iteration]: ...
    def __getitem__(self, index: int | slice) -> Iteration | Sequence[Iteration]:
        if isinstance(index, slice):
            return [self._item(place) for place in range(self._length)[index]]
        super().__getitem__(index)  # raises IndexError
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
        index = self._index.marks[self._length][0] if self._length else -1
        return self._item(index) if index >= 0 else None


class _JsonView(_View):
    """A history for one reader of JSON."""

    __slots__ = ()
    _typed = False


def _fill(window: _View, source: History, elapsed: float, usage: Usage, now: float) -> None:
    put = object.__setattr__
    put(window, "_index", source._index)
    put(window, "_length", source._length)
    put(window, "effects", source.effects)
    put(window, "_views", {})
    put(window, "elapsed", elapsed)
    put(window, "usage", usage)
    put(window, "now", now)
