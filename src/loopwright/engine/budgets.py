"""What limits the effects of a run before they begin: accounts of budgets, permits for calls, and shared limits.

Each loop and the run has an account. A call reserves its highest cost first, and settles it afterwards:

1. Settled + reserved never exceeds a cap, in any account, at any time.
2. A call that does not fit *now* waits for the calls in flight. It is refused only if these could not
   free enough.
3. Waiting calls are served in order, so that small calls cannot starve a large one. All accounts have
   the same order: no call waits behind a later one, so no two calls wait for each other.
4. A cost is added to every account up the tree, never computed as the difference of a shared counter.

A budget has an effect only if a step reports its cost; `cannot_bind` warns of the others.

Limits on calls say how many run at once and how many start in a period, over all runs and workers. Before an
effect is promised in the journal, the worker takes a permit for each limit that applies to it; the permit is
given back when the effect ends, or when its worker dies. The resource `permits` of a run gives them; without it
nothing is asked. Names of limits are those of providers (`openai`), models (`openai:gpt-4o-mini`), steps or tools,
and queues (`queue:slow`); `default` applies to all models without a limit of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..conditions import Budget, amount
from ..conditions.limits import OVERSHOT, used_up
from ..errors import ConfigurationError, Stopped
from ..records import NOTHING, History, Reason, Stop, Usage, is_judging
from ..records.typed import Value
from .step import Leaf, Step

__all__ = [
    "CANNOT_BIND",
    "OVERSHOOT",
    "Account",
    "CallAccount",
    "Cap",
    "EffectPermits",
    "Limit",
    "Limits",
    "MemoryPermits",
    "Rate",
    "SharedLimits",
    "SharedPermits",
    "Spending",
    "account_name",
    "cannot_bind",
    "limits_of",
    "names_of",
    "reports",
    "strictest",
]

# The codes of the warnings: a budget that no step can use up, and a call that exceeded one.
CANNOT_BIND = "budget_cannot_bind"
OVERSHOOT = "overshoot"

_Waiter = tuple[
    str, "asyncio.Future[None]"
]  # the path of a waiting call, and the future that wakes it


class Account:
    """The budget and the cost of one loop, or of the run.

    `settled` is the final cost, `judging` the part of it for judging (of the run, else of this process), `reserved` the
    highest cost of the calls in flight, `iteration_usage` the cost of the current iteration. `effects`
    counts the effects that began, and is `limited` if this account or one above has a cap on them. Effects
    of earlier processes are counted from then on.
    """

    __slots__ = (
        "_counted",
        "_held",
        "_inner",
        "_promised",
        "_recorded",
        "_turns",
        "_waiting",
        "cap",
        "capped",
        "effects",
        "iteration_usage",
        "judging",
        "limited",
        "parent",
        "path",
        "reserved",
        "settled",
    )  # fmt: skip

    def __init__(
        self,
        path: str,
        parent: Account | None = None,
        cap: Budget | None = None,
        settled: Usage = NOTHING,
        recorded: Callable[[str], int] | None = None,
    ) -> None:
        self.path = path
        self.parent = parent
        self.cap = cap
        self.capped: bool = cap is not None or (parent is not None and parent.capped)
        self.limited: bool = (cap is not None and cap.effects is not None) or (
            parent is not None and parent.limited
        )
        self.effects = 0
        self._counted = False
        self._recorded = recorded  # of the root: the effects of earlier processes under a path
        if self.limited:
            self._count_recorded()
        self.settled = settled
        self.judging = NOTHING
        self.reserved = NOTHING
        self.iteration_usage = NOTHING
        # Of the root only, for all accounts, and only once a call reserves: a budget that is added later counts
        # the calls in flight, and its calls wait in the same order as those of other budgets.
        self._promised: dict[str, Usage] | None = None
        self._turns: Iterator[int] | None = None
        if cap is not None:
            self._open()

    def _open(self) -> None:
        """Prepare the account for reservations: only an account that had a cap is ever reserved in."""
        self._held: dict[str, Usage] = {}  # the reservations by the paths of their calls
        self._waiting: dict[int, _Waiter] = {}  # by turn
        self._inner: dict[int, _Waiter] = {}  # calls inside an effect that has a reservation

    def set_cap(self, cap: Budget | None) -> None:
        """Change the budget while calls may be in flight or waiting; call `refresh` on those below."""
        before, self.cap = self.cap, cap
        if cap is not None and before is None:
            if not hasattr(self, "_held"):
                self._open()
            inside = f"{self.path}/" if self.path else ""
            promised = self._root()._promised or {}
            self._held = {p: a for p, a in promised.items() if p.startswith(inside)}
            self.reserved = sum(self._held.values(), NOTHING)
        self.refresh()
        if before is not None:  # a call that waits may fit now, or never fit any more
            self._wake()

    def refresh(self) -> None:
        """Read again which accounts above have budgets, after one of them changed."""
        for account in [*self._chain()][::-1]:
            cap, parent = account.cap, account.parent
            account.capped = cap is not None or (parent is not None and parent.capped)
            account.limited = (cap is not None and cap.effects is not None) or (
                parent is not None and parent.limited
            )
            if account.limited:
                account._count_recorded()

    def all_effects(self) -> int:
        """Return the number of effects that began here in all processes."""
        self._count_recorded()
        return self.effects

    def _count_recorded(self) -> None:
        """Add the effects of earlier processes, once; only limits and folded paths need them."""
        recorded = self._root()._recorded
        if not self._counted and recorded is not None:
            self._counted = True
            self.effects += recorded(self.path)

    @property
    def caps(self) -> list[Budget]:
        """Its budget and those of the accounts above it, the innermost first."""
        return [account.cap for account in reversed(self._capped()) if account.cap is not None]

    def spend(self, usage: Usage) -> None:
        """Add a cost to this account and every one above."""
        for account in self._chain():
            account.settled += usage
            account.iteration_usage += usage

    def admit(self) -> None:
        """Raise Stopped for the outermost account whose budget is used up."""
        for account in self._capped():
            settled, effects = account.settled, account.effects
            if settled is NOTHING and not effects:  # the common case of a first iteration
                continue
            assert account.cap is not None
            if (stop := account.cap.check(History(usage=settled, effects=effects))) is not None:
                raise Stopped(account.path, stop)

    def begin(self) -> None:
        """Count an effect that begins here in this account and every one above.

        Raises:
            Stopped: by the outermost account whose limit of effects is used up; none is counted then.
        """
        for account in self._capped() if self.limited else ():
            cap = None if account.cap is None else account.cap.effects
            if cap is not None and account.effects >= cap:
                used = used_up(account.effects, cap, "effects")
                raise Stopped(account.path, Stop(Reason.BUDGET, used))
        counted: Account | None = self
        while counted is not None:  # without `_chain`: every effect of a recorded run is counted
            counted.effects += 1
            counted = counted.parent

    async def reserve(self, path: str, amount: Usage) -> None:
        """Reserve `amount` for the call at `path` in every capped account, when it is its turn.

        Raises:
            Stopped: by the account that can no longer fit it; the detail names the call.
        """
        chain = self._capped()
        root = self._root()
        if root._promised is None:
            root._promised, root._turns = {}, itertools.count()
        root._promised[path] = amount
        if not chain:
            return
        assert root._turns is not None
        turn = next(root._turns)
        try:
            # All accounts are checked again after each wait: another one may have filled up meanwhile.
            while blocked := next((a for a in chain if a._blocks(path, turn, amount)), None):
                blocked._refuse_if_hopeless(path, amount)
                future = asyncio.get_running_loop().create_future()
                queue = blocked._inner if blocked._is_inner(path) else blocked._waiting
                queue[turn] = (path, future)
                await future
            for account in chain:
                account.reserved += amount
                account._held[path] = amount
        finally:
            for account in chain:
                account._waiting.pop(turn, None)
                account._inner.pop(turn, None)
                account._wake()

    def settle(self, path: str, usage: Usage) -> None:
        """Replace the reservation of the call at `path` by its real cost."""
        if (promised := self._root()._promised) is not None:
            promised.pop(path, None)
        for account in self._capped():
            amount = account._held.pop(path, None)
            if amount is not None:
                account.reserved = account.reserved.less(amount)
        if usage:
            self.spend(usage)
            if is_judging(path):
                for account in self._chain():
                    account.judging += usage
        for account in self._capped():
            account._wake()

    def overshot(self, usage: Usage) -> str:
        """Return the sentence on a cap that the call with this usage, settled last, exceeded, or ""."""
        for account in self._capped():
            unit = account._over(account.settled)
            # Each cap is reported once, by the call that exceeded it.
            if unit and not account._over(account.settled.less(usage)):
                spent, cap = getattr(account.settled, unit), getattr(account.cap, unit)
                of = f"the budget of {account.path}" if account.path else "the run's budget"
                return f"{amount(spent)} of {amount(cap)} {unit} of {of} spent{OVERSHOT}"
        return ""

    def _root(self) -> Account:
        account = self
        while account.parent is not None:
            account = account.parent
        return account

    def _chain(self) -> Iterator[Account]:
        """Iterate over this account and those above it."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def _capped(self) -> list[Account]:
        """Return the accounts with a budget, the outermost first: it is the one to report."""
        if not self.capped:
            return []
        return [account for account in self._chain() if account.cap is not None][::-1]

    def _blocks(self, path: str, turn: int, amount: Usage) -> bool:
        ahead = self._inner or (self._waiting and min(self._waiting) < turn)
        # A call inside an effect with a reservation goes first: the calls ahead may wait for that effect.
        if ahead and not self._is_inner(path):
            return True
        return bool(self._over(self.settled + self.reserved + amount))

    def _is_inner(self, path: str) -> bool:
        return any(path.startswith(other + "/") for other in self._held)

    def _over(self, total: Usage) -> str:
        cap = self.cap
        if cap is None:  # it was removed while calls wait
            return ""
        if cap.calls is not None and total.calls > cap.calls:
            return "calls"
        if cap.tokens is not None and total.tokens > cap.tokens:
            return "tokens"
        # Sums of picodollars are exact in Usage; the half picodollar is for the cap itself.
        return "usd" if cap.usd is not None and total.usd > cap.usd + 5e-13 else ""

    def _refuse_if_hopeless(self, path: str, reserve: Usage) -> None:
        # The reservation of an effect cannot be freed while a call inside it waits.
        inner = [path, *(other for other, _ in self._inner.values())]
        stuck = NOTHING
        for holder, reserved in self._held.items():
            if any(one.startswith(holder + "/") for one in inner):
                stuck += reserved
        unit = self._over(self.settled + stuck + reserve)
        if unit:
            wants, cap = getattr(reserve, unit), getattr(self.cap, unit)
            spent = getattr(self.settled, unit)
            detail = (
                f"{amount(spent)} of {amount(cap)} {unit} spent; the call {path} may take {amount(wants)} "
                f"{unit[:-1] if unit != 'usd' and wants == 1 else unit} and did not fit: a call starts only if its maximum cost fits"
            )
            raise Stopped(self.path, Stop(Reason.BUDGET, detail))

    def _wake(self) -> None:
        # Only the first in the queue: the others would find themselves behind it.
        waiters = list(self._inner.values())
        if self._waiting:
            waiters.append(self._waiting[min(self._waiting)])
        for _, future in waiters:
            if not future.done():
                future.set_result(None)


