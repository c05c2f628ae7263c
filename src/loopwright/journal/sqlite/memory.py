"""Memory in the file of an SqliteJournal: separate tables, written by the journal's writer.

::

    memories        a row per entry, never changed and never deleted; `sum` is its checksum
    memory_format   the version of these tables, independent of the journal's

Appends of one pass of an event loop become one operation. Waiting operations share a transaction
with each other and with the journal. A unique index keeps each key once per space.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ...errors import JournalUnavailable
from ...memory import MemoryEntry
from ...records.codec import Json
from ..recorded.encoding import Value, as_damage, utf8
from ..recorded.memory import AppendQueue, MemoryRow, Perform, memory_entry, memory_row
from .database import insert_many
from .schema import connect_reader, expect_journal, journal_error

MEMORY_VERSION = 1
_MEMORIES = (
    "CREATE TABLE memories(id INTEGER PRIMARY KEY,space TEXT NOT NULL,kind TEXT NOT NULL,"
    "at REAL NOT NULL,run TEXT NOT NULL,key TEXT NOT NULL,value TEXT NOT NULL,sum BLOB NOT NULL)"
    "STRICT"
)
_TABLES = (
    _MEMORIES,
    "CREATE INDEX memories_by_space ON memories(space,id)",
    "CREATE UNIQUE INDEX memories_by_key ON memories(space,key)WHERE key<>''",
    "CREATE TABLE memory_format(version INTEGER NOT NULL)STRICT",
    f"INSERT INTO memory_format VALUES({MEMORY_VERSION})",
)
_FORMAT = "SELECT count(*) FROM sqlite_schema WHERE name='memory_format'"
_INSERT = "INSERT INTO memories(id,space,kind,at,run,key,value,sum) VALUES "
_WIDTH = 8
# In one row: the last number, and the numbers of the keys that are stored already.
_BEFORE = (
    "SELECT (SELECT coalesce(max(id),0) FROM memories),"
    "(SELECT json_group_array(json_array(m.id,m.space,m.key)) FROM json_each(?) k "
    "CROSS JOIN memories m ON m.space=json_extract(k.value,'$[0]') "
    "AND m.key=json_extract(k.value,'$[1]') WHERE m.key<>'')"
)
_READ = (
    "SELECT id,space,kind,at,run,key,value,sum FROM memories WHERE space=?1 AND id>?2 "
    "AND (?3='[]' OR kind IN (SELECT value FROM json_each(?3))) ORDER BY id DESC LIMIT ?4"
)
_SPACES = "SELECT space,count(*) FROM memories GROUP BY space ORDER BY space"


class SqliteMemory:
    """The memory in the file of a journal: `SqliteJournal.memory`, or `open_memory` with its URL.

    `perform` performs a transaction in the journal's writer, `appends` collects the appends of one
    pass of an event loop.
    """

    def __init__(
        self,
        path: Path,
        perform: Perform[sqlite3.Connection],
        appends: AppendQueue[sqlite3.Connection],
    ) -> None:
        self.path = path
        self._perform = perform
        self._appends = appends

    async def append(self, *entries: MemoryEntry) -> list[int]:
        """Append entries and return their numbers once they are durable; see Memory.append."""
        if not entries:
            return []
        return await self._appends.join([memory_row(item) for item in entries], self._perform)

    async def entries(
        self, space: str, *, kinds: Sequence[str] = (), after: int = 0, latest: int = 0
    ) -> list[MemoryEntry]:
        """Return the entries of a space in order; see Memory.entries."""
        values = (utf8(space)[0], after, json.dumps(list(kinds)), latest or -1)
        rows = await asyncio.to_thread(self._read, _READ, values)
        return [memory_entry(row) for row in reversed(rows)]

    async def spaces(self) -> dict[str, int]:
        """Return the names of the spaces with the number of their entries; see Memory.spaces."""
        rows = await asyncio.to_thread(self._read, _SPACES, ())
        return {name.decode("utf-8", "replace"): count for name, count in rows}

    async def close(self) -> None:
        """Do nothing: the journal owns the file."""

    def _read(self, statement: str, values: MemoryRow) -> list[tuple[Json, ...]]:
        if not expect_journal(self.path):
            return []
        try:
            with as_damage(str(self.path)):
                db, _ = connect_reader(self.path)
                with closing(db):
                    if not _has_tables(db, self.path):
                        return []
                    return db.execute(statement, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            raise journal_error(error, str(self.path)) from error


def _has_tables(db: sqlite3.Connection, path: Path) -> bool:
    """Return whether the tables of memories exist.

    Raises:
        JournalUnavailable: if a newer version created them.
    """
    if not db.execute(_FORMAT).fetchone()[0]:
        return False
    version = db.execute("SELECT max(version) FROM memory_format").fetchone()[0]
    if version != MEMORY_VERSION:
        raise JournalUnavailable(
            f"{path}: a newer version of Loopwright wrote its memories (format {version}, this version "
            f"reads {MEMORY_VERSION}); upgrade Loopwright"
        )
    return True


def append_rows(path: Path, db: sqlite3.Connection, rows: Sequence[MemoryRow]) -> list[int]:
    """Insert the rows whose keys are new, and return the numbers of all rows.

    No other process commits meanwhile, so the numbers are assigned here: few, long statements,
    because each releases the interpreter's lock, which a busy event loop can keep for milliseconds.
    """
    # Created at the first append: most journals have no memory.
    if not _has_tables(db, path):
        for statement in _TABLES:
            db.execute(statement)
    names = [(row[0], row[4]) for row in rows]
    keyed = json.dumps([name for name in names if name[1]])
    last, stored = db.execute(_BEFORE, (keyed,)).fetchone()
    by_key: dict[tuple[Value, Value], int] = {
        (space, key): number for number, space, key in json.loads(stored)
    }
    numbers: list[int] = []
    fresh: list[Value] = []
    for name, row in zip(names, rows, strict=True):
        number = by_key.get(name)
        if number is None:
            number = last = last + 1
            fresh += (number, *row)
            if name[1]:
                # The key may occur twice among these rows.
                by_key[name] = number
        numbers.append(number)
    insert_many(db, _INSERT, _WIDTH, fresh)
    return numbers
