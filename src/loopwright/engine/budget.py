"""The ledger: accounts along the path, reserve before a call and settle after it.

A budget binds only where a step reports what it costs; `cannot_bind` finds those that never will.

Rules:

1. Settled + reserved never exceeds a cap, in any account, at any instant.
2. A call that does not fit *now* waits for those in flight; it is refused only when nothing in
   flight could free enough.
3. Waiters are served in order, so that small calls cannot starve a large one. The order is one for
   all accounts: nobody waits behind someone who came later, so nobody waits in a circle.
4. What is spent is added to every account up the tree, never taken from the difference of a shared
   counter.
"""

from __future__ import annotations

import asyncio
import itertools

from ..conditions import Budget, amount
from ..conditions.limits import OVERSHOT
from ..errors import Stopped
from ..records import NOTHING, History, Reason, Stop, Usage, is_judging
from .step import Leaf, Step

__all__ = ["CANNOT_BIND", "OVERSHOOT", "Account", "cannot_bind", "reports"]

# The codes of the warnings: a budget that nothing uses up, and a call that went beyond one.
CANNOT_BIND = "budget_cannot_bind"
OVERSHOOT = "overshoot"

_Waiter = tuple[str, "asyncio.Future[None]"]  # the path of a call that waits, and what wakes it


class Account:
    """What one loop, or the whole run, may spend and has spent.

    `settled` is spent for good, `judging` (of the whole run only) the part of it spent on judging,
    `reserved` is promised to calls in flight, `iteration_usage` is spent in the current iteration. `effects`
    counts those that began, where it is `limited`: where a cap on them holds here or above.
    """

    __slots__ = (
        "_held",
        "_inner",
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
    ) -> None:
        self.path = path
        self.parent = parent
        self.cap = cap
        self.capped: bool = cap is not None or (parent is not None and parent.capped)
        self.limited: bool = (cap is not None and cap.effects is not None) or (
            parent is not None and parent.limited
        )
        self.effects = 0
        self.settled = settled
        self.judging = NOTHING
        self.reserved = NOTHING
        self.iteration_usage = NOTHING
        if cap is not None:  # only a capped account is ever reserved in
            self._held: dict[str, Usage] = {}
            self._turns = itertools.count()  # of the outermost capped account, for all below it
            self._waiting: dict[int, _Waiter] = {}  # by turn
            self._inner: dict[int, _Waiter] = {}  # calls inside an effect that holds a promise

    @property
    def caps(self) -> list[Budget]:
        """Its budget and those of the accounts above it, the innermost first."""
        found = []
        account: Account | None = self
        while account is not None:
            if account.cap is not None:
                found.append(account.cap)
            account = account.parent
        return found

    def spend(self, usage: Usage) -> None:
        """Add what was spent here to this account and every one above."""
        account: Account | None = self
        while account is not None:
            account.settled += usage
            account.iteration_usage += usage
            account = account.parent

    def admit(self) -> None:
        """Raise Stopped for the outermost capped account that has nothing left for a new round."""
        account: Account | None = self
        stopped: Stopped | None = None
        while account is not None:
            if account.cap is not None:
                stop = account._used_up()
                stopped = stopped if stop is None else Stopped(account.path, stop)
            account = account.parent
        if stopped is not None:
            raise stopped

    def _used_up(self) -> Stop | None:
        cap = self.cap
        assert cap is not None
        if self.settled is NOTHING and not self.effects:
            return None
        return cap.check(History(usage=self.settled, effects=self.effects))

    def begin(self) -> None:
        """Count an effect that begins here in this account and every one above.

        Raises:
            Stopped: by the outermost account whose limit of effects is used up; none is counted then.
        """
        chain: list[Account] = []
        account: Account | None = self
        while account is not None:
            chain.append(account)
            account = account.parent
        for one in reversed(chain):
            if (
                one.cap is not None
                and one.cap.effects is not None
                and one.effects >= one.cap.effects
            ):
                used = f"{one.effects} of {one.cap.effects} effects used"
                raise Stopped(one.path, Stop(Reason.BUDGET, used))
        for one in chain:
            one.effects += 1

    async def reserve(self, path: str, amount: Usage) -> None:
        """Promise `amount` to the call at `path` in every capped account, waiting for its turn.

        Raises:
            Stopped: by the account that can no longer fit it; the detail says which call it was.
        """
        chain = self._capped()
        if not chain:
            return
        turn = next(chain[0]._turns)
        try:
            while (blocked := _first_blocked(chain, path, turn, amount)) is not None:
                blocked._refuse_if_hopeless(path, amount)
                await blocked._wait(path, turn)
            for account in chain:
                account.reserved += amount
                account._held[path] = amount
        finally:
            for account in chain:
                account._waiting.pop(turn, None)
                account._inner.pop(turn, None)
                account._wake()

    def settle(self, path: str, usage: Usage) -> None:
        """Replace what was promised to the call at `path` by what it really cost."""
        for account in self._capped():
            amount = account._held.pop(path, None)
            if amount is not None:
                account.reserved = _less(account.reserved, amount)
        if usage:
            self.spend(usage)
            if is_judging(path):
                self._root().judging += usage
        for account in self._capped():
            account._wake()

    def overshot(self, usage: Usage) -> str:
        """Return what the call that just settled at `usage` spent beyond a cap that held until then, in
        a sentence, or ""."""
        for account in self._capped():
            unit = account._over(account.settled)
            if unit and not account._over(_less(account.settled, usage)):
                spent, cap = getattr(account.settled, unit), getattr(account.cap, unit)
                of = f"the budget of {account.path}" if account.path else "the run's budget"
                return f"{amount(spent)} of {amount(cap)} {unit} of {of} spent{OVERSHOT}"
        return ""

    def _root(self) -> Account:
        account = self
        while account.parent is not None:
            account = account.parent
        return account

    def _capped(self) -> list[Account]:
        chain = []
        account: Account | None = self
        while account is not None:
            if account.cap is not None:
                chain.append(account)
            account = account.parent
        chain.reverse()  # the outermost first: it is the one to blame
        return chain

    def _blocks(self, path: str, turn: int, amount: Usage) -> bool:
        ahead = self._inner or (self._waiting and min(self._waiting) < turn)
        # A call inside an effect that holds a promise goes first: those in front may wait for it.
        if ahead and not self._is_inner(path):
            return True
        return bool(self._over(self.settled + self.reserved + amount))

    def _is_inner(self, path: str) -> bool:
        return any(path.startswith(other + "/") for other in self._held)

    def _over(self, total: Usage) -> str:
        cap = self.cap
        assert cap is not None
        if cap.calls is not None and total.calls > cap.calls:
            return "calls"
        if cap.tokens is not None and total.tokens > cap.tokens:
            return "tokens"
        # Sums of picodollars are exact in Usage; the half picodollar is for the cap itself.
        return "usd" if cap.usd is not None and total.usd > cap.usd + 5e-13 else ""

    def _refuse_if_hopeless(self, path: str, amount: Usage) -> None:
        # What an effect holds cannot be freed while a call inside it waits.
        inner = [path, *(other for other, _ in self._inner.values())]
        stuck = NOTHING
        for holder, promised in self._held.items():
            if any(one.startswith(holder + "/") for one in inner):
                stuck += promised
        unit = self._over(self.settled + stuck + amount)
        if unit:
            raise Stopped(self.path, Stop(Reason.BUDGET, self._sentence(path, amount, unit)))

    def _sentence(self, path: str, asked: Usage, unit: str) -> str:
        wants, cap = getattr(asked, unit), getattr(self.cap, unit)
        spent = getattr(self.settled, unit)
        return (
            f"{amount(spent)} of {amount(cap)} {unit} spent; the call {path} may take {amount(wants)} "
            f"{unit} and did not fit: a call is made only if the most that it can cost fits"
        )

    async def _wait(self, path: str, turn: int) -> None:
        future = asyncio.get_running_loop().create_future()
        queue = self._inner if self._is_inner(path) else self._waiting
        queue[turn] = (path, future)
        await future

    def _wake(self) -> None:
        waiters = list(self._inner.values())
        if self._waiting:
            waiters.append(self._waiting[min(self._waiting)])
        for _, future in waiters:
            if not future.done():
                future.set_result(None)


