"""Telling open pages that something was committed, by whichever process.

One look at the journal's commit counter serves every open page; while none is open, nobody looks.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

from ..errors import JournalError
from ..journal import Journal
from ..stores.sqlite.journal import SqliteJournal
from ..stores.sqlite.watching import Watch

__all__ = ["Feed"]

BEAT = 0.05  # seconds between looks at the counter of a journal that has one
SLOW_BEAT = 0.3  # seconds between looks at a journal that has none: each look asks it for entries


class Feed:
    """A journal's commits, as turns that lists wait for, and as states of runs that their pages do."""

    def __init__(self, journal: Journal) -> None:
        self._watch: Watch | None = journal.watch() if isinstance(journal, SqliteJournal) else None
        self.turn = 0
        self._seen = 0
        self._waiting = 0
        self._states: dict[str, Any] = {}  # of runs that somebody waits for
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def state(self, run_id: str) -> Any:
        """Return what is another value once something of a run was committed."""
        return self._watch.state(run_id) if self._watch is not None else self.turn

    async def wait_for(self, run_id: str, state: Any, seconds: float) -> bool:
        """Wait until a run has another state; False if it had none in that time."""
        self._states[run_id] = self.state(run_id)  # it may have moved since it was asked for
        return await self._wait(lambda: self._states.get(run_id, state) != state, seconds)

    async def wait(self, turn: int, seconds: float) -> bool:
        """Wait until there is a later turn than `turn`; False if there was none in that time."""
        return await self._wait(lambda: self.turn != turn, seconds)

    async def _wait(self, news: Callable[[], bool], seconds: float) -> bool:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                while not news():
                    await self._news.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(BEAT if self._watch is not None else SLOW_BEAT)
            if self._watch is not None and not self._committed(self._watch):
                continue
            self.turn += 1
            if self._watch is None:
                self._states = dict.fromkeys(self._states, self.turn)
            self._news.set()
            self._news = asyncio.Event()
        self._states.clear()

    def _committed(self, watch: Watch) -> bool:
        try:
            seen = watch.version()
            if seen == self._seen:
                return False
            self._seen = seen
            for run_id in self._states:
                self._states[run_id] = watch.state(run_id)
        except (sqlite3.Error, OSError, JournalError):
            self._states.clear()
            self._seen += 1  # whoever reads now meets the error and tells it
        return True

    def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
        if self._watch is not None:
            self._watch.close()
