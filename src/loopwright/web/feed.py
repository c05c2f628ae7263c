"""Telling open pages that something was committed, by whichever process.

One look at the journal's commit counter serves every open page; while none is open, nobody looks.
What waits is woken by a beat, so that no page is told more often than that.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Hashable
from typing import Any

from ..errors import JournalError
from ..journal import Journal
from ..stores.sqlite.journal import SqliteJournal
from ..stores.sqlite.listing import Wanted
from ..stores.sqlite.watching import Watch

__all__ = ["BEAT", "Feed", "Topic"]

BEAT = 0.09  # seconds between looks at the counter of a journal that has one
SLOW_BEAT = 0.3  # seconds between looks at a journal that has none: each look asks it for entries

Topic = str | Wanted  # a run by its id, or a page of the list


class _Waiter:
    """Somebody who waits until a topic has another state than the one it knows."""

    def __init__(self, topic: Topic, state: Hashable) -> None:
        self.topic = topic
        self.state = state
        self.fresh = True  # it may have moved before anybody waited
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class Feed:
    """A journal's commits as states of runs and of lists, which their pages wait for."""

    def __init__(self, journal: Journal) -> None:
        self._watch: Watch | None = journal.watch() if isinstance(journal, SqliteJournal) else None
        self.turn = 0  # another one after each commit that was seen
        self._version = 0
        self._waiting: set[_Waiter] = set()
        self._task: asyncio.Task[None] | None = None

    def state(self, topic: Topic) -> Any:
        """Return what is another value once something was committed of a run, by its id, or a row
        of a page of the list came, went or ended; "" is any commit that was seen."""
        if self._watch is None or not topic:
            return self.turn
        try:
            if isinstance(topic, str):
                return self._watch.state(topic)
            return self._watch.list_state(topic)
        except (sqlite3.Error, OSError, JournalError):
            return object()  # whoever reads now meets the error and tells it

    async def wait_for(self, topic: Topic, state: Any, seconds: float) -> bool:
        """Wait until something has another state; False if it had none in that time."""
        waiter = _Waiter(topic, state)
        self._waiting.add(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(seconds):
                await waiter.woken
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiter)
        return True

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(BEAT if self._watch is not None else SLOW_BEAT)
            try:
                self._beat(self._watch)
            except (sqlite3.Error, OSError, JournalError):
                for waiter in self._waiting:
                    waiter.wake()

    def _beat(self, watch: Watch | None) -> None:
        version = watch.version() if watch is not None else self._version + 1
        committed = version != self._version
        self._version = version
        self.turn += committed
        states: dict[Topic, Any] = {}
        for waiter in self._waiting:
            if not (committed or waiter.fresh):
                continue
            waiter.fresh = False
            if waiter.topic not in states:
                states[waiter.topic] = self.state(waiter.topic)
            if states[waiter.topic] != waiter.state:
                waiter.wake()

    def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
        if self._watch is not None:
            self._watch.close()
