"""Why things end: the closed set of reasons, and the status each one means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..codec import Json


class Status(StrEnum):
    """How a run ended, and nothing else; a function of its reason."""

    SATISFIED = "satisfied"
    EXHAUSTED = "exhausted"
    FAILED = "failed"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line for this status."""
        return {"satisfied": 0, "exhausted": 3, "failed": 1, "suspended": 4, "cancelled": 130}[self]


class Reason(StrEnum):
    """Why a loop or run ended, in the order in which one is preferred when several hold.

    `status` is what each means, `rank` its place in the order, from 0.
    """

    status: Status
    rank: int

    def __new__(cls, word: str, status: Status = Status.EXHAUSTED) -> Reason:
        """Make a reason that means a status."""
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.status = status
        reason.rank = len(cls.__members__)
        return reason

    CONDITION_MET = "condition_met", Status.SATISFIED
    COMPLETED = "completed", Status.SATISFIED
    ACCEPTED = "accepted", Status.SATISFIED
    CANCELLED = "cancelled", Status.CANCELLED
    DEADLINE = "deadline"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    ERROR = "error", Status.FAILED
    EVALUATOR_UNUSABLE = "evaluator_unusable", Status.FAILED
    REPEATED_FAILURE = "repeated_failure", Status.FAILED
    ALL_FAILED = "all_failed", Status.FAILED
    REPEATED_OUTPUT = "repeated_output"
    DEGRADING = "degrading"
    NO_IMPROVEMENT = "no_improvement"
    SUCCESS_RATE = "success_rate_not_met", Status.FAILED
    PHASE_LIMIT = "phase_limit"
    MAX_ITERATIONS = "max_iterations"
    CEILING = "ceiling"
    STOPPED = "stopped"
    APPROVAL = "approval", Status.SUSPENDED
    NEEDS_ATTENTION = "needs_attention", Status.SUSPENDED
    THROTTLED = "throttled", Status.SUSPENDED
    QUOTA = "quota", Status.SUSPENDED


@dataclass(slots=True, unsafe_hash=True)
class Stop:
    """A condition's verdict that a loop should end: the closed reason and a sentence with the
    figures."""

    reason: Final[Reason]
    detail: Final[str] = ""
    also: Final[tuple[Reason, ...]] = ()

    @property
    def satisfied(self) -> bool:
        """Whether this ends the loop in success."""
        return self.reason.status is Status.SATISFIED

    def to_json(self) -> Json:
        """Return it as a JSON object."""
        return {"reason": self.reason.value, "detail": self.detail, "also": list(self.also)}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Stop:
        """Return the stop that `to_json` wrote."""
        return cls(
            Reason(data["reason"]), data["detail"], tuple(Reason(r) for r in data.get("also", ()))
        )
