"""The database of an SQLite journal as the writer's thread uses it, with the rows of runs and the inbox.

1. The epoch of a run holds within a transaction: no other process commits while the side lock is
   held. It is compared only if another connection committed since (`PRAGMA data_version`).
2. A run that lost its lease, or whose rows could not be stored, writes nothing more. Others continue.
3. Rows are inserted by few, long statements: each step of a statement releases the interpreter's
   lock, and a busy event loop can keep it for milliseconds.
4. A process holds the lock on `<db>-lock` while it writes, checkpoints or closes the database. The
   lock has a separate file because closing any descriptor of a database drops SQLite's locks on
   it. It also keeps two connections from resetting the WAL at once, which SQLite before 3.51.3 can
   get wrong.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ..._platform import RELEASE, TAKE, flock
from ...errors import JournalDamaged, JournalUnavailable, LoopwrightError
from ..events import EventTables
from ..protocol import MATCHES, Posted, RunInfo, missing_run, with_tags
from ..recorded.log import WIDTH, Batch, Content, Contents, DurableLog, OpenedRun, new_row
from ..recorded.ownership import RewindPlan, find_row, locked, rewound, taken
from ..recorded.rows import (
    RunRow,
    Value,
    answer_values,
    queue_values,
    read_answer,
    read_row,
    sealed_values,
)
from ..recorded.writer import CommitOperation
from ..views import tags_text
from .ownership import LEASE, Clocks, LeaseOwner, owner_at, register, renew
from .tables import FILE, connect_writer, create_private, journal_error, own_folder, write_content

OnPoint = Callable[[str, int], None]
PATIENCE = 30.0  # seconds to wait until another process releases the side lock
_CHUNKS = (1024, 128, 16, 1)
_ENTRY = "INSERT INTO entries(run,first,loop,mark,body,sum) VALUES "
_CONTENT = "INSERT INTO contents(id,digest,size,body) VALUES "
_BY_ID = "SELECT * FROM runs WHERE run_id=?"
_BY_BEGINNING = "SELECT * FROM runs WHERE run_id>=? AND run_id<? LIMIT ?"
_LATEST = "SELECT sum FROM entries WHERE run=? ORDER BY first DESC LIMIT 1"
_ASIDE = (
    "UPDATE entries SET loop=NULL, mark=NULL WHERE run=? AND loop IS NOT NULL AND mark IN "
    "(SELECT value FROM json_each(?))"
)
_BACK = (
    "UPDATE entries SET loop=:loop, mark=:mark WHERE run=:run AND first="
    "(SELECT max(first) FROM entries WHERE run=:run AND first<=:mark)"
)
_INSERT = (
    "INSERT INTO runs VALUES (NULL,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
    "ON CONFLICT(run_id) DO NOTHING"
)
# The constant columns (id, run_id, name) are left out: their indexes are not touched. Writing the
# row also takes back a request to cancel.
_WRITE = (
    "UPDATE runs SET status=?,reason=?,detail=?,input=?,source=?,fingerprint=?,created=?,updated=?,"
    "active=?,epoch=?,iterations=?,score=?,usage=?,opened=?,last=?,head=?,seal=?,owner=?,cancel=? "
    "WHERE id=? AND epoch=?"
)
_PUT = "INSERT INTO inbox VALUES (?,?,?,?,?,?,?) ON CONFLICT DO NOTHING"
_ANSWERS = "SELECT run,asked,path,value,who,at,seal FROM inbox WHERE run=? ORDER BY asked,path"
_ANSWER = "SELECT run,asked,path,value,who,at,seal FROM inbox WHERE run=? AND asked=? AND path=?"
_EPOCHS = "SELECT id, epoch FROM runs WHERE id IN (SELECT value FROM json_each(?))"
_CANCELLED = "SELECT id, epoch FROM runs WHERE status='running' AND owner=? AND cancel=1"
_POSTED = (  # new limits, which stand under the question 0
    "SELECT run, count(*) FROM inbox WHERE asked=0 AND run IN (SELECT value FROM json_each(?)) "
    "GROUP BY run"
)
_POSTED_TO = "SELECT count(*) FROM inbox WHERE asked=0 AND run=?"


class SideLock:
    """The lock that a process holds while it writes to the database.

    Raises:
        JournalUnavailable: on entering, if another process holds it for `patience` seconds.
    """

    def __init__(self, path: Path, patience: float = PATIENCE) -> None:
        self._path = path
        self._patience = patience
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def __enter__(self) -> None:
        # Polled, because a process that was stopped while it holds the lock must not block us forever.
        until, pause = time.monotonic() + self._patience, 0.0005
        while True:
            with suppress(BlockingIOError):
                flock(self._file, TAKE)
                return
            if time.monotonic() >= until:
                raise JournalUnavailable(
                    f"{self._path}: another process has held this lock for {self._patience:g} "
                    "seconds; end that process or let it continue"
                )
            time.sleep(pause)
            pause = min(pause * 2, 0.01)

    def __exit__(self, *_: object) -> None:
        flock(self._file, RELEASE)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class SqliteDatabase:
    """The connection that writes, opened at the first use; only the writer's thread may use it.

    `logs` are the open runs of this store by key.
    """

    def __init__(
        self,
        path: Path,
        synchronous: str,
        clocks: Clocks,
        on_point: OnPoint | None,
        lease: float = LEASE,
    ) -> None:
        self.logs: dict[int, DurableLog] = {}
        self.path = path
        self.name = str(path)
        self.files = files_of(path)
        self.clocks = clocks
        self.lease = lease  # seconds that a lease lasts without a beat
        self._synchronous = synchronous
        self._on_point = on_point
        self._points = 0
        self._opened_at = clocks.steady()
        self._owner: LeaseOwner | None = None
        self._next_content = itertools.count(1).__next__
        self._lock: SideLock | None = None
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # the file that the connection writes to
        self._data_version = -1  # of the latest transaction
        self._state = 0  # counts the changes of `_data_version`: commits of other connections
        self._cancel_state = 0  # the state at the latest search for requests to cancel

    @property
    def owner(self) -> LeaseOwner:
        """The row of this store; it exists in every transaction."""
        assert self._owner is not None
        return self._owner

    @property
    def seconds(self) -> float:
        """The age of this store in seconds."""
        return self.clocks.steady() - self._opened_at

    def new_content(self) -> int:
        """Return a content id that no other store uses: Cantor's pairing of owner and count.

        Ids of one store only grow, so that contents are added at the end of their table.
        """
        count = self._next_content()
        diagonal = self.owner.key + count
        return diagonal * (diagonal + 1) // 2 + count

    def hold(self, log: DurableLog) -> None:
        """Register a run that was opened; an older log of the same run loses it."""
        older = self.logs.get(log.key)
        if older is not None:
            older.take_away()
        log.verified = self._state
        self.logs[log.key] = log

    def release(self, log: DurableLog) -> None:
        """Remove a run that was released."""
        # A newer log of the same run stays.
        if self.logs.get(log.key) is log:
            del self.logs[log.key]

    def journal_error(self, error: Exception) -> LoopwrightError:
        """Return the error of the journal for an error of SQLite or the system."""
        return journal_error(error, str(self.path))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a block as one transaction under the side lock; an error rolls it back."""
        if self._lock is None:
            own_folder(self.path)
            beside = self.path.with_name(f"{self.path.name}-lock")
            create_private(beside)
            self._lock = SideLock(beside)
        with self._lock:
            if self._db is None:
                self._db = connect_writer(self.path, self._synchronous)
                self._file = _file_number(self.path)
            db = self._db
            # The write lock at once: a later upgrade could fail after half of the work.
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    with suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                raise

    def commit(
        self, batches: Sequence[Batch], operations: Sequence[CommitOperation[sqlite3.Connection]]
    ) -> None:
        """Write batches and perform operations in one durable transaction.

        Raises:
            sqlite3.Error, OSError, JournalError: if nothing was committed.
        """
        # Files first: a committed row must never refer to a file that does not exist.
        for log, contents in (pair for batch in batches for pair in batch.contents):
            try:
                contents[:] = self.filed(contents)
            except JournalUnavailable as error:
                log.fail(error)
        owner = self._owner
        try:
            with self._transaction() as db:
                self._point("before")
                self._owner = owner or register(db, self.clocks.wall(), self.lease)
                self._fence(db, itertools.chain.from_iterable(batch.logs for batch in batches))
                self._insert(db, batches)
                for operation in operations:
                    operation.run(db)
                self._point("in_txn")
        except BaseException:
            # The row of a new owner was rolled back, so the next transaction registers again.
            self._owner = owner
            raise
        # SQLite writes to a deleted file without an error, and the entries would be lost.
        if _file_number(self.path) != self._file:
            raise JournalDamaged(
                f"{self.path}: the database was deleted or replaced while runs were writing to it; "
                "their entries are lost, run them again"
            )
        self._point("after")

    def _point(self, position: str) -> None:
        if self._on_point is not None:
            self._points += position == "before"
            self._on_point(position, self._points)

    def filed(self, contents: Iterable[Content]) -> list[Content]:
        """Write large contents as files; return all contents, those without their bodies.

        Raises:
            JournalUnavailable: if a file cannot be written.
        """
        rows: list[Content] = []
        for key, digest, size, body in contents:
            if size > FILE and body is not None:
                try:
                    write_content(self.files, digest, body.encode())
                except OSError as error:
                    raise journal_error(error, str(self.files)) from error
                rows.append((key, digest, size, None))
            else:
                rows.append((key, digest, size, body))
        return rows

    def keep_contents(self, db: sqlite3.Connection, contents: Iterable[Content]) -> None:
        """Insert contents returned by `filed`, within a transaction."""
        insert_many(db, _CONTENT, 4, list(itertools.chain.from_iterable(contents)))

    def _fence(self, db: sqlite3.Connection, logs: Iterable[DurableLog]) -> None:
        """Let the runs fail that another owner took since their last write."""
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:
            self._data_version = version
            self._state += 1
        state = self._state
        stale = [log for log in logs if log.verified != state]
        if not stale:
            return
        keys = json.dumps([log.key for log in stale])
        epochs = dict(db.execute(_EPOCHS, (keys,)).fetchall())
        for log in stale:
            log.verified = state
            if epochs.get(log.key) != log.info.epoch:
                log.take_away()

    def _insert(self, db: sqlite3.Connection, batches: Iterable[Batch]) -> None:
        values: list[Value] = []
        contents: list[Content] = []
        for batch in batches:
            values += _sound_values(batch)
            for log, rows in batch.contents:
                if log.failure is None:
                    contents += rows
        self.keep_contents(db, contents)
        insert_many(db, _ENTRY, WIDTH, values)

    def rest(self) -> bool:
        """Return True: an open file costs nobody anything."""
        return True

    def beat(self) -> None:
        """Renew the lease of this store's runs, and find requests to cancel them and new limits.

        A failure waits for the next beat: a lease decides only how soon another process may take
        a run.
        """
        with suppress(sqlite3.Error, OSError, JournalUnavailable), self._transaction() as db:
            self._fence(db, self.logs.values())
            # A request to cancel and a new limit are commits of other connections, so without one there is
            # nothing to read.
            if self._cancel_state != self._state:
                self._cancel_state = self._state
                for key, epoch in db.execute(_CANCELLED, (self.owner.key,)).fetchall():
                    log = self.logs.get(key)
                    if log is not None and log.info.epoch == epoch:
                        log.request_cancel()
                for key, count in db.execute(_POSTED, (json.dumps(list(self.logs)),)).fetchall():
                    self.logs[key].count_posted(count)
            self._owner = renew(db, self.owner, self.clocks.wall() + self.lease, self.seconds)

    def finish(self) -> None:
        """Release the leases, move the WAL into the database and close it."""
        error = JournalUnavailable(f"{self.path}: the journal was closed while this run was open")
        for log in self.logs.values():
            if log.failure is None:
                log.fail(error)
        self.logs.clear()
        if self._lock is None:
            return
        if self._db is not None:
            with suppress(JournalUnavailable), self._lock:
                with suppress(sqlite3.Error):
                    if self._owner is not None:
                        renew(self._db, self._owner, 0.0, self.seconds)
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._db.close()
        self._lock.close()
        self._db = self._lock = None


