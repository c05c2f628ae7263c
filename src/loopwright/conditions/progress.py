"""Conditions on the progress of a loop: no improvement, repeated outputs, falling scores, idle iterations, stalls."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..errors import ConfigurationError, nearest
from ..records import Evaluation, History, Iteration, Reason, Stop, exceeds, origin_of
from ..records.codec import integer, normalise, number, text_of
from ..records.typed import Value
from .base import AllOf, AnyOf, Condition, condition

__all__ = [
    "NoChange",
    "NoProgress",
    "failing",
    "progress",
]

PAST = "past"  # in place of a sigma: that of past runs
DEFAULT_SIGMA = 0.07  # the standard deviation of one score of a typical judge

# The drawdown of two-score means, in sigmas, that 5 % of runs of T iterations without a trend exceed.
_HORIZONS = (4, 5, 6, 8, 10, 15, 20)
_LIMITS = (1.71, 2.03, 2.26, 2.55, 2.74, 3.05, 3.24)


def drawdown_limit(horizon: int) -> float:
    """Return h(T), the drawdown in sigmas with 5 % false alarms, for T = `horizon` iterations.

    It is interpolated between the horizons of the table, and constant outside of them.
    """
    if horizon <= _HORIZONS[0]:
        return _LIMITS[0]
    if horizon >= _HORIZONS[-1]:
        return _LIMITS[-1]
    right = bisect.bisect_left(_HORIZONS, horizon)
    low, high = _HORIZONS[right - 1], _HORIZONS[right]
    share = (horizon - low) / (high - low)
    return _LIMITS[right - 1] + share * (_LIMITS[right] - _LIMITS[right - 1])


def strictly_falling(scores: Sequence[float], window: int) -> bool:
    """Return whether each of the last `window` scores is below the one before."""
    recent = scores[-window:]
    return len(recent) == window and all(b < a for a, b in itertools.pairwise(recent))


def cycle_period(labels: Sequence[str], maximum: int = 4) -> int:
    """Return the shortest period up to `maximum` whose last two cycles are equal, or 0.

    >>> cycle_period(["a", "b", "a", "b"]), cycle_period(["a", "b", "c"])
    (2, 0)
    """
    for period in range(1, maximum + 1):
        # The shortest period first: a constant output also repeats with period 2.
        if len(labels) >= 2 * period and labels[-period:] == labels[-2 * period : -period]:
            return period
    return 0


def shingles(text: str, size: int = 4) -> frozenset[tuple[str, ...]]:
    """Return the set of `size`-word sequences of a text, case folded.

    A text with fewer words is one sequence, a text without words is its own sequence.
    """
    # A text without words is compared as a unit; two empty sets would count as equal.
    words = re.findall(r"\w+", text.casefold()) or [text]
    if len(words) <= size:
        return frozenset({tuple(words)})
    return frozenset(tuple(words[i : i + size]) for i in range(len(words) - size + 1))


def similarity(a: frozenset[tuple[str, ...]], b: frozenset[tuple[str, ...]]) -> float:
    """Return the Jaccard similarity of two shingle sets, from 0 to 1."""
    return len(a & b) / len(a | b) if a or b else 1.0


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NoImprovement(Value, Condition):
    """Stop after `patience` scores in a row that did not exceed the best by more than `min_delta`.

    Failed and undecided iterations have no score and do not count. In a loop with an objective, an
    improvement is an accepted iteration. Use it with `keep="best"`: the last
    output of a plateau is rarely the best one. Reason: `no_improvement`.

    Args:
        patience: scores in a row, at least 1.
        min_delta: the smallest improvement that counts, from 0 to 1, or in the unit of the objective
            (default: 0).

    Raises:
        ConfigurationError: if a value is out of range.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> scores = enumerate((0.5, 0.4, 0.5), start=1)
        >>> history = History(Iteration(n, evaluation=Evaluation(score)) for n, score in scores)
        >>> NoImprovement(patience=2).check(history).detail
        '2 iterations without a better score than 0.5'
    """

    goal: ClassVar[bool] = False
    patience: int
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        integer("no_improvement: patience", self.patience, minimum=1)
        # At most 1 for scores, which the loop checks: a metric has its own unit.
        number("no_improvement: min_delta", self.min_delta, minimum=0)

    def check(self, history: History) -> Stop | None:
        if not history.stalled(self.patience, self.min_delta):
            return None
        return Stop(
            Reason.NO_IMPROVEMENT, f"{self.patience} iterations without a better {_best(history)}"
        )


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RepeatedOutput(Value, Condition):
    """Stop when the output repeats: twice in a row, or in a cycle that occurs twice.

    In a loop whose input changes, the same output twice in a row counts only if the two inputs
    differed, because the same input may have the same output. In a loop whose input never changes it
    always counts. Key order and Unicode form are ignored. A repeat with a new best score does not
    count. Reason: `repeated_output`.

    Args:
        period: the longest cycle in outputs, from 1 to 4 (default: 4).
        volatile: keys to ignore, such as timestamps.
        similarity: from above 0 to 1; texts with at least this Jaccard similarity of their four-word
            sequences count as equal (default: only equal texts).
        anywhere: whether any earlier output counts, not only the one before or a cycle (default: False).

    Raises:
        ConfigurationError: if a value is out of range.

    Example:
        >>> from loopwright.records import History, Iteration
        >>> RepeatedOutput().check(History([Iteration(1, output="a"), Iteration(2, output="a")])).detail
        'the output repeats, seen twice'
    """

    goal: ClassVar[bool] = False
    period: int = 4
    volatile: tuple[str, ...] = ()
    similarity: float | None = None
    anywhere: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.anywhere, bool):
            raise ConfigurationError(
                f"repeated_output: anywhere: {self.anywhere!r} is not true or false"
            )
        if integer("repeated_output: period", self.period, minimum=1) > 4:
            raise ConfigurationError(f"repeated_output: period: {self.period} is above 4")
        if not isinstance(self.volatile, list | tuple):
            raise ConfigurationError("repeated_output: volatile: use a list of keys")
        # As records hold keys: they have no NUL, so a name with one would match none of them.
        keys = (normalise(key) if isinstance(key, str) else key for key in self.volatile)
        object.__setattr__(self, "volatile", tuple(keys))
        if self.similarity is not None:
            number("repeated_output: similarity", self.similarity, minimum=0, maximum=1, above=True)

    def check(self, history: History) -> Stop | None:
        count = len(history)
        labels = self._labels(history)
        period = cycle_period(labels, self.period)
        if self.anywhere and not period:
            return self._earlier(history, labels)
        # The same input again may have the same output; only a changed input makes the repeat a
        # stall.
        if (
            period == 1
            and len({history.label(i, "input", self.volatile) for i in (count - 2, count - 1)}) == 1
            and self._inputs_change(history)
        ):
            period = 0
        # A repeat that raised the score is progress: judges differ from vote to vote.
        best = history.best
        if not period or (
            best is not None and best.rank is not None and best.number > count - period
        ):
            return None
        repeat = "output repeats" if period == 1 else f"outputs repeat in a cycle of {period}"
        return Stop(Reason.REPEATED_OUTPUT, f"the {repeat}, seen twice")

    def _earlier(self, history: History, labels: Sequence[str]) -> Stop | None:
        """Return the stop if the latest output is that of any earlier iteration, and not a new best one."""
        count, best = len(history), history.best
        if not labels or (best is not None and best.rank is not None and best.number == count):
            return None
        inputs = [history.label(i, "input", self.volatile) for i in range(count)]
        changing = len(set(inputs)) > 1
        for place, label in enumerate(labels[:-1]):
            if label == labels[-1] and not (changing and inputs[place] == inputs[-1]):
                return Stop(Reason.REPEATED_OUTPUT, f"the output is that of iteration {place + 1}")
        return None

    def _inputs_change(self, history: History) -> bool:
        """Return whether the input of any iteration so far differs from the first."""
        labels = (history.label(i, "input", self.volatile) for i in range(len(history)))
        first = next(labels)
        return any(label != first for label in labels)

    def _labels(self, history: History) -> list[str]:
        count = len(history)
        window = range(0 if self.anywhere else max(0, count - 2 * self.period), count)
        labels = [
            # A failed iteration has no output; its label is equal to no other.
            history.label(i, "output", self.volatile) if history[i].eligible else f"failed {i}"
            for i in window
        ]
        if self.similarity is None:
            return labels
        texts = {
            place: shingles(text_of(history[i].output))
            for place, i in enumerate(window)
            if history[i].eligible
        }
        for place, text in texts.items():
            like = (p for p in texts if similarity(text, texts[p]) >= self.similarity)
            labels[place] = labels[next(like)]  # the first similar text, or itself
        return labels


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Degrading(Value, Condition):
    """Stop when scores fall by more than their noise explains. Reason: `degrading`.

    The rule `drawdown` compares means of two neighbouring scores. The fall from the best mean must exceed
    h(T) x `sigma`, where h(T) gives 5 % false alarms on a run of T iterations without a trend; see
    `loopwright.conditions.progress` for the source of the table. The rule `strict` requires `window`
    scores, each below the one before.

    Args:
        window: scores that must exist, and for `strict` fall, at least 2 (default: 3).
        rule: `drawdown` (default) or `strict`.
        sigma: the standard deviation of one score, from 0 to 1, or of one value in the unit of the
            objective (default: 0.07). With 0, for
            deterministic checks, a fall above `tolerance` from the best score counts. `past` is the noise
            of at least 20 past runs in the journal, measured once at the start of the run.
        tolerance: the fall that is accepted with `sigma` 0, from 0 to 1 (default: 0).
        horizon: T, the expected number of iterations, at least 2 (default: 10).

    Raises:
        ConfigurationError: if a value is out of range.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> scores = enumerate((0.9, 0.8, 0.7), start=1)
        >>> history = History(Iteration(n, evaluation=Evaluation(score)) for n, score in scores)
        >>> Degrading(rule="strict").check(history).detail
        '3 scores in a row, each below the last'
    """

    goal: ClassVar[bool] = False
    window: int = 3
    rule: str = "drawdown"
    sigma: float | str = DEFAULT_SIGMA
    tolerance: float = 0.0
    horizon: int = 10

    def __post_init__(self) -> None:
        integer("degrading: window", self.window, minimum=2)
        integer("degrading: horizon", self.horizon, minimum=2)
        # At most 1 for scores, which the loop checks: a metric has its own unit.
        if self.sigma != PAST:
            if isinstance(self.sigma, str):
                hint = nearest(self.sigma, (PAST,))
                raise ConfigurationError(
                    f"degrading: sigma: {self.sigma!r} is not a number{hint or '; use one, or past'}"
                )
            number("degrading: sigma", self.sigma, minimum=0)
        number("degrading: tolerance", self.tolerance, minimum=0)
        if self.rule not in ("drawdown", "strict"):
            hint = nearest(str(self.rule), ("drawdown", "strict"))
            raise ConfigurationError(f"degrading: rule: unknown rule {self.rule!r}{hint}")

    def check(self, history: History) -> Stop | None:
        scores = history.recent_scores(self.window)
        last = history.last
        # Without a score of the latest iteration, the last two scores say nothing new.
        if len(scores) < self.window or last is None or not last.eligible or last.rank is None:
            return None
        objective = last.objective
        if self.rule == "strict":
            if not strictly_falling(scores, self.window):
                return None
            what = (
                "scores in a row, each below the last"
                if objective is None
                else f"values of {objective.name} in a row, each worse than the last"
            )
            return Stop(Reason.DEGRADING, f"{self.window} {what}")
        # Without enough past runs, the run has no sigma in place of the word.
        sigma = DEFAULT_SIGMA if isinstance(self.sigma, str) else self.sigma
        if sigma == 0:  # without noise each fall is real, so single scores are compared
            best = history.best
            fall = (best.rank or 0.0) - scores[-1] if best is not None else 0.0
            limit = self.tolerance
        else:
            # Of two-score means, because a single low score is often noise.
            fall = history.fall
            limit = drawdown_limit(self.horizon) * sigma
        if fall <= limit:
            return None
        change = (
            f"scores fell by {fall:.3g}"
            if objective is None
            else f"{objective.name} is worse by {fall:.3g} {objective.unit}".rstrip()
        )
        return Stop(Reason.DEGRADING, f"{change}, more than {limit:.3g}")


def uses_past(conditions: Iterable[Condition]) -> bool:
    """Return whether a condition, or one inside it, has the sigma of past runs."""
    return any(
        (isinstance(one, Degrading) and one.sigma == PAST) or uses_past(one.parts())
        for one in conditions
    )


def with_sigma(tree: Condition, sigma: float) -> Condition:
    """Return a condition with a number in place of each sigma of past runs."""
    if not uses_past((tree,)):
        return tree
    if isinstance(tree, AnyOf | AllOf):
        members = tuple(with_sigma(member, sigma) for member in tree.members)
        return dataclasses.replace(tree, members=members)
    return dataclasses.replace(tree, sigma=sigma) if isinstance(tree, Degrading) else tree


def _best(history: History) -> str:
    """Return the best score or value of the objective, as the end of a comparison."""
    best = history.best
    last = history.last
    if last is not None and last.accepted is not None:
        objective = None if best is None else best.objective
        names = [item.objective.name for item in history if item.objective is not None]
        return f"{names[0]} than {objective.text}" if objective is not None else names[0]
    return f"score than {best.score:g}" if best is not None and best.score is not None else "score"


_NUMBERS = r"0x[0-9a-fA-F]+|\d+(?:[.:]\d+)*"


def failing(evaluation: Evaluation, *, printed: bool = True) -> frozenset[str] | None:
    """Return what fails by a report of tests, else what a check that only passes or fails printed, without numbers.

    None if there is neither, as for a judge: its words differ each time, and are no progress.

    >>> failing(Evaluation(details={"tests": {"failing": ["test_a"]}}))
    frozenset({'test_a'})
    >>> failing(Evaluation(0.4, feedback="too short")) is None
    True
    """
    reports = [
        item["failing"]
        for item in evaluation.details.values()
        if isinstance(item, Mapping) and isinstance(item.get("failing"), list)
    ]
    if reports:
        return frozenset(str(name) for names in reports for name in names)
    passed, score = evaluation.passed, evaluation.score
    # A check names its criterion; votes are those of a judge, and other scores those of a measurement.
    if not printed or passed is None or score not in (None, float(passed)):
        return None
    if not evaluation.criteria or evaluation.votes:
        return None
    # Times and addresses differ each time, and are no progress.
    return frozenset([re.sub(_NUMBERS, "", evaluation.own_feedback)])


class ChainProgress(NamedTuple):
    """The progress of a loop within its chains.

    Args:
        ends: the numbers of the iterations that completed a stall.
        references: by chain, the iteration that its iterations are compared with; 0 is the beginning.
    """

    ends: tuple[int, ...]
    references: Mapping[int, int]

    def stalled(self, history: History) -> bool:
        """Return whether the latest iteration completed a stall."""
        return bool(self.ends) and history.last is not None and self.ends[-1] == history.last.number


def progress(history: History, patience: int, min_delta: float = 0.0) -> ChainProgress:
    """Return how far each chain came, and where it stalled: `patience` iterations in a row without progress.

    The reference of a chain is its parent, or from the beginning the baseline, and without either its first
    eligible iteration. An eligible iteration that is better by more than `min_delta` becomes the reference.
    That is progress, and so is a report of tests that names other failing tests than the report before.
    Iterations without an evaluation and undecided ones do not count. After a stall the count begins again.
    """
    origin = origin_of(history)
    records: dict[int, Iteration] = {}
    references: dict[int, int] = {}
    ranks: dict[int, float | None] = {}
    failed: dict[int, frozenset[str] | None] = {}
    streaks: dict[int, int] = {}
    ends = []
    for item in history:
        chain, evaluation = item.chain, item.evaluation
        records[item.number] = item
        objective = item.accepted is not None
        if chain not in ranks:
            before = item.continues_from
            parent = records.get(before)
            start = origin.baseline if parent is None else parent.evaluation
            references[chain], streaks[chain] = before, 0
            ranks[chain] = origin.rank if parent is None else parent.standing
            failed[chain] = None if start is None else failing(start, printed=not objective)
        if evaluation is None or evaluation.only_verdicts:
            continue
        if evaluation.undecided and not item.eligible:
            continue
        # The text of a measurement differs each time.
        rank, report = item.standing, failing(evaluation, printed=not objective)
        least = origin.min_delta if objective else min_delta
        known = ranks[chain]
        better = rank is not None and (known is None or exceeds(rank - known, least))
        if origin.confirmed:
            better = item.accepted is True
        if better:
            references[chain], ranks[chain] = item.number, rank
        other = False
        if report is not None and item.eligible:
            other = failed[chain] not in (None, report)
            failed[chain] = report
        streaks[chain] = 0 if better or other else streaks[chain] + 1
        if streaks[chain] == patience:
            ends.append(item.number)
            streaks[chain] = 0
    return ChainProgress(tuple(ends), references)


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NoProgress(Value, Condition):
    """Stop after `patience` iterations in a row without progress in the present chain.

    Progress is a score, or a value of the objective, above the best of the chain, and a report of tests that names
    other failing tests than the report before. For a command without a score and a report, its output without
    numbers stands for the tests. Iterations without an evaluation do not count. Reason: `no_progress`.

    Args:
        patience: iterations in a row, at least 1.

    Raises:
        ConfigurationError: if the number is out of range.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> scores = enumerate((0.5, 0.5, 0.5), start=1)
        >>> history = History(Iteration(n, evaluation=Evaluation(score)) for n, score in scores)
        >>> NoProgress(patience=2).check(history).detail
        'no better score and no other failing tests for 2 iterations'
    """

    goal: ClassVar[bool] = False
    patience: int

    def __post_init__(self) -> None:
        integer("no_progress: patience", self.patience, minimum=1)

    def check(self, history: History) -> Stop | None:
        if not progress(history, self.patience).stalled(history):
            return None
        return Stop(Reason.NO_PROGRESS, f"{_same(history)} for {self.patience} iterations")


def _same(history: History) -> str:
    last = history.last
    if last is not None and last.accepted is not None:
        return "no iteration was accepted"
    return "no better score and no other failing tests"


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NoChange(Value, Condition):
    """Stop after `limit` iterations in a row that changed no file of the workspace.

    Without a workspace it never holds. Reason: `no_change`.

    Args:
        limit: iterations in a row, at least 1 (default: 2).

    Raises:
        ConfigurationError: if the number is out of range.

    Example:
        >>> from loopwright.records import History, Iteration
        >>> NoChange().check(History([Iteration(1)])) is None
        True
    """

    goal: ClassVar[bool] = False
    limit: int = 2

    def __post_init__(self) -> None:
        integer("no_change: limit", self.limit, minimum=1)

    def check(self, history: History) -> Stop | None:
        if len(history) < self.limit:
            return None
        items = [history[-n] for n in range(self.limit, 0, -1)]
        if not all(map(_unchanged, items)):
            return None
        found = [item.evaluation.tampered for item in items if item.evaluation is not None]
        detail = f"{self.limit} iterations in a row changed no file"
        if paths := [path for one in found if one is not None for path in one.paths]:
            detail += f"; protected files were changed and put back, the first is {paths[0]}"
        return Stop(Reason.NO_CHANGE, detail)


def _unchanged(item: Iteration) -> bool:
    # Of a workspace only: without one it is unknown which files an iteration changed.
    return item.files is not None and item.files.get("files") == 0


STALL_THEN = ("best", "last", "fresh", "ask", "stop")


@dataclass(frozen=True, eq=False, repr=False)
class OnStall(Value):
    """What a loop does after iterations without progress, as `NoProgress` counts them.

    A stall begins a new chain of iterations, with new sessions of agents. The stall after the last new chain ends
    the loop as `no_progress`.

    Args:
        then: where a new chain begins: at the `best` iteration of the loop, the `last` one, or `fresh` with the
            input and the files of the beginning. `ask` lets a person choose between the best iteration and the
            end, `stop` ends the loop. Default: `best`.
        patience: The iterations in a row without progress that are a stall. Default: 2.
        restarts: How many stalls begin a new chain. Default: 5.
        min_delta: The smallest difference of scores that is progress, from 0 to 1. With an objective, the
            `min_delta` of its metric counts instead. Default: 0.

    Raises:
        ConfigurationError: For an unknown word, or a number out of range.

    Example:
        >>> OnStall("fresh", patience=3).restarts
        5
    """

    then: str = "best"
    patience: int = 2
    restarts: int = 5
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        if self.then not in STALL_THEN:
            raise ConfigurationError(
                f"on_stall: then: {self.then!r} is none of {', '.join(STALL_THEN)}{nearest(str(self.then), STALL_THEN)}"
            )
        integer("on_stall: patience", self.patience, minimum=1)
        integer("on_stall: restarts", self.restarts, minimum=0)
        number("on_stall: min_delta", self.min_delta, minimum=0, maximum=1)

    def stalled(self, history: History) -> bool:
        """Return whether the latest iteration completed a stall."""
        return progress(history, self.patience, self.min_delta).stalled(history)

    def check(self, history: History) -> Stop | None:
        """Return the stop after the stall that ends the loop, or None."""
        found = progress(history, self.patience, self.min_delta)
        allowed = 0 if self.then == "stop" else self.restarts
        if len(found.ends) <= allowed or not found.stalled(history):
            return None
        count = len(found.ends)
        times = f" (stall {count})" if count > 1 else ""
        return Stop(Reason.NO_PROGRESS, f"{_same(history)} for {self.patience} iterations{times}")
