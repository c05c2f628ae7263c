"""The history of a loop that conditions read, and its table of what was tried, its value, and why it was kept.

`History` is a window on an append-only list, so that a new one costs nothing and an earlier one stays a
prefix of every later one. The columns behind it keep figures such as the best score up to date, so that
no decision recomputes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import FrozenInstanceError, replace
from typing import ClassVar, Generic, NamedTuple, overload

from . import codec, display
from .display import CELL, cut, idea_of, one_line
from .evaluation import MINIMISE, Evaluation, number_text
from .iteration import NOTHING, In, Iteration, Out, Usage
from .typed import Record

__all__ = [
    "table_text",
    "why",
]

# The figures of a history, of which a longer one computes its own: the index of the best iteration or
# -1, the best score, the number of valid scores, the failures and the undecided in a row, and whether the
# latest iteration can satisfy the loop.
_Mark = tuple[int, float | None, int, int, int, bool]
_BEGINNING: _Mark = (-1, None, 0, 0, 0, True)
Label = tuple[int, str, tuple[str, ...]]  # the number, the field and the volatile keys


class Origin(NamedTuple):
    """What a loop compares its first iterations with.

    Args:
        baseline: the evaluation of the input, or None.
        rank: its rank: of the objective, else its score or verdict; None without a baseline.
        min_delta: the difference of the objective that is an improvement, in its unit.
        confirmed: whether only an accepted iteration is an improvement.
    """

    baseline: Evaluation | None = None
    rank: float | None = None
    min_delta: float = 0.0
    confirmed: bool = False


_NOWHERE = Origin()


class Iterations(list[Iteration]):
    """The shared, append-only list behind histories.

    The columns of scores and the labels are created when a condition first reads them.
    """

    # A list itself: each running loop has one, and the garbage collector visits each object of 10,000 loops.
    __slots__ = ("columns", "labels", "origin", "redact")

    def __init__(self) -> None:
        self.origin = _NOWHERE
        self.columns: Columns | None = None
        self.labels: dict[Label, str] | None = None  # digests of values
        self.redact: Callable[[str], str] | None = None  # removes known secrets from a text

    def over_scores(self) -> Columns:
        """Return the columns over valid scores, up to the latest."""
        if self.columns is None:
            self.columns = Columns()
        self.columns.extend(self)
        return self.columns


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether values are nowhere worse than others and somewhere better."""
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def undominated(rows: Sequence[Sequence[float]]) -> list[int]:
    """Return the places of the rows that no other row dominates.

    >>> undominated([[2.0, 1.0], [1.0, 1.0], [0.0, 3.0]])
    [0, 2]
    """
    kept: list[int] = []
    # In this order what dominates a row comes before it, and a row that is kept dominates it too.
    for place in sorted(range(len(rows)), key=lambda place: list(rows[place]), reverse=True):
        if not any(_dominates(rows[other], rows[place]) for other in kept):
            kept.append(place)
    return sorted(kept)


def _marked(mark: _Mark, place: int, item: Iteration) -> _Mark:
    """Return the figures of a history that continues by the item at an index."""
    best, top, scored, failures, undecided, _ = mark
    evaluation, eligible = item.evaluation, item.eligible
    if item.accepted is not None:
        # The record decides: a comparison here could differ from the one that put the files back.
        best = place if item.accepted else best
        scored += eligible and item.rank is not None
        if eligible:
            return best, None, scored, 0, undecided + 1 if item.undecided else 0, item.can_satisfy
    if not eligible:
        failures = failures + 1 if item.error is not None else 0
        return best, top, scored, failures, undecided + 1 if item.undecided else 0, False
    if evaluation is None or (score := evaluation.score) is None:
        # Without scores, the latest complete output is the best.
        return place if top is None else best, top, scored, 0, 0, item.can_satisfy
    if top is None or score > top:
        best, top = place, score
    if evaluation.undecided:  # by a sentence of `until`
        return best, top, scored + 1, 0, undecided + 1, False
    return best, top, scored + 1, 0, 0, not evaluation.impossible


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
        scores, peaks, means = self.scores, self.peaks, self.best_means
        for item in items[self.count :] if self.count < len(items) else ():
            score = item.rank
            if score is None or not item.eligible:
                continue
            # Of the scores before this one, so that a condition compares a score with its past.
            if item.accepted is None:
                peaks.append(max(peaks[-1], scores[-1]) if scores else -math.inf)
            else:
                peaks.append(_base_of(item))
            if scores:
                mean = (scores[-1] + score) / 2
                means.append(max(mean, means[-1]) if means else mean)
            scores.append(score)
        self.count = len(items)


def _base_of(item: Iteration) -> float:
    """Return the rank that an iteration had to exceed; one that was not accepted is no improvement."""
    objective = item.objective
    if not item.accepted or objective is None:
        return math.inf
    if objective.change is None:
        return -math.inf
    return replace(objective, value=objective.value - objective.change).rank


def origin_of(history: History) -> Origin:
    """Return what the first iterations of a history are compared with."""
    return history._items.origin


