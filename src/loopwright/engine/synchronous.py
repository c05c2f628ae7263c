"""Wait for a run from synchronous code, also inside a running event loop, as in a notebook."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ..errors import LoopwrightWarning
from ..records import Result

__all__ = ["BLOCKING", "wait_for", "wait_shortly"]

_T = TypeVar("_T")

BLOCKING = "blocking_event_loop"  # the code of the warning
_SENTENCE = "run_sync blocks the event loop that it is called in; use: await run(…)"
# Seconds between two checks for Ctrl-C, which some systems do not deliver to a wait.
_INTERVAL = 0.2


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


def wait_shortly(start: Callable[[], Coroutine[object, object, _T]]) -> _T:
    """Do the same for a coroutine that reads or writes a journal, which is no reason to warn."""
    return _run_in_thread(start) if _is_inside_event_loop() else _run(asyncio.Runner(), start)


def _is_inside_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(runner: asyncio.Runner, start: Callable[[], Coroutine[object, object, _T]]) -> _T:
    results: list[_T] = []

    async def main() -> None:
        # The main task returns nothing, because asyncio formats its result when it restores the signal
        # handler. The coroutine has another task, so that its waits do not resume the main task too.
        results.append(await asyncio.create_task(start()))

    with runner:
        runner.run(main())
    return results[0]


class _Thread(threading.Thread, Generic[_T]):
    """A thread that runs a coroutine in another event loop."""

    def __init__(self, start: Callable[[], Coroutine[object, object, _T]]) -> None:
        super().__init__(name="loopwright run_sync", daemon=True)
        self.results: list[_T] = []
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
        async def begin() -> _T:
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


def _run_in_thread(start: Callable[[], Coroutine[object, object, _T]]) -> _T:
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
