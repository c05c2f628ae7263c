"""Conditions of success: score, verdict, criteria, pattern, metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._regex import Pattern, PatternTimeout, compile_pattern
from ..errors import ConfigurationError
from ..records import History, Iteration, Reason, Stop, number_text, reaches
from ..records.codec import integer, number, text_of
from .base import Condition, condition, tag_of


@condition
@dataclass(frozen=True, slots=True)
class ScoreAtLeast(Condition):
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
@dataclass(frozen=True, slots=True)
class Passed(Condition):
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
@dataclass(frozen=True, slots=True)
class AllCriteriaMet(Condition):
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
@dataclass(frozen=True, slots=True)
class OutputMatches(Condition):
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
        return compile_pattern(self.pattern, ignore_case=self.ignore_case, multiline=self.multiline)

    def check(self, history: History) -> Stop | None:
        last = history.last
        if last is None or not history.can_satisfy:
            return None
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
@dataclass(frozen=True, slots=True)
class MetricAtLeast(_MetricLimit):
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
@dataclass(frozen=True, slots=True)
class MetricAtMost(_MetricLimit):
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