class SqliteRuns(SqliteDatabase):
    """The database with the rows of runs; see OwningStore."""

    def take(
        self, db: sqlite3.Connection, info: RunInfo, *, resume: bool, takeover: bool
    ) -> OpenedRun:
        """Take the lease of a run, which is created if it is new. Raises RunNotFound, RunLocked."""
        first = replace(info, epoch=1, status="running")
        new = None if resume else self._create(db, first, self.owner.key)
        if new is not None:
            return OpenedRun(new, "")
        values = db.execute(_BY_ID, (info.run_id,)).fetchone()
        if values is None:
            raise missing_run(info.run_id)
        row = read_row(values)
        owner = owner_at(db, row.owner, self.clocks.wall())
        if owner is not None and owner.owns(row) and not takeover:
            raise locked(info.run_id, owner)
        [(posted,)] = db.execute(_POSTED_TO, (row.key,)).fetchall()
        opened = taken(row, owner, opened=self.seconds, owner=self.owner.key, posted=posted)
        _write_row(db, opened.row, row.info.epoch)
        return opened

    def create(self, db: sqlite3.Connection, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs without an owner; return the ids of those that are new."""
        queued = (replace(info, epoch=0, status="queued") for info in runs)
        return [info.run_id for info in queued if self._create(db, info, None) is not None]

    def _create(self, db: sqlite3.Connection, info: RunInfo, owner: int | None) -> RunRow | None:
        """Create a run and return its row; None if its id is taken."""
        opened, contents = self.seconds, Contents(self.new_content)
        row = new_row(info, contents, opened=opened, owner=owner)
        values = [*sealed_values(row), *queue_values(info)]
        filed = self.filed(contents.waiting)  # first, as files can be refused
        cursor = db.execute(_INSERT, values)
        if not cursor.rowcount:
            return None
        self.keep_contents(db, filed)
        return replace(row, key=cursor.lastrowid or 0)

    def give_back(self, log: DurableLog, info: RunInfo, db: sqlite3.Connection) -> DurableLog:
        """Write the row of a run and release it, if the log still owns it; return the log."""
        if log.failure is not None:  # the entries may lack the end that `info` describes
            return self.leave(log, "interrupted", db)
        contents = Contents(self.new_content)
        closed = log.closed_row(info, contents)
        filed = self.filed(contents.waiting)  # first, as files can be refused
        if _write_row(db, closed, log.row.info.epoch):
            self.keep_contents(db, filed)
        return log

    def leave(self, log: DurableLog, status: str, db: sqlite3.Connection) -> DurableLog:
        """Release a run with a status and no other change; return the log."""
        row = log.row
        _write_row(
            db, replace(row, info=replace(row.info, status=status), owner=None), row.info.epoch
        )
        return log

    def request_cancel(self, db: sqlite3.Connection, run_id: str) -> bool:
        """Ask the owner of a run to cancel it; return whether it has a live owner."""
        row = find_run(db, run_id)
        owner = owner_at(db, row.owner, self.clocks.wall())
        if owner is None or not owner.owns(row):
            return False
        db.execute("UPDATE runs SET cancel=1 WHERE id=?", (row.key,))
        log = self.logs.get(row.key)
        if log is not None and log.info.epoch == row.info.epoch:
            log.request_cancel()
        return True

    def rewind(self, db: sqlite3.Connection, plan: RewindPlan) -> None:
        """Record a rewind of a run without an owner; the discarded iterations leave the pages.

        Raises:
            RunLocked: if the run has a live owner, or changed since it was read.
        """
        row = find_run(db, plan.row.info.run_id)
        latest = db.execute(_LATEST, (row.key,)).fetchone()
        contents = Contents(self.new_content)
        rewind = rewound(
            plan,
            row,
            owner_at(db, row.owner, self.clocks.wall()),
            head=None if latest is None else latest[0],
            contents=contents,
        )
        self.keep_contents(db, self.filed(contents.waiting))
        values = (row.key, rewind.row.last, rewind.body, rewind.row.head)
        db.execute("INSERT INTO entries(run,first,body,sum) VALUES(?,?,?,?)", values)
        # Only the marks of the index are removed, the entries stay.
        db.execute(_ASIDE, (row.key, json.dumps(plan.aside)))
        for loop, mark in plan.back:
            db.execute(_BACK, {"run": row.key, "loop": loop, "mark": mark})
        _write_row(db, rewind.row, row.info.epoch)

    def tag(self, db: sqlite3.Connection, run_id: str, tags: Mapping[str, str]) -> dict[str, str]:
        """Change the tags of a run; see OwningStore."""
        row = find_run(db, run_id)
        changed = with_tags(row.info.tags, tags)
        db.execute("UPDATE runs SET tags=? WHERE id=?", (tags_text(changed), row.key))
        return changed

    def events(self, db: sqlite3.Connection) -> EventTables:
        """Return the events and waits; see OwningStore."""
        return EventTables(
            lambda text, values: db.execute(text, values).fetchall(), self.clocks.wall
        )

    def share(self, db: sqlite3.Connection, origin: int, run: int) -> None:
        """Do nothing: contents belong to the file, and no run is ever deleted from it."""

    def post(self, db: sqlite3.Connection, run_id: str, answer: Posted) -> Posted:
        """Store an answer unless the question has one; see RunTable."""
        return put(db, find_run(db, run_id).key, answer)


def find_run(db: sqlite3.Connection, run_id: str) -> RunRow:
    """Return the row of a run by its id or a unique prefix of it. Raises RunNotFound."""
    return find_row(
        run_id,
        lambda name: db.execute(_BY_ID, (name,)).fetchall(),
        lambda first, end: db.execute(_BY_BEGINNING, (first, end, MATCHES)).fetchall(),
    )


def _write_row(db: sqlite3.Connection, row: RunRow, epoch: int) -> bool:
    """Write the variable columns of a row if its epoch is still this one; return whether it was."""
    # The epoch is the fence: after a takeover the old owner changes nothing.
    return db.execute(_WRITE, (*sealed_values(row)[2:], row.key, epoch)).rowcount == 1


def put(db: sqlite3.Connection, run: int, answer: Posted) -> Posted:
    """Store an answer unless the question has one; return the answer that is stored."""
    db.execute(_PUT, answer_values(run, answer))
    return read_answer(db.execute(_ANSWER, (run, answer.asked, answer.path)).fetchone())


def posted(db: sqlite3.Connection, run: int) -> list[Posted]:
    """Return the answers to the questions of a run."""
    return [read_answer(row) for row in db.execute(_ANSWERS, (run,)).fetchall()]


def files_of(path: Path) -> Path:
    """Return the folder of the files beside a database."""
    return path.with_name(f"{path.name}.files")


def _file_number(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, which identify it; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sound_values(batch: Batch) -> list[Value]:
    """Return the values of the rows whose runs may still write."""
    if all(log.failure is None for log in batch.logs):
        return batch.values
    # Runs fail one by one: a refused run must not take the others of its batch with it.
    starts = [i * WIDTH for i, log in enumerate(batch.owners) if log.failure is None]
    return [value for i in starts for value in batch.values[i : i + WIDTH]]


def insert_many(db: sqlite3.Connection, head: str, width: int, values: Sequence[Value]) -> None:
    """Insert rows of `width` values, listed one after the other, by long statements."""
    start, total = 0, len(values)
    for count in _CHUNKS:
        size = count * width
        while total - start >= size:
            db.execute(_statement(head, width, count), values[start : start + size])
            start += size


@functools.cache
def _statement(head: str, width: int, count: int) -> str:
    return head + ",".join([f"({','.join('?' * width)})"] * count)
