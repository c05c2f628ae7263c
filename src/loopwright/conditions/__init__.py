"""Termination conditions: frozen values, pure functions of the recorded history.

Rules:

1. `check(history)` returns `Stop` or None from the recorded history alone: no clock, no state, no
   model.
2. `a | b` stops when its first member holds and prefers success; `a & b` stops when all members hold.
   Limits (iterations, timeout, deadline, budget) also act outside an "and": no combination turns a
   limit off.
3. A condition converts to JSON and back unchanged; its tag is the snake case of its class.
"""

from .base import AllOf, AnyOf, Condition
from .base import check_safely as check_safely
from .base import condition as condition
from .base import from_json as from_json
from .base import has_goal as has_goal
from .base import named as named
from .base import prefer as prefer
from .base import tag_of as tag_of
from .limits import CEILING as CEILING
from .limits import UNITS as UNITS
from .limits import Budget, Deadline, MaxIterations, PhaseLimit, Timeout
from .limits import RunLimits as RunLimits
from .limits import amount as amount
from .limits import raised as raised
from .limits import raised_budget as raised_budget
from .limits import tightest as tightest
from .limits import time_limits as time_limits
from .limits import tuned as tuned
from .limits import tuned_budget as tuned_budget
from .limits import unit_of as unit_of
from .progress import DEFAULT_SIGMA as DEFAULT_SIGMA
from .progress import Degrading, NoChange, NoImprovement, NoProgress, RepeatedOutput
from .progress import OnStall as OnStall
from .progress import progress as progress
from .progress import uses_past as uses_past
from .progress import with_sigma as with_sigma
from .success import FEEDBACK_SHOWN as FEEDBACK_SHOWN
from .success import (
    AllCriteriaMet,
    Judged,
    MetricAtLeast,
    MetricAtMost,
    OutputMatches,
    Passed,
    ScoreAtLeast,
)
from .success import Impossible as Impossible
from .success import TreeReading as TreeReading
from .success import questions_in as questions_in
from .success import tampering_stop as tampering_stop
from .success import with_passed as with_passed

# The other names are for packages of Loopwright only.
__all__ = [
    "AllCriteriaMet",
    "AllOf",
    "AnyOf",
    "Budget",
    "Condition",
    "Deadline",
    "Degrading",
    "Judged",
    "MaxIterations",
    "MetricAtLeast",
    "MetricAtMost",
    "NoChange",
    "NoImprovement",
    "NoProgress",
    "OutputMatches",
    "Passed",
    "PhaseLimit",
    "RepeatedOutput",
    "ScoreAtLeast",
    "Timeout",
]
