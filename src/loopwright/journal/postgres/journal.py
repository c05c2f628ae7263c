"""PostgresJournal: the Journal protocol on a PostgreSQL database, with its readers, its memory and its files.

Statements that read are constants, so that a test can ask PostgreSQL for their query plans.

A reader of a memory that asks for the entries after a number must not miss one that is committed later with a
smaller number. So numbers are assigned under a lock of the space that lasts until the commit.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Protocol, TypeVar

import psycopg

from ...errors import StepError
from ...memory import MemoryEntry
from ...records import Reason
from ...records.codec import Json
from ..events import EventTables
from ..protocol import FileStore, Posted, RunInfo
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
from ..recorded.rows import RunRow, Value, as_damage, utf8
from ..recorded.writer import BEAT, REST, Transaction
from ..views import Wanted
from .connection import (
    VERSION,
    Connection,
    Row,
    Server,
    notes_of,
    patiently,
    problems_of,
    storable,
    version_of,
)
from .database import (
    COLUMNS,
    PATIENCE,
    OnPoint,
    PostgresRuns,
    answers_of,
    events_of,
    find_run,
    presents,
    prune,
    prune_files,
    prune_records,
)
from .ownership import LEASE, CommitListener

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


_LIMIT = "LIMIT NULLIF(%s::bigint, -1)"
STATEMENTS = {
    "timeline": "SELECT first, body, sum FROM loopwright.entries WHERE run=%s AND first>=%s "
    f"ORDER BY first {_LIMIT}",
    "row of": "SELECT max(first) FROM loopwright.entries WHERE run=%s AND first<=%s",
    "row before": "SELECT sum FROM loopwright.entries WHERE run=%s AND first<%s "
    "ORDER BY first DESC LIMIT 1",
    "iterations": "SELECT mark, first FROM loopwright.entries WHERE run=%s AND loop IS NOT NULL "
    f"ORDER BY mark {_LIMIT} OFFSET %s",
    "iterations of a loop": "SELECT mark, first FROM loopwright.entries WHERE run=%s AND loop=%s "
    f"ORDER BY mark {_LIMIT} OFFSET %s",
    # Those of the run and of the runs that it was forked from; an id is unique over all runs.
    "contents": "WITH r AS (SELECT %s::bigint AS id) SELECT c.id, digest, size, body "
    "FROM loopwright.contents c WHERE c.run IN (SELECT id FROM r UNION ALL "
    "SELECT origin FROM loopwright.forks f JOIN r ON f.run=r.id) "
    "AND c.id=ANY(ARRAY(SELECT json_array_elements_text(%s::json)::bigint))",
    "newest key": "SELECT max(id) FROM loopwright.runs",
    "names": "SELECT min(name) FROM loopwright.runs WHERE name>%s",
    "next loop": "SELECT min(loop) FROM loopwright.entries WHERE run=%s AND loop>%s",
    "extent of a loop": "SELECT count(*) FROM loopwright.entries WHERE run=%s AND loop=%s",
    "extent of a run": "SELECT count(*) FROM loopwright.entries WHERE run=%s AND loop IS NOT NULL",
    "mark": "SELECT mark FROM loopwright.entries WHERE run=%s AND loop=%s "
    "ORDER BY mark LIMIT 1 OFFSET %s",
    "outline": "SELECT mark, first, body, sum, (SELECT p.sum FROM loopwright.entries p "
    "WHERE p.run=e.run AND p.first<e.first ORDER BY p.first DESC LIMIT 1) FROM loopwright.entries e "
    f"WHERE run=%s AND loop=%s AND mark>=%s ORDER BY mark {_LIMIT}",
    "marks": "SELECT mark FROM loopwright.entries WHERE run=%s AND loop=%s "
    f"ORDER BY mark {_LIMIT} OFFSET %s",
    "tried again": "SELECT first, body FROM loopwright.entries WHERE run=%s AND first>=%s "
    "AND (body ~ '/attempt-([2-9]|1[0-9])' OR body LIKE '[[\"r\",%%') ORDER BY first",
    "latest row": "SELECT first, body FROM loopwright.entries WHERE run=%s "
    "ORDER BY first DESC LIMIT 1",
}
LIVE = "SELECT coalesce(array_agg(id), '{}') FROM loopwright.owners_now WHERE alive"
WATCHED = (
    "SELECT status, updated, epoch, cancel, (SELECT max(first) FROM loopwright.entries "
    "WHERE run=runs.id) FROM loopwright.runs WHERE run_id=%s"
)
# An ended run keeps the key of its last owner, which no longer holds it.
_HELD = "status='running' AND owner IN (SELECT id FROM loopwright.owners WHERE host||':'||pid=%s)"
_ORDERS = {
    "started": "id", "updated": "updated", "name": "name", "status": "status", "score": "score",
    "cost": "split_part(usage, ',', 4)::float8", "iterations": "iterations",
}  # fmt: skip


_OF_OWNERS = {
    "running": "status='running' AND owner=ANY(%s)",
    "interrupted": "(status='interrupted' OR (status='running' AND owner=ANY(%s) IS NOT TRUE))",
}


def run_terms(wanted: Wanted, live: list[int]) -> tuple[list[str], list[object]]:
    """Return the terms that select runs, and their values.

    A running run without a live owner is stored as running, and counts as interrupted.
    """
    terms: list[str] = []
    values: list[object] = []
    reason = wanted.reason
    some = []
    for status in wanted.statuses or ((Reason(reason).status.value,) if reason else ()):
        values.append(live if status in _OF_OWNERS else status)
        some.append(_OF_OWNERS.get(status, "status=%s"))
    if some:
        terms.append(f"({' OR '.join(some)})" if len(some) > 1 else some[0])
    if reason:
        terms.append("reason=%s")
        values.append(reason)
    if wanted.name:
        terms.append("name=%s")
        values.append(storable(wanted.name))
    if wanted.queue:
        terms.append("queue=%s")
        values.append(storable(wanted.queue))
    if wanted.schedule:
        terms.append("schedule=%s AND schedule<>''")  # as the index says it
        values.append(storable(wanted.schedule))
    if wanted.worker:
        terms.append(_HELD)
        values.append(storable(wanted.worker))
    if wanted.since:
        terms.append("created>=%s")
        values.append(wanted.since)
    terms += ["strpos(tags, %s)>0"] * len(wanted.tags)
    return terms, [*values, *map(storable, wanted.marks)]


def page_query(wanted: Wanted, live: list[int], columns: str) -> tuple[str, list[object]]:
    """Return the statement for a page of runs, and its values."""
    newer = bool(wanted.after)
    terms, values = run_terms(wanted, live)
    terms += ["id<%s", "id>%s"]
    values += [wanted.before or FIRST, wanted.after]
    by, way = _ORDERS[wanted.order], "DESC" if wanted.descending and not newer else "ASC"
    order = f"id {way}" if by == "id" else f"{by} {way} NULLS LAST, id DESC"
    query = f"SELECT {columns} FROM loopwright.runs WHERE {' AND '.join(terms)} ORDER BY {order}"
    return f"{query} LIMIT %s OFFSET %s", [*values, wanted.limit, wanted.offset]


_COUNTED = 10_000  # runs that are counted; of more, the key of the newest is their number
_BY_KEYS = f"SELECT {COLUMNS} FROM loopwright.runs WHERE id=ANY(%s)"


class Reader(PageReader):
    """A connection that only reads, for one thread at a time."""

    def __init__(self, db: Connection) -> None:
        super().__init__()
        self.db = db

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read everything inside at one moment."""
        # Otherwise a page could show an iteration whose run row is from before it.
        self.db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            if not self.db.closed:
                self.db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self.db.close()

    def select(self, statement: str, *values: Value) -> list[tuple[Json, ...]]:
        """Return the rows of a statement; see RowReader."""
        return self._rows_of(STATEMENTS[statement], values)

    def _rows_of(self, query: str, values: Sequence[object]) -> list[tuple[Json, ...]]:
        return self.db.execute(query, values).fetchall()

    def body_elsewhere(self, digest: bytes) -> bytes | None:
        """Return None: every content is in its table."""
        return None

    def events(self) -> EventTables:
        """Return the events and waits."""
        return events_of(self.db)

    def inbox(self, row: RunRow) -> list[Posted]:
        """Return the answers in the inbox of a run."""
        return answers_of(self.db, row.key)

    def row(self, run_id: str) -> RunRow:
        """Return the row of a run. Raises RunNotFound."""
        return find_run(self.db, run_id)

    def shown(self, run_id: str) -> tuple[RunRow, RunInfo]:
        """Return the row of a run, and the run in its present state. Raises RunNotFound."""
        [shown] = presents(self.db, [self.row(run_id)])
        return shown

    def page(self, wanted: Wanted) -> list[tuple[RunRow, RunInfo]]:
        # Other orders and filters read an index, and then only the rows of the page.
        query, values = page_query(wanted, self._live(), "id" if wanted.is_slow else COLUMNS)
        found = self._rows_of(query, values)
        if wanted.is_slow:
            return self.rows([key for (key,) in found])
        return presents(self.db, list(map(self.checked, found)))

    def rows(self, keys: Sequence[int]) -> list[tuple[RunRow, RunInfo]]:
        found = {raw[0]: raw for raw in self._rows_of(_BY_KEYS, (list(keys),))}
        return presents(self.db, [self.checked(found[key]) for key in keys if key in found])

    def total(self, wanted: Wanted) -> int:
        terms, values = run_terms(wanted, self._live())
        if terms:
            query = f"SELECT count(*) FROM loopwright.runs WHERE {' AND '.join(terms)}"
            return int(self._rows_of(query, values)[0][0])
        # The first page of a long list is not slower than that of a short one; a deleted run counts there.
        query = "SELECT count(*) FROM (SELECT FROM loopwright.runs LIMIT %s) AS c"
        [(count,)] = self._rows_of(query, (_COUNTED + 1,))
        return int(count) if count <= _COUNTED else self.newest()

    def _live(self) -> list[int]:
        [(live,)] = self._rows_of(LIVE, ())
        return list(live)