def reports(step: Step) -> bool:
    """Return whether a step, or one inside it, can report its cost.

    A model call does. A function does if it takes a context (`ctx.spend`) or has a `reserve`, a command if
    it has `usage`.
    """
    if step.reports is not None:
        return step.reports
    if isinstance(step, Leaf):
        return step.wants_context or step.reserve is not None
    parts = list(step.parts())
    # An unknown composite step without parts may report: a warning would be wrong.
    return not parts or any(reports(part) for part in parts)


def cannot_bind(step: Step, budget: Budget, where: str) -> str:
    """Return the sentence for a budget that no step inside `step` can ever use up, or ""."""
    if not budget.spending or reports(step):
        return ""
    units = [name for name in ("calls", "tokens", "usd") if getattr(budget, name) is not None]
    return (
        f"{where}: the budget of {' and '.join(units)} has no effect, as no step in it reports its "
        "cost; report it with ctx.spend(Usage(…)), add reserve= to the function or usage= to the "
        "command, or limit effects instead: Budget(effects=…)"
    )


class CallAccount(Protocol):
    """The account and model of a call, as a request has them."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def api_key_env(self) -> str: ...


class EffectPermits(Protocol):
    """Gives permits for effects."""

    async def take(self, step: Leaf) -> Sequence[str]:
        """Wait until a step may begin; return what `give_back` needs."""

    async def give_back(self, names: Sequence[str], spent: Usage) -> None:
        """Return the permits of a step that has ended; `spent` is the usage of the run until now."""

    async def pause(self, account: CallAccount, seconds: float) -> None:
        """Let no call of this account and model begin for `seconds`."""

    async def paused(self, account: CallAccount) -> float:
        """Return the remaining seconds of the pause of an account and model."""


def account_name(account: CallAccount) -> str:
    """Return the name under which an account and model are paused; it has no key, only a variable."""
    parts = (account.provider, account.model, account.base_url, account.api_key_env)
    return "pause:" + " ".join(part for part in parts if part)


def names_of(step: Step) -> list[str]:
    """Return the names by which limits apply to a step: provider and model, or the name of the step."""
    request = getattr(step, "request", None)
    provider, model = getattr(request, "provider", ""), getattr(request, "model", "")
    if provider and model:
        return [provider, f"{provider}:{model}"]
    return [step.name]


_PAUSE = 0.05  # seconds between two attempts to take a permit


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cap(Value):
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rate(Value):
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Limits(Value):
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
        names = names_of(step)
        applying = {name: self._limits[name] for name in names if name in self._limits}
        if not applying and len(names) > 1 and "default" in self._limits:
            applying = {names[0]: self._limits["default"]}
        if self._queue in self._limits:
            applying[self._queue] = self._limits[self._queue]
        try:
            # In one order for all workers, so that two of them cannot wait for each other.
            for name, limits in sorted(applying.items()):
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
