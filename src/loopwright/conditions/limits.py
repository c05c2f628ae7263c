"""Hard limits: iterations, time and money. They act whatever else holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from ..codec import number, whole
from ..errors import ConfigurationError
from ..records import History, Reason, Stop
from .base import Condition, condition

CEILING = 1000  # no loop runs longer, whatever it says


@condition
@dataclass(frozen=True, slots=True)
class MaxIterations(Condition):
    """Stop after `limit` iterations, failed ones included."""

    limit: int
    hard: ClassVar[bool] = True
    early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _limit("max_iterations", self.limit)

    def check(self, history: History) -> Stop | None:
        if len(history) < self.limit:
            return None
        return Stop(Reason.MAX_ITERATIONS, f"{len(history)} of {self.limit} iterations used")


@condition
@dataclass(frozen=True, slots=True)
class PhaseLimit(Condition):
    """Stop a phase of an agent after `limit` iterations; the next phase follows."""

    limit: int
    hard: ClassVar[bool] = True
    early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _limit("phase_limit", self.limit)

    def check(self, history: History) -> Stop | None:
        if len(history) < self.limit:
            return None
        return Stop(Reason.PHASE_LIMIT, f"{len(history)} of {self.limit} phase iterations used")


def _limit(tag: str, limit: int) -> None:
    if whole(f"{tag}: limit", limit, least=1) > CEILING:
        raise ConfigurationError(
            f"{tag}: {limit} is above the ceiling of {CEILING}; give at most {CEILING}"
        )


@condition
@dataclass(frozen=True, slots=True)
class Timeout(Condition):
    """Stop once the loop has been active for `seconds`; the call in flight is cancelled.

    Time that the run waits for a person, or is not running at all, does not count.
    """

    seconds: float
    hard: ClassVar[bool] = True
    early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        number("timeout: seconds", self.seconds, least=0, above=True)

    def check(self, history: History) -> Stop | None:
        if history.elapsed < self.seconds:
            return None
        return Stop(Reason.TIMEOUT, f"{self.seconds:g} s used")


@condition
@dataclass(frozen=True, slots=True)
class Deadline(Condition):
    """Stop at a moment of the wall clock: `at` is an ISO 8601 date and time with an offset."""

    at: str
    hard: ClassVar[bool] = True
    early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.timestamp()

    def timestamp(self) -> float:
        """Return the moment as seconds since the epoch."""
        try:
            moment = datetime.fromisoformat(self.at)
        except (TypeError, ValueError):
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ConfigurationError(
                f"deadline: {self.at!r} is not a date and time with an offset; "
                "write it like 2030-01-31T18:00:00+00:00"
            )
        return moment.timestamp()

    def check(self, history: History) -> Stop | None:
        if history.now < self.timestamp():
            return None
        return Stop(Reason.DEADLINE, f"it is past {self.at}")


@condition
@dataclass(frozen=True, slots=True)
class Budget(Condition):
    """Stop when the calls, tokens or US dollars of the loop and all inside it are spent.

    A call that would not fit is refused before it is made.
    """

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    hard: ClassVar[bool] = True
    early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.calls is None and self.tokens is None and self.usd is None:
            raise ConfigurationError("budget: needs calls, tokens or usd")
        if self.calls is not None:
            whole("budget: calls", self.calls, least=1)
        if self.tokens is not None:
            whole("budget: tokens", self.tokens, least=1)
        if self.usd is not None:
            number("budget: usd", self.usd, least=0, above=True)

    def check(self, history: History) -> Stop | None:
        spent = history.usage
        for name, cap, used in (
            ("calls", self.calls, spent.calls),
            ("tokens", self.tokens, spent.tokens),
            ("usd", self.usd, spent.usd),
        ):
            if cap is not None and used >= cap:
                return Stop(Reason.BUDGET, f"{used:g} of {cap:g} {name} spent")
        return None
