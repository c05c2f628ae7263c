"""Plain functions in daemon threads, which a deadline can abandon.

The standard pool is not used: its few workers are joined at exit, so one function that hangs would keep
the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar, cast

from ..records.codec import Json

__all__ = ["in_thread", "thread_caller"]

T = TypeVar("T")

AT_ONCE = 256  # threads: more would use memory without running sooner
_room = threading.BoundedSemaphore(AT_ONCE)  # one per process: it holds no state of a run


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
