"""What a run is bounded by: each loop's conditions, as recorded with the run for whoever shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .codec import Json
from .conditions import Budget
from .loop import Loop

__all__ = ["bounds_of"]

_MOST = 200  # loops told of; a generated workflow may have thousands


def bounds_of(step: Any, budget: Budget | None = None) -> dict[str, Json]:
    """Return the bounds of a step as JSON: `{"budget": {…}, "loops": [{name, within, until}]}`.

    `within` is the name of the nearest loop around it, `until` its conditions with the guards, each
    as `Condition.to_json` writes it. A step without loops and without a budget has no bounds: {}.
    """
    loops = [told for told, _ in zip(_loops(step, ""), range(_MOST), strict=False)]
    found: dict[str, Json] = {"loops": loops} if loops else {}
    if budget is not None:
        found["budget"] = budget.to_json()["budget"]
    return found


def _loops(step: Any, within: str) -> Iterator[dict[str, Json]]:
    if isinstance(step, Loop):
        told: dict[str, Json] = {"name": step.name, "until": step.bounds}
        yield {**told, "within": within} if within else told
        within = step.name
    for part in getattr(step, "made_of", tuple)():
        yield from _loops(part, within)
