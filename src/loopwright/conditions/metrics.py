"""Conditions of success on a metric: its latest value reaches a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import ConfigurationError
from ..records import History, Iteration, Reason, Stop, number_text
from ..records.codec import integer, number
from .base import Condition, condition, tag_of

__all__ = ["MetricAtLeast", "MetricAtMost"]


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
        if value is None or len(history) < self.min_iterations:
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
