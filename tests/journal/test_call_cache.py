"""Replies that are kept in a file: several processes, and damage."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from loopwright.journal import RunInfo
from loopwright.journal.sqlite import SqliteJournal


async def test_processes_write_one_key(tmp_path: Path) -> None:
    """Stores of one file write one key at the same time: one of the values is there, whole, for both."""
    path = tmp_path / "runs.db"
    async with SqliteJournal(path) as one, SqliteJournal(path) as other:
        await one.create([RunInfo("r", "n")])
        both = (one.call_cache, other.call_cache)
        await asyncio.gather(*(cache.put("k", {"n": n}, n) for n in range(6) for cache in both))
        found = [await cache.get("k") for cache in both]
        assert found[0] == found[1]
        assert found[0] is not None
        at, value = found[0]
        assert value == {"n": at}


async def test_a_damaged_reply_is_none(tmp_path: Path) -> None:
    """A value that does not match its checksum is asked for again; a file without replies has no table for them."""
    path = tmp_path / "runs.db"
    async with SqliteJournal(path) as journal:
        await journal.create([RunInfo("r", "n")])
        assert await journal.call_cache.get("k") is None
        with sqlite3.connect(path) as db:
            assert not db.execute("SELECT 1 FROM sqlite_schema WHERE name='calls'").fetchall()
        await journal.call_cache.put("k", "a reply", 1.0)
        with sqlite3.connect(path) as db:
            db.execute("UPDATE calls SET value='\"another\"'")
        db.close()
        assert await journal.call_cache.get("k") is None
        await journal.call_cache.put("k", "a reply", 2.0)
        assert await journal.call_cache.get("k") == (2.0, "a reply")
