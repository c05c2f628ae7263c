"""The replies of model calls that a journal keeps for other calls, in a table of its own.

The statements are those that all databases understand. A file of SQLite gets the table with its first reply, because
most journals keep none; PostgreSQL has it from its migration. A later reply replaces an earlier one of the same key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from ..records.codec import Json, strict_json
from .events import EventTables

__all__ = ["TABLE", "CallCache", "cache_in_memory"]

TABLE = "{0}calls(key TEXT PRIMARY KEY,at {1} NOT NULL,value TEXT NOT NULL,sum TEXT NOT NULL)"
"""The table: the prefix of its name, and the type of times."""
LARGEST = 1 << 20  # bytes of a reply that is kept
_THERE = "SELECT 1 FROM sqlite_schema WHERE name='calls'"
Performs = Callable[[Callable[[EventTables], Any]], Awaitable[Any]]


class CallCache:
    """The replies of model calls that a journal keeps for other calls.

    Args:
        read: returns what a function of the tables of the database returns.
        write: the same in a transaction.

    Example:
        >>> import asyncio
        >>> from loopwright import MemoryJournal
        >>> asyncio.run(MemoryJournal().call_cache.kept(before=1e12))
        (0, 0, 0.0)
    """

    def __init__(self, read: Performs, write: Performs) -> None:
        self._read = read
        self._write = write

    async def get(self, key: str) -> tuple[float, Json] | None:
        """Return the time and the value of a key; None without one, and for a damaged one."""
        rows = await self._read(
            lambda tables: _rows(tables, "SELECT at,value,sum FROM @calls WHERE key=?", key)
        )
        for at, value, checksum in rows:
            if _text(checksum) == _sum(key, text := _text(value)):
                return at, strict_json(text)
        return None

    async def put(self, key: str, value: Json, at: float) -> None:
        """Keep a value under a key from now on; one above 1 MiB is not kept."""
        text = json.dumps(value)  # ASCII, which every database can store
        if len(text) > LARGEST:
            return

        def work(tables: EventTables) -> None:
            if not tables.prefix:
                tables.execute(f"CREATE TABLE IF NOT EXISTS {TABLE.format('', 'REAL')}", ())
            _rows(
                tables,
                "INSERT INTO @calls(key,at,value,sum) VALUES (?,?,?,?) ON CONFLICT(key) "
                "DO UPDATE SET at=excluded.at,value=excluded.value,sum=excluded.sum",
                key, at, text, _sum(key, text),
            )  # fmt: skip

        await self._write(work)

    async def kept(self, before: float) -> tuple[int, int, float]:
        """Return the number of replies from before a time, their bytes, and the time of the oldest.

        Times are seconds since the epoch.
        """
        figures = "SELECT count(*),coalesce(sum(length(value)),0),coalesce(min(at),0) FROM @calls WHERE at<?"
        rows = await self._read(lambda tables: _rows(tables, figures, before))
        return rows[0] if rows else (0, 0, 0.0)

    async def clear(self, before: float) -> None:
        """Delete what is kept from before a time."""
        await self._write(lambda tables: _rows(tables, "DELETE FROM @calls WHERE at<?", before))


def cache_in_memory(tables: EventTables) -> CallCache:
    """Return the cache in a database of this process."""

    async def now(work: Callable[[EventTables], Json]) -> Json:
        return work(tables)

    return CallCache(now, now)


def _rows(tables: EventTables, statement: str, *values: object) -> list[tuple[Json, ...]]:
    """Return the rows of a statement; none if the table does not exist yet."""
    if not (tables.prefix or tables.execute(_THERE, ())):
        return []
    return tables.execute(statement.replace("@", tables.prefix), values)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _sum(key: str, text: str) -> str:
    """Return the checksum of a row: it detects accidental damage."""
    return hashlib.blake2b(f"{key} {text}".encode(), digest_size=8).hexdigest()
