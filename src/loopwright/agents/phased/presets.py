"""The defaults of the roles and of the complexities of tasks that the phased agent's format names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...errors import ConfigurationError, nearest

__all__ = ["BUFFER", "COMPLEXITIES", "ROLES", "TOKEN_SPLIT", "effective", "preset"]

_NAMES = ("max_planning_iterations", "max_execution_iterations", "max_refinement_iterations")
BUFFER = 0.1  # of the sum of the phases, at least one iteration, as the format has it
TOKEN_SPLIT = (0.1, 0.4, 0.5)  # of planning, execution and refinement


def _limits(*limits: int) -> dict[str, float]:
    return dict(zip(_NAMES, limits, strict=True))


ROLES: Mapping[str, Mapping[str, float]] = MappingProxyType({
    "base": _limits(2, 3, 1),
    "qa_specialist": _limits(1, 5, 2),
    "coordinator": _limits(2, 3, 1),
    "financial_analyst": _limits(2, 3, 1),
    "risk_analyst": _limits(2, 3, 1),
})  # fmt: skip
COMPLEXITIES: Mapping[str, Mapping[str, float]] = MappingProxyType({
    "low": {**_limits(1, 1, 1), "max_duration_seconds": 120.0},
    "medium": {},  # what the role says
    "high": {**_limits(2, 3, 2), "max_duration_seconds": 300.0},
})  # fmt: skip


def preset(role: str, complexity: str) -> dict[str, float]:
    """Return the defaults of a role, and over them those of a task's complexity.

    Raises:
        ConfigurationError: for an unknown name, with the nearest known one.
    """
    found = dict(ROLES["base"])
    for what, name, known in (
        ("role", role, ROLES),
        ("task_complexity", complexity, COMPLEXITIES),
    ):
        if not name:
            continue
        if name not in known:
            hint = nearest(name, known) or f"; use one of {', '.join(known)}"
            raise ConfigurationError(f"phased agent: {what}: {name!r} is unknown{hint}")
        found |= known[name]
    return found


def effective(total: int, explicit: int | None) -> int:
    """Return `max_iterations_effective`: the explicit cap, else the sum of the phases and a tenth
    more, at least one."""
    return explicit if explicit is not None else total + max(1, int(total * BUFFER))