class PostgresWatch:
    """Detects commits of any process: announced at most once per beat of each; see Watch."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener: CommitListener | None = None
        self._db: Connection | None = None
        self._lock = threading.Lock()

    def version(self) -> int:
        if self._listener is None:
            self._listener = CommitListener(self._server)
        return self._listener.count

    async def state(self, run_id: str) -> object:
        return await self._ask(lambda db: db.execute(WATCHED, (run_id,)).fetchone())

    async def list_state(self, wanted: Wanted) -> object:
        if wanted.is_slow:
            return await self._ask(lambda db: db.execute(STATEMENTS["newest key"]).fetchone())
        query, values = page_query(replace(wanted, status="", reason=""), [], "id, status, epoch")
        return await self._ask(lambda db: tuple(db.execute(query, values).fetchall()))

    async def _ask(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self._answer, work)

    def _answer(self, work: Callable[[Connection], T]) -> T:
        with self._lock:
            try:
                if self._db is None:
                    self._db = self._server.connect("watch")
                return work(self._db)
            except psycopg.Error as error:
                if self._db is not None:
                    self._db.close()
                    self._db = None
                raise self._server.error(error) from error

    def close(self) -> None:
        """Close the connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None


T = TypeVar("T")


class PostgresJournal(RecordedJournal[Connection, Reader]):
    """A journal in a PostgreSQL database, which processes on several machines may share.

    Nothing is connected before the first use, which also creates the tables in the schema `loopwright`.
    Use the journal as an async context manager, or close it. `memory` is the memory in the same database.

    Args:
        url: `postgres://USER@HOST:PORT/DATABASE`, or any URL that libpq accepts. Give the password in
            PGPASSWORD or in a service file.
        lease: seconds after which other processes may take the runs of one that is silent (default: 10).
        beat: seconds between two renewals of the lease (default: 0.5).
        patience: seconds for which a commit is repeated while the database is away (default: 60).
        on_point: for tests: called as `on_point(position, n)` by the writer's thread in the n-th
            transaction, at `before`, `in_txn` and `after`.

    Raises:
        ConfigurationError: if the URL is not valid.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: float = LEASE,
        beat: float = BEAT,
        patience: float = PATIENCE,
        on_point: OnPoint | None = None,
    ) -> None:
        self.server = Server(url)
        self.url = url
        self._lease, self.patience = lease, patience
        rest = weakref.WeakMethod(
            self._rest
        )  # the writer's thread must not keep a journal that nobody uses
        self._read_at = 0.0  # when the reader was used last, by the monotonic clock
        super().__init__(
            partial(
                PostgresRuns,
                self.server,
                lease=lease,
                beat=beat,
                patience=patience,
                on_point=on_point,
                on_rest=lambda: (work := rest()) is None or work(),
            ),
            beat,
        )

    @property
    def version(self) -> int:
        """The version of the tables."""
        return VERSION

    @property
    def memory(self) -> PostgresMemory:
        """The memory in the same database; it shares the transactions of the journal."""
        return PostgresMemory(self._read_rows, self._perform, self._appends)

    @cached_property
    def _appends(self) -> AppendQueue[Connection]:
        return AppendQueue(append_rows)

    @property
    def files(self) -> FileStore:
        """The files of its runs, in a table of the same database."""
        return PostgresFiles(self.server)

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """Return the result of `work` in a durable transaction of the writer's thread.

        `work` may be repeated, if the database is away before the commit.
        """
        return await self._perform(Transaction(work))

    async def notes(self) -> list[str]:
        """Return what an operator should know about the database."""
        return await self._read(lambda reader: notes_of(reader.db, self._lease))

    async def prune(self, before: float) -> int:
        """Delete the runs that ended before a time, in seconds since the epoch; return their number.

        What workers and the default engine recorded about deliveries before that time is deleted too.
        """
        deleted = 0
        while count := await self._perform(Transaction(lambda db: prune(db, before))):
            deleted += count
        while await self._perform(Transaction(lambda db: prune_records(db, before))):
            pass
        return deleted

    async def prune_files(self) -> int:
        """Delete the files that were stored over a day ago and that no run uses; return their number."""
        return await self._perform(Transaction(prune_files))

    async def problems(self) -> list[str]:
        """Return what is wrong in the tables that workers share."""
        return await self._read(lambda reader: problems_of(reader.db))

    def watch(self) -> PostgresWatch:
        """Return a detector of commits by any process; see Journal.watch."""
        return PostgresWatch(self.server)

    async def _read_rows(self, work: Callable[[Connection], T]) -> T:
        return await self._read(lambda reader: work(reader.db))

    async def _time(self) -> float:
        """Return the time of the database."""
        return await asyncio.to_thread(self._with_reader, lambda reader: reader.events().clock())

    async def _read(self, work: Callable[[Reader], T]) -> T:
        """Call `work` with the reader, in a thread, once all entries appended here are written."""
        await self._queue().settled()
        # Who only reads need not be allowed to write.
        if not self._readers and not await asyncio.to_thread(self._is_ready):
            await self._perform(Transaction(lambda _: None))  # the writer creates the tables
        return await asyncio.to_thread(self._with_reader, work)

    def _is_ready(self) -> bool:
        """Return whether the tables are of this version; only then the reader stays."""
        ready = False
        try:
            ready = self._with_reader(lambda reader: version_of(reader.db, self.server) == VERSION)
        finally:
            if not ready:
                with self._reading:
                    self._drop_reader()
        return ready

    def _rest(self) -> bool:
        """Close the connection that reads, if it was not used for a while; called by the writer's thread."""
        if time.monotonic() - self._read_at > REST and self._reading.acquire(blocking=False):
            try:
                self._drop_reader()
            finally:
                self._reading.release()
        return not self._readers

    def _with_reader(self, work: Callable[[Reader], T]) -> T:
        with self._reading:
            # One that rested may have gone silent: a new one costs less than to find that out.
            if time.monotonic() - self._read_at > REST:
                self._drop_reader()
            self._read_at = time.monotonic()
            patience = self.server.patience(self.patience)
            try:
                with as_damage(self.server.name):
                    return patiently(lambda: work(self._reader()), self._drop_reader, patience)
            except psycopg.Error as error:
                raise self.server.error(error) from error

    def _reader(self) -> Reader:
        if not self._readers:
            self._readers.append(Reader(self.server.connect("reader")))
        return self._readers[0]


