"""The permits of one worker: calls that begin and end together cost one statement, not one each.

Rules:

1. One statement at a time settles a name: it returns the permits of ended calls and asks for those of all waiting
   calls. It states totals, so it can be repeated after a lost connection.
2. A permit of a cap goes from an ended call to a waiting one without a statement, while this worker has no more than
   its share and has asked the store within the last second.
3. A permit that no call of this worker waits for goes back at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from typing import NamedTuple, Protocol

from ..engine.budgets import Limits
from ..errors import JournalUnavailable

__all__ = ["PermitPool", "PermitStore", "Settled"]

_TURN = 1.0  # seconds after which the store is asked again whether other workers wait


class Settled(NamedTuple):
    """What a store grants.

    Args:
        granted: the number of new permits.
        wait: the seconds after which it may grant more.
        allowed: how many permits this worker may keep while others wait.
    """

    granted: int
    wait: float
    allowed: int


class PermitStore(Protocol):
    """Where the permits of all workers are counted, by the clock of the store."""

    async def settle(self, name: str, limits: Limits, *, have: int, want: int) -> Settled:
        """Record that this worker has `have` permits of a name, and grant up to `want` more."""

    async def pause(self, name: str, seconds: float) -> None:
        """Refuse permits of this name for a number of seconds."""

    async def paused(self, name: str) -> float:
        """Return the remaining seconds of the pause of a name."""


class _Waiter(NamedTuple):
    """A call that waits for a permit, with the limits of its run: documents may limit one name differently."""

    future: asyncio.Future[None]
    limits: Limits


class _Share:
    """The permits of a name in this worker.

    `held` counts the calls in progress, `allowed` is how many there may be while other workers wait, and `asked` is
    when the store was asked last. `returned` is whether a permit is to be given back.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held = 0
        self.allowed = 0
        self.asked = 0.0
        self.returned = False
        self.waiting: deque[_Waiter] = deque()
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()

    def is_wanted(self) -> bool:
        """Return whether a call waits; the limits of the first one apply from now on."""
        while self.waiting and self.waiting[0].future.done():  # the call was cancelled
            self.waiting.popleft()
        if self.waiting:
            self.limits = self.waiting[0].limits
        return bool(self.waiting)

    def wanted(self) -> int:
        """Return how many calls wait for the same limits as the first one."""
        if not self.is_wanted():
            return 0
        same = itertools.takewhile(lambda waiter: waiter.limits == self.limits, self.waiting)
        return sum(not waiter.future.done() for waiter in same)

    def may_pass_on(self, now: float) -> bool:
        """Return whether the permit of an ended call may go to the first waiting one."""
        # Each call takes a token of a rate, so a permit with a rate is never passed on.
        if not self.is_wanted() or self.limits.calls or now - self.asked > _TURN:
            return False
        return self.held < min(self.allowed, self.limits.cap)

    def grant(self) -> bool:
        """Let the first waiting call begin; return False if none waits."""
        if not self.is_wanted():
            return False
        self.held += 1
        self.waiting.popleft().future.set_result(None)
        return True


class PermitPool:
    """SharedPermits of one worker, on the permits of a store.

    Args:
        store: where the permits of all workers are counted.
    """

    def __init__(self, store: PermitStore) -> None:
        self._store = store
        self._shares: dict[str, _Share] = {}

    async def take(self, name: str, limits: Limits) -> float:
        """Wait for a permit; see SharedPermits.take. The result is always 0.

        Raises:
            JournalUnavailable: if the store is away for too long.
        """
        share = self._shares.setdefault(name, _Share(limits))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append(_Waiter(future, limits))
        self._settle_soon(name, share)
        try:
            await future
        except asyncio.CancelledError:
            # Cancelled in the moment in which it was granted.
            if not future.cancelled() and future.exception() is None:
                await self.release(name)
            raise
        return 0.0

    async def release(self, name: str) -> None:
        """Return a permit; see SharedPermits.release. A waiting call of this worker may have it next."""
        share = self._shares[name]
        share.held -= 1
        if share.may_pass_on(asyncio.get_running_loop().time()) and share.grant():
            return
        share.returned = True
        share.changed.set()
        self._settle_soon(name, share)

    async def pause(self, name: str, seconds: float) -> None:
        """Pause a name; see SharedPermits.pause."""
        await self._store.pause(name, seconds)

    async def paused(self, name: str) -> float:
        """Return the remaining pause of a name; see SharedPermits.paused."""
        return await self._store.paused(name)

    async def close(self) -> None:
        """End the statements in progress."""
        tasks = [share.task for share in self._shares.values() if share.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _settle_soon(self, name: str, share: _Share) -> None:
        # A call that joins others which wait need not wake the task: the store would grant it nothing either.
        if share.task is None or share.task.done():
            share.task = asyncio.create_task(self._settle(name, share))

    async def _settle(self, name: str, share: _Share) -> None:
        """Ask the store until no call waits and no permit is to be given back."""
        try:
            while share.is_wanted() or share.returned:
                share.returned = False
                share.changed.clear()
                wait = await self._ask(name, share)
                if wait and share.waiting and not share.returned:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(share.changed.wait(), wait)
        except Exception as error:  # of the store, which was away for too long
            # The waiting calls fail with it; those in progress are not concerned.
            while share.is_wanted():
                future = share.waiting.popleft().future
                future.set_exception(JournalUnavailable(f"permits of {name}: {error}"))

    async def _ask(self, name: str, share: _Share) -> float:
        """Settle with the store once, and return the seconds after which it may grant more."""
        have, want = share.held, share.wanted()
        granted, wait, allowed = await self._store.settle(name, share.limits, have=have, want=want)
        share.allowed, share.asked = allowed, asyncio.get_running_loop().time()
        satisfied = granted >= want
        while granted and share.grant():
            granted -= 1
        # Calls that were cancelled meanwhile, or had the permit of a call that ended, leave some over.
        share.returned = share.returned or granted > 0
        return 0.0 if satisfied else wait
