"""Conditions on what an evaluation says: score, verdict, criteria, pattern, metrics, sentences that a model judges.

An evaluation can also say that the task is impossible, or that the result was tampered with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..errors import ConfigurationError
from ..records import Evaluation, History, Iteration, Reason, Stop, number_text, reaches
from ..records.codec import Json, integer, number, text_of
from ..records.display import shortened
from ..records.typed import Value
from .base import AllOf, AnyOf, Condition, check_safely, condition, tag_of

if TYPE_CHECKING:
    from .._regex import Pattern


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScoreAtLeast(Value, Condition):
    """Stop with success when the latest score is at least `threshold`. Reason: `condition_met`.

    Args:
        threshold: from 0 to 1.
        min_iterations: iterations that must be recorded first, at least 1 (default: 1).

    Raises:
        ConfigurationError: if a value is out of range.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> ScoreAtLeast(0.8).check(History([Iteration(1, evaluation=Evaluation(0.9))])).detail
        'score 0.9 is at least 0.8'
    """

    reads: ClassVar[str] = "a score"

    threshold: float
    min_iterations: int = 1

    def __post_init__(self) -> None:
        number("score_at_least: threshold", self.threshold, minimum=0, maximum=1)
        integer("score_at_least: min_iterations", self.min_iterations, minimum=1)

    def applies_to(self, item: Iteration) -> bool:
        return item.evaluation is not None and item.evaluation.score is not None

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or last.evaluation is None:
            return None
        score = last.evaluation.score
        # Within the rounding error: 0.3 * 3 must reach 0.9.
        if score is None or not reaches(score, self.threshold):
            return None
        # An interrupted or truncated output may have a score, but it is incomplete.
        if not history.can_satisfy or history.length < self.min_iterations:
            return None
        return Stop(Reason.CONDITION_MET, f"score {score:g} is at least {self.threshold:g}")


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Passed(Value, Condition):
    """Stop with success when the latest evaluation passed. Reason: `condition_met`.

    Args:
        min_iterations: iterations that must be recorded first, at least 1 (default: 1).

    Raises:
        ConfigurationError: if the number is out of range.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> Passed().check(History([Iteration(1, evaluation=Evaluation(passed=True))])).detail
        'iteration 1 passed its evaluation'
    """

    reads: ClassVar[str] = "a verdict"

    min_iterations: int = 1

    def __post_init__(self) -> None:
        integer("passed: min_iterations", self.min_iterations, minimum=1)

    def applies_to(self, item: Iteration) -> bool:
        return item.evaluation is not None and item.evaluation.passed is not None

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or last.evaluation is None or last.evaluation.passed is not True:
            return None
        if not history.can_satisfy or history.length < self.min_iterations:
            return None
        return Stop(Reason.CONDITION_MET, f"iteration {last.number} passed its evaluation")


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AllCriteriaMet(Value, Condition):
    """Stop with success when the latest evaluation has criteria and all of them passed.

    Reason: `condition_met`.

    Example:
        >>> from loopwright.records import Criterion, Evaluation, History, Iteration
        >>> evaluation = Evaluation(criteria=(Criterion("short", True),))
        >>> AllCriteriaMet().check(History([Iteration(1, evaluation=evaluation)])).detail
        'all 1 criteria are met'
    """

    reads: ClassVar[str] = "criteria"

    def applies_to(self, item: Iteration) -> bool:
        return bool(item.evaluation and item.evaluation.criteria)

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or not history.can_satisfy or last.evaluation is None:
            return None
        criteria = last.evaluation.criteria
        # Without criteria nothing was checked, although `all` would hold.
        if not criteria or not all(item.passed for item in criteria):
            return None
        return Stop(Reason.CONDITION_MET, f"all {len(criteria)} criteria are met")


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OutputMatches(Value, Condition):
    """Stop with success when a regular expression matches a part of the latest output.

    An output that is not text is searched as JSON. A search has a time limit of 0.05 seconds; a search
    that exceeds it counts as no match. Reason: `condition_met`.

    Args:
        pattern: the regular expression.
        ignore_case: ignore upper and lower case (default: False).
        multiline: `^` and `$` match at each line (default: True).

    Raises:
        ConfigurationError: if the pattern is not a regular expression, or is too complex.

    Example:
        >>> from loopwright.records import History, Iteration
        >>> OutputMatches("^DONE$").check(History([Iteration(1, output="text\\nDONE")])).detail
        "the output matches '^DONE$'"
    """

    pattern: str
    ignore_case: bool = False
    multiline: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, str):
            raise ConfigurationError(f"output_matches: pattern: {self.pattern!r} is not text")
        self._compiled()

    def _compiled(self) -> Pattern:
        from .._regex import compile_pattern

        return compile_pattern(self.pattern, ignore_case=self.ignore_case, multiline=self.multiline)

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or not history.can_satisfy:
            return None
        from .._regex import PatternTimeout

        try:
            match = self._compiled().search(text_of(last.output))
        except PatternTimeout:  # the loop continues: its limits end it
            return None
        if match is None:
            return None
        return Stop(Reason.CONDITION_MET, f"the output matches {self.pattern!r}")


class _MetricLimit(Condition):
    __slots__ = ()
    metric: str
    value: float
    min_iterations: int
    reads: ClassVar[str] = "the metric"
    lower: ClassVar[bool]  # whether `value` is the least allowed value, not the greatest

    def __post_init__(self) -> None:
        tag = tag_of(type(self))
        if not isinstance(self.metric, str) or not self.metric:
            raise ConfigurationError(f"{tag}: metric: {self.metric!r} is not the name of a metric")
        number(f"{tag}: value", self.value)
        integer(f"{tag}: min_iterations", self.min_iterations, minimum=1)

    def applies_to(self, item: Iteration) -> bool:
        return item.evaluation is not None and self.metric in item.evaluation.metrics

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or last.evaluation is None or not last.eligible or last.passed is False:
            return None
        value = last.evaluation.metrics.get(self.metric)
        if value is None or history.length < self.min_iterations:
            return None
        if value < self.value if self.lower else value > self.value:
            return None
        unit = next((item.unit for item in last.measures if item.name == self.metric), "")
        shown = f"{number_text(value)} {unit}".rstrip()
        return Stop(
            Reason.CONDITION_MET,
            f"{self.metric} {shown} is at {'least' if self.lower else 'most'} {number_text(self.value)}",
        )


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MetricAtLeast(Value, _MetricLimit):
    """Stop with success when a metric of the latest evaluation is at least `value`. Reason: `condition_met`.

    Args:
        metric: the name of the metric.
        value: the limit, in the unit of the metric.
        min_iterations: iterations that must be recorded first, at least 1 (default: 1).

    Raises:
        ConfigurationError: if a value is of another type or out of range.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> evaluation = Evaluation(metrics={"requests": 1200.0})
        >>> MetricAtLeast("requests", 1000).check(History([Iteration(1, evaluation=evaluation)])).detail
        'requests 1200 is at least 1000'
    """

    lower: ClassVar[bool] = True
    metric: str
    value: float
    min_iterations: int = 1


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MetricAtMost(Value, _MetricLimit):
    """Stop with success when a metric of the latest evaluation is at most `value`. Reason: `condition_met`.

    Args:
        metric: the name of the metric.
        value: the limit, in the unit of the metric.
        min_iterations: iterations that must be recorded first, at least 1 (default: 1).

    Raises:
        ConfigurationError: if a value is of another type or out of range.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> evaluation = Evaluation(metrics={"val_loss": 0.9312})
        >>> MetricAtMost("val_loss", 0.95).check(History([Iteration(1, evaluation=evaluation)])).detail
        'val_loss 0.9312 is at most 0.95'
    """

    lower: ClassVar[bool] = False
    metric: str
    value: float
    min_iterations: int = 1


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Judged(Value, Condition):
    """Stop with success when a model says that a sentence is true of the latest output. Reason: `condition_met`.

    The loop asks the model after `evaluate`, and only if the answer can still make the loop succeed. The
    answer is recorded in `Evaluation.verdicts`, which this condition reads. As the only sentence of a loop
    without an evaluator, it is the evaluator: it is asked in every iteration and also gives a score.

    Args:
        sentence: what must be true of the output.
        model: the model, such as "openai:gpt-4o-mini" (default: the model of the run).
        judge: the evaluator that answers; its `passed` is the answer (default: a judge with one vote).

    Raises:
        ConfigurationError: if the sentence is empty or a value is not text.

    Example:
        >>> from loopwright.records import Evaluation, History, Iteration
        >>> said = Evaluation(verdicts={"It has a date.": {"passed": True}})
        >>> Judged("It has a date.").check(History([Iteration(1, evaluation=said)])).detail
        'It has a date: yes'
    """

    sentence: str
    model: str = ""
    # Not a part of its value: in JSON there is only the sentence with its model.
    judge: object = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("sentence", "model"):
            if not isinstance(value := getattr(self, name), str):
                raise ConfigurationError(f"judged: {name}: {value!r:.60} is not text")
        if not self.sentence.strip():
            raise ConfigurationError("judged: sentence: it is empty; write what must be true")

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or last.evaluation is None or not history.can_satisfy:
            return None
        if last.evaluation.answer(self.sentence) is not True:
            return None
        return Stop(Reason.CONDITION_MET, f"{self.sentence.rstrip(' .')}: yes")

    def field_values(self) -> dict[str, Json]:
        """Return its fields as JSON, without defaults."""
        return {"sentence": self.sentence, **({"model": self.model} if self.model else {})}

    def to_json(self) -> Json:
        """Return `{"judged": sentence}`, with the model if it has one."""
        return {"judged": self.field_values() if self.model else self.sentence}


def questions_in(tree: Condition | None) -> Iterator[Judged]:
    """Iterate over the sentences in a tree of conditions, depth first."""
    if isinstance(tree, Judged):
        yield tree
    for part in () if tree is None else tree.parts():
        yield from questions_in(part)


def with_passed(tree: Condition) -> Condition:
    """Return a tree with `Passed` in the place of each sentence."""
    if isinstance(tree, AnyOf | AllOf):
        return type(tree)(tuple(map(with_passed, tree.members)))
    return Passed() if isinstance(tree, Judged) else tree


_READINGS = ("no", "holds", "open", "yes")  # in the order in which a part of an "or" decides it


class TreeReading:
    """A tree of conditions read after one iteration, while some of its sentences have no answer.

    A part is `yes` if it holds with success, `holds` if it ends the loop without success, `open` if an answer
    that is missing could make it hold, and `no` otherwise.

    Args:
        members: the conditions, of which any ends the loop.
        history: the iterations so far.
        answers: the answers by sentence; None for an undecided one. A sentence without one was not asked.
        of_input: whether the latest record is the evaluation of the input, before the first iteration.
            Only conditions that read an evaluation can hold then.
    """

    def __init__(
        self,
        members: Iterable[Condition],
        history: History,
        answers: Mapping[str, bool | None],
        *,
        of_input: bool = False,
    ) -> None:
        self.tree = AnyOf(tuple(members))
        self.answers = dict(answers)
        self._history, self._of_input = history, of_input
        self._checked: dict[Condition, str] = {}

    def value(self, part: Condition | None = None) -> str:
        """Return how a part of the tree reads; by default, the tree."""
        part = self.tree if part is None else part
        if isinstance(part, Judged):
            answer = self.answers.get(part.sentence)
            return "open" if answer is None else "yes" if answer else "no"
        if isinstance(part, AnyOf | AllOf):
            values = {self.value(member) for member in part.members}
            if isinstance(part, AllOf):
                for first in ("no", "open"):
                    if first in values:
                        return first
            return max(values, key=_READINGS.index)
        # Once, because a condition of a user may be slow.
        if part not in self._checked:
            self._checked[part] = self._check(part)
        return self._checked[part]

    def _check(self, part: Condition) -> str:
        if self._of_input and not part.reads:
            return "no"
        stop = check_safely(part, self._history)
        if stop is None or stop.failure is not None:
            return "no"
        return "yes" if stop.satisfied else "holds"

    def needed(self, *, asked: bool = False) -> Judged | None:
        """Return the first sentence whose answer could make the tree succeed, or None.

        Args:
            asked: whether it is one that was asked and is undecided, not one that was not asked.
        """
        return next(self._needed(self.tree, asked), None)

    def _needed(self, part: Condition, asked: bool) -> Iterator[Judged]:
        if self.value(part) != "open":
            return
        if isinstance(part, Judged) and (part.sentence in self.answers) is asked:
            yield part
        for member in part.parts():
            yield from self._needed(member, asked)


FORGED_IN_A_ROW = 3  # results that are not to be believed, until the loop ends
FEEDBACK_SHOWN = 200  # characters of feedback in the sentence on why a loop ended


@dataclass(frozen=True, eq=False, repr=False)
class Impossible(Value):
    """When evaluations that call the task impossible end a loop, with the status `impossible`.

    Only decided iterations count; one of them that does not say so starts the count again. Before the end,
    such an evaluation is not met, and its reason is feedback.

    Args:
        floor: The first iteration that counts. Default: 3.
        looks: How many decided iterations in a row must say so. Default: 2.

    Raises:
        ConfigurationError: For a number below 1, or fewer looks than 2.

    Example:
        >>> from loopwright import Evaluation, Impossible, Loop, run_sync
        >>> no = Evaluation(impossible=True, feedback="the file does not exist")
        >>> result = run_sync(Loop(str, lambda text: no, impossible=Impossible(floor=1)), "task")
        >>> result.status.value, result.iterations
        ('impossible', 2)
    """

    floor: int = 3
    looks: int = 2

    def __post_init__(self) -> None:
        integer("impossible: floor", self.floor, minimum=1)
        # One look is one vote of a model, and a wrong one would give up a task that can be done.
        integer("impossible: looks", self.looks, minimum=2)

    def check(self, history: History) -> Stop | None:
        """Return the stop after the last look that is needed, or None."""
        if not len(history) or not _impossible(history[-1]):
            return None
        looks = 0
        for item in reversed(history):
            if item.number < self.floor:
                break
            if item.error is not None or item.interrupted or item.undecided:
                continue
            if not _impossible(item):
                break
            looks += 1
        if looks < self.looks:
            return None
        why = shortened(" ".join(history[-1].feedback.split()), FEEDBACK_SHOWN)
        detail = f"{self.looks} evaluations in a row say that the task is impossible"
        return Stop(Reason.IMPOSSIBLE, f"{detail}: {why}" if why else detail)


def _impossible(item: Iteration) -> bool:
    return item.evaluation is not None and item.evaluation.impossible


def tampering_stop(history: History) -> Stop | None:
    """Return the stop of a loop whose latest iteration tampered for the last time that is allowed."""
    last = history.last
    evaluation = None if last is None else last.evaluation
    tampered = None if evaluation is None else evaluation.tampered
    if last is None or tampered is None:
        return None
    if tampered.action == "stop":
        return Stop(Reason.TAMPERED, f"iteration {last.number}: {tampered.why}")
    latest = history[-FORGED_IN_A_ROW:] if len(history) >= FORGED_IN_A_ROW else ()
    if latest and all(_forged(item.evaluation) for item in latest):
        return Stop(
            Reason.TAMPERED,
            f"the results of {FORGED_IN_A_ROW} iterations in a row are forged, the last one because "
            f"{tampered.why}",
        )
    return None


def _forged(evaluation: Evaluation | None) -> bool:
    tampered = None if evaluation is None else evaluation.tampered
    return tampered is not None and tampered.kind == "forged"
