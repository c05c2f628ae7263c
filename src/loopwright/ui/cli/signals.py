"""Ctrl-C, SIGTERM and SIGHUP during a run.

Rules:

1. The first signal cancels the run's task: the engine records the finished work and releases the run,
   so that it can be resumed.
2. The second signal ends the process at once; acknowledged entries are in the journal.
3. The handlers are plain ones, so that a step that blocks the event loop cannot delay them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from ...records import Result
from .output import Output

INTERRUPTED = 130  # the exit code of a run that a signal ended: 128 + SIGINT, as shells use it


class Signals:
    """A context that receives signals; `received` is the name of the first one, or empty."""

    def __init__(self, output: Output) -> None:
        self.received = ""
        self._output = output
        self._previous: dict[int, Any] = {}
        self._cancel: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                # nohup ignores SIGHUP, and the run must outlive the terminal.
                if number is None or (
                    name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN
                ):
                    continue
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def watch(self, task: asyncio.Task[Result]) -> None:
        """Cancel `task` on the first signal, or now if one was received before."""
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            if not task.done():
                self._output.note(
                    "interrupted: saving finished work; interrupt again to exit at once"
                )
                task.cancel()

        # Only this method of a loop may be called from a signal handler, and it wakes the loop.
        self._cancel = lambda: loop.call_soon_threadsafe(cancel)
        if self.received:
            self._cancel()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received:
            exit_at_once(self._output)
        self.received = signal.Signals(number).name
        if self._cancel is not None:
            self._cancel()
        else:
            raise KeyboardInterrupt  # nothing runs yet, so there is nothing to record


def exit_at_once(output: Output) -> NoReturn:
    """End the process at once, whatever threads of steps still run."""
    output.abandon()
    # `sys.exit` would wait for threads of steps, which cannot be interrupted.
    os._exit(INTERRUPTED)
