"""Why things end: the closed set of reasons, and the status each one means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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
    """Why a loop or run ended, in the order in which one is preferred when several hold."""

    CONDITION_MET = "condition_met"
    COMPLETED = "completed"
    ACCEPTED = "accepted"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    ERROR = "error"
    EVALUATOR_UNUSABLE = "evaluator_unusable"
    REPEATED_FAILURE = "repeated_failure"
    ALL_FAILED = "all_failed"
    REPEATED_OUTPUT = "repeated_output"
    DEGRADING = "degrading"
    NO_IMPROVEMENT = "no_improvement"
    SUCCESS_RATE = "success_rate_not_met"
    PHASE_LIMIT = "phase_limit"
    MAX_ITERATIONS = "max_iterations"
    CEILING = "ceiling"
    STOPPED = "stopped"
    APPROVAL = "approval"
    NEEDS_ATTENTION = "needs_attention"
    THROTTLED = "throttled"
    QUOTA = "quota"

    @property
    def status(self) -> Status:
        """The status that this reason means."""
        return _STATUS.get(self, Status.EXHAUSTED)

    @property
    def rank(self) -> int:
        """Its place in the order of preference, from 0."""
        return _RANK[self]


_STATUS = {
    Reason.CONDITION_MET: Status.SATISFIED,
    Reason.COMPLETED: Status.SATISFIED,
    Reason.ACCEPTED: Status.SATISFIED,
    Reason.CANCELLED: Status.CANCELLED,
    Reason.ERROR: Status.FAILED,
    Reason.EVALUATOR_UNUSABLE: Status.FAILED,
    Reason.REPEATED_FAILURE: Status.FAILED,
    Reason.ALL_FAILED: Status.FAILED,
    Reason.SUCCESS_RATE: Status.FAILED,
    Reason.APPROVAL: Status.SUSPENDED,
    Reason.NEEDS_ATTENTION: Status.SUSPENDED,
    Reason.THROTTLED: Status.SUSPENDED,
    Reason.QUOTA: Status.SUSPENDED,
}
_RANK = {reason: rank for rank, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class Stop:
    """A condition's verdict that a loop should end: the closed reason and a sentence with the
    figures."""

    reason: Reason
    detail: str = ""
    also: tuple[Reason, ...] = ()

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
