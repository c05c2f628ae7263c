"""Deadlines and guards that apply to everything inside a loop, the outermost first.

A call that runs past its deadline is cancelled. If it does not end within GRACE seconds, the run
continues without it.

An `async def` that does not await cannot be cancelled, and it blocks everything else on its event loop.
Therefore a thread watches each step that has a deadline. It logs a report while the step blocks; the run
gets the report as a warning afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

from ..conditions import Condition, check_safely, named
from ..errors import Stopped
from ..records import History, Reason, Stop
from .run_state import Run

__all__ = ["DeadlineScope", "Watched", "watch"]

_EARLY = 0.05  # seconds by which a timer may be early
GRACE = 0.5  # seconds that a cancelled call gets to clean up before it is abandoned
MARGIN = 1.0  # seconds after the deadline; longer than GRACE, in which a cancelled step cleans up
IDLE = 5.0  # seconds after which the thread ends if no step is watched
SHOWN = 4  # calls of the stack in a warning
_log = logging.getLogger("loopwright")
_T = TypeVar("_T")


class DeadlineScope:
    """The deadline and the guards of a loop, checked before each effect inside it.

    `deadline` is in active seconds and `wall` in seconds since the epoch; `stop` and `wall_stop` are
    the reasons to report when they pass. `view` returns the loop's history as of now.
    """

    __slots__ = (
        "_bound", "chain", "deadline", "guards", "outer", "owner", "stop", "view", "wall",
        "wall_stop",
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
        # Outermost first: if several stop at once, the outermost one is reported.
        self.chain: tuple[DeadlineScope, ...] = (*outer.chain, self) if outer else (self,)
        self.deadline = deadline
        self.stop = stop or Stop(Reason.TIMEOUT)
        self.wall = wall
        self.wall_stop = wall_stop or Stop(Reason.DEADLINE)
        self.guards = tuple(guards)
        self.view = view
        self._bound = math.inf
        self.outer = outer

    def move(self, other: DeadlineScope | None) -> None:
        """Take the deadlines of another scope of the same loop, or none: a person changed them."""
        self._bound = self.deadline = self.wall = math.inf
        if other is not None:
            self.deadline, self.stop = other.deadline, other.stop
            self.wall, self.wall_stop = other.wall, other.wall_stop

    def check(self, run: Run) -> None:
        """Raise Stopped for the outermost loop whose deadline passed or whose guard stops it."""
        now = run.now()
        for member in self.chain:
            if now >= member._due(run, now):
                raise member.late()
            if member.guards and member.view is not None:
                history = member.view()
                for guard in member.guards:
                    if (stop := check_safely(guard, history)) is not None:
                        raise Stopped(member.owner, named(stop, member.owner))

    async def limit(self, run: Run, work: Callable[[], Awaitable[_T]], path: str = "") -> _T:
        """Do `work` until the nearest deadline, then cancel it; with a path, report a held event loop.

        Raises:
            Stopped: by the loop whose deadline it is.
        """
        seconds = self.remaining(run)
        if seconds == math.inf:
            return await work()
        # Not for waits of the engine itself: they always yield to the event loop.
        watched = watch(path, max(0.0, seconds)) if path else None
        body = _Abandonable(_contained(work, run))
        # A separate task: `asyncio.timeout` could not abandon a call that ignores its cancellation.
        task = asyncio.create_task(body)
        try:
            due = self._nearest(run)
            while True:
                timeout = None if due == math.inf else max(0.0, due - run.now())
                await asyncio.wait({task}, timeout=timeout)
                if task.done():
                    return task.result()
                # A person may have moved the deadline while the call was in flight.
                moved = self._nearest(run)
                # The time of the run stands while all of it waits, so the deadline may not have come.
                if moved <= due and moved - run.now() < _EARLY:
                    break
                due = moved
            await _abandon(task, body)
        except asyncio.CancelledError:
            await _abandon(task, body)
            raise
        finally:
            if watched is not None and (report := watched.end()):
                run.warn(report, code="blocking_event_loop")
        self.check(run)
        raise self.expired(run)  # the clock and the timer differ by less than their resolution

    def remaining(self, run: Run) -> float:
        """Return the seconds until the nearest deadline, or infinity."""
        return self._nearest(run) - run.now()

    def _nearest(self, run: Run) -> float:
        """Return the active second of the nearest deadline, or infinity."""
        now = run.now()
        return min(scope._due(run, now) for scope in self.chain)

    def expired(self, run: Run) -> Stopped:
        """Return the interruption by the loop with the nearest deadline, the outermost on ties."""
        now = run.now()
        return min(self.chain, key=lambda scope: scope._due(run, now)).late()

    def _due(self, run: Run, now: float) -> float:
        """Return the active second at which it ends."""
        if self.wall == math.inf:
            return self.deadline
        # The minimum so far: a wall clock that is set back does not move the deadline.
        self._bound = min(self._bound, now + self.wall - run.clock.wall())
        return min(self.deadline, self._bound)

    def due(self, run: Run) -> float:
        """Return the active second of the loop's own deadline, or infinity."""
        return self._due(run, run.now())

    def late(self) -> Stopped:
        """Return the interruption by this loop."""
        return Stopped(self.owner, self.wall_stop if self._bound <= self.deadline else self.stop)


