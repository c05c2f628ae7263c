"""Limits that a person raised while a run was on record: the same conditions with other figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..codec import Json
from .base import Condition
from .limits import Budget, MaxIterations, PhaseLimit

__all__ = ["raised", "raised_budget"]


def raised(members: Iterable[Condition], told: Mapping[str, Json]) -> tuple[Condition, ...]:
    """Return conditions with their limits raised to `max_iterations` and `max_usd`, never lowered."""
    return tuple(_one(member, told) for member in members)


def _one(member: Condition, told: Mapping[str, Json]) -> Condition:
    most = told.get("max_iterations")
    if most is not None and isinstance(member, MaxIterations | PhaseLimit):
        return replace(member, limit=max(most, member.limit))
    return raised_budget(member, told) if isinstance(member, Budget) else member


def raised_budget(cap: Budget, told: Mapping[str, Json]) -> Budget:
    """Return a cap with its dollars raised to `max_usd`, if that is more and dollars are capped."""
    most = told.get("max_usd")
    return cap if most is None or cap.usd is None else replace(cap, usd=max(most, cap.usd))
