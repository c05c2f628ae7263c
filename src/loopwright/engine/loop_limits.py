"""The keyword limits of a loop, as conditions."""

from __future__ import annotations

from typing import TypedDict

from ..conditions import (
    Budget,
    Condition,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Timeout,
)
from ..errors import ConfigurationError

__all__ = ["LoopLimits", "with_limits"]

_UNITS = {"max_calls": "calls", "max_total_tokens": "tokens", "max_usd": "usd"}


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
    conditions: dict[str, Condition] = {}
    if (score := limits.get("min_score")) is not None:
        conditions["min_score"] = ScoreAtLeast(score)
    if (iterations := limits.get("max_iterations")) is not None:
        conditions["max_iterations"] = MaxIterations(iterations)
    if (patience := limits.get("patience")) is not None:
        conditions["patience"] = NoImprovement(patience)
    calls, tokens, usd = (
        limits.get("max_calls"),
        limits.get("max_total_tokens"),
        limits.get("max_usd"),
    )
    for name, value in (("max_calls", calls), ("max_total_tokens", tokens), ("max_usd", usd)):
        if value is not None:
            conditions[name] = Budget(calls=calls, tokens=tokens, usd=usd)
    if (seconds := limits.get("timeout")) is not None:
        conditions["timeout"] = Timeout(seconds)
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
            if type(other) is type(condition) and _names_unit(other, name):
                raise ConfigurationError(
                    f"loop: {name}: {other!r} is a condition of the loop too; name the limit once"
                )
    for condition in dict.fromkeys(conditions.values()):
        until = condition if until is None else until | condition
    return until


def _names_unit(condition: Condition, limit: str) -> bool:
    """Whether a condition of the same class names the limit; a budget has several units."""
    return limit not in _UNITS or getattr(condition, _UNITS[limit]) is not None
