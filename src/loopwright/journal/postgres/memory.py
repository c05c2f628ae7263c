"""Memory in the database of a PostgresJournal, written by the journal's writer.

A reader that asks for the entries after a number must not miss one that is committed later with a smaller
number. So numbers are assigned under a lock of the space that lasts until the commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from ...memory import MemoryEntry
from ..recorded.encoding import Value, utf8
from ..recorded.memory import AppendQueue, MemoryRow, Perform, memory_entry, memory_row
from .connection import Connection, storable

# Ordered, so that two writers with the same spaces cannot wait for each other.
_LOCK = (
    "SELECT pg_advisory_xact_lock(number) FROM "
    "(SELECT DISTINCT hashtextextended(space, 0) AS number FROM unnest(%s::text[]) AS s(space) "
    "ORDER BY 1) AS locks"
)
_STORED = (
    "SELECT m.id, m.space, m.key FROM unnest(%s::text[], %s::text[]) AS k(space, key) "
    "JOIN loopwright.memories m ON m.space=k.space AND m.key=k.key WHERE m.key<>''"
)
_INSERT = (
    "INSERT INTO loopwright.memories(space, kind, at, run, key, value, sum) "
    "SELECT space, kind, at, run, key, value, sum FROM unnest(%s::text[], %s::text[], %s::float8[], "
    "%s::text[], %s::text[], %s::text[], %s::bytea[]) WITH ORDINALITY "
    "AS u(space, kind, at, run, key, value, sum, place) ORDER BY place RETURNING id"
)
_READ = (
    "SELECT id, space, kind, at, run, key, value, sum FROM loopwright.memories "
    "WHERE space=%s AND id>%s AND (%s::text[]='{}' OR kind=ANY(%s)) "
    "ORDER BY id DESC LIMIT NULLIF(%s::bigint, 0)"
)
_SPACES = "SELECT space, count(*) FROM loopwright.memories GROUP BY space ORDER BY space"

T = TypeVar("T")


class Reads(Protocol):
    """Calls a function with a connection that reads, in a thread."""

    def __call__(self, work: Callable[[Connection], T], /) -> Awaitable[T]: ...


class PostgresMemory:
    """The memory in the database of a journal: `PostgresJournal.memory`, or `open_memory` with its URL.

    `read` reads from the database, `perform` performs a transaction in the journal's writer, `appends`
    collects the appends of one pass of an event loop.
    """

    def __init__(
        self, read: Reads, perform: Perform[Connection], appends: AppendQueue[Connection]
    ) -> None:
        self._read = read
        self._perform = perform
        self._appends = appends

    async def append(self, *entries: MemoryEntry) -> list[int]:
        """Append entries and return their numbers once they are durable; see Memory.append."""
        if not entries:
            return []
        return await self._appends.join(
            [memory_row(_storable(item)) for item in entries], self._perform
        )

    async def entries(
        self, space: str, *, kinds: Sequence[str] = (), after: int = 0, latest: int = 0
    ) -> list[MemoryEntry]:
        """Return the entries of a space in order; see Memory.entries."""
        named = list(kinds)
        values = (storable(utf8(space)[0]), after, named, named, latest)
        rows = await self._read(lambda db: db.execute(_READ, values).fetchall())
        return [memory_entry(row) for row in reversed(rows)]

    async def spaces(self) -> dict[str, int]:
        """Return the names of the spaces with the number of their entries; see Memory.spaces."""
        rows = await self._read(lambda db: db.execute(_SPACES).fetchall())
        return {name.decode(): count for name, count in rows}

    async def close(self) -> None:
        """Do nothing: the journal owns the connections."""


def _storable(item: MemoryEntry) -> MemoryEntry:
    """Return an entry without NUL in its names, which no text of PostgreSQL can hold."""
    if "\0" not in item.space + item.kind + item.run + item.key:
        return item
    return replace(
        item,
        space=storable(item.space),
        kind=storable(item.kind),
        run=storable(item.run),
        key=storable(item.key),
    )


def append_rows(db: Connection, rows: Sequence[MemoryRow]) -> list[int]:
    """Insert the rows whose keys are new, and return the numbers of all rows."""
    names = [(row[0], row[4]) for row in rows]
    spaces, keys = [name[0] for name in names], [name[1] for name in names]
    db.execute(_LOCK, (spaces,))
    stored = db.execute(_STORED, (spaces, keys)).fetchall()
    by_key: dict[tuple[Value, Value], int] = {
        (space.decode(), key.decode()): number for number, space, key in stored
    }
    fresh: list[int] = []  # places of the rows that are new
    places: dict[tuple[Value, Value], int] = {}
    for place, name in enumerate(names):
        if name not in by_key and (not name[1] or name not in places):
            places[name] = place
            fresh.append(place)
    if fresh:
        columns = [[rows[place][i] for place in fresh] for i in range(7)]
        # RETURNING promises no order, but the numbers rise in the order of the rows.
        inserted = sorted(key for (key,) in db.execute(_INSERT, columns).fetchall())
        numbers = dict(zip(fresh, inserted, strict=True))
    return [
        by_key[name] if name in by_key else numbers[places[name] if name[1] else place]
        for place, name in enumerate(names)
    ]
