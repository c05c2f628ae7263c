"""The keyword limits of a loop, as conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypedDict, cast

from ..conditions import (
    UNITS,
    Budget,
    Condition,
    Degrading,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Timeout,
    tag_of,
)
from ..errors import ConfigurationError
from ..records.codec import number
from .objectives import LoopMetrics
from .step import Step

__all__ = ["LoopLimits", "check_conditions", "measures_only", "with_limits"]

_CONDITIONS: Mapping[str, Callable[[Any], Condition]] = {
    "min_score": ScoreAtLeast,
    "max_iterations": MaxIterations,
    "patience": NoImprovement,
    "timeout": Timeout,
}


class LoopLimits(TypedDict, total=False):
    """The keyword limits of a loop, which `Loop` explains."""

    min_score: float | None
    max_iterations: int | None
    patience: int | None
    max_calls: int | None
    max_total_tokens: int | None
    max_usd: float | None
    timeout: float | None


def with_limits(
    until: Condition | None, guards: Condition | None, limits: LoopLimits
) -> Condition | None:
    """Return `until` joined by "or" with a condition for each keyword limit that is not None.

    Raises:
        ConfigurationError: for an invalid limit, or one that `until` or `guards` names too.
    """
    conditions = _conditions(limits)
    if not conditions:
        return until
    others = [
        other
        for tree in (until, guards)
        if isinstance(tree, Condition)
        for other in (*tree.flat(), *tree.limits())
    ]
    for name, condition in conditions.items():
        for other in others:
            # Two limits of one kind would hide which one the author meant.
            if type(other) is type(condition) and _names_unit(other, name):
                raise ConfigurationError(
                    f"loop: {name}: {other!r} is a condition of the loop too; name the limit once"
                )
    # Several units of one budget share a condition, which is joined once.
    for condition in dict.fromkeys(conditions.values()):
        until = condition if until is None else until | condition
    return until


def _conditions(limits: LoopLimits) -> dict[str, Condition]:
    """Return the condition of each limit by its name; the units of a budget share one."""
    values = cast("Mapping[str, Any]", limits)
    # In the order of the declaration, because the order of conditions is part of a fingerprint.
    names = [name for name in LoopLimits.__annotations__ if values.get(name) is not None]
    units = {UNITS[name]: values[name] for name in names if name in UNITS}
    return {
        name: Budget(**units) if name in UNITS else _CONDITIONS[name](values[name])
        for name in names
    }


def _names_unit(condition: Condition, limit: str) -> bool:
    """Whether a condition of the same class names the limit; a budget has several units."""
    return limit not in UNITS or getattr(condition, UNITS[limit]) is not None


def check_conditions(
    loop: str, members: Iterable[Condition], metrics: LoopMetrics | None, evaluate: Step | None
) -> None:
    """Check the conditions of a loop against what its evaluator measures.

    Raises:
        ConfigurationError: for a condition on a score that no evaluator gives, or a difference of scores
            above 1.
    """
    scored = metrics is not None and metrics.score is not None
    unscored = evaluate is not None and not scored and measures_only(evaluate)
    objective = metrics.objective if metrics is not None else ""
    for condition in _all_of(members):
        if isinstance(condition, ScoreAtLeast) and unscored:
            raise ConfigurationError(
                f"loop {loop}: {tag_of(type(condition))} can never hold: its evaluator measures a metric and gives no score; "
                "use metric_at_least or metric_at_most, or declare score: {metric, worst, best}"
            )
        # In the unit of the objective, any difference is possible.
        for name in _DIFFERENCES.get(type(condition), ()) if not objective else ():
            if isinstance(getattr(condition, name), str):
                continue  # the sigma of past runs
            number(
                f"{tag_of(type(condition))}: {name}", getattr(condition, name), minimum=0, maximum=1
            )


_DIFFERENCES: Mapping[type[Condition], tuple[str, ...]] = {
    NoImprovement: ("min_delta",),
    Degrading: ("sigma", "tolerance"),
}


def _all_of(conditions: Iterable[Condition]) -> Iterator[Condition]:
    for condition in conditions:
        yield condition
        yield from _all_of(condition.parts())


def measures_only(step: Step) -> bool:
    """Return whether an evaluator gives metrics and never a score."""
    while isinstance(inner := getattr(step, "inner", None), Step):
        step = inner
    return getattr(step, "measures_only", False)
