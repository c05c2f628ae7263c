"""Virtual time: an event loop whose clock jumps to the next timer, so that no test ever waits.

Rules:

1. Time passes only when nothing is ready to run; then it jumps to the next timer. A loop with a
   timeout of an hour is tested in a millisecond, and to the second.
2. When nothing is ready and no timer is set, nothing can ever wake up: that is a `Deadlock`, and
   says who waits where.
3. With a seed, what is ready runs in a shuffled order, the same for the same seed, to explore
   interleavings.
4. No threads, sockets or processes: they live in real time. Under virtual time give steps as
   `async` functions, or as `step(function, inline=True)`; a plain function runs in a thread, which
   looks like a deadlock from here.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..errors import LoopwrightError

__all__ = ["Deadlock", "VirtualClock", "VirtualLoop", "run_virtual"]

EPOCH = 1_900_000_000.0  # the wall clock at virtual second 0: some day in March 2030
FAREWELL = 100  # turns of the event loop that cancelled tasks get to clean up at the end
_Answer = TypeVar("_Answer")


class Deadlock(LoopwrightError, RuntimeError):
    """Nothing is ready and no timer is set: every task waits for something that never comes."""


class _Selector(selectors.SelectSelector):
    """A selector that never waits: it hands the time that would have passed to its loop's clock."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise Deadlock(f"nothing will ever wake up: {self.loop.waiting()}")
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; `now` is its clock, in seconds from 0.

    With a `seed`, callbacks that are ready at the same moment run in a shuffled order.
    """

    _ready: deque[asyncio.Handle]  # asyncio's own queue; the tests pin that it is there

    def __init__(self, seed: int | None = None) -> None:
        self.now = 0.0
        self.chance = None if seed is None else random.Random(seed)
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Return the virtual second."""
        return self.now

    def _run_once(self) -> None:
        if self.chance is not None and len(self._ready) > 1:
            ready = list(self._ready)
            self.chance.shuffle(ready)
            self._ready.clear()
            self._ready.extend(ready)
        super()._run_once()  # type: ignore[misc]

    def waiting(self) -> str:
        """Return which tasks wait, and where, for a deadlock's message."""
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return "; ".join(_place(task) for task in tasks) or "there is no task"


def _place(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack()
    if not frames:
        return f"{task.get_name()} waits where nobody can see"
    code = frames[-1].f_code
    return f"{task.get_name()} waits in {code.co_qualname} (line {frames[-1].f_lineno})"


class VirtualClock:
    """A clock of a run in virtual time, whose wall clock can be set forward and back.

    `jumped` is by how many seconds the wall clock is wrong. Pass it as `run(…,
    clock=VirtualClock())`; without it a run in a VirtualLoop has virtual seconds and the machine's
    wall clock.
    """

    def __init__(self, wall: float = EPOCH) -> None:
        self.start = wall
        self.jumped = 0.0

    def monotonic(self) -> float:
        """Return the virtual second."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Return seconds since the epoch, as far as the wall clock knows."""
        return self.start + self.jumped + self.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back if negative, as a time server may do."""
        self.jumped += seconds


def run_virtual(work: Coroutine[Any, Any, _Answer], *, seed: int | None = None) -> _Answer:
    """Run a coroutine to its end in virtual time and return what it returns.

    With a `seed` the order of what is ready at the same moment is shuffled, the same for the same
    seed. What is still running at the end is cancelled, and left behind if it will not go.

    Raises:
        Deadlock: if everything waits and nothing will ever wake up.
    """
    loop = VirtualLoop(seed)
    try:
        return loop.run_until_complete(work)
    finally:
        _dismiss(loop)
        loop.close()


def _dismiss(loop: VirtualLoop) -> None:
    """Cancel what is left, but wait for nothing: who swallows a cancellation is left behind."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    for _ in range(FAREWELL if left else 0):
        if all(task.done() for task in left):
            break
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.set_exception_handler(lambda _loop, _context: None)  # who was left behind is no news
    loop.run_until_complete(loop.shutdown_asyncgens())
