"""Hard limits: iterations, time and money. They end a loop whatever other conditions say.

A person can raise limits while a run is recorded: `raised` returns the same conditions with higher
figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

from ..errors import ConfigurationError
from ..records import History, Reason, Stop
from ..records.codec import Json, integer, number
from ..records.typed import Value
from .base import Condition, condition, tag_of

CEILING = 1000  # iterations of any loop: the history of a run is kept in memory


def used_up(used: int, limit: int, unit: str) -> str:
    """Return the sentence on a limit that is used up; a person may have lowered it below the used amount.

    >>> used_up(6, 6, "iterations"), used_up(13, 6, "iterations")
    ('6 of 6 iterations used', 'limit of 6 iterations (13 used)')
    """
    if used > limit:
        return f"limit of {limit} {unit} ({used} used)"
    return f"{used} of {limit} {unit} used"


class Limit(Condition):
    """A hard limit; see `Condition.hard`."""

    __slots__ = ()
    hard: ClassVar[bool] = True  # no combination turns it off
    early: ClassVar[bool] = False  # `min_iterations` never delays a limit


class _IterationLimit(Limit):
    __slots__ = ()
    limit: int
    reason: ClassVar[Reason]
    unit: ClassVar[str]

    def __post_init__(self) -> None:
        tag = tag_of(type(self))
        if integer(f"{tag}: limit", self.limit, minimum=1) > CEILING:
            raise ConfigurationError(
                f"{tag}: {self.limit} is above the ceiling of {CEILING}; use at most {CEILING}"
            )

    def check(self, history: History) -> Stop | None:
        if history.length < self.limit:
            return None
        return Stop(self.reason, used_up(history.length, self.limit, self.unit))


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MaxIterations(Value, _IterationLimit):
    """Stop after `limit` iterations, including failed ones. Reason: `max_iterations`.

    Args:
        limit: iterations, from 1 to 1000.

    Raises:
        ConfigurationError: for any other limit.

    Example:
        >>> from loopwright.records import History, Iteration
        >>> MaxIterations(2).check(History([Iteration(1), Iteration(2)])).detail
        '2 of 2 iterations used'
    """

    limit: int
    reason: ClassVar[Reason] = Reason.MAX_ITERATIONS
    unit: ClassVar[str] = "iterations"


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PhaseLimit(Value, _IterationLimit):
    """Stop a phase of an agent after `limit` iterations; the next phase follows. Reason: `phase_limit`.

    Args:
        limit: iterations of the phase, from 1 to 1000.

    Raises:
        ConfigurationError: for any other limit.

    Example:
        >>> from loopwright.records import History, Iteration
        >>> PhaseLimit(1).check(History([Iteration(1)])).detail
        '1 of 1 phase iterations used'
    """

    limit: int
    reason: ClassVar[Reason] = Reason.PHASE_LIMIT
    unit: ClassVar[str] = "phase iterations"


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timeout(Value, Limit):
    """Stop when the loop has been active for `seconds`; the current call is cancelled.

    Time in which the run waits for a person, or is not running, does not count. Reason: `timeout`.

    Args:
        seconds: active seconds of the loop, above 0.

    Raises:
        ConfigurationError: for any other value.

    Example:
        >>> from loopwright.records import History
        >>> Timeout(60).check(History(elapsed=61.0)).detail
        '60 s used'
    """

    seconds: float

    def __post_init__(self) -> None:
        number("timeout: seconds", self.seconds, minimum=0, above=True)

    def check(self, history: History) -> Stop | None:
        if history.elapsed < self.seconds:
            return None
        return Stop(Reason.TIMEOUT, f"{self.seconds:g} s used")


@condition
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Deadline(Value, Limit):
    """Stop at a date and time. Reason: `deadline`.

    Args:
        at: an ISO 8601 date and time with an offset.

    Raises:
        ConfigurationError: for any other text.

    Example:
        >>> from loopwright.records import History
        >>> Deadline("2030-01-31T18:00:00+00:00").check(History(now=1.9e9)).detail
        'it is past 2030-01-31T18:00:00+00:00'
    """

    at: str

    def __post_init__(self) -> None:
        self.timestamp()

    def timestamp(self) -> float:
        """Return the moment in seconds since the epoch."""
        from datetime import datetime  # only for a loop with a deadline

        try:
            moment = datetime.fromisoformat(self.at)
        except (TypeError, ValueError):
            moment = None
        # Without an offset the moment would depend on the machine that resumes the run.
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
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Budget(Value, Limit):
    """Stop when the loop, with all inner steps, has used up its calls, tokens, dollars or effects.

    A model call that does not fit is refused before it is made. Reason: `budget`.

    Args:
        calls: model calls, at least 1.
        tokens: input and output tokens together, at least 1.
        usd: US dollars, above 0.
        effects: recorded actions, at least 1: functions, commands, tool calls and attempts of model
            calls.

    Raises:
        ConfigurationError: if no cap is set, or one is out of range.

    Example:
        >>> from loopwright.records import History, Usage
        >>> Budget(calls=3, usd=1.0).check(History(usage=Usage(calls=3, usd=0.25))).detail
        '3 of 3 calls spent'
    """

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    effects: int | None = None

    def __post_init__(self) -> None:
        counts = (("calls", self.calls), ("tokens", self.tokens), ("effects", self.effects))
        if self.usd is None and all(cap is None for _, cap in counts):
            raise ConfigurationError("budget: needs calls, tokens, usd or effects")
        for name, cap in counts:
            if cap is not None:
                integer(f"budget: {name}", cap, minimum=1)
        if self.usd is not None:
            number("budget: usd", self.usd, minimum=0, above=True)

    def check(self, history: History) -> Stop | None:
        spent = history.usage
        if self.effects is not None and history.effects >= self.effects:
            return Stop(Reason.BUDGET, used_up(history.effects, self.effects, "effects"))
        # In this order, because recorded details name the first unit that is used up.
        for name, cap, used in (
            ("calls", self.calls, spent.calls),
            ("tokens", self.tokens, spent.tokens),
            ("usd", self.usd, spent.usd),
        ):
            if cap is not None and used >= cap:
                # A sum of dollars may exceed its cap by the rounding error of floats.
                over = OVERSHOT if used > cap * (1 + 1e-9) else ""
                return Stop(Reason.BUDGET, f"{amount(used)} of {amount(cap)} {name} spent{over}")
        return None

    @property
    def spending(self) -> bool:
        """Whether it limits calls, tokens or dollars, and not only effects."""
        return self.calls is not None or self.tokens is not None or self.usd is not None


OVERSHOT = "; the last call cost more than was left: its step states no reserve, or too small a one"
_UNIT = re.compile(r"\bof [0-9.e+-]+ (calls|tokens|usd|effects)\b")


def amount(figure: float) -> str:
    """Return a figure of a budget as messages show it.

    >>> amount(1234567), amount(0.0083)
    ('1234567', '0.0083')
    """
    return str(figure) if isinstance(figure, int) else f"{figure:g}"


def unit_of(detail: str) -> str:
    """Return the unit of a budget that ran out, from the detail of its stop, or "".

    >>> unit_of("3 of 3 calls spent")
    'calls'
    """
    # From the sentence, because recorded stops have no field for the unit.
    match = _UNIT.search(detail)
    return match[1] if match else ""


# The options that raise a budget, and the unit that each raises.
UNITS: Mapping[str, str] = MappingProxyType({
    "max_calls": "calls",
    "max_total_tokens": "tokens",
    "max_usd": "usd",
    "max_effects": "effects",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunLimits(Value):
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


def tightest(*budgets: object) -> Budget | None:
    """Return the lowest cap of each unit, or None without any.

    Args:
        budgets: budgets, other objects with their fields, or None.
    """
    caps = {
        unit: [cap for budget in budgets if (cap := getattr(budget, unit, None)) is not None]
        for unit in UNITS.values()
    }
    lowest = {unit: min(values) for unit, values in caps.items() if values}
    return Budget(**lowest) if lowest else None


def raised(
    members: Iterable[Condition], options: Mapping[str, Json], used: int
) -> tuple[Condition, ...]:
    """Return conditions with the limits of a resume: a new number of iterations, and raised budgets.

    Args:
        members: the conditions.
        options: new limits, by `max_iterations` and the names of UNITS.
        used: the number of recorded iterations, which cannot be taken back: a limit below it only raises.
    """

    def changed(member: Condition) -> Condition:
        limit = options.get("max_iterations")
        if limit is not None and isinstance(member, MaxIterations | PhaseLimit):
            return replace(member, limit=limit if limit >= used else max(limit, member.limit))
        return raised_budget(member, options) if isinstance(member, Budget) else member

    return tuple(changed(member) for member in members)


def raised_budget(cap: Budget, options: Mapping[str, Json]) -> Budget:
    """Return a budget with the caps that it has raised to those of the options, by the names of UNITS."""
    more = {
        unit: max(options[name], was)
        for name, unit in UNITS.items()
        if options.get(name) is not None and (was := getattr(cap, unit)) is not None
    }
    return replace(cap, **more) if more else cap


def tuned(members: Iterable[Condition], options: Mapping[str, Json]) -> tuple[Condition, ...]:
    """Return conditions with the limits that a person set: raised, lowered, added or removed.

    Args:
        members: the conditions.
        options: new limits, by `max_iterations`, `timeout` (seconds), `deadline` (ISO 8601) and the names
            of UNITS; None removes a limit. Without a limit of iterations, the ceiling applies.
    """
    changed = list(members)
    if "max_iterations" in options:
        limit = options["max_iterations"] or CEILING
        kind = PhaseLimit if any(isinstance(m, PhaseLimit) for m in changed) else MaxIterations
        changed = [m for m in changed if not isinstance(m, _IterationLimit)] + [kind(limit)]
    for name, time in (("timeout", Timeout), ("deadline", Deadline)):
        if name in options:
            changed = [m for m in changed if not isinstance(m, time)]
            changed += [] if options[name] is None else [time(options[name])]
    if not options.keys().isdisjoint(UNITS):
        budget = tuned_budget(tightest(*(m for m in changed if isinstance(m, Budget))), options)
        changed = [m for m in changed if not isinstance(m, Budget)] + ([budget] if budget else [])
    return tuple(changed)


def tuned_budget(cap: Budget | None, options: Mapping[str, Json]) -> Budget | None:
    """Return a budget with the caps that a person set, by the names of UNITS; None without any cap."""
    caps = {unit: getattr(cap, unit, None) for unit in UNITS.values()}
    caps |= {UNITS[name]: value for name, value in options.items() if name in UNITS}
    return None if all(value is None for value in caps.values()) else Budget(**caps)


def time_limits(members: Iterable[Condition]) -> tuple[float, float]:
    """Return the most active seconds, and the latest moment in seconds since the epoch; or infinity."""
    limits = list(members)
    seconds = min((c.seconds for c in limits if isinstance(c, Timeout)), default=math.inf)
    wall = min((c.timestamp() for c in limits if isinstance(c, Deadline)), default=math.inf)
    return seconds, wall