def begin_at(history: History, origin: Origin) -> None:
    """Set what the first iterations of a history, and of those that follow it, are compared with."""
    history._items.origin = origin


def latest_kept(items: Sequence[Iteration]) -> Iteration | None:
    """Return the latest iteration that was not rejected; a rejected one is no parent."""
    return next((item for item in reversed(items) if not item.rejected), None)


_new = object.__new__


def agents_history(phases: Iterable[Iterable[Iteration]]) -> History:
    """Return the iterations of an agent's phases as one history, numbered in their order.

    An iteration that a capability prevented does not count.
    """
    started = (
        item for phase in phases for item in phase if not (item.steps or {}).get("not_started")
    )
    return History(replace(item, number=number) for number, item in enumerate(started, start=1))


class History(Record, Sequence[Iteration[In, Out]], Generic[In, Out]):
    """The iterations so far, and the other figures that a condition may read.

    Args:
        iterations: in order.
        elapsed: active seconds of the loop.
        usage: calls, tokens and dollars of the loop.
        now: the wall clock, in seconds since the epoch.
        effects: effects that began, counted only if a budget limits them.

    >>> from loopwright.records import Evaluation, Measure
    >>> history = History([Iteration(1, evaluation=Evaluation(0.4)), Iteration(2, evaluation=Evaluation(0.9))])
    >>> len(history), history.best.number, history.scores
    (2, 2, [0.4, 0.9])
    """

    __slots__ = (
        "_items", "_mark", "best", "can_satisfy", "effects", "elapsed", "last", "length", "now", "usage",
    )  # fmt: skip
    # Slots, because every decision reads them.
    length: int
    """The number of iterations."""
    last: Iteration[In, Out] | None
    """The latest iteration."""
    best: Iteration[In, Out] | None
    """The eligible iteration with the highest score, the earliest of several; without scores, the latest.

    In a loop with an objective: the last accepted iteration.
    """
    can_satisfy: bool
    """Whether the latest iteration may satisfy a loop; True before the first."""

    def __init__(
        self,
        iterations: Iterable[Iteration[In, Out]] = (),
        *,
        elapsed: float = 0.0,
        usage: Usage = NOTHING,
        now: float = 0.0,
        effects: int = 0,
    ) -> None:
        self._items = Iterations()
        self._mark = _BEGINNING
        for place, item in enumerate(iterations):
            self._items.append(item)
            self._mark = _marked(self._mark, place, item)
        self.length = len(self._items)
        self.last = self._items[-1] if self._items else None
        self.best, self.can_satisfy = (
            self._items[self._mark[0]] if self._mark[0] >= 0 else None,
            self._mark[5],
        )
        self.elapsed, self.usage, self.now, self.effects = elapsed, usage, now, effects

    @property
    def redact(self) -> Callable[[str], str] | None:
        """Removes known secrets from the error of a condition that fails."""
        return self._items.redact

    def redact_with(self, redact: Callable[[str], str]) -> None:
        """Remove known secrets with `redact` from errors of conditions on these iterations."""
        self._items.redact = redact

    def _at(self, elapsed: float, usage: Usage, now: float) -> History[In, Out]:
        window = _new(History)
        window._items, window.length, window._mark = self._items, self.length, self._mark
        window.elapsed, window.usage, window.now = elapsed, usage, now
        window.effects, window.last, window.best = self.effects, self.last, self.best
        window.can_satisfy = self.can_satisfy
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
        items, length = self._items, self.length
        # Another history continues from here, so its iterations must not become part of this one.
        if length != len(items):
            return self._followed(item, elapsed, usage, now, effects)
        items.append(item)
        window = _new(History)
        window._items, window.length = items, length + 1
        window._mark = mark = _marked(self._mark, length, item)
        window.best, window.can_satisfy = items[mark[0]] if mark[0] >= 0 else None, mark[5]
        window.elapsed, window.usage, window.now, window.effects = elapsed, usage, now, effects
        window.last = item
        return window

    def continued(self, item: Iteration) -> History[In, Out]:
        """Return the history that would follow this one by `item`, of which none keeps a record."""
        return self._followed(item, self.elapsed, self.usage, self.now, self.effects)

    def _followed(
        self, item: Iteration, elapsed: float, usage: Usage, now: float, effects: int
    ) -> History[In, Out]:
        other = History([*self, item], elapsed=elapsed, usage=usage, now=now, effects=effects)
        begin_at(other, self._items.origin)
        return other

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> Iteration[In, Out]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Iteration[In, Out]]: ...
    def __getitem__(self, index: int | slice) -> Iteration[In, Out] | Sequence[Iteration[In, Out]]:
        if isinstance(index, slice):
            # The list may be longer: later histories share it.
            return self._items[: self.length][index]
        if index < 0:
            index += self.length
        if not 0 <= index < self.length:
            count = "1 iteration" if self.length == 1 else f"{self.length} iterations"
            raise IndexError(f"there is no iteration {index + 1}; the history has {count}")
        return self._items[index]

    def __iter__(self) -> Iterator[Iteration[In, Out]]:
        return iter(self._items[: self.length])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return display.history_line(self)

    def _repr_html_(self) -> str:
        return display.history_html(self)

    @property
    def chains(self) -> dict[int, Iteration[In, Out]]:
        """The best iteration of each chain by its number, without chains of which none counts."""
        best: dict[int, Iteration[In, Out]] = {}
        for item in self:
            rank, known = item.standing, best.get(item.chain)
            before = None if known is None else known.standing
            if rank is not None and (before is None or rank > before):
                best[item.chain] = item
        return best

    @property
    def front(self) -> list[Iteration[In, Out]]:
        """The iterations that no other one is better than in all objectives; none with fewer than two objectives."""
        rows = [
            (item, {one.name: one.rank for one in item.measures if one.objective})
            for item in self
            if item.sound
        ]
        names = sorted({name for _, ranks in rows for name in ranks})
        complete = [
            (item, [ranks[name] for name in names])
            for item, ranks in rows
            if len(ranks) == len(names)
        ]
        places = undominated([row for _, row in complete]) if len(names) > 1 else []
        return [complete[place][0] for place in places]

    @property
    def latest_eligible(self) -> Iteration[In, Out] | None:
        """The latest iteration with a complete output that was judged."""
        return next((item for item in reversed(self) if item.eligible), None)

    @property
    def scores(self) -> list[float]:
        """The valid scores, in order: those of eligible iterations."""
        if self.length and self[0].accepted is not None:
            return [item.score for item in self if item.eligible and item.score is not None]
        return self._items.over_scores().scores[: self._count]

    @property
    def _count(self) -> int:
        return self._mark[2]

    def stalled(self, count: int, min_delta: float) -> bool:
        """Return whether none of the last `count` valid scores exceeds the best before it by more than
        `min_delta`."""
        end = self._count
        if end < count:
            return False
        columns = self._items.over_scores()
        scores, peaks = columns.scores, columns.peaks
        return all(scores[i] <= peaks[i] + min_delta for i in range(end - count, end))

    @property
    def fall(self) -> float:
        """The difference between the best mean of two neighbouring valid scores and the latest such mean."""
        end = self._count
        if end < 2:
            return 0.0
        columns = self._items.over_scores()
        scores = columns.scores
        return columns.best_means[end - 2] - (scores[end - 2] + scores[end - 1]) / 2

    def recent_scores(self, count: int) -> list[float]:
        """Return the latest `count` valid scores, or ranks of the objective; all if there are fewer."""
        end = self._count
        return self._items.over_scores().scores[max(0, end - count) : end]

    @property
    def failures(self) -> int:
        """The number of failed iterations in a row, up to the latest."""
        return self._mark[3]

    @property
    def undecided(self) -> int:
        """The number of undecided iterations in a row, up to the latest."""
        return self._mark[4]

    def label(self, index: int, field_name: str, volatile: tuple[str, ...]) -> str:
        """Return the canonical digest of an iteration's `output` or `input`; it is computed once."""
        key = (index, field_name, volatile)
        labels = self._items.labels
        if labels is None:
            labels = self._items.labels = {}
        # Computed once, as every iteration compares the same outputs again.
        if key not in labels:
            value = getattr(self._items[index], field_name)
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
            self._views[index] = self._items[index].view(typed=self._typed)
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
            return [self._item(place) for place in range(self.length)[index]]
        super().__getitem__(index)  # raises IndexError
        return self._item(index % self.length)

    def __iter__(self) -> Iterator[Iteration]:
        return map(self._item, range(self.length))

    @property
    def last(self) -> Iteration | None:  # type: ignore[override]
        """The latest iteration."""
        return self._item(self.length - 1) if self.length else None

    @property
    def best(self) -> Iteration | None:  # type: ignore[override]
        """The best iteration; see History.best."""
        place = self._mark[0]
        return self._item(place) if place >= 0 else None


