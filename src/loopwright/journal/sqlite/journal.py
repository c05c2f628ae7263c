"""SqliteJournal: the Journal protocol on one SQLite file, with its readers and its memory.

Readers have connections that cannot write. Their statements are constants, so that a test can ask SQLite for
their query plans; `recorded/journal` names those of pages.

Memories have tables of their own, written by the journal's writer::

    memories        a row per entry, never changed and never deleted; `sum` is its checksum
    memory_format   the version of these tables, independent of the journal's

Appends of one pass of an event loop become one operation. Waiting operations share a transaction
with each other and with the journal. A unique index keeps each key once per space.
"""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from ...errors import ConfigurationError, JournalUnavailable, nearest
from ...memory import MemoryEntry
from ...records import Reason
from ...records.codec import Json
from ..events import EventTables, OpenWait
from ..protocol import FileStore, Posted, RunInfo, missing_run
from ..questions import schedule_of
from ..recorded.journal import (
    FIRST,
    AppendQueue,
    MemoryRow,
    PageReader,
    Perform,
    RecordedJournal,
    memory_entry,
    memory_row,
)
from ..recorded.ownership import present
from ..recorded.rows import RowReader, RunRow, Value, as_damage, utf8
from ..recorded.writer import BEAT, Transaction
from ..views import LiveLines, RunPage, Wanted
from .database import OnPoint, SqliteRuns, files_of, find_run, insert_many, posted
from .ownership import LEASE, Clocks, owner_at, owners_at
from .tables import COST, VERSION, connect_reader, expect_journal, journal_error, read_content

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


STATEMENTS = {
    "timeline": "SELECT first, body, sum FROM entries WHERE run=? AND first>=? "
    "ORDER BY first LIMIT ?",
    "row of": "SELECT max(first) FROM entries WHERE run=? AND first<=?",
    "row before": "SELECT sum FROM entries WHERE run=? AND first<? ORDER BY first DESC LIMIT 1",
    "iterations": "SELECT mark, first FROM entries WHERE id IN (SELECT id FROM entries "
    "WHERE run=? AND loop IS NOT NULL ORDER BY mark LIMIT ? OFFSET ?) ORDER BY mark",
    "iterations of a loop": "SELECT mark, first FROM entries WHERE run=? AND loop=? "
    "ORDER BY mark LIMIT ? OFFSET ?",
    "first reason": "SELECT min(reason) FROM runs WHERE status=?",
    "next reason": "SELECT min(reason) FROM runs WHERE status=? AND reason>?",
    "contents": "SELECT id, digest, size, body FROM contents "
    "WHERE ?1>0 AND id IN (SELECT value FROM json_each(?2))",
}
_LIVE = "owner IN (SELECT value FROM json_each(?))"
# An ended run keeps the key of its last owner, which no longer holds it.
_HELD = "status='running' AND owner IN (SELECT id FROM owners WHERE host||':'||pid=?)"
End = tuple[str, str]  # a status and a reason, as they are stored


_ORDERS = {
    "started": "id", "updated": "updated", "name": "name", "status": "status", "score": "score", "cost": COST,
    "iterations": "iterations",
}  # fmt: skip


def run_terms(wanted: Wanted) -> tuple[list[str], list[Value]]:
    """Return the terms that select runs by all but their ends and keys, and their values."""
    terms: list[str] = []
    values: list[Value] = []
    if wanted.name:
        terms.append("name=?")
        values.append(wanted.name)
    if wanted.queue:
        terms.append("queue=?")
        values.append(wanted.queue)
    if wanted.worker:
        terms.append(_HELD)
        values.append(wanted.worker)
    if wanted.since:
        terms.append("created>=?")
        values.append(wanted.since)
    terms += ["instr(tags,?)"] * len(wanted.tags)
    return terms, [*values, *wanted.marks]