def _first_blocked(chain: list[Account], path: str, turn: int, amount: Usage) -> Account | None:
    return next((account for account in chain if account._blocks(path, turn, amount)), None)


def _less(a: Usage, b: Usage) -> Usage:
    return Usage(
        calls=a.calls - b.calls,
        input_tokens=a.input_tokens - b.input_tokens,
        output_tokens=a.output_tokens - b.output_tokens,
        usd=max(0.0, a.usd - b.usd),
        unpriced=a.unpriced - b.unpriced,
        estimated=a.estimated - b.estimated,
    )


def reports(step: Step) -> bool:
    """Return whether a step, or one inside it, can report what it costs.

    A model call does. A function does if it takes a context (`ctx.spend`) or states a `reserve`, a command
    if it has `usage`. What nothing is known of counts as reporting.
    """
    if step.reports is not None:
        return step.reports
    if isinstance(step, Leaf):
        return step.wants_context or step.reserve is not None
    parts = list(step.parts())
    return not parts or any(reports(part) for part in parts)


def cannot_bind(step: Step, budget: Budget, where: str) -> str:
    """Return the sentence for a budget that no step inside `step` can ever use up, or ""."""
    if not budget.spending or reports(step):
        return ""
    units = [name for name in ("calls", "tokens", "usd") if getattr(budget, name) is not None]
    return (
        f"{where}: the budget of {' and '.join(units)} cannot bind, as no step in it reports what it "
        "costs; report it with ctx.spend(Usage(…)), give reserve= to the function or usage= to the "
        "command, or limit effects instead: Budget(effects=…)"
    )
