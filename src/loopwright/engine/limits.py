"""Limits on calls: how many run at once, and how many start in a period, over all runs and workers.

Before an effect is promised in the journal, the worker takes a permit for each limit that applies to it. A permit is
given back when the effect ends, or when its worker dies. Names of limits are those of providers (`openai`), models
(`openai:gpt-4o-mini`), steps or tools, and queues (`queue:slow`); `default` applies to all models without a limit of
their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import ConfigurationError
from ..records import NOTHING, Usage
from .budget import reports
from .permits import CallAccount, account_name, names_of
from .step import Leaf

__all__ = [
    "Cap",
    "Limit",
    "Limits",
    "MemoryPermits",
    "Rate",
    "SharedLimits",
    "SharedPermits",
    "Spending",
    "limits_of",
    "strictest",
]

_PAUSE = 0.05  # seconds between two attempts to take a permit


@dataclass(frozen=True, slots=True)
class Cap:
    """At most `n` calls at once, over all workers.

    Args:
        n: the number of calls, at least 1.

    Example:
        >>> Cap(40) & Rate(500, per=60)
        Limits(cap=40, calls=500, per=60)
    """

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ConfigurationError(f"Cap: {self.n!r} is not a number of calls; use 1 or more")

    def __and__(self, other: Limit) -> Limits:
        """Return both limits together."""
        return limits_of(self) & other


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `n` calls in a period of `per` seconds, over all workers; a token bucket.

    Args:
        n: the number of calls, at least 1.
        per: the period in seconds. Default: 1.

    Example:
        >>> Rate(500, per=60)
        Rate(n=500, per=60)
    """

    n: int
    per: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1 or self.per <= 0:
            raise ConfigurationError(
                f"Rate: {self.n!r} per {self.per!r} seconds is not a rate; use numbers above 0"
            )

    def __and__(self, other: Limit) -> Limits:
        """Return both limits together."""
        return limits_of(self) & other


@dataclass(frozen=True, slots=True)
class Limits:
    """A cap and a rate that both apply.

    Args:
        cap: the number of calls at once; 0 is unlimited.
        calls: the number of calls in a period; 0 is unlimited.
        per: the period in seconds.

    Example:
        >>> Limits(cap=2)
        Limits(cap=2, calls=0, per=1.0)
    """

    cap: int = 0
    calls: int = 0
    per: float = 1.0

    def __and__(self, other: Limit) -> Limits:
        """Return both limits together; the lower cap counts, and there is one rate."""
        more = limits_of(other)
        if self.calls and more.calls:
            raise ConfigurationError("limits: two rates cannot be combined; use the lower one")
        cap = min(self.cap or more.cap, more.cap or self.cap)
        rate = self if self.calls else more
        return Limits(cap, rate.calls, rate.per)


Limit = Cap | Rate | Limits


def limits_of(limit: Limit) -> Limits:
    """Return a limit as Limits."""
    if isinstance(limit, Cap):
        return Limits(cap=limit.n)
    if isinstance(limit, Rate):
        return Limits(calls=limit.n, per=limit.per)
    if isinstance(limit, Limits):
        return limit
    raise ConfigurationError(f"limits: {limit!r} is not a limit; use Cap(40) or Rate(500, per=60)")


def strictest(first: Mapping[str, Limits], second: Mapping[str, Limits]) -> dict[str, Limits]:
    """Return the limits of both by name; of two for one name the lower cap and the slower rate."""
    result = {**first, **second}
    for name in first.keys() & second.keys():
        one, other = first[name], second[name]
        rated = [limits for limits in (one, other) if limits.calls]
        rate = min(rated, key=lambda limits: limits.calls / limits.per, default=one)
        cap = min(one.cap or other.cap, other.cap or one.cap)
        result[name] = Limits(cap, rate.calls, rate.per)
    return result


class SharedPermits(Protocol):
    """The permits and pauses that all workers share, by the clock of the store."""

    async def take(self, name: str, limits: Limits) -> float:
        """Take a permit; return 0, or the seconds after which another attempt may succeed."""

    async def release(self, name: str) -> None:
        """Return a permit of a cap."""

    async def pause(self, name: str, seconds: float) -> None:
        """Refuse permits of this name for a number of seconds."""

    async def paused(self, name: str) -> float:
        """Return the remaining seconds of the pause of a name."""