class PostgresFiles(FileStore):
    """The contents of files that runs use, in a table; see FileStore."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def put(self, content: bytes) -> str:
        """Store a content and return its digest; see FileStore.put."""
        digest = hashlib.sha256(content)
        self._execute(
            # A content that is stored again is used again: `prune` must not take it for an old one.
            "INSERT INTO loopwright.files(digest, body) VALUES (%s, %s) "
            "ON CONFLICT (digest) DO UPDATE SET stored=now()",
            (digest.digest(), content),
        )
        return digest.hexdigest()

    def get(self, digest: str) -> bytes:
        """Return the content with a digest; see FileStore.get."""
        query = "SELECT body FROM loopwright.files WHERE digest=decode(%s, 'hex')"
        rows = self._execute(query, (digest,))
        content = rows[0][0] if rows else None
        if not isinstance(content, bytes) or hashlib.sha256(content).hexdigest() != digest:
            state = "is damaged" if rows else "is missing"
            raise StepError(
                f"the recorded file {digest[:12]} {state} in {self._server.name}",
                kind="file_missing",
            )
        return content

    def digests(self) -> list[str]:
        """Return the digests of all contents."""
        rows = self._execute("SELECT encode(digest, 'hex') FROM loopwright.files", ())
        return [digest.decode() for (digest,) in rows]

    def _execute(self, query: str, values: tuple[object, ...]) -> list[Row]:
        try:
            with self._server.connect("files") as db:
                cursor = db.execute(query, values)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._server.error(error) from error
