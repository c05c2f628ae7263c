"""The reasons for the end of a loop or run, and the status of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..errors import ConfigurationError, nearest
from .codec import Json
from .iteration import Failure

# 2 is for invalid usage, as in other command line tools, and 130 for an interrupt.
_EXIT_CODES = {
    "satisfied": 0,
    "exhausted": 3,
    "failed": 1,
    "impossible": 5,
    "suspended": 4,
    "cancelled": 130,
}


class Status(StrEnum):
    """How a run ended; determined by its reason.

    Example:
        >>> from loopwright import Status, run_sync
        >>> result = run_sync(str.upper, "a")
        >>> result.status is Status.SATISFIED, result.status.exit_code
        (True, 0)
    """

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
    """Why a loop or run ended.

    The order of the members decides which one is reported when several conditions hold. `status` is the
    status of the reason, `rank` its place in the order, from 0.

    Example:
        >>> Reason("budget").status.value
        'exhausted'
    """

    status: Status
    rank: int

    def __new__(cls, word: str, status: Status = Status.EXHAUSTED) -> Reason:
        """Create a reason with its status."""
        reason = str.__new__(cls, word)
        reason._value_ = word
        reason.status = status
        # Members are created in order, so this is the position.
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
    """The decision of a condition that a loop should end.

    Args:
        reason: the reason, or its word.
        detail: a sentence with the figures.
        also: the reasons of other conditions that hold.
        failure: the error of a condition that failed, which also ends the loop.

    Raises:
        ConfigurationError: for an unknown reason (names the nearest), or a detail that is not text.

    Example:
        >>> Stop(Reason.CONDITION_MET, "score 0.9 is at least 0.8").satisfied
        True
    """

    reason: Reason
    detail: str = ""
    also: tuple[Reason, ...] = ()
    failure: Failure | None = None

    def __post_init__(self) -> None:
        # A condition of a user may return the word of a reason.
        if type(self.reason) is not Reason:
            object.__setattr__(self, "reason", _reason(self.reason))
        if type(self.detail) is not str:
            raise ConfigurationError(
                f"Stop: detail: {self.detail!r:.60} is not text; use a sentence about the end of the loop"
            )

    @property
    def satisfied(self) -> bool:
        """Whether the loop ends with success."""
        return self.reason.status is Status.SATISFIED

    def to_json(self) -> Json:
        """Return the stop as a JSON object."""
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


def _reason(value: object) -> Reason:
    words = [reason.value for reason in Reason]
    if isinstance(value, str) and value in words:
        return Reason(value)
    hint = nearest(value, words) if isinstance(value, str) else ""
    raise ConfigurationError(
        f"Stop: reason: {value!r:.60} is not a Reason{hint}; use Reason.CONDITION_MET for success or "
        "Reason.STOPPED for giving up, with your own words as the detail"
    )
