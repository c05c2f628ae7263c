"""Why things end: the closed set of reasons, and the status each one means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import ConfigurationError, nearest
from .codec import Json
from .iteration import Failure

_EXIT_CODES = {
    "satisfied": 0,
    "exhausted": 3,
    "failed": 1,
    "impossible": 5,
    "suspended": 4,
    "cancelled": 130,
}


class Status(StrEnum):
    """How a run ended, and nothing else; a function of its reason."""

    SATISFIED = "satisfied"
    EXHAUSTED = "exhausted"
    FAILED = "failed"
    IMPOSSIBLE = "impossible"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line for this status."""
        return _EXIT_CODES[self.value]


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
    IMPROVED = "improved", Status.SATISFIED
    ALREADY_SATISFIED = "already_satisfied", Status.SATISFIED
    TAMPERED = "tampered", Status.FAILED
    CANCELLED = "cancelled", Status.CANCELLED
    DEADLINE = "deadline"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    ERROR = "error", Status.FAILED
    EVALUATOR_UNUSABLE = "evaluator_unusable", Status.FAILED
    REPEATED_FAILURE = "repeated_failure", Status.FAILED
    ALL_FAILED = "all_failed", Status.FAILED
    ITEMS_FAILED = "items_failed", Status.FAILED
    IMPOSSIBLE = "impossible", Status.IMPOSSIBLE
    ITEMS_EXHAUSTED = "items_exhausted"
    REPEATED_OUTPUT = "repeated_output"
    DEGRADING = "degrading"
    NO_PROGRESS = "no_progress"
    NO_CHANGE = "no_change"
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


@dataclass(frozen=True, slots=True)
class Stop:
    """A condition's verdict that a loop should end: the closed reason and a sentence with the
    figures.

    `failure` is the error of a condition that could not be asked, which ends a loop as well.

    Raises:
        ConfigurationError: if the reason is none of `Reason`, naming the nearest, or the detail no text.
    """

    reason: Reason
    detail: str = ""
    also: tuple[Reason, ...] = ()
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if type(self.reason) is not Reason:
            object.__setattr__(self, "reason", _reason(self.reason))
        if type(self.detail) is not str:
            raise ConfigurationError(
                f"Stop: detail: {self.detail!r:.60} is not text; give a sentence on why the loop ends"
            )

    @property
    def satisfied(self) -> bool:
        """Whether this ends the loop in success."""
        return self.reason.status is Status.SATISFIED

    def to_json(self) -> Json:
        """Return it as a JSON object."""
        data = {"reason": self.reason.value, "detail": self.detail, "also": list(self.also)}
        return data if self.failure is None else {**data, "failure": self.failure.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Stop:
        """Return the stop that `to_json` wrote."""
        return cls(
            Reason(data["reason"]),
            data["detail"],
            tuple(Reason(r) for r in data.get("also", ())),
            Failure.from_json(data.get("failure")),
        )


def _reason(given: Any) -> Reason:
    words = [reason.value for reason in Reason]
    if isinstance(given, str) and given in words:
        return Reason(given)
    hint = nearest(str(given), words) if isinstance(given, str) else ""
    raise ConfigurationError(
        f"Stop: reason: {given!r:.60} is not a Reason{hint}; give one, such as Reason.CONDITION_MET for success or "
        "Reason.STOPPED for giving up, and your own words as its detail"
    )
