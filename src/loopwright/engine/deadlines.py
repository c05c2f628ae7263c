"""Deadlines and guards that bind everything inside a loop, the outermost first.

A call that runs past its deadline is cancelled, and left behind if it does not end within GRACE seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from ..conditions import Condition, asked, named
from ..errors import Stopped
from ..records import History, Reason, Stop
from .blocking import watch
from .run_state import Run

__all__ = ["DeadlineScope"]

GRACE = 0.5  # seconds that a cancelled call gets to clean up before it is left behind
_T = TypeVar("_T")


class DeadlineScope:
    """What an enclosing loop asks before each effect inside it: its deadline and its guards.

    `deadline` is in active seconds and `stop` says that it passed, `wall` in seconds since the epoch
    and `wall_stop` says so; `view` shows the loop's history as of now.
    """

    __slots__ = (
        "_bound", "chain", "deadline", "guards", "owner", "stop", "view", "wall", "wall_stop",
    )  # fmt: skip

    def __init__(
        self,
        owner: str,
        outer: DeadlineScope | None,
        *,
        deadline: float = math.inf,
        stop: Stop | None = None,
        wall: float = math.inf,
        wall_stop: Stop | None = None,
        guards: Sequence[Condition] = (),
        view: Callable[[], History] | None = None,
    ) -> None:
        self.owner = owner
        self.chain: tuple[DeadlineScope, ...] = (*outer.chain, self) if outer else (self,)
        self.deadline = deadline
        self.stop = stop or Stop(Reason.TIMEOUT)
        self.wall = wall
        self.wall_stop = wall_stop or Stop(Reason.DEADLINE)
        self.guards = tuple(guards)
        self.view = view
        self._bound = math.inf

    def ask(self, run: Run) -> None:
        """Raise Stopped for the outermost loop whose time or guard says so."""
        now = run.now()
        for gate in self.chain:
            if now >= gate._due(run, now):
                raise gate._late()
            if gate.guards and gate.view is not None:
                history = gate.view()
                for guard in gate.guards:
                    if (stop := asked(guard, history)) is not None:
                        raise Stopped(gate.owner, named(stop, gate.owner))

    async def limit(self, run: Run, work: Callable[[], Awaitable[_T]], path: str = "") -> _T:
        """Do `work` until the nearest deadline, then cancel it; with a path, report a held event loop.

        Raises:
            Stopped: by the loop whose deadline it is.
        """
        left = self.remaining(run)
        if left == math.inf:
            return await work()
        watched = watch(path, max(0.0, left)) if path else None
        body = _Leavable(_contained(work, run))
        task = asyncio.create_task(body)
        try:
            await asyncio.wait({task}, timeout=max(0.0, left))
            if task.done():
                return task.result()
            await _leave(task, body)
        except asyncio.CancelledError:
            await _leave(task, body)
            raise
        finally:
            if watched is not None and (report := watched.end()):
                run.warn(report, code="blocking_event_loop")
        self.ask(run)
        raise self.expired(run)  # the clock and the timer differ by less than their resolution

    def remaining(self, run: Run) -> float:
        """Return the seconds until the nearest deadline, or infinity."""
        now = run.now()
        return min(gate._due(run, now) for gate in self.chain) - now

    def expired(self, run: Run) -> Stopped:
        """Return the interruption by the loop with the nearest deadline, the outermost on ties."""
        now = run.now()
        return min(self.chain, key=lambda gate: gate._due(run, now))._late()

    def _due(self, run: Run, now: float) -> float:
        """Return the active second at which it ends: a wall clock that is set back wins no time."""
        if self.wall == math.inf:
            return self.deadline
        self._bound = min(self._bound, now + self.wall - run.clock.wall())
        return min(self.deadline, self._bound)

    def _late(self) -> Stopped:
        return Stopped(self.owner, self.wall_stop if self._bound <= self.deadline else self.stop)


async def _contained(work: Callable[[], Awaitable[_T]], run: Run) -> _T:
    """Do `work`; inside a task, SystemExit would end the event loop."""
    try:
        return await work()
    except SystemExit as error:
        raise run.failure(error, "").to_error() from error


class _Leavable(Coroutine[object, object, _T]):
    """A coroutine that can be left behind: the next cancel ends it, even if it ignores cancels.

    Otherwise `asyncio.run`, which cancels the remaining tasks and waits for them, would never return.
    """

    def __init__(self, inner: Coroutine[object, object, _T]) -> None:
        self._inner = inner
        self.left = False

    def __await__(self) -> Generator[object, object, _T]:
        return self._inner.__await__()

    def send(self, value: object) -> object:
        return self._inner.send(value)

    def throw(self, error: Any, value: object = None, traceback: object = None) -> object:
        if self.left and isinstance(error, asyncio.CancelledError):
            self.close()
            raise error
        return self._inner.throw(error)

    def close(self) -> None:
        with contextlib.suppress(BaseException):  # it ignores GeneratorExit too
            self._inner.close()


async def _leave(task: asyncio.Task[_T], body: _Leavable[_T]) -> None:
    """Cancel a task and give it GRACE seconds; what does not end by then is left behind."""
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    body.left = True
    if task.done() and not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it
