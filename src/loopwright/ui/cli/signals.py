"""Ctrl-C, SIGTERM and SIGHUP while a run is under way.

Rules:

1. The first one cancels the run's task: the engine writes what is done and gives the run back, so
   that it can be resumed.
2. The second one ends the process at once; what was acknowledged is in the journal.
3. The handlers are plain ones, so that a step that holds the event loop cannot hold them off.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from .output import Output

__all__ = ["INTERRUPTED", "Signals", "leave"]

INTERRUPTED = 130  # the exit code of a run that a signal ended


class Signals:
    """Listens for signals as a context; `heard` is the name of the first one, or empty."""

    def __init__(self, output: Output) -> None:
        self.heard = ""
        self._output = output
        self._before: dict[int, Any] = {}
        self._cancel: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                # Who started us with nohup wants no end on hang-up.
                if number is None or (
                    name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN
                ):
                    continue
                self._before[number] = signal.signal(number, self._on)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Cancel `task` on the first signal; one heard before cancels it now."""
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            if not task.done():
                self._output.note("interrupted: writing what is done; again to leave at once")
                task.cancel()

        self._cancel = lambda: loop.call_soon_threadsafe(cancel)
        if self.heard:
            self._cancel()

    def _on(self, number: int, _: FrameType | None) -> None:
        if self.heard:
            leave(self._output)
        self.heard = signal.Signals(number).name
        if self._cancel is not None:
            self._cancel()
        else:
            raise KeyboardInterrupt  # nothing runs yet, so there is nothing to write


def leave(output: Output) -> NoReturn:
    """End the process at once, whatever threads of steps still run."""
    output.abandon()
    os._exit(INTERRUPTED)
