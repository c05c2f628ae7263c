"""Plain functions beside the event loop: daemon threads that a deadline can leave behind.

The standard pool is not used: its few workers are joined at exit, so one function that hangs would
hold the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar, cast

__all__ = ["in_thread"]

T = TypeVar("T")

AT_ONCE = 256
_room = threading.BoundedSemaphore(AT_ONCE)  # a bound on threads of the process, not state of a run


async def in_thread(function: Callable[..., T], *args: object) -> T:
    """Call a plain function in a thread of its own and return its value or raise its error.

    A cancelled caller stops waiting at once; the thread ends by itself and what it returns is
    dropped.
    """
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
        except BaseException as raised:  # handed to the caller, whatever it is
            error = raised
        finally:
            _room.release()
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_hand_over, future, value, error)

    threading.Thread(target=work, name=f"loopwright {function!r:.60}", daemon=True).start()
    return await future


def _hand_over(future: asyncio.Future[T], value: T | None, error: BaseException | None) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):  # a future cannot carry it
        error = RuntimeError("the function raised StopIteration")
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(cast("T", value))
