"""The database as whoever writes sees it: one connection, one transaction at a time.

Rules:

1. A run's epoch holds within a transaction: nobody else commits while the side lock is held, so it
   is compared only when another connection has committed since (`PRAGMA data_version`).
2. A run that lost its lease, or whose rows could not be kept, writes nothing more; others go on.
3. Rows go in by few, long statements: each step of a statement gives up the interpreter's lock,
   and getting it back from a busy event loop can take milliseconds.
"""

from __future__ import annotations

import functools
import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ...errors import JournalDamaged, JournalUnavailable
from .encoding import FILE, Content
from .errors import journal_error
from .files import SideLock, create_private, file_number, write_content
from .leases import LEASE, Clocks, Owner, register, renew
from .run_log import WIDTH, Batch, SqliteLog
from .schema import connect_writer

__all__ = ["CommitOperation", "Database", "OnPoint", "insert_many"]

OnPoint = Callable[[str, int], None]
_CHUNKS = (1024, 128, 16, 1)
_ENTRY = "INSERT INTO entries(run,first,loop,mark,body,sum) VALUES "
_ONE = (
    "INSERT INTO entries(run,first,loop,mark,body,sum) SELECT ?,?,?,?,?,? FROM runs "
    "WHERE id=? AND epoch=?"
)
_CONTENT = "INSERT INTO contents(id,digest,size,body) VALUES "
_EPOCHS = "SELECT id, epoch FROM runs WHERE id IN (SELECT value FROM json_each(?))"
_WISHES = "SELECT id, epoch FROM runs WHERE status='running' AND owner=? AND cancel=1"


class CommitOperation(Protocol):
    """Something to do within a transaction."""

    def run(self, db: sqlite3.Connection) -> None:
        """Do it; a refusal by the journal itself is kept for the caller."""