class _JsonView(_View):
    """A history for one reader of JSON."""

    __slots__ = ()
    _typed = False


def _fill(window: _View, source: History, elapsed: float, usage: Usage, now: float) -> None:
    put = object.__setattr__
    put(window, "_items", source._items)
    put(window, "length", source.length)
    put(window, "_mark", source._mark)
    put(window, "can_satisfy", source.can_satisfy)
    put(window, "effects", source.effects)
    put(window, "_views", {})
    put(window, "elapsed", elapsed)
    put(window, "usage", usage)
    put(window, "now", now)


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
    if tested := display.confirmed(item):
        return f"compared with {base}: {tested}"
    if item.accepted:
        return f"better than {base}"
    gains = measure.change < 0 if measure.direction == MINIMISE else measure.change > 0
    return f"better than {base}, but by too little" if gains else f"not better than {base}"


def table_text(history: History) -> str:
    """Return the iterations as a Markdown table; "" in a loop without an objective.

    >>> from loopwright.records import Evaluation, Measure
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
    for item in items:
        measure = item.objective
        value = "" if measure is None else str(measure).removeprefix(f"{measure.name} ")
        accepted = "yes" if item.accepted else "no"
        lines.append(_row([str(item.number), idea_of(item), value, accepted, why(item)]))
    if len(history) > len(items):
        lines.append(f"The first {len(history) - len(items)} iterations are left out.")
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