class MemoryPermits:
    """SharedPermits in memory, for the workers of one process."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        self._tokens: dict[str, tuple[float, float]] = {}  # tokens left, and when they were counted
        self._until: dict[str, float] = {}

    async def take(self, name: str, limits: Limits) -> float:
        now = time.monotonic()
        if (wait := self._until.get(name, 0.0) - now) > 0:
            return wait
        if limits.cap and self._held.get(name, 0) >= limits.cap:
            return _PAUSE
        if limits.calls:
            left, at = self._tokens.get(name, (float(limits.calls), now))
            left = min(limits.calls, left + (now - at) * limits.calls / limits.per)
            if left < 1:
                self._tokens[name] = (left, now)
                return (1 - left) * limits.per / limits.calls
            self._tokens[name] = (left - 1, now)
        self._held[name] = self._held.get(name, 0) + 1
        return 0.0

    async def release(self, name: str) -> None:
        self._held[name] = self._held.get(name, 1) - 1

    async def pause(self, name: str, seconds: float) -> None:
        self._until[name] = max(self._until.get(name, 0.0), time.monotonic() + seconds)

    async def paused(self, name: str) -> float:
        return max(0.0, self._until.get(name, 0.0) - time.monotonic())


class Spending(Protocol):
    """What a run spends of budgets that it shares with other runs."""

    async def admit(self) -> None:
        """Raise Stopped if a budget is used up."""

    async def report(self, usage: Usage) -> None:
        """Record what the run has spent until now."""


class SharedLimits:
    """The limits of a worker; the engine asks it before an effect begins.

    Args:
        permits: the permits that all workers share.
        limits: the limits by name.
        queue: the queue of the run. Default: none.
        spending: the budgets that the run shares with others. Default: none.
    """

    def __init__(
        self,
        permits: SharedPermits,
        limits: Mapping[str, Limit],
        queue: str = "",
        *,
        spending: Spending | None = None,
    ) -> None:
        self._permits = permits
        self._spending = spending
        self._queue = f"queue:{queue}" if queue else ""
        self._limits = {name: limits_of(limit) for name, limit in limits.items()}

    async def take(self, step: Leaf) -> Sequence[str]:
        """Wait for a permit of each limit that applies to a step; return the names for `give_back`.

        Raises:
            Stopped: if a budget that applies to it is used up. Steps without a cost are not refused.
        """
        taken: list[str] = []
        if self._spending is not None and reports(step):
            await self._spending.admit()
        try:
            for name, limits in self._of(step):
                while wait := await self._permits.take(name, limits):
                    await asyncio.sleep(wait)
                taken.append(name)
        except BaseException:
            # A cancelled step would otherwise hold its permits until the worker ends.
            await asyncio.shield(self.give_back(taken))
            raise
        return taken

    async def give_back(self, names: Sequence[str], spent: Usage = NOTHING) -> None:
        """Return the permits that `take` took, and report what the run has spent until now."""
        for name in names:
            if self._limits.get(name, self._limits.get("default", Limits())).cap:
                await self._permits.release(name)
        if self._spending is not None and spent:
            await self._spending.report(spent)

    async def pause(self, account: CallAccount, seconds: float) -> None:
        """Pause the calls of an account over all workers; see EffectPermits.pause."""
        await self._permits.pause(account_name(account), seconds)

    async def paused(self, account: CallAccount) -> float:
        """Return the remaining seconds of the pause of an account."""
        return await self._permits.paused(account_name(account))

    def _of(self, step: Leaf) -> list[tuple[str, Limits]]:
        # In one order for all workers, so that two of them cannot wait for each other.
        names = names_of(step)
        limits = {name: self._limits[name] for name in names if name in self._limits}
        if not limits and len(names) > 1 and "default" in self._limits:
            limits = {names[0]: self._limits["default"]}
        if self._queue in self._limits:
            limits[self._queue] = self._limits[self._queue]
        return sorted(limits.items())