def end_terms(end: End, live: str, *, live_only: bool) -> tuple[list[str], list[Value]]:
    """Return the terms that select runs by an end, and their values.

    `live` is a JSON list of the keys of live owners: the owner of a running run must be in it, or
    must not be in it if `live_only` is false.
    """
    if end[0] != "running":
        return ["status=?", "reason=?"], [*end]
    return ["status=?", "reason=?", _LIVE if live_only else f"{_LIVE} IS NOT TRUE"], [*end, live]


def listed_query(
    wanted: Wanted, ends: Sequence[tuple[End | None, bool]], live: str, columns: str = "id"
) -> tuple[str, list[Value]]:
    """Return the statement for a page of a list in any order, and its values; see `end_terms`.

    It reads one index from its beginning to its end, which takes 30 ms for 100,000 runs.
    """
    terms, values = run_terms(wanted)
    some = []
    for end, live_only in ends:
        if end is not None:
            of_end, more = end_terms(end, live, live_only=live_only)
            some.append(" AND ".join(of_end))
            values += more
    if some:
        terms.append(f"({' OR '.join(some)})")
    newer = bool(wanted.after)
    terms += ["id<?", "id>?"]
    values += [wanted.before or FIRST, wanted.after]
    where = f"FROM runs INDEXED BY runs_by_end WHERE {' AND '.join(terms)}"
    if columns != "id":
        return f"SELECT {columns} {where}", values
    by = _ORDERS[wanted.order]
    way = "DESC" if wanted.descending and not newer else "ASC"
    order = f"{by} {way}" if by == "id" else f"{by} {way} NULLS LAST,id DESC"
    return f"SELECT id {where} ORDER BY {order} LIMIT ? OFFSET ?", [
        *values, wanted.limit, wanted.offset,
    ]  # fmt: skip


class RunReader(RowReader):
    """A connection that cannot write, for one thread at a time."""

    def __init__(self, db: sqlite3.Connection, files: Path, now: Callable[[], float]) -> None:
        self._db = db
        self._files = files
        self._now = now

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def select(self, statement: str, *values: Value) -> list[tuple[Json, ...]]:
        """Return the rows of a statement; see RowReader."""
        return self._db.execute(STATEMENTS[statement], values).fetchall()

    def body_elsewhere(self, digest: bytes) -> bytes | None:
        """Return a content stored as a file; see RowReader."""
        return read_content(self._files, digest)

    def events(self) -> EventTables:
        """Return the events and waits."""
        return EventTables(
            lambda text, values: self._db.execute(text, values).fetchall(), self._now
        )

    def inbox(self, row: RunRow) -> list[Posted]:
        """Return the answers in the inbox of a run."""
        return posted(self._db, row.key)

    def row(self, run_id: str) -> RunRow:
        """Return the row of a run. Raises RunNotFound."""
        return find_run(self._db, run_id)

    def shown(self, run_id: str) -> tuple[RunRow, RunInfo]:
        """Return the row of a run, and the run in its present state. Raises RunNotFound."""
        row = self.row(run_id)
        return row, present(row, owner_at(self._db, row.owner, self._now()))

    def ends(self, wanted: Wanted) -> list[tuple[End | None, bool]]:
        """Return the stored (status, reason) pairs that the statuses of a list mean, each with `live_only`.

        Without a status it is every run: one pair, None. A running run without a live owner is stored
        as running, and counts as interrupted.
        """
        reason = wanted.reason
        statuses = wanted.statuses or ((Reason(reason).status.value,) if reason else ())
        if not statuses:
            return [(None, True)]
        pairs: list[tuple[End | None, bool]] = []
        for status in dict.fromkeys(statuses):
            pairs += [(end, True) for end in self._ends(status, reason)]
            if status == "interrupted":
                # The row of a killed process still says running.
                pairs += [(end, False) for end in self._ends("running", reason)]
        return pairs

    def _ends(self, status: str, reason: str) -> list[End]:
        if reason:
            return [(status, reason)]
        ends: list[End] = []
        [(raw,)] = self.select("first reason", status)
        # One step per reason over the index, which takes as long for a million runs as for ten.
        while raw is not None:
            ends.append((status, raw.decode("utf-8", "replace")))
            [(raw,)] = self.select("next reason", *ends[-1])
        return ends


