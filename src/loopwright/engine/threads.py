"""Plain functions that a run calls, and runs that plain code waits for.

- A plain function has a daemon thread, which a deadline can abandon. The standard pool is not used: its few workers are
  joined at exit, so one function that hangs would keep the process from ending.
- Plain code waits for a run with an event loop of its own. Inside a running event loop, as in a notebook, that one has a
  thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from ..errors import LoopwrightWarning
from ..records import Result
from ..records.codec import Json

__all__ = ["BLOCKING", "in_thread", "thread_caller", "wait_for", "wait_shortly"]

T = TypeVar("T")

AT_ONCE = 256  # threads: more would use memory without running sooner
_room = threading.BoundedSemaphore(AT_ONCE)  # one per process: it holds no state of a run
BLOCKING = "blocking_event_loop"  # the code of the warning
_SENTENCE = "run_sync blocks the event loop that it is called in; use: await run(…)"
# Seconds between two checks for Ctrl-C, which some systems do not deliver to a wait.
_INTERVAL = 0.2


async def in_thread(function: Callable[..., T], *args: object) -> T:
    """Call a plain function in a new thread, and return its value or raise its error.

    A cancelled caller stops waiting at once. The thread continues to its end, and its value is dropped.
    """
    # Polled: a semaphore of asyncio belongs to one event loop, and there may be several.
    while not _room.acquire(blocking=False):
        await asyncio.sleep(0.005)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        error: BaseException | None = None
        value = None
        try:
            value = context.run(function, *args)
        except BaseException as raised:  # of any kind: the caller receives it
            error = raised
        finally:
            _room.release()
        with contextlib.suppress(RuntimeError):  # the event loop is closed: no caller waits
            loop.call_soon_threadsafe(_hand_over, future, value, error)

    # A virtual clock waits for the thread: it cannot see that one is about to wake its event loop.
    waiting: Callable[[], AbstractContextManager[None]] = getattr(
        loop, "awaiting_thread", contextlib.nullcontext
    )
    with waiting():
        threading.Thread(target=work, name=f"loopwright {function!r:.60}", daemon=True).start()
        return await future


def thread_caller(function: Callable[..., Json], count: int) -> Callable[..., Awaitable[Json]]:
    """Return a function of a value and a context that passes the first `count` of them to `function` in a new thread.

    If the value of `function` is awaitable, it is awaited in the event loop.
    """

    async def call(value: object, ctx: object) -> Json:
        result = await in_thread(function, *(value, ctx)[:count])
        return await result if inspect.isawaitable(result) else result

    return call


def _hand_over(future: asyncio.Future[T], value: T | None, error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if isinstance(error, StopIteration):  # a future cannot carry it
        error = RuntimeError("the function raised StopIteration")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(cast("T", value))


def wait_for(start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine to its end and return its result; Ctrl-C cancels it.

    Inside a running event loop it gets a thread, another event loop and a copy of the context variables.
    """
    inside = _is_inside_event_loop()
    result = wait_shortly(start)
    if not inside or _in_ipython():
        return result
    warnings.warn(LoopwrightWarning(_SENTENCE, code=BLOCKING), stacklevel=4)
    return replace(result, warnings=(*result.warnings, f"{BLOCKING}: {_SENTENCE}"))


def wait_shortly(start: Callable[[], Coroutine[object, object, T]]) -> T:
    """Do the same for a coroutine that reads or writes a journal, which is no reason to warn."""
    return _run_in_thread(start) if _is_inside_event_loop() else _run(asyncio.Runner(), start)


def _is_inside_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(runner: asyncio.Runner, start: Callable[[], Coroutine[object, object, T]]) -> T:
    results: list[T] = []

    async def main() -> None:
        # The main task returns nothing, because asyncio formats its result when it restores the signal
        # handler. The coroutine has another task, so that its waits do not resume the main task too.
        results.append(await asyncio.create_task(start()))

    with runner:
        runner.run(main())
    return results[0]


class _Thread(threading.Thread, Generic[T]):
    """A thread that runs a coroutine in another event loop."""

    def __init__(self, start: Callable[[], Coroutine[object, object, T]]) -> None:
        super().__init__(name="loopwright run_sync", daemon=True)
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self._start_run = start
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None

    def run(self) -> None:
        try:
            self._context.run(self._run_coroutine)
        except BaseException as error:  # raised again by the caller
            self.error = error
        finally:
            self.ended.set()

    def _run_coroutine(self) -> None:
        async def begin() -> T:
            # The lock orders this and `cancel`: a cancellation before the task exists is not lost.
            with self._lock:
                self._task = asyncio.current_task()
                if self._cancelled:
                    raise asyncio.CancelledError
            return await self._start_run()

        self.results.append(_run(asyncio.Runner(), begin))

    def cancel(self) -> None:
        """Cancel the coroutine."""
        with self._lock:
            self._cancelled = True
            if self._task is not None:
                with contextlib.suppress(RuntimeError):  # it ended, and its event loop is closed
                    self._task.get_loop().call_soon_threadsafe(self._task.cancel)


def _run_in_thread(start: Callable[[], Coroutine[object, object, T]]) -> T:
    thread = _Thread(start)
    try:
        thread.start()
        while not thread.ended.wait(_INTERVAL):
            pass
    except BaseException:  # Ctrl-C
        thread.cancel()
        # Joined, so that the run has released its journal when the caller continues.
        if thread.ident is not None:
            thread.join()
        raise
    if thread.error is not None:
        raise thread.error
    return thread.results[0]


def _in_ipython() -> bool:
    """Whether the caller is IPython, where `run_sync` in a cell blocks nothing but the cell."""
    module = sys.modules.get("IPython")
    return module is not None and module.get_ipython() is not None
