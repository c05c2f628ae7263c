"""Hard limits: iterations, time and money. They act whatever else holds.

Limits that a person raised while a run was on record: the same conditions with other figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar

from ..errors import ConfigurationError
from ..records import History, Reason, Stop
from ..records.codec import Json, number, whole
from .base import Condition, condition

__all__ = [
    "CEILING",
    "OVERSHOT",
    "UNITS",
    "Budget",
    "Deadline",
    "MaxIterations",
    "PhaseLimit",
    "RunLimits",
    "Timeout",
    "amount",
    "raised",
    "raised_budget",
    "unit_of",
]


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
    """Stop when the calls, tokens, US dollars or effects of the loop and all inside it are used up.

    A call of a model that would not fit is refused before it is made. `effects` counts all that acts
    and is on record: functions, commands, calls of tools and attempts of model calls.
    """

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    effects: int | None = None
    hard: ClassVar[bool] = True
    early: ClassVar[bool] = False

    def __post_init__(self) -> None:
        counts = (("calls", self.calls), ("tokens", self.tokens), ("effects", self.effects))
        if self.usd is None and all(cap is None for _, cap in counts):
            raise ConfigurationError("budget: needs calls, tokens, usd or effects")
        for name, cap in counts:
            if cap is not None:
                whole(f"budget: {name}", cap, least=1)
        if self.usd is not None:
            number("budget: usd", self.usd, least=0, above=True)

    def check(self, history: History) -> Stop | None:
        spent = history.usage
        if self.effects is not None and history.effects >= self.effects:
            used_up = f"{history.effects} of {self.effects} effects used"
            return Stop(Reason.BUDGET, used_up)
        for name, cap, used in (
            ("calls", self.calls, spent.calls),
            ("tokens", self.tokens, spent.tokens),
            ("usd", self.usd, spent.usd),
        ):
            if cap is not None and used >= cap:
                over = OVERSHOT if used > cap * (1 + 1e-9) else ""
                return Stop(Reason.BUDGET, f"{amount(used)} of {amount(cap)} {name} spent{over}")
        return None

    @property
    def spending(self) -> bool:
        """Whether it limits what is spent, and not only how many effects there are."""
        return self.calls is not None or self.tokens is not None or self.usd is not None


OVERSHOT = "; the last call cost more than was left: its step states no reserve, or too small a one"
_UNIT = re.compile(r"\bof [0-9.e+-]+ (calls|tokens|usd|effects)\b")


def amount(figure: float) -> str:
    """Return a figure of a budget as its sentences show it.

    >>> amount(1234567), amount(0.0083)
    ('1234567', '0.0083')
    """
    return str(figure) if isinstance(figure, int) else f"{figure:g}"


def unit_of(detail: str) -> str:
    """Return which unit of a budget ran out by the sentence that says so, or "".

    >>> unit_of("3 of 3 calls spent")
    'calls'
    """
    found = _UNIT.search(detail)
    return found[1] if found else ""


# The options that raise a budget, and the unit of it that each raises.
UNITS: Mapping[str, str] = MappingProxyType({
    "max_calls": "calls",
    "max_total_tokens": "tokens",
    "max_usd": "usd",
    "max_effects": "effects",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunLimits:
    """The limits of a run, each None by default: the options whose names are the keys of UNITS."""

    max_usd: float | None = None
    max_calls: int | None = None
    max_total_tokens: int | None = None
    max_effects: int | None = None

    def limits(self) -> dict[str, Any]:
        """Return the limits by the names of their options."""
        return {name: getattr(self, name) for name in UNITS}

    def budget_of_limits(self) -> Budget | None:
        """Return the limits as a budget, or None without any."""
        caps = {UNITS[name]: value for name, value in self.limits().items() if value is not None}
        return Budget(**caps) if caps else None


def raised(members: Iterable[Condition], told: Mapping[str, Json]) -> tuple[Condition, ...]:
    """Return conditions with their limits raised to what was told by `max_iterations` and the names of
    UNITS, never lowered."""
    return tuple(_one(member, told) for member in members)


def _one(member: Condition, told: Mapping[str, Json]) -> Condition:
    most = told.get("max_iterations")
    if most is not None and isinstance(member, MaxIterations | PhaseLimit):
        return replace(member, limit=max(most, member.limit))
    return raised_budget(member, told) if isinstance(member, Budget) else member


def raised_budget(cap: Budget, told: Mapping[str, Json]) -> Budget:
    """Return a cap with its figures raised to those told of, where these are more and it has one."""
    more = {
        unit: max(told[name], was)
        for name, unit in UNITS.items()
        if told.get(name) is not None and (was := getattr(cap, unit)) is not None
    }
    return replace(cap, **more) if more else cap