LIST_COLUMNS = "id, status, epoch"
WATCH_STATEMENT = (
    "SELECT status, updated, epoch, (SELECT max(first) FROM entries WHERE run=runs.id) "
    "FROM runs WHERE run_id=?"
)
PAGE_STATEMENTS = {
    "rows": "SELECT * FROM runs WHERE id IN (SELECT value FROM json_each(?))",
    "newest key": "SELECT max(id) FROM runs",
    "names": "SELECT min(name) FROM runs WHERE name>?",
    "next loop": "SELECT min(loop) FROM entries WHERE run=? AND loop>?",
    "extent of a loop": "SELECT count(*) FROM entries WHERE run=? AND loop=?",
    "extent of a run": "SELECT count(*) FROM entries WHERE run=? AND loop>''",
    "mark": "SELECT mark FROM entries WHERE run=? AND loop=? ORDER BY mark LIMIT 1 OFFSET ?",
    "outline": "SELECT mark, first, body, sum, (SELECT p.sum FROM entries p WHERE p.run=e.run "
    "AND p.first<e.first ORDER BY p.first DESC LIMIT 1) FROM entries e "
    "WHERE run=? AND loop=? AND mark>=? ORDER BY mark LIMIT ?",
    "marks": "SELECT mark FROM entries WHERE run=? AND loop=? ORDER BY mark LIMIT ? OFFSET ?",
    "tried again": "SELECT first, body FROM entries WHERE run=? AND first>=? "
    "AND (body GLOB '*/attempt-[2-9]*' OR body GLOB '*/attempt-1[0-9]*' "
    "OR body GLOB '[[][[]\"r\",*') ORDER BY first",
    "latest row": "SELECT first, body FROM entries WHERE run=? ORDER BY first DESC LIMIT 1",
}


def page_query(
    wanted: Wanted,
    end: End | None,
    live: str,
    *,
    live_only: bool,
    columns: str = "*",
) -> tuple[str, list[Value]]:
    """Return the statement for a page of runs by key, and its values.

    `end` is a stored status and reason: with both, the index returns the runs in the order of the
    page. See `end_terms` for `live` and `live_only`.
    """
    newer = bool(wanted.after)
    terms, values = run_terms(wanted)
    if end is not None:
        of_end, more = end_terms(end, live, live_only=live_only)
        terms, values = [*of_end, *terms], [*more, *values]
    terms += ["id<?", "id>?"]
    values += [wanted.before or FIRST, wanted.after]
    where = " AND ".join(terms)
    order = f" ORDER BY id {'ASC' if newer else 'DESC'} LIMIT ?"
    return "".join(["SELECT ", columns, " FROM runs WHERE ", where, order]), [*values, wanted.limit]


class SqliteWatch:
    """Detects commits of any process at the cost of microseconds; for one thread. See Watch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    def version(self) -> int:
        return self._ask(lambda db: int(db.execute("PRAGMA data_version").fetchone()[0])) or 0

    async def state(self, run_id: str) -> object:
        return self._ask(lambda db: db.execute(WATCH_STATEMENT, (run_id,)).fetchone())

    async def list_state(self, wanted: Wanted) -> object:
        if wanted.is_slow:
            return self._ask(lambda db: db.execute(PAGE_STATEMENTS["newest key"]).fetchone())
        every = replace(wanted, status="", reason="")
        query, values = page_query(every, None, "[]", live_only=False, columns=LIST_COLUMNS)
        return self._ask(lambda db: tuple(db.execute(query, values).fetchall()))

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of `work` on the connection; None if no journal exists yet."""
        try:
            if self._db is None and expect_journal(self._path):
                self._db = connect_reader(self._path)[0]
            return work(self._db) if self._db is not None else None
        except (sqlite3.Error, OSError) as error:
            raise journal_error(error, str(self._path)) from error

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()
            self._db = None


