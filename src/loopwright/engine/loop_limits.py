"""The keyword limits of a loop, as conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, cast

from ..conditions import (
    UNITS,
    Budget,
    Condition,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Timeout,
)
from ..errors import ConfigurationError

__all__ = ["LoopLimits", "with_limits"]

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
