"""New limits that reach a run while it is open: they are recorded, and count from then on.

1. A limit is recorded and changed in one step of the event loop, so that each decision is before or after
   the entry.
2. A lowered limit takes nothing back: the next decision ends the loop, and calls that do not fit are
   refused. Only a limit of time cuts a call in flight.
3. Budgets and deadlines around the loop apply as before.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

from ..conditions import tuned_budget
from ..errors import JournalError
from ..journal import Entry
from ..journal.protocol import Posted
from ..journal.tunes import TunedLimits, applies, tuned_entries
from .loop_run import LoopRun
from .run_state import Run

__all__ = ["Inbox", "LiveLimits"]

Inbox = Callable[[], Awaitable[Sequence[Posted]]]
_TIMES = ("timeout", "deadline")
_EARLY = 0.001  # seconds by which a timer of the event loop may be early


class LiveLimits:
    """Reads the inbox of an open run when it is notified, and applies the new limits.

    Args:
        run: the run.
        inbox: reads the inbox of the run.
    """

    def __init__(self, run: Run, inbox: Inbox) -> None:
        self._run = run
        self._inbox = inbox
        self._recorded = [e for e in run.log.recorded if e.kind == "tuned"]
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def read(self) -> None:
        """Read the inbox in a task; a notification that arrives meanwhile repeats it."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read())

    def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
        for timer in self._timers.values():
            timer.cancel()

    async def _read(self) -> None:
        while self._again:
            self._again = False
            try:
                posted = await self._inbox()
            except JournalError:
                return  # the next commit of the run reports it
            for entry in tuned_entries(self._recorded, posted, self._run.now()):
                self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        run, change = self._run, entry.value
        loop, limits = change["loop"], {change["key"]: change["new"]}
        run.append(entry)
        self._recorded.append(entry)
        if run.tuned is None:
            run.tuned = TunedLimits()
        run.tuned.add(entry)
        if not loop:
            run.account.set_cap(tuned_budget(run.account.cap, limits))
        # By path: an account above is read before those below.
        for path in sorted(run.open_loops):
            open_loop = run.open_loops[path]
            # The number of jobs of a step has a slash at the end of its key.
            if loop and applies(loop, path.removesuffix("/")):
                open_loop.tune(limits)
                if change["key"] in _TIMES and isinstance(open_loop, LoopRun):
                    self._watch(open_loop)
            else:
                open_loop.refresh()

    def _watch(self, loop: LoopRun) -> None:
        """Set the timer that cuts the call in flight when the loop's time is over."""
        if (timer := self._timers.pop(loop.path, None)) is not None:
            timer.cancel()
        gate, run = loop.ctx.gate, self._run
        if gate is None or gate.owner != loop.path:
            return
        seconds = gate.due(run) - run.now()
        if seconds < math.inf:
            later = asyncio.get_running_loop().call_later
            self._timers[loop.path] = later(max(0.0, seconds), self._expire, loop)

    def _expire(self, loop: LoopRun) -> None:
        run, gate = self._run, loop.ctx.gate
        self._timers.pop(loop.path, None)
        if run.open_loops.get(loop.path) is not loop or gate is None:
            return
        if run.timed is not None:  # two loops that end at once are cut one after the other
            later = asyncio.get_running_loop().call_later
            self._timers[loop.path] = later(_EARLY, self._expire, loop)
        elif gate.due(run) - run.now() > _EARLY:
            self._watch(loop)
        # Between two iterations, the next one is not admitted. A cancellation that is under way by the caller
        # or of the run has priority, and must not be counted as this limit.
        elif loop.task is not None and not loop.task.cancelling():
            run.timed = gate.late()
            loop.task.cancel()
