"""Detects steps that block the event loop past their deadline, and reports where they are.

An `async def` that does not await cannot be cancelled, and it blocks everything else on its event loop.
Therefore a thread watches each step that has a deadline. It logs a report while the step blocks; the run
gets the report as a warning afterwards.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import traceback
from pathlib import Path

from ..records.tracebacks import PACKAGE

__all__ = ["Watched", "watch"]

MARGIN = 1.0  # seconds after the deadline; longer than GRACE, in which a cancelled step cleans up
IDLE = 5.0  # seconds after which the thread ends if no step is watched
SHOWN = 4  # calls of the stack in a warning
_log = logging.getLogger("loopwright")


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
        own = [i for i, call in enumerate(stack) if call.filename.startswith(PACKAGE)]
        calls = stack[own[-1] + 1 :] if own else []
        if not calls:
            return  # not in a step: the machine was suspended, or other code blocks the event loop
        where = " > ".join(
            f"{call.name} ({Path(call.filename).name}:{call.lineno})" for call in calls[:SHOWN]
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
