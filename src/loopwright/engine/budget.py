"""Accounts of a run and its loops: a call reserves its highest cost first, and settles it afterwards.

1. Settled + reserved never exceeds a cap, in any account, at any time.
2. A call that does not fit *now* waits for the calls in flight. It is refused only if these could not
   free enough.
3. Waiting calls are served in order, so that small calls cannot starve a large one. All accounts have
   the same order: no call waits behind a later one, so no two calls wait for each other.
4. A cost is added to every account up the tree, never computed as the difference of a shared counter.

A budget has an effect only if a step reports its cost; `cannot_bind` warns of the others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator

from ..conditions import Budget, amount
from ..conditions.limits import OVERSHOT, used_up
from ..errors import Stopped
from ..records import NOTHING, History, Reason, Stop, Usage, is_judging
from .step import Leaf, Step

__all__ = ["CANNOT_BIND", "OVERSHOOT", "Account", "cannot_bind", "reports"]

# The codes of the warnings: a budget that no step can use up, and a call that exceeded one.
CANNOT_BIND = "budget_cannot_bind"
OVERSHOOT = "overshoot"

_Waiter = tuple[
    str, "asyncio.Future[None]"
]  # the path of a waiting call, and the future that wakes it


class Account:
    """The budget and the cost of one loop, or of the run.

    `settled` is the final cost, `judging` (of the run only) the part of it for judging, `reserved` the
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

    def _count_recorded(self) -> None:
        """Add the effects of earlier processes, once; only a limit needs them."""
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
            if (stop := account._used_up()) is not None:
                raise Stopped(account.path, stop)

    def _used_up(self) -> Stop | None:
        cap = self.cap
        assert cap is not None
        if self.settled is NOTHING and not self.effects:  # the common case of a first iteration
            return None
        return cap.check(History(usage=self.settled, effects=self.effects))

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
                *_, root = self._chain()
                root.judging += usage
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

    def _refuse_if_hopeless(self, path: str, amount: Usage) -> None:
        # The reservation of an effect cannot be freed while a call inside it waits.
        inner = [path, *(other for other, _ in self._inner.values())]
        stuck = NOTHING
        for holder, reserved in self._held.items():
            if any(one.startswith(holder + "/") for one in inner):
                stuck += reserved
        unit = self._over(self.settled + stuck + amount)
        if unit:
            raise Stopped(self.path, Stop(Reason.BUDGET, self._sentence(path, amount, unit)))

    def _sentence(self, path: str, reserve: Usage, unit: str) -> str:
        wants, cap = getattr(reserve, unit), getattr(self.cap, unit)
        spent = getattr(self.settled, unit)
        return (
            f"{amount(spent)} of {amount(cap)} {unit} spent; the call {path} may take {amount(wants)} "
            f"{unit[:-1] if unit != 'usd' and wants == 1 else unit} and did not fit: a call starts only if its maximum cost fits"
        )

    async def _wait(self, path: str, turn: int) -> None:
        future = asyncio.get_running_loop().create_future()
        queue = self._inner if self._is_inner(path) else self._waiting
        queue[turn] = (path, future)
        await future

    def _wake(self) -> None:
        # Only the first in the queue: the others would find themselves behind it.
        waiters = list(self._inner.values())
        if self._waiting:
            waiters.append(self._waiting[min(self._waiting)])
        for _, future in waiters:
            if not future.done():
                future.set_result(None)


def _first_blocked(chain: list[Account], path: str, turn: int, amount: Usage) -> Account | None:
    return next((account for account in chain if account._blocks(path, turn, amount)), None)


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
