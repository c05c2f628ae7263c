"""Termination conditions: frozen values, pure functions of the recorded history.

Rules:

1. `check(history)` returns `Stop` or None from the recorded history alone: no clock, no state, no
   model.
2. `a | b` stops when its first member holds and prefers success; `a & b` stops when all members hold.
   Limits (iterations, timeout, deadline, budget) also act outside an "and": no combination turns a
   limit off.
3. A condition converts to JSON and back unchanged; its tag is the snake case of its class.
"""

from .base import (
    AllOf,
    AnyOf,
    Condition,
    asked,
    condition,
    from_json,
    has_goal,
    named,
    prefer,
    tag_of,
)
from .limits import (
    CEILING,
    UNITS,
    Budget,
    Deadline,
    MaxIterations,
    PhaseLimit,
    RunLimits,
    Timeout,
    amount,
    raised,
    raised_budget,
    unit_of,
)
from .progress import Degrading, NoImprovement, RepeatedOutput
from .success import AllCriteriaMet, OutputMatches, Passed, ScoreAtLeast

__all__ = [
    "CEILING",
    "UNITS",
    "AllCriteriaMet",
    "AllOf",
    "AnyOf",
    "Budget",
    "Condition",
    "Deadline",
    "Degrading",
    "MaxIterations",
    "NoImprovement",
    "OutputMatches",
    "Passed",
    "PhaseLimit",
    "RepeatedOutput",
    "RunLimits",
    "ScoreAtLeast",
    "Timeout",
    "amount",
    "asked",
    "condition",
    "from_json",
    "has_goal",
    "named",
    "prefer",
    "raised",
    "raised_budget",
    "tag_of",
    "unit_of",
]
