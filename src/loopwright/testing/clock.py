"""Virtual time: an event loop whose clock jumps to the next timer, so tests never wait.

Rules:

1. Time passes only when nothing is ready to run; then it jumps to the next timer. A loop with a timeout
   of an hour is tested in a millisecond, to the second.
2. If nothing is ready and no timer is set, nothing can continue. This is a `Deadlock`, which lists the
   waiting tasks.
3. With a seed, ready callbacks run in a shuffled order to test interleavings. The same seed gives the same
   order.
4. A plain function runs in a thread, in real time. The clock stands still while it runs, for at most
   PATIENCE real seconds: a function that blocks must not stop the test. Other threads, sockets and
   processes cannot be used.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
import time
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from ..errors import LoopwrightError

__all__ = ["Deadlock", "VirtualClock", "VirtualLoop", "run_virtual"]

EPOCH = 1_900_000_000.0  # the wall clock at virtual second 0, in March 2030: in no real record
PATIENCE = 2.0  # real seconds: a thread that returns at once may wait that long for a processor
CLEANUP = 100  # iterations of the event loop in which cancelled tasks can clean up
_Answer = TypeVar("_Answer")


class Deadlock(LoopwrightError, RuntimeError):
    """Nothing is ready and no timer is set, so every task waits forever."""


class _Selector(selectors.SelectSelector):
    """A selector that never waits: it adds the time to its loop's clock instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Still polled, because the loop wakes itself through a socket.
        ready = super().select(0)
        # Timers wait for threads too: otherwise the load of the machine decides whether a timeout expires.
        if not ready and (timeout is None or timeout > 0):
            ready = super().select(self.loop.patience())
        # asyncio passes None if no timer is set: it would wait for a socket, and there is none.
        if not ready and timeout is None:
            raise Deadlock(f"every task waits forever: {self.loop.waiting()}")
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. `now` is its clock, in seconds from 0.

    Args:
        seed: Shuffles callbacks that are ready at the same time. Default: the order of asyncio.

    Example:
        >>> loop = VirtualLoop()
        >>> loop.run_until_complete(asyncio.sleep(3600))
        >>> loop.now
        3600.0
        >>> loop.close()
    """

    _ready: deque[asyncio.Handle]  # asyncio's queue; a test checks that it exists

    def __init__(self, seed: int | None = None) -> None:
        self.now = 0.0
        self.shuffling = None if seed is None else random.Random(seed)
        # The real time until which the clock waits for each.
        self._threads: dict[object, float] = {}
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Return the virtual second."""
        return self.now

    @contextlib.contextmanager
    def awaiting_thread(self) -> Iterator[None]:
        """Hold the clock while a thread runs that will wake this loop."""
        thread = object()
        self._threads[thread] = time.monotonic() + PATIENCE
        try:
            yield
        finally:
            del self._threads[thread]

    def patience(self) -> float:
        """Return the real seconds to wait for threads before virtual time passes."""
        return max(0.0, max(self._threads.values(), default=0.0) - time.monotonic())

    def _run_once(self) -> None:
        if self.shuffling is not None and len(self._ready) > 1:
            ready = list(self._ready)
            self.shuffling.shuffle(ready)
            self._ready.clear()
            self._ready.extend(ready)
        # asyncio has no public place to reorder its queue; a test checks that this one exists.
        super()._run_once()  # type: ignore[misc]

    def waiting(self) -> str:
        """Return the waiting tasks and their positions, for the message of a deadlock."""
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return "; ".join(_waiting_at(task) for task in tasks) or "there is no task"


def _waiting_at(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack()
    if not frames:
        return f"{task.get_name()} waits at an unknown place"
    code = frames[-1].f_code
    return f"{task.get_name()} waits in {code.co_qualname} (line {frames[-1].f_lineno})"


class VirtualClock:
    """The clock of a run in virtual time, whose wall clock can be set forward and back.

    Without it, a run in a VirtualLoop has virtual seconds and the wall clock of the machine. `jumped` is the
    error of the wall clock in seconds.

    Args:
        wall: The wall clock at virtual second 0, in seconds since the epoch. Default: March 2030.

    Example:
        >>> from loopwright import run
        >>> async def nap(value):
        ...     await asyncio.sleep(60)
        >>> run_virtual(run(nap, clock=VirtualClock())).seconds
        60.0
    """

    def __init__(self, wall: float = EPOCH) -> None:
        self.start = wall
        self.jumped = 0.0

    def monotonic(self) -> float:
        """Return the virtual second."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Return the wall clock in seconds since the epoch."""
        return self.start + self.jumped + self.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward by these seconds, or back if negative, as a time server may do."""
        self.jumped += seconds


def run_virtual(work: Coroutine[object, None, _Answer], *, seed: int | None = None) -> _Answer:
    """Run a coroutine to its end in virtual time and return its result.

    Tasks that still run at the end are cancelled. Tasks that do not react to this are abandoned.

    Args:
        work: The coroutine.
        seed: Shuffles callbacks that are ready at the same time. Default: the order of asyncio.

    Returns:
        The result of the coroutine.

    Raises:
        Deadlock: If every task waits forever.

    Example:
        >>> run_virtual(asyncio.sleep(3600, "done"))
        'done'
    """
    loop = VirtualLoop(seed)
    try:
        return loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        # Limited: a task that catches its cancellation and waits again would never end, so it is abandoned.
        for _ in range(CLEANUP if left else 0):
            if all(task.done() for task in left):
                break
            loop.call_soon(loop.stop)
            loop.run_forever()
        # Abandoned tasks are not reported.
        loop.set_exception_handler(lambda _loop, _context: None)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
