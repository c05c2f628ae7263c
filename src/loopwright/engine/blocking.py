"""Steps that hold the event loop past their deadline: a thread beside it finds them and reports where.

An `async def` that does not await cannot be cancelled, and nothing else of the process goes on while it
holds the loop, not even the report that it is late. So the report is logged while it lasts, and becomes
a warning of the run afterwards. Without a deadline nothing is watched.
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

MARGIN = 1.0  # seconds after the deadline: what is cancelled has half a second to clean up
IDLE = 5.0  # seconds that the thread stays when nothing is watched
SHOWN = 4  # calls of the stack that a warning names
_log = logging.getLogger("loopwright")


class Watched:
    """One effect under a deadline, made in the thread of its event loop; see `watch`."""

    __slots__ = ("due", "path", "report", "thread")

    def __init__(self, path: str, seconds: float) -> None:
        self.path = path
        self.due = time.monotonic() + seconds + MARGIN
        self.thread = threading.get_ident()
        self.report = ""

    def end(self) -> str:
        """Watch it no longer; return the report, if there was reason for one."""
        _watcher.remove(self)
        return self.report

    def look(self) -> None:
        """Report what the event loop is at: it should have come back by now."""
        frame = sys._current_frames().get(self.thread)
        stack = traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()
        own = [i for i, call in enumerate(stack) if call.filename.startswith(PACKAGE)]
        calls = stack[own[-1] + 1 :] if own else []
        if not calls:
            return  # it is at none of our steps: the machine was asleep, or others hold the loop
        where = " > ".join(
            f"{call.name} ({Path(call.filename).name}:{call.lineno})" for call in calls[:SHOWN]
        )
        self.report = (
            f"{self.path}: it holds the event loop past its deadline and cannot be ended there: "
            f"{where}; await what takes long, or make it a plain function, which runs in a thread"
        )
        _log.warning("%s\n%s", self.report, "".join(traceback.format_list(calls)).rstrip())


class _Watcher:
    """The thread that looks at what is late; it starts with the first deadline."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: set[Watched] = set()
        self._next = math.inf
        self._thread: threading.Thread | None = None

    def add(self, one: Watched) -> None:
        with self._changed:
            self._watched.add(one)
            if self._thread is None or not self._thread.is_alive():  # not alive: after a fork
                self._next = one.due
                self._thread = threading.Thread(
                    target=self._work, name="loopwright deadlines", daemon=True
                )
                self._thread.start()
            elif one.due < self._next:
                self._next = one.due
                self._changed.notify()

    def remove(self, one: Watched) -> None:
        with self._changed:
            self._watched.discard(one)

    def _work(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                late = [one for one in self._watched if one.due <= now]
                self._watched.difference_update(late)  # one look at each
                if not late:
                    self._next = min((one.due for one in self._watched), default=now + IDLE)
                    self._changed.wait(min(self._next - now, threading.TIMEOUT_MAX))
                    if not self._watched and time.monotonic() >= self._next:
                        self._thread = None
                        return
            for one in late:
                one.look()


_watcher = _Watcher()  # of the process, like its threads; no state of a run


def watch(path: str, seconds: float) -> Watched:
    """Watch that the event loop comes back from a step at most MARGIN after its deadline."""
    one = Watched(path, seconds)
    _watcher.add(one)
    return one
