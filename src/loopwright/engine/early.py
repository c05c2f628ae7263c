"""An evaluation that ends early: its values on the way are worse than the median of those of earlier iterations.

1. Only recorded iterations count, so that candidates at the same time do not influence each other, and a resumed
   run decides alike.
2. The evaluation of the input, measurements of a confirmation and those of `rejudge` are never ended early.
3. The objective says which values are better. Without one, values are recorded and end nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import StepError, StoppedEarly
from ..records import MINIMISE, Evaluation, Iteration, as_evaluation, is_judging, number_text
from ..records.codec import Json, integer, number
from ..records.typed import Value
from .metrics import TAKES

if TYPE_CHECKING:
    from .context import Context

__all__ = [
    "Curve",
    "Early",
    "curve_of",
]

POINTS = 1000  # of a recorded curve


@dataclass(frozen=True, eq=False, repr=False)
class Early(Value):
    """When an evaluation ends early: its value at a step is worse than the median of earlier iterations.

    Args:
        pattern: A regular expression with two groups, the step and the value, in each line that a command prints.
            Default: none; an evaluator of Python calls `ctx.interim`.
        from_: The first step at which an evaluation may end. Default: 0.
        earlier: How many earlier iterations need a value at or before this step, at least 1. Default: 3.

    Raises:
        ConfigurationError: For a number out of range.

    Example:
        >>> Early("step ([0-9]+) loss ([0-9.]+)", from_=100).earlier
        3
    """

    pattern: str = ""
    from_: float = 0
    earlier: int = 3

    def __post_init__(self) -> None:
        number("early: from", self.from_, minimum=0)
        integer("early: earlier", self.earlier, minimum=1)

    def worse(
        self, step: float, value: float, curves: Iterable[Sequence[Sequence[float]]], sign: int
    ) -> tuple[float, int] | None:
        """Return the median of the earlier curves at a step and their number, if the value is worse; else None.

        Args:
            step: the step.
            value: the value there; one that is not a number is worse than any.
            curves: the points of earlier iterations, each a step and a value, by step.
            sign: 1 if higher values are better, else -1.
        """
        if step < self.from_:
            return None
        values = [
            curve[place - 1][1]
            for curve in curves
            if (place := bisect_right(curve, step, key=lambda point: point[0]))
        ]
        if len(values) < self.earlier:
            return None
        median = TAKES["median"](values)
        return None if sign * value >= sign * median else (median, len(values))


class Curve:
    """The values of one evaluation on the way, compared with those of earlier iterations.

    Args:
        early: the rule.
        curves: the points of earlier iterations.
        sign: 1 if higher values are better, -1 if lower ones are, 0 if none may end it.
    """

    def __init__(
        self, early: Early, curves: Sequence[Sequence[Sequence[float]]], sign: int
    ) -> None:
        self.early = early
        self.curves, self.sign = [sorted(map(list, curve)) for curve in curves], sign
        self.points: list[list[float]] = []
        self.stopped = ""

    def add(self, step: float, value: float) -> str:
        """Add a value; return why the evaluation ends here, or ""."""
        if math.isfinite(step) and math.isfinite(value):
            self.points.append([step, value])
            if len(self.points) > POINTS:
                del self.points[1::2]
        worse = self.early.worse(step, value, self.curves, self.sign) if self.sign else None
        if worse is not None and not self.stopped:
            self.stopped = (
                f"stopped early at step {number_text(step)}: {number_text(value)} is worse than the median "
                f"{number_text(worse[0])} of {worse[1]}"
            )
        return self.stopped

    def of(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation with the curve in its details."""
        return replace(evaluation, details={**evaluation.details, "curve": self.points})

    def evaluated(self, output: Json) -> Evaluation:
        """Return the evaluation of an evaluator that returned an output, whatever it is if it was to end early."""
        return self.end if self.stopped else self.of(as_evaluation(output))

    @property
    def end(self) -> Evaluation:
        """The evaluation that was ended: without a value, as after a command that fails."""
        return self.of(Evaluation(passed=False, feedback=self.stopped))


def curve_of(ctx: Context, early: Early, name: str = "") -> Curve:
    """Return the curve of an evaluation that begins.

    Args:
        ctx: the context of the evaluator.
        early: the rule.
        name: the metric that says which values are better. Default: the objective.
    """
    scope = ctx.scope
    history: Sequence[Iteration] = () if scope is None else scope.history
    prefix = "" if scope is None else f"{scope.path}/{scope.number}/"
    place = ctx.path.removeprefix(prefix)
    # The input is evaluated as iteration 0.
    may_end = scope is not None and scope.number > 0 and place != ctx.path
    sign = _sign(history, name) if may_end and not place.startswith("confirm/") else 0
    return Curve(early, [*_curves(history)], sign)


def _curves(history: Iterable[Iteration]) -> Iterable[Sequence[Sequence[float]]]:
    for item in history:
        if item.evaluation is not None and (curve := item.evaluation.details.get("curve")):
            yield curve


def _sign(history: Iterable[Iteration], name: str) -> int:
    """Return the direction of a metric, as the records have it; 0 without one."""
    measures = (measure for item in history for measure in item.measures)
    found = next(
        (one for one in measures if one.name == name or (not name and one.objective)), None
    )
    return 0 if found is None or not found.direction else -1 if found.direction == MINIMISE else 1


def interim(ctx: Context, value: float, step: float, early: Early) -> None:
    """Add a value to the curve of the evaluation of a context, as `Context.interim` does."""
    for what, figure in (("value", value), ("step", step)):
        if isinstance(figure, bool) or not isinstance(figure, int | float):
            raise StepError(
                f"interim: {what}: {figure!r:.40} is not a number",
                path=ctx.path, kind="bad_interim", retryable=False,
            )  # fmt: skip
    if not is_judging(ctx.path):
        return
    if not hasattr(ctx, "curve"):
        ctx.curve = curve_of(ctx, early)
    if sentence := ctx.curve.add(step, value):
        raise StoppedEarly(sentence, path=ctx.path, kind="stopped_early", retryable=False)
