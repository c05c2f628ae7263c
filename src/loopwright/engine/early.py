"""An evaluation that ends early: its values on the way are worse than the median of those of earlier iterations.

1. Only recorded iterations count, so that candidates at the same time do not influence each other, and a resumed
   run decides alike.
2. The evaluation of the input, measurements of a confirmation and those of `rejudge` are never ended early.
3. The objective says which values are better. Without one, values are recorded and end nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import StoppedEarly
from ..records import MAXIMISE, MINIMISE, Evaluation, as_evaluation, is_judging, number_text
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
        values = [
            curve[place - 1][1]
            for curve in self.curves
            if (place := bisect_right(curve, step, key=lambda point: point[0]))
        ]
        if (
            self.stopped
            or not self.sign
            or step < self.early.from_
            or len(values) < self.early.earlier
        ):
            return self.stopped
        median = TAKES["median"](values)
        # A value that is not a number is worse than any.
        if not self.sign * value >= self.sign * median:
            self.stopped = (
                f"stopped early at step {number_text(step)}: {number_text(value)} is worse than the median "
                f"{number_text(median)} of {len(values)}"
            )
        return self.stopped

    def of(self, output: Json = None) -> Evaluation:
        """Return the evaluation of what an evaluator returned, with the curve in its details.

        One that was to end early has no value, as after a command that fails.
        """
        evaluation = as_evaluation(output)
        if self.stopped:
            evaluation = Evaluation(passed=False, feedback=self.stopped, details=evaluation.details)
        return replace(evaluation, details={**evaluation.details, "curve": self.points})


def curve_of(ctx: Context, early: Early, name: str = "") -> Curve:
    """Return the curve of an evaluation that begins.

    Args:
        ctx: the context of the evaluator.
        early: the rule.
        name: the metric that says which values are better. Default: the objective.
    """
    scope = ctx.scope
    if scope is None:
        return Curve(early, (), 0)
    # The input is evaluated as iteration 0.
    path = ctx.path.removeprefix(f"{scope.path}/{scope.number}/")
    may_end = scope.number and path != ctx.path and not path.startswith("confirm/")
    measures = (measure for item in scope.history for measure in item.measures)
    known = next(
        (one for one in measures if one.name == name or (not name and one.objective)), None
    )
    sign = {MINIMISE: -1, MAXIMISE: 1}.get(known.direction, 0) if known and may_end else 0
    evaluations = (item.evaluation for item in scope.history if item.evaluation is not None)
    curves = [curve for one in evaluations if (curve := one.details.get("curve"))]
    return Curve(early, curves, sign)


def interim(ctx: Context, value: float, step: float, early: Early) -> None:
    """Add a value to the curve of the evaluation of a context, as `Context.interim` does."""
    if not is_judging(ctx.path):
        return
    if not hasattr(ctx, "curve"):
        ctx.curve = curve_of(ctx, early)
    if sentence := ctx.curve.add(step, value):
        raise StoppedEarly(sentence, path=ctx.path, kind="stopped_early", retryable=False)
