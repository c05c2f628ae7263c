"""Telling open pages that something was committed, by whichever process.

One look at the journal's commit counter serves every open page; while none is open, nobody looks.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

from ..errors import JournalError
from ..journal import Journal

__all__ = ["Feed"]

BEAT = 0.05  # seconds between looks at the counter of a journal that has one
SLOW_BEAT = 0.3  # seconds between looks at a journal that has none: each look asks it for entries


class Feed:
    """A journal's commits, as turns that pages can wait for."""

    def __init__(self, journal: Journal) -> None:
        watch = getattr(journal, "watch", None)
        self._version: Callable[[], int] | None = watch() if watch is not None else None
        self.turn = 0
        self._seen = 0
        self._waiting = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, turn: int, seconds: float) -> bool:
        """Wait until there is a later turn than `turn`; False if there was none in that time."""
        if self.turn != turn:
            return True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                while self.turn == turn:
                    await self._news.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    async def _look(self) -> None:
        beat = BEAT if self._version is not None else SLOW_BEAT
        while self._waiting:
            await asyncio.sleep(beat)
            if self._version is not None:
                try:
                    seen = self._version()
                except (sqlite3.Error, OSError, JournalError):
                    seen = self._seen + 1  # whoever reads now meets the error and tells it
                if seen == self._seen:
                    continue
                self._seen = seen
            self.turn += 1
            self._news.set()
            self._news = asyncio.Event()

    def stop(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