class Pages(RunReader, PageReader):
    """A reader that also answers the queries of pages."""

    def __init__(self, db: sqlite3.Connection, files: Path, now: Callable[[], float]) -> None:
        RunReader.__init__(self, db, files, now)
        PageReader.__init__(self)

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read everything inside at one moment, and take the file's locks once."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def select(self, statement: str, *values: Value) -> list[tuple[Json, ...]]:
        text = STATEMENTS.get(statement) or PAGE_STATEMENTS[statement]
        return self._db.execute(text, values).fetchall()

    def page(self, wanted: Wanted) -> list[tuple[RunRow, RunInfo]]:
        owners = owners_at(self._db, self._now())
        live = json.dumps([key for key, owner in owners.items() if owner.alive])
        ends = self.ends(wanted)
        if ends and (wanted.is_slow or wanted.offset):
            query, values = listed_query(wanted, ends, live)
            return self.rows([key for (key,) in self._db.execute(query, values).fetchall()])
        raws: list[tuple[Json, ...]] = []
        for end, live_only in ends:
            query, values = page_query(wanted, end, live, live_only=live_only)
            raws += self._db.execute(query, values).fetchall()
        return self._presents(raws)

    def rows(self, keys: Sequence[int]) -> list[tuple[RunRow, RunInfo]]:
        found = {raw[0]: raw for raw in self.select("rows", json.dumps(keys))}
        return self._presents([found[key] for key in keys if key in found])

    def _presents(self, raws: Sequence[tuple[Json, ...]]) -> list[tuple[RunRow, RunInfo]]:
        owners = owners_at(self._db, self._now())
        rows = map(self.checked, raws)
        return [(row, present(row, owners.get(row.owner or 0))) for row in rows]

    def total(self, wanted: Wanted) -> int:
        if not (wanted.statuses or wanted.reason or run_terms(wanted)[0]):
            return self.newest()  # no run is ever deleted
        owners = owners_at(self._db, self._now())
        live = json.dumps([key for key, owner in owners.items() if owner.alive])
        every = replace(wanted, before=0, after=0)
        counted = 0
        for end in self.ends(wanted):  # each is a part of the index
            query, values = listed_query(every, [end], live, "count(*)")
            counted += self._db.execute(query, values).fetchone()[0]
        return counted


T = TypeVar("T")
_ALL = 1 << 40  # more runs than a file has
_SYNCHRONOUS = ("full", "normal")


