"""Memories in the file of an SqliteJournal, in tables of their own, written by its one writer.

::

    memories        a row per entry, never changed and never deleted; `sum` is its checksum
    memory_format   the version of these tables, apart from that of the journal's

Appends of one moment become one order, and orders that wait at the same time share a transaction, with
each other and with what the journal writes. A key is there once per space, by a unique index.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ...errors import JournalUnavailable
from ...memory import MemoryEntry
from ...records import codec
from .database import insert_many
from .encoding import utf8
from .errors import as_damage, journal_error
from .schema import connect_reader, expect_journal
from .writer import Transaction

__all__ = ["SqliteMemory", "Together"]

VERSION = 1
_SUM = 8  # bytes of a checksum: against damage by chance, not against forgers
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
    f"INSERT INTO memory_format VALUES({VERSION})",
)
_FORMAT = "SELECT count(*) FROM sqlite_schema WHERE name='memory_format'"
_INSERT = "INSERT INTO memories(id,space,kind,at,run,key,value,sum) VALUES "
_WIDTH = 8
# The last number, and those of the keys that are there already, in one row.
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

Perform = Callable[[Transaction[Any]], Coroutine[Any, Any, Any]]


class SqliteMemory:
    """The memory in the file of a journal; `SqliteJournal.memory`, or `open_memory` by its URL.

    `perform` hands an order to the journal's writer, `together` is what appends of the same moment
    are gathered in.
    """

    def __init__(self, path: Path, perform: Perform, together: Together) -> None:
        self.path = path
        self._perform = perform
        self._together = together

    async def append(self, *entries: MemoryEntry) -> list[int]:
        """Append entries and return their numbers once they are durable; see Memory.append."""
        if not entries:
            return []
        rows = [_row(item) for item in entries]
        return await self._together.join(rows, self.path, self._perform)

    async def entries(
        self, space: str, *, kinds: Sequence[str] = (), after: int = 0, latest: int = 0
    ) -> list[MemoryEntry]:
        """Return the entries of a space in order; see Memory.entries."""
        values = (utf8(space)[0], after, json.dumps(list(kinds)), latest or -1)
        rows = await asyncio.to_thread(self._read, _READ, values)
        return [_entry(row) for row in reversed(rows)]

    async def spaces(self) -> dict[str, int]:
        """Return the names of the spaces with the number of their entries."""
        rows = await asyncio.to_thread(self._read, _SPACES, ())
        return {name.decode("utf-8", "replace"): count for name, count in rows}

    async def close(self) -> None:
        """Nothing: what is open is the journal's."""

    def _read(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
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
    """Whether there are tables of memories.

    Raises:
        JournalUnavailable: if a newer version made them.
    """
    if not db.execute(_FORMAT).fetchone()[0]:
        return False
    version = db.execute("SELECT max(version) FROM memory_format").fetchone()[0]
    if version != VERSION:
        raise JournalUnavailable(
            f"{path}: a newer version of this program wrote its memories (format {version}, this "
            f"one knows {VERSION}); upgrade"
        )
    return True


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables where there are none, within a transaction."""
    if not _has_tables(db, path):
        for statement in _TABLES:
            db.execute(statement)


def _row(item: MemoryEntry) -> tuple[Any, ...]:
    texts = (item.space, item.kind, item.run, item.key, codec.encode(item.value))
    space, kind, run, key, value = (utf8(text)[0] for text in texts)
    row = (space, kind, item.at, run, key, value)
    return (*row, _sum(row))


def _sum(row: tuple[Any, ...]) -> bytes:
    data = "\0".join(map(str, row)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=_SUM).digest()


def _append(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> list[int]:
    """Insert rows that are not there yet, and return the numbers of all of them.

    Nobody else commits meanwhile, so numbers are given out here: few, long statements, because each
    gives up the interpreter's lock, which takes long to get back from a busy event loop.
    """
    names = [(row[0], row[4]) for row in rows]
    keyed = json.dumps([name for name in names if name[1]])
    last, found = db.execute(_BEFORE, (keyed,)).fetchone()
    known = {(space, key): number for number, space, key in json.loads(found)}
    numbers: list[int] = []
    fresh: list[Any] = []
    for name, row in zip(names, rows, strict=True):
        number = known.get(name)
        if number is None:
            number = last = last + 1
            fresh += (number, *row)
            if name[1]:
                known[name] = number
        numbers.append(number)
    insert_many(db, _INSERT, _WIDTH, fresh)
    return numbers


class Together:
    """Appends of one pass of an event loop, which become one order; one for each journal."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.AbstractEventLoop, list[tuple[Any, asyncio.Future[Any]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: sqlite3.Connection | None = None  # the connection that has the tables

    def join(
        self, rows: list[tuple[Any, ...]], path: Path, perform: Perform
    ) -> asyncio.Future[list[int]]:
        """Return what to await for the numbers of rows."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[int]] = loop.create_future()
        if loop not in self._waiting:
            self._waiting = {
                known: waiting for known, waiting in self._waiting.items() if not known.is_closed()
            }
            self._waiting[loop] = []
            loop.call_soon(self._hand_over, loop, path, perform)
        self._waiting[loop].append((rows, waiter))
        return waiter

    def _hand_over(self, loop: asyncio.AbstractEventLoop, path: Path, perform: Perform) -> None:
        waiting = self._waiting.pop(loop)
        task = loop.create_task(self._commit(waiting, path, perform))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            for _, waiter in waiting:  # those of a task that was cancelled before it began
                waiter.cancel()

        task.add_done_callback(ended)

    async def _commit(
        self, waiting: list[tuple[Any, asyncio.Future[Any]]], path: Path, perform: Perform
    ) -> None:
        rows = [row for mine, _ in waiting for row in mine]

        def act(db: sqlite3.Connection) -> tuple[sqlite3.Connection, list[int]]:
            if self._ready is not db:
                _prepare(db, path)
            return db, _append(db, rows)

        try:
            _, numbers = await perform(Transaction(act, self._committed))
        except BaseException as error:
            for _, waiter in waiting:
                _refuse(waiter, error)
            if not isinstance(error, Exception):
                raise
            return
        for mine, waiter in waiting:
            own, numbers = numbers[: len(mine)], numbers[len(mine) :]
            if not waiter.done():  # whoever waited may have been cancelled
                waiter.set_result(own)

    def _committed(self, done: tuple[sqlite3.Connection, list[int]]) -> None:
        self._ready = done[0]


def _refuse(waiter: asyncio.Future[Any], error: BaseException) -> None:
    if waiter.done():
        return
    if isinstance(error, asyncio.CancelledError):
        waiter.cancel()
    else:
        waiter.set_exception(error)


def _entry(row: tuple[Any, ...]) -> MemoryEntry:
    """Return a row as an entry; one that does not match its checksum is unreadable."""
    seq, *kept, checksum = row
    try:
        values: tuple[Any, ...] = tuple(
            item.decode() if isinstance(item, bytes) else item for item in kept
        )
        if _sum(values) == checksum:
            space, kind, at, run, key, value = values
            return MemoryEntry(
                space=space, kind=kind, value=codec.decode(value), at=at, key=key, run=run, seq=seq
            )
    except (ValueError, RecursionError):
        pass
    space = kept[0].decode("utf-8", "replace")
    return MemoryEntry(space, "unreadable", None, 0.0, seq=seq)