async def _contained(work: Callable[[], Awaitable[_T]], run: Run) -> _T:
    """Do `work`; inside a task, SystemExit would end the event loop."""
    try:
        return await work()
    except SystemExit as error:
        raise run.failure(error, "").to_error() from error


class _Abandonable(Coroutine[object, object, _T]):
    """A coroutine that can be abandoned: the next cancel ends it, even if it ignores cancels."""

    # Otherwise `asyncio.run`, which cancels the remaining tasks and waits for them, would never return.

    def __init__(self, inner: Coroutine[object, object, _T]) -> None:
        self._inner = inner
        self.abandoned = False

    def __await__(self) -> Generator[object, object, _T]:
        return self._inner.__await__()

    def send(self, value: object) -> object:
        return self._inner.send(value)

    def throw(self, error: Any, value: object = None, traceback: object = None) -> object:
        if self.abandoned and isinstance(error, asyncio.CancelledError):
            self.close()
            raise error
        return self._inner.throw(error)

    def close(self) -> None:
        with contextlib.suppress(BaseException):  # it ignores GeneratorExit too
            self._inner.close()


async def _abandon(task: asyncio.Task[_T], body: _Abandonable[_T]) -> None:
    """Cancel a task and wait GRACE seconds for it; a task that is still running then is abandoned."""
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    body.abandoned = True
    if task.done() and not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it


class Watched:
    """An effect with a deadline; it is created in the thread of its event loop. See `watch`."""

    __slots__ = ("due", "path", "report", "thread")

    def __init__(self, path: str, seconds: float) -> None:
        self.path = path
        self.due = time.monotonic() + seconds + MARGIN
        self.thread = threading.get_ident()
        self.report = ""

    def end(self) -> str:
        """Stop watching and return the report, or ""."""
        _watcher.remove(self)
        return self.report

    def inspect(self) -> None:
        """Report the stack of the event loop if one of its steps is still on it."""
        frame = sys._current_frames().get(self.thread)
        stack = traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()
        from ..records.redaction import PACKAGE

        own = [i for i, call in enumerate(stack) if call.filename.startswith(PACKAGE)]
        calls = stack[own[-1] + 1 :] if own else []
        if not calls:
            return  # not in a step: the machine was suspended, or other code blocks the event loop
        where = " > ".join(
            f"{call.name} ({call.filename.rpartition(os.sep)[2]}:{call.lineno})"
            for call in calls[:SHOWN]
        )
        self.report = (
            f"{self.path}: it blocks the event loop past its deadline and cannot be cancelled: "
            f"{where}; await the slow call, or make it a plain function, which runs in a thread"
        )
        _log.warning("%s\n%s", self.report, "".join(traceback.format_list(calls)).rstrip())


class _Watcher:
    """The thread that inspects late steps; it starts with the first deadline."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: set[Watched] = set()
        self._next = math.inf
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        with self._changed:
            self._watched.add(watched)
            # A thread does not survive a fork, but this object does.
            if self._thread is None or not self._thread.is_alive():
                self._next = watched.due
                self._thread = threading.Thread(
                    target=self._work, name="loopwright deadlines", daemon=True
                )
                self._thread.start()
            # The thread is woken only for an earlier deadline; otherwise each effect would switch
            # threads.
            elif watched.due < self._next:
                self._next = watched.due
                self._changed.notify()

    def remove(self, watched: Watched) -> None:
        with self._changed:
            self._watched.discard(watched)

    def _work(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                late = [watched for watched in self._watched if watched.due <= now]
                self._watched.difference_update(late)  # each step is inspected once
                if not late:
                    self._next = min((watched.due for watched in self._watched), default=now + IDLE)
                    self._changed.wait(min(self._next - now, threading.TIMEOUT_MAX))
                    if not self._watched and time.monotonic() >= self._next:
                        self._thread = None
                        return
            # Without the lock: reading source lines for the stack takes time.
            for watched in late:
                watched.inspect()


_watcher = _Watcher()  # one per process: it holds no state of a run


def watch(path: str, seconds: float) -> Watched:
    """Watch a step until `end`; it is reported if it blocks the event loop MARGIN past its deadline."""
    watched = Watched(path, seconds)
    _watcher.add(watched)
    return watched