class Database:
    """One connection that writes, made when first needed; only who has the writer's turn may use it.

    `logs` are the open runs of this store by key, `took` the seconds of the latest commit.
    """

    def __init__(
        self, path: Path, synchronous: str, clocks: Clocks, on_point: OnPoint | None
    ) -> None:
        self.logs: dict[int, SqliteLog] = {}
        self.took = 0.0
        self._one = ""
        self.path = path
        self.files = path.with_name(f"{path.name}.files")
        self.clocks = clocks
        self._synchronous = synchronous
        self._on_point = on_point
        self._points = 0
        self._born = clocks.steady()
        self._owner: Owner | None = None
        self._next_content = itertools.count(1).__next__
        self._lock: SideLock | None = None
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # which file the connection writes to
        self._seen = -1  # data_version at state `_state`
        self._state = 0  # counts the times that someone else was seen to have committed
        self._heard = 0  # the state in which wishes to cancel were last looked for

    @property
    def owner(self) -> Owner:
        """The row of this store; there is one in every transaction."""
        assert self._owner is not None
        return self._owner

    @property
    def seconds(self) -> float:
        """How long this store has been alive."""
        return self.clocks.steady() - self._born

    def new_content(self) -> int:
        """Return a content id that no other store will use: Cantor's number of owner and count.

        It only grows, so that contents are added at the end of their table, and starts small.
        """
        count = self._next_content()
        diagonal = self.owner.key + count
        return diagonal * (diagonal + 1) // 2 + count

    def hold(self, log: SqliteLog) -> None:
        """Take note of a run that was opened; an older opening of it by this store loses it."""
        older = self.logs.get(log.key)
        if older is not None:
            older.lose()
        log.verified = self._state
        self.logs[log.key] = log

    def release(self, log: SqliteLog) -> None:
        """Forget a run that was given back."""
        if self.logs.get(log.key) is log:
            del self.logs[log.key]

    def _connect(self) -> tuple[sqlite3.Connection, SideLock]:
        if self._lock is None:
            beside = self.path.with_name(f"{self.path.name}-lock")
            create_private(beside)
            self._lock = SideLock(beside)
        if self._db is None:
            with self._lock:
                self._db = self._opened()
        return self._db, self._lock

    def _opened(self) -> sqlite3.Connection:
        db = connect_writer(self.path, self._synchronous)
        self._file = file_number(self.path)
        self._one = _ONE
        if self._on_point is not None:
            db.create_function("point", 0, self._within)
            self._one = f"{_ONE} AND point()"
        return db

    def commit(self, batches: Sequence[Batch], acts: Sequence[CommitOperation]) -> None:
        """Write batches, then do acts, in one durable transaction.

        Raises:
            sqlite3.Error, OSError, JournalError: if nothing of it was kept.
        """
        for batch in batches:
            if batch.contents:
                self._write_files(batch)
        db, lock = self._connect()
        with lock:
            self._transact(db, batches, acts)

    def commit_at_once(self, batch: Batch) -> bool:
        """Write a batch without files as `commit` does; return False if another process writes."""
        db, lock = self._connect()
        if not lock.taken():
            return False
        try:
            if len(batch.owners) == 1 and not batch.contents and self._owner is not None:
                self._write_row(db, batch.owners[0], batch.values)
            else:
                self._transact(db, (batch,), ())
        finally:
            lock.free()
        return True

    def _write_row(self, db: sqlite3.Connection, log: SqliteLog, values: list[Any]) -> None:
        """Write one row in a statement that is a transaction, and compares the epoch in it."""
        if log.failure is not None:
            return
        began = time.monotonic()
        self._point("before")
        kept = db.execute(self._one, (*values, log.key, log.info.epoch)).rowcount
        self._expect_file()
        self.took = time.monotonic() - began
        if not kept:
            log.lose()
        self._point("after")

    def _transact(
        self, db: sqlite3.Connection, batches: Sequence[Batch], acts: Sequence[CommitOperation]
    ) -> None:
        known, began = self._owner, time.monotonic()
        self._point("before")
        db.execute("BEGIN IMMEDIATE")
        try:
            self._owner = known or register(db, self.clocks.wall())
            self._fence(db, batches)
            self._insert(db, batches)
            for act in acts:
                act.run(db)
            self._point("in_txn")
            db.execute("COMMIT")
        except BaseException:
            self._owner = known
            _roll_back(db)
            raise
        self._expect_file()
        self.took = time.monotonic() - began
        self._point("after")

    def _expect_file(self) -> None:
        """Refuse to acknowledge what was written to a file that nobody can open any more.

        Raises:
            JournalDamaged: if the file of that name is gone, or is another by now.
        """
        if file_number(self.path) != self._file:
            raise JournalDamaged(
                f"{self.path}: it is lost: the database was deleted or replaced while runs were written to "
                "it; what they recorded is in no file any more, run them again"
            )

    def _point(self, position: str) -> None:
        if self._on_point is not None:
            self._points += position == "before"
            self._on_point(position, self._points)

    def _within(self) -> bool:
        """Reach the point inside a transaction, called by SQLite from a statement that is one."""
        self._point("in_txn")
        return True

    def _write_files(self, batch: Batch) -> None:
        for log, contents in batch.contents:
            try:
                contents[:] = self.filed(contents)
            except JournalUnavailable as error:
                log.fail(error)

    def filed(self, contents: list[Content]) -> list[Content]:
        """Return contents without the large ones' bodies, which are made files.

        Raises:
            JournalUnavailable: if a file cannot be made.
        """
        kept: list[Content] = []
        for key, digest, size, body in contents:
            if size > FILE and body is not None:
                try:
                    write_content(self.files, digest, body.encode())
                except OSError as error:
                    raise journal_error(error, str(self.files)) from error
                kept.append((key, digest, size, None))
            else:
                kept.append((key, digest, size, body))
        return kept

    def keep_contents(self, db: sqlite3.Connection, contents: Iterable[Content]) -> None:
        """Insert contents that were `filed`, within a transaction."""
        insert_many(db, _CONTENT, 4, list(itertools.chain.from_iterable(contents)))

    def _fence(self, db: sqlite3.Connection, batches: Iterable[Batch]) -> None:
        """Find the runs that another owner took since they last wrote."""
        seen = db.execute("PRAGMA data_version").fetchone()[0]
        if seen != self._seen:
            self._seen = seen
            self._state += 1
        state = self._state
        stale = [log for batch in batches for log in batch.logs if log.verified != state]
        if not stale:
            return
        keys = json.dumps([log.key for log in stale])
        epochs = dict(db.execute(_EPOCHS, (keys,)).fetchall())
        for log in stale:
            log.verified = state
            if epochs.get(log.key) != log.info.epoch:
                log.lose()

    def _insert(self, db: sqlite3.Connection, batches: Iterable[Batch]) -> None:
        values: list[Any] = []
        contents: list[Content] = []
        for batch in batches:
            values += batch.sound_values()
            for log, rows in batch.contents:
                if log.failure is None:
                    contents += rows
        if contents:
            self.keep_contents(db, contents)
        insert_many(db, _ENTRY, WIDTH, values)

    def beat(self) -> None:
        """Renew the lease of this store's runs and hear wishes to cancel them.

        A failure waits for the next beat: what rests on a lease is only how soon others may ask.
        """
        with suppress(sqlite3.Error, OSError, JournalUnavailable):
            db, lock = self._connect()
            with lock:
                db.execute("BEGIN IMMEDIATE")
                try:
                    self._fence(db, ())
                    self._hear(db)
                    until = self.clocks.wall() + LEASE
                    self._owner = renew(db, self.owner, until, self.seconds)
                    db.execute("COMMIT")
                except BaseException:
                    _roll_back(db)
                    raise

    def _hear(self, db: sqlite3.Connection) -> None:
        if self._heard == self._state:
            return
        self._heard = self._state
        for key, epoch in db.execute(_WISHES, (self.owner.key,)).fetchall():
            log = self.logs.get(key)
            if log is not None and log.info.epoch == epoch:
                log.ask_to_cancel()

    def finish(self) -> None:
        """Give back the leases, move the WAL into the database and close it."""
        error = JournalUnavailable(f"{self.path}: the journal was closed while this run was open")
        for log in self.logs.values():
            if log.failure is None:
                log.fail(error)
        self.logs.clear()
        if self._lock is None:
            return
        if self._db is not None:
            with suppress(JournalUnavailable), self._lock:
                self._end(self._db)
        self._lock.close()
        self._db = self._lock = None

    def _end(self, db: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            if self._owner is not None:
                renew(db, self._owner, 0.0, self.seconds)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def insert_many(db: sqlite3.Connection, head: str, width: int, values: list[Any]) -> None:
    """Insert rows, all of whose values are given one after the other, by long statements."""
    start, total = 0, len(values)
    for count in _CHUNKS:
        size = count * width
        while total - start >= size:
            db.execute(_statement(head, width, count), values[start : start + size])
            start += size


@functools.cache
def _statement(head: str, width: int, count: int) -> str:
    return head + ",".join([f"({','.join('?' * width)})"] * count)