class SqliteJournal(RecordedJournal[sqlite3.Connection, Pages]):
    """A journal in one SQLite file. Several processes may use it at once with different runs.

    The file is created when the first run is opened. Use the journal as an async context manager,
    or close it. `memory` is the memory in the same file.

    Args:
        path: the file.
        synchronous: `full` (default): a commit survives a loss of power. `normal`: a loss of power may
            undo the last commits, the end of the process does not.
        lease: seconds after which another machine may take the runs of a process that is silent
            (default: 10).
        beat: seconds between two renewals of the lease (default: 0.5).
        clocks: the clocks of the leases (default: the system's).
        on_point: for tests: called as `on_point(position, n)` by the writer's thread in the n-th
            transaction, at `before`, `in_txn` and `after`.

    Raises:
        ConfigurationError: if `synchronous` has another value.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: str = "full",
        lease: float = LEASE,
        beat: float = BEAT,
        clocks: Clocks | None = None,
        on_point: OnPoint | None = None,
    ) -> None:
        if synchronous not in _SYNCHRONOUS:
            raise ConfigurationError(
                f"synchronous: {synchronous!r} is neither 'full' nor 'normal'"
                f"{nearest(synchronous, _SYNCHRONOUS)}"
            )
        self.path = Path(path)
        self._clocks = clocks or Clocks()
        super().__init__(
            partial(SqliteRuns, self.path, synchronous, self._clocks, on_point, lease=lease), beat
        )

    @property
    def version(self) -> int:
        """The version of the tables."""
        return VERSION

    @property
    def memory(self) -> SqliteMemory:
        """The memory in the same file; it shares the transactions of the journal."""
        return SqliteMemory(self.path, self._perform, self._appends)

    @property
    def files(self) -> FileStore:
        """The files of its runs, in a folder beside the database."""
        return FileStore(files_of(self.path))

    @property
    def live(self) -> LiveLines:
        """The last lines of running agents, in a folder beside the database."""
        return LiveLines(self.path.with_name(f"{self.path.name}.live"))

    @cached_property
    def _appends(self) -> AppendQueue[sqlite3.Connection]:
        return AppendQueue(partial(append_rows, self.path))

    async def _listed(self, wanted: Wanted) -> list[RunInfo]:
        # A list may be read before the first run creates the file.
        if not expect_journal(self.path):
            return []
        if not wanted.schedule:
            return await super()._listed(wanted)
        # Here and not in SQL: the source of a run may be a content.
        every = await super()._listed(replace(wanted, limit=_ALL, offset=0))
        rows = [info for info in every if schedule_of(info) == wanted.schedule]
        return rows[wanted.offset : wanted.offset + wanted.limit]

    async def waits(
        self, run_id: str = "", *, due: float = math.inf, limit: int = 1000
    ) -> list[OpenWait]:
        """Return the open waits; see Journal.waits."""
        if not expect_journal(self.path):  # the first run creates it
            return []
        return await super().waits(run_id, due=due, limit=limit)

    async def look(self, work: Callable[[PageReader], T]) -> T:
        """Call `work` with a reader that reads at one moment, in a thread.

        Raises:
            JournalUnavailable: if no journal exists at this path yet.
        """
        if not expect_journal(self.path):
            raise JournalUnavailable(
                f"{self.path}: this journal does not exist yet; the first run creates it"
            )
        return await super().look(work)

    async def listing(self, wanted: Wanted, work: Callable[[RunPage], T]) -> T:
        """Return the result of `work` on a page of the run list; see Journal.listing."""
        # The page may be open before the first run creates the database.
        if not self.path.exists():
            return work(RunPage([], [], 0))
        return await super().listing(wanted, work)

    async def notes(self) -> list[str]:
        """Return what an operator should know about the database: the format of its tables."""

        def version() -> int:
            try:
                db, found = connect_reader(self.path)
            except (sqlite3.Error, OSError) as error:
                raise journal_error(error, str(self.path)) from error
            db.close()
            return found

        found = await asyncio.to_thread(version)
        later = "" if found == VERSION else f", which the next run makes {VERSION}"
        return [f"its format is {found}{later}"]

    def watch(self) -> SqliteWatch:
        """Return a detector of commits by any process, at a cost of microseconds."""
        return SqliteWatch(self.path)

    def _expect(self, run_id: str) -> None:
        if not expect_journal(self.path):
            raise missing_run(run_id)

    async def _time(self) -> float:
        """Return the time of this machine."""
        return self._clocks.wall()

    async def _read(self, work: Callable[[PageReader], T]) -> T:
        """Call `work` with the reader, in a thread, once all entries appended here are written."""
        # A caller reads what it has appended.
        await self._queue().settled()
        try:
            return await asyncio.to_thread(self._with_reader, work)
        except _Outdated:
            await self._perform(Transaction(lambda _: None))  # the writer migrates the tables
            return await asyncio.to_thread(self._with_reader, work)

    def _with_reader(self, work: Callable[[PageReader], T]) -> T:
        with self._reading:
            try:
                with as_damage(str(self.path)):
                    if not self._readers:
                        db, version = connect_reader(self.path)
                        if version != VERSION:
                            db.close()
                            raise _Outdated
                        self._readers.append(Pages(db, files_of(self.path), self._clocks.wall))
                    return work(self._readers[0])
            except (sqlite3.Error, OSError) as error:
                raise journal_error(error, str(self.path)) from error


class _Outdated(Exception):
    """The tables are of an older version."""
