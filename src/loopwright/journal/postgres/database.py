"""The database of a PostgreSQL journal as the writer's thread uses it, with the rows of runs and the inbox.

1. The statement that inserts rows locks the rows of their runs (`FOR SHARE`) and compares the epochs. A
   takeover locks the row of the run too, so it waits for a commit on its way and reads what it wrote.
2. A run that lost its lease, or whose rows could not be stored, writes nothing more. Others continue.
3. If the connection is lost during a commit, its outcome is unknown. Rows are keyed by their run and
   number, so they are inserted again and their checksums compared. A transaction with operations stores
   its number, which is looked up.
4. A database that is away is waited for, `patience` seconds; then the runs fail and can be resumed.
5. A run is opened, closed, cancelled and rewound inside a transaction. Its row is locked before it is read, so that
   the owner that is compared is the owner until the commit.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import uuid4

import psycopg

from ...errors import JournalDamaged, JournalUnavailable, LoopwrightError
from ..events import Event, EventTables
from ..protocol import MATCHES, Posted, RunInfo, missing_run, with_tags
from ..questions import schedule_of
from ..recorded.log import WIDTH, Batch, Content, Contents, DurableLog, OpenedRun, new_row
from ..recorded.ownership import RewindPlan, find_row, locked, present, rewound, taken
from ..recorded.rows import (
    RunRow,
    Value,
    answer_values,
    queue_values,
    read_answer,
    read_row,
    sealed_values,
    utf8,
)
from ..recorded.writer import CommitOperation
from ..views import tags_text
from .connection import (
    WRITING,
    Connection,
    Row,
    Server,
    is_transient,
    migrate,
    patiently,
    storable,
)
from .ownership import CHANGES, LeaseRenewal, channel_of, owners_of

OnPoint = Callable[[str, int], None]
# PostgreSQL stores up to 1 GB in a value, but needs several copies of it in memory.
LARGEST = 64 << 20  # bytes of a content
PATIENCE = 60.0  # seconds for which a commit is repeated
_OK = (
    "WITH ok AS (SELECT r.id FROM loopwright.runs r JOIN unnest(%s::bigint[], %s::bigint[]) "
    "AS u(id, epoch) ON r.id=u.id AND r.epoch=u.epoch ORDER BY r.id FOR SHARE OF r), "
)
_ROWS = (
    "rows AS (INSERT INTO loopwright.entries(run, first, loop, mark, body, sum) SELECT u.* FROM "
    "unnest(%s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bytea[]) "
    "AS u(run, first, loop, mark, body, sum) JOIN ok ON ok.id=u.run "
    "ON CONFLICT DO NOTHING RETURNING 1) "
)
_CONTENTS = (
    "stored AS (INSERT INTO loopwright.contents(run, id, digest, size, body) SELECT u.* FROM "
    "unnest(%s::bigint[], %s::bigint[], %s::bytea[], %s::integer[], %s::text[]) "
    "AS u(run, id, digest, size, body) JOIN ok ON ok.id=u.run ON CONFLICT DO NOTHING) "
)
_COUNT = "SELECT (SELECT count(*) FROM rows), (SELECT array_agg(id) FROM ok)"
_APPEND = _OK + _ROWS + _COUNT
_APPEND_ALL = _OK + _CONTENTS.rstrip() + ", " + _ROWS + _COUNT
# A run alone commits one row at a time. Without arrays this takes a fraction of the server's time.
_APPEND_ONE = (
    "INSERT INTO loopwright.entries(run, first, loop, mark, body, sum) "
    "SELECT ok.id, %s::bigint, %s::text, %s::bigint, %s::text, %s::bytea FROM (SELECT id FROM "
    "loopwright.runs WHERE id=%s::bigint AND epoch=%s::bigint FOR SHARE) ok ON CONFLICT DO NOTHING"
)
_OTHER = (
    "SELECT e.run FROM loopwright.entries e JOIN unnest(%s::bigint[], %s::bigint[], %s::bytea[]) "
    "AS u(run, first, sum) ON e.run=u.run AND e.first=u.first WHERE e.sum<>u.sum LIMIT 1"
)
_FIRST_COMMIT = "INSERT INTO loopwright.commits VALUES (%s, 0, now()) ON CONFLICT DO NOTHING"
_LATEST_COMMIT = "SELECT number FROM loopwright.commits WHERE store=%s FOR UPDATE"
_KEEP = (
    "INSERT INTO loopwright.contents(run, id, digest, size, body) "
    "SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[], %s::integer[], %s::text[])"
)

T = TypeVar("T")


class Database(ABC):
    """The connection that writes, opened at the first use; only the writer's thread may use it.

    `logs` are the open runs of this store by key. Of this transaction, `taken` are the keys of runs that
    were taken, `inserted` the new rows by the id of their runs, and `written` the logs whose rows are written.
    """

    def __init__(
        self,
        server: Server,
        *,
        lease: float,
        beat: float,
        patience: float = PATIENCE,
        on_point: OnPoint | None = None,
        on_rest: Callable[[], bool] = lambda: True,
    ) -> None:
        self.logs: dict[int, DurableLog] = {}
        self.taken: set[int] = set()
        self.inserted: dict[str, RunRow] = {}
        self.written: set[DurableLog] = set()
        self.server = server
        self.name = server.name
        self._patience = patience
        self._on_point = on_point
        self._points = 0
        self._new_renewal = partial(LeaseRenewal, server, lease, beat, self.logs)
        self._renewal = self._new_renewal()
        self._on_rest = on_rest
        self._next_content = itertools.count(1).__next__
        self._db: Connection | None = None
        self._may_write = False  # whether the first connection was to a server that writes
        self._store = uuid4().hex
        self._number = 0  # of the transaction, in this store
        self._uncertain = False  # whether the outcome of this transaction is unknown

    @property
    def owner(self) -> int:
        """The key of this store; 0 before it opens its first run."""
        return self._renewal.owner

    @property
    def seconds(self) -> float:
        """The age of this store in seconds."""
        return self._renewal.seconds

    def holds(self, key: int) -> bool:
        """Return whether a run is open here, or was taken in this transaction."""
        return key in self.logs or key in self.taken

    @staticmethod
    def refuse_large(contents: Sequence[Content]) -> None:
        """Raise JournalUnavailable for contents that are too large."""
        _refuse_too_large(contents)

    def new_content(self) -> int:
        """Return a content id that no other store uses for a run: Cantor's pairing of owner and count.

        Without an owner the pairs begin with 0; only the store that creates a run has such contents.
        """
        count = self._next_content()
        diagonal = self.owner + count
        return diagonal * (diagonal + 1) // 2 + count

    def hold(self, log: DurableLog) -> None:
        """Register a run that was opened; an older log of the same run loses it."""
        older = self.logs.get(log.key)
        if older is not None:
            older.take_away()
        self.logs[log.key] = log

    def release(self, log: DurableLog) -> None:
        """Remove a run that was released."""
        if self.logs.get(log.key) is log:
            del self.logs[log.key]

    def journal_error(self, error: Exception) -> LoopwrightError:
        """Return the error of the journal for an error of the database."""
        return self.server.error(error)

    def commit(
        self, batches: Sequence[Batch], operations: Sequence[CommitOperation[Connection]]
    ) -> None:
        """Write batches and perform operations in one durable transaction.

        Raises:
            psycopg.Error, JournalError: if nothing was committed.
        """
        for log, contents in (pair for batch in batches for pair in batch.contents):
            try:
                _refuse_too_large(contents)
            except JournalUnavailable as error:
                log.fail(error)
        self._uncertain = False
        self._number += 1
        self._point("before")
        self.patiently(lambda db: self._commit(db, batches, operations))
        self._renewal.committed = True
        self._point("after")

    def patiently(self, work: Callable[[Connection], T]) -> T:
        """Return the result of `work`, which is repeated while the database is away.

        Raises:
            JournalUnavailable: if it is away for longer than `patience` seconds.
        """
        patience = self.server.patience(self._patience)
        try:
            return patiently(lambda: work(self._connected()), self._reset, patience)
        except psycopg.Error as error:
            if not is_transient(error) or not patience:
                raise
            raise JournalUnavailable(
                f"{self.name}: the database did not answer for {patience:g} seconds; "
                "resume the runs once it does"
            ) from error

    def _connected(self) -> Connection:
        if self._db is None:
            db = self.server.connect("writer")
            try:
                # Later, the server can be one that takes over in a moment.
                if not self._may_write:
                    self.server.refuse_read_only(db)
                migrate(db, self.server)
                if not db.pooled:
                    db.execute(WRITING)
            except BaseException:
                db.close()
                raise
            self._db = db
            self._may_write = True
        return self._db

    def _reset(self) -> None:
        if self._db is not None and (self._db.closed or self._db.broken):
            self._db = None
        elif self._db is not None and self._db.info.transaction_status:
            try:
                self._db.execute("ROLLBACK")
            except psycopg.Error:
                self._db.close()
                self._db = None

    def _commit(
        self,
        db: Connection,
        batches: Sequence[Batch],
        operations: Sequence[CommitOperation[Connection]],
    ) -> None:
        if self._uncertain and self._was_committed(db):
            return
        # A process that only submits or lists runs needs no row, no thread and no second session.
        if not self.owner and any(operation.owning for operation in operations):
            self._renewal.register(db)
        logs = [log for batch in batches for log in batch.logs if log.failure is None]
        # One statement is its own transaction: this saves two round trips for the most frequent commit.
        if not operations and self._on_point is None:
            if logs:
                self._append(db, batches, logs)
            return
        self.taken.clear()
        # Not the number that the server gives a transaction: after a crash it may give it to another one.
        db.execute(
            f"BEGIN; INSERT INTO loopwright.commits VALUES ('{self._store}', {self._number}, now()) "
            "ON CONFLICT (store) DO UPDATE SET number=excluded.number, at=excluded.at"
        )
        try:
            if logs:
                self._append(db, batches, logs)
            # The rows of several operations are inserted and written in one round trip each.
            self.inserted, self.written = {}, set()
            opening = [one.opening for one in operations if one.opening is not None]
            closing = [one.closing for one in operations if one.closing is not None]
            if len(opening) > 1:
                self.inserted = self.insert_all(db, opening)
            if len(closing) > 1:
                self.written = self.write_all(db, closing)
            for operation in operations:
                operation.run(db)
        except BaseException:
            self._reset()
            raise
        self._point("in_txn")
        # From here to the answer the outcome is unknown; a repetition looks for the number.
        self._uncertain = True
        db.execute("COMMIT")
        self._uncertain = False

    @abstractmethod
    def insert_all(self, db: Connection, runs: Sequence[RunInfo]) -> dict[str, RunRow]:
        """Insert the rows of runs that are new and owned by this store; return these by id."""

    @abstractmethod
    def write_all(
        self, db: Connection, runs: Sequence[tuple[DurableLog, RunInfo]]
    ) -> set[DurableLog]:
        """Write the rows of runs that their owners release; return the logs that are complete."""

    def _was_committed(self, db: Connection) -> bool:
        """Return the outcome of a transaction whose connection was lost as it was committed."""
        # Both statements wait while the server has not noticed the loss and still commits.
        db.execute(_FIRST_COMMIT, (self._store,))
        [(number,)] = db.execute(_LATEST_COMMIT, (self._store,)).fetchall()
        self._uncertain = False
        return bool(number == self._number)

    def _append(self, db: Connection, batches: Sequence[Batch], logs: Sequence[DurableLog]) -> None:
        """Insert the rows of the runs that this store still owns; the others lose them."""
        values = _sound_values(batches)
        if len(values) == WIDTH and len(logs) == 1 and _append_one(db, batches, logs[0], values):
            return
        runs, firsts, loops, marks, bodies, sums = (values[i::WIDTH] for i in range(WIDTH))
        contents = [
            (log.key, *content)
            for batch in batches
            for log, items in batch.contents
            if log.failure is None
            for content in items
        ]
        owned = _numbers([log.key for log in logs]), _numbers([log.info.epoch for log in logs])
        keys, numbers = _numbers(runs), _numbers(firsts)
        checksums = _bytes(sums)
        rows = (
            keys,
            numbers,
            _texts(map(_storable_loop, loops)),
            _numbers(marks),
            _texts(bodies),
            checksums,
        )
        if contents:
            columns = _content_columns(contents)
            cursor = db.execute(_APPEND_ALL, (*owned, *columns, *rows), prepare=not db.pooled)
        else:
            cursor = db.execute(_APPEND, (*owned, *rows), prepare=not db.pooled)
        [(count, ok)] = cursor.fetchall()
        sound = set(ok or ())
        lost = [log for log in logs if log.key not in sound]
        # Their rows were not inserted: the join with `ok` leaves them out.
        for log in lost:
            log.take_away()
        # Fewer rows than expected: a repetition of a commit that had succeeded, or a foreign writer.
        if count != sum(key in sound for key in runs):
            [*other] = db.execute(_OTHER, (keys, numbers, checksums)).fetchall()
            if other:
                raise JournalDamaged(
                    f"{self.name}: another process wrote to run number {other[0][0]} without owning "
                    "it; restore the journal from a backup"
                )

    def keep_contents(self, db: Connection, contents: Sequence[tuple[int, Content]]) -> None:
        """Insert contents with the keys of their runs, within a transaction."""
        if contents:
            db.execute(_KEEP, _content_columns([(run, *content) for run, content in contents]))

    def _point(self, position: str) -> None:
        if self._on_point is not None:
            self._points += position == "before"
            self._on_point(position, self._points)

    def beat(self) -> None:  # noqa: B027 - not abstract
        """Do nothing: the beats have a thread and a session of their own."""

    def finish(self) -> None:
        """Give back the leases and close the connections."""
        error = JournalUnavailable(f"{self.name}: the journal was closed while this run was open")
        for log in self.logs.values():
            # The first failure names the cause; this one would hide it.
            if log.failure is None:
                log.fail(error)
        self.logs.clear()
        self._close()

    def rest(self) -> bool:
        """Close the connections, and end this owner: the next run has another one."""
        self._close()
        self._renewal = self._new_renewal()
        return self._on_rest()

    def _close(self) -> None:
        self._renewal.stop(self._db)
        if self._db is not None:
            with suppress(psycopg.Error):
                self._db.execute(
                    "BEGIN; SET LOCAL synchronous_commit=off; "
                    f"DELETE FROM loopwright.commits WHERE store='{self._store}'; COMMIT"
                )
            self._db.close()
            self._db = None


def _append_one(
    db: Connection, batches: Sequence[Batch], log: DurableLog, values: Sequence[Value]
) -> bool:
    """Insert the only row of a commit; return False if the statement for many rows has to decide.

    It decides about contents, about a run that this store lost, and about a repeated commit.
    """
    if any(batch.contents for batch in batches):
        return False
    _, first, loop, mark, body, total = values
    assert isinstance(total, bytes)
    # As texts: the type of a number would depend on its size, and each type is a statement to prepare.
    numbers = [None if number is None else str(number) for number in (first, mark)]
    row = (numbers[0], _storable_loop(loop), numbers[1], body, rf"\x{total.hex()}")
    run = str(log.key), str(log.info.epoch)
    return db.execute(_APPEND_ONE, (*row, *run), prepare=not db.pooled).rowcount == 1


def _sound_values(batches: Iterable[Batch]) -> list[Value]:
    """Return the values of the rows whose runs may still write."""
    values: list[Value] = []
    for batch in batches:
        if all(log.failure is None for log in batch.logs):
            values += batch.values
            continue
        for i, log in enumerate(batch.owners):
            if log.failure is None:
                values += batch.values[i * WIDTH : (i + 1) * WIDTH]
    return values


def _refuse_too_large(contents: Iterable[Content]) -> None:
    largest = max((size for _, _, size, _ in contents), default=0)
    if largest > LARGEST:
        raise JournalUnavailable(
            f"a value of {largest:,} bytes is too large for a shared journal ({LARGEST:,}); "
            "keep it in a file and return its path"
        )


# Columns as the text of an array: several times as quick as a parameter for each value.


def _content_columns(contents: Sequence[tuple[int, int, bytes, int, str | None]]) -> list[str]:
    runs, ids, digests, sizes, bodies = zip(*contents, strict=True)
    return [_numbers(runs), _numbers(ids), _bytes(digests), _numbers(sizes), _texts(bodies)]


def _numbers(values: Iterable[Value]) -> str:
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _texts(values: Iterable[Value]) -> str:
    quoted = [
        "NULL" if value is None else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    ]  # fmt: skip
    return "{" + ",".join(quoted) + "}"


def _storable_loop(loop: Value) -> Value:
    """Return the path of a loop as PostgreSQL can hold it: without NUL and halves of surrogate pairs."""
    return utf8(loop)[0].replace("\0", "\ufffd") if isinstance(loop, str) else loop


def _bytes(values: Iterable[Value]) -> str:
    texts = [rf'"\\x{value.hex()}"' for value in values if isinstance(value, bytes)]
    return "{" + ",".join(texts) + "}"


WAITING = f"{CHANGES}_waiting"
"""The channel on which the ids of runs are announced that were answered; empty for created ones."""

_SEALED = (
    "run_id,name,status,reason,detail,input,source,fingerprint,created,updated,active,epoch,"
    "iterations,score,usage,opened,last,head,seal,owner,cancel"
)
COLUMNS = f"id,{_SEALED},queue,priority,wake_at,deliveries,tags"
_BY_ID = f"SELECT {COLUMNS} FROM loopwright.runs WHERE run_id=%s"
_BY_BEGINNING = f"SELECT {COLUMNS} FROM loopwright.runs WHERE run_id>=%s AND run_id<%s LIMIT %s"
_BY_KEY_LOCKED = f"SELECT {COLUMNS} FROM loopwright.runs WHERE id=%s FOR UPDATE"
_TO_OPEN = (
    f"SELECT {COLUMNS}, (SELECT count(*) FROM loopwright.inbox i WHERE i.run=runs.id AND i.asked=0) "
    "FROM loopwright.runs WHERE run_id=%s FOR UPDATE"
)
_KNOWN = "SELECT run_id FROM loopwright.runs WHERE run_id=ANY(%s::text[])"
_INSERT = (
    f"INSERT INTO loopwright.runs({_SEALED},queue,priority,wake_at,deliveries,tags,schedule) "
    f"VALUES ({','.join(['%s'] * 27)}) ON CONFLICT (run_id) DO NOTHING RETURNING id"
)
# Writing the row also takes back a request to cancel.
_WRITE = (
    "UPDATE loopwright.runs SET status=%s,reason=%s,detail=%s,input=%s,source=%s,fingerprint=%s,"
    "created=%s,updated=%s,active=%s,epoch=%s,iterations=%s,score=%s,usage=%s,opened=%s,last=%s,"
    "head=%s,seal=%s,owner=%s,cancel=%s WHERE id=%s AND epoch=%s"
)
_WRITE_RETURNING = f"{_WRITE} RETURNING id"
_LATEST = "SELECT sum FROM loopwright.entries WHERE run=%s ORDER BY first DESC LIMIT 1"
_ASIDE = (
    "UPDATE loopwright.entries SET loop=NULL, mark=NULL "
    "WHERE run=%s AND loop IS NOT NULL AND mark=ANY(%s::bigint[])"
)
_BACK = (
    "UPDATE loopwright.entries SET loop=%(loop)s, mark=%(mark)s WHERE run=%(run)s AND first="
    "(SELECT max(first) FROM loopwright.entries WHERE run=%(run)s AND first<=%(mark)s)"
)
_POSTED = "run,asked,path,value,who,at,seal"
# The database fills in the role, which a grant of these columns alone lets nobody choose.
_PUT = (
    f"INSERT INTO loopwright.inbox({_POSTED}) VALUES (%s,%s,%s,%s,%s,%s,%s) ON CONFLICT DO NOTHING"
)
_ANSWERS = f"SELECT {_POSTED},role FROM loopwright.inbox WHERE run=%s ORDER BY asked,path"
_ANSWER = f"SELECT {_POSTED},role FROM loopwright.inbox WHERE run=%s AND asked=%s AND path=%s"


NewRow = tuple[RunRow, list[Content]]  # a row, and the contents that it refers to


def find_run(db: Connection, run_id: str) -> RunRow:
    """Return the row of a run by its id or a unique prefix of it. Raises RunNotFound."""
    # PostgreSQL refuses a text with NUL, and an ID from a user must not raise an error of the database.
    return find_row(
        run_id.replace("\0", ""),
        lambda name: db.execute(_BY_ID, (name,)).fetchall(),
        lambda first, end: db.execute(_BY_BEGINNING, (first, end, MATCHES)).fetchall(),
    )


def presents(db: Connection, rows: Sequence[RunRow]) -> list[tuple[RunRow, RunInfo]]:
    """Return rows, and the runs in their present state."""
    owners = owners_of(db, [row.owner for row in rows if row.info.status == "running"])
    return [(row, present(row, owners.get(row.owner or 0))) for row in rows]


def answers_of(db: Connection, run: int) -> list[Posted]:
    """Return the answers to the questions of a run."""
    return [_posted(row) for row in db.execute(_ANSWERS, (run,)).fetchall()]


def _posted(row: Row) -> Posted:
    """Return an answer; the name that came with it is a text, so the role of the database stands behind it."""
    *values, role = row
    answer = read_answer(values)
    if role is None:
        return answer
    return replace(answer, who=f"{answer.who} (database role {role.decode()})")


class PostgresRuns(Database):
    """The database with the rows of runs; see OwningStore."""

    def take(self, db: Connection, info: RunInfo, *, resume: bool, takeover: bool) -> OpenedRun:
        """Take the lease of a run, which is created if it is new. Raises RunNotFound, RunLocked."""
        new = self.inserted.pop(info.run_id, None)
        found = None if new else db.execute(_TO_OPEN, (info.run_id,)).fetchone()
        if not new and found is None and not resume:
            new = self._create(db, _first(info), self.owner)
        if new is not None:
            self.taken.add(new.key)
            return OpenedRun(new, "")
        # None if another process created it meanwhile.
        found = found or db.execute(_TO_OPEN, (info.run_id,)).fetchone()
        if found is None:
            raise missing_run(info.run_id)
        *values, posted = found
        row = read_row(values)
        owner = None
        # None too if it is this store and the run is not open here.
        if row.owner is not None and (row.owner != self.owner or self.holds(row.key)):
            owner = owners_of(db, [row.owner]).get(row.owner)
        if owner is not None and owner.owns(row) and not takeover:
            raise locked(info.run_id, owner)
        opened = taken(row, owner, opened=self.seconds, owner=self.owner, posted=posted)
        _write_row(db, opened.row, row.info.epoch)
        self.taken.add(row.key)
        return opened

    def create(self, db: Connection, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs without an owner; return the ids of those that are new."""
        queued = (replace(info, epoch=0, status="queued") for info in runs)
        created = self._insert(db, [self._new_row(info, None) for info in queued])
        if created:
            db.execute("SELECT pg_notify(%s, '')", (WAITING,))
        return [row.info.run_id for row in created]

    def insert_all(self, db: Connection, runs: Sequence[RunInfo]) -> dict[str, RunRow]:
        """Insert the rows of runs that are new and owned by this store; see Database."""
        known = {name for (name,) in db.execute(_KNOWN, ([info.run_id for info in runs],))}
        rows = []
        for info in (info for info in runs if info.run_id.encode() not in known):
            with suppress(JournalUnavailable):  # `take` reports a value that is too large
                rows.append(self._new_row(_first(info), self.owner))
        return {row.info.run_id: row for row in self._insert(db, rows)}

    def _insert(self, db: Connection, rows: Sequence[NewRow]) -> list[RunRow]:
        """Insert rows with their contents, in one round trip each; return those that are new."""
        cursor = db.cursor()
        values = [_inserted(row) for row, _ in rows]
        cursor.executemany(_INSERT, values, returning=True)
        created, new_contents = [], []
        for row, contents in rows:
            for (key,) in cursor.fetchall():
                created.append(replace(row, key=key))
                new_contents += [(key, content) for content in contents]
            cursor.nextset()
        self.keep_contents(db, new_contents)
        return created

    def _new_row(self, info: RunInfo, owner: int | None) -> NewRow:
        contents = Contents(self.new_content)
        row = new_row(_storable_info(info), contents, opened=self.seconds, owner=owner)
        new_contents = contents.waiting
        self.refuse_large(new_contents)
        return row, new_contents

    def _create(self, db: Connection, info: RunInfo, owner: int | None) -> RunRow | None:
        """Create a run and return its row; None if its id is taken."""
        row, contents = self._new_row(info, owner)
        new = db.execute(_INSERT, _inserted(row)).fetchone()
        if new is None:
            return None
        [key] = new
        assert isinstance(key, int)
        self.keep_contents(db, [(key, content) for content in contents])
        return replace(row, key=key)

    def give_back(self, log: DurableLog, info: RunInfo, db: Connection) -> DurableLog:
        """Write the row of a run and release it, if the log still owns it; return the log."""
        if log in self.written:
            return log
        if log.failure is not None:  # the entries may lack the end that `info` describes
            return self.leave(log, "interrupted", db)
        closed, new_contents = self._closed(log, info)
        if _write_row(db, closed, log.row.info.epoch):
            self.keep_contents(db, [(closed.key, content) for content in new_contents])
        return log

    def write_all(
        self, db: Connection, runs: Sequence[tuple[DurableLog, RunInfo]]
    ) -> set[DurableLog]:
        """Write the rows of runs that their owners release; see Database."""
        logs, rows, new_contents = [], [], []
        for log, info in runs:
            if log.failure is None:
                with suppress(JournalUnavailable):  # `give_back` reports a value that is too large
                    row, contents = self._closed(log, info)
                    logs.append(log)
                    rows.append((*sealed_values(row)[2:], row.key, log.row.info.epoch))
                    new_contents.append(contents)
        cursor = db.cursor()
        cursor.executemany(_WRITE_RETURNING, rows, returning=True)
        contents_of: list[tuple[int, Content]] = []
        for contents in new_contents:
            for (key,) in cursor.fetchall():
                contents_of += [(key, content) for content in contents]
            cursor.nextset()
        self.keep_contents(db, contents_of)
        return set(logs)

    def _closed(self, log: DurableLog, info: RunInfo) -> NewRow:
        """Return the row of a run that its owner releases, and the contents to store with it."""
        contents = Contents(self.new_content)
        closed = log.closed_row(_storable_info(info), contents)
        new_contents = contents.waiting
        self.refuse_large(new_contents)
        return closed, new_contents

    def leave(self, log: DurableLog, status: str, db: Connection) -> DurableLog:
        """Release a run with a status and no other change; return the log."""
        row = log.row
        left = replace(row, info=replace(row.info, status=status), owner=None)
        _write_row(db, left, row.info.epoch)
        return log

    def request_cancel(self, db: Connection, run_id: str) -> bool:
        """Ask the owner of a run to cancel it; return whether it has a live owner."""
        row = find_run(db, run_id)
        owner = owners_of(db, [row.owner]).get(row.owner or 0)
        if owner is None or not owner.owns(row):
            return False
        db.execute("UPDATE loopwright.runs SET cancel=1 WHERE id=%s", (row.key,))
        db.execute("SELECT pg_notify(%s, '')", (channel_of(owner.key),))
        # The owner is this process: it need not wait for its own notification.
        log = self.logs.get(row.key)
        if log is not None and log.info.epoch == row.info.epoch:
            log.request_cancel()
        return True

    def rewind(self, db: Connection, plan: RewindPlan) -> None:
        """Record a rewind of a run without an owner; the discarded iterations leave the pages.

        Raises:
            RunLocked: if the run has a live owner, or changed since it was read.
        """
        # The plan was made from an earlier read without a lock.
        row = read_row(db.execute(_BY_KEY_LOCKED, (plan.row.key,)).fetchall()[0])
        latest = db.execute(_LATEST, (row.key,)).fetchone()
        contents = Contents(self.new_content)
        rewind = rewound(
            plan,
            row,
            owners_of(db, [row.owner]).get(row.owner or 0),
            head=None if latest is None else latest[0],
            contents=contents,
        )
        self.keep_contents(db, [(row.key, content) for content in contents.waiting])
        db.execute(
            "INSERT INTO loopwright.entries(run,first,body,sum) VALUES(%s,%s,%s,%s)",
            (row.key, rewind.row.last, rewind.body, rewind.row.head),
        )
        db.execute(_ASIDE, (row.key, list(plan.aside)))
        for loop, mark in plan.back:
            db.execute(_BACK, {"run": row.key, "loop": loop, "mark": mark})
        _write_row(db, rewind.row, row.info.epoch)

    def events(self, db: Connection) -> EventTables:
        """Return the events and waits; see OwningStore."""
        return events_of(db)

    def tag(self, db: Connection, run_id: str, tags: Mapping[str, str]) -> dict[str, str]:
        """Change the tags of a run; see OwningStore."""
        key = find_run(db, run_id).key
        row = read_row(db.execute(_BY_KEY_LOCKED, (key,)).fetchall()[0])
        changed = with_tags(row.info.tags, tags)
        db.execute("UPDATE loopwright.runs SET tags=%s WHERE id=%s", (tags_text(changed), key))
        return changed

    def share(self, db: Connection, origin: int, run: int) -> None:
        """Record that a run refers to contents of another one, and of those that that one refers to."""
        db.execute(_SHARE, {"run": run, "origin": origin})

    def post(self, db: Connection, run_id: str, answer: Posted) -> Posted:
        """Store an answer unless the question has one; see OwningStore."""
        row = find_run(db, run_id)
        # The first answer counts; a second person receives that one.
        db.execute(_PUT, answer_values(row.key, answer))
        db.execute("SELECT pg_notify(%s, %s)", (WAITING, row.info.run_id))
        if row.owner is not None:  # a new limit is read at the owner's next beat, which is now
            db.execute("SELECT pg_notify(%s, '')", (channel_of(row.owner),))
        return _posted(db.execute(_ANSWER, (row.key, answer.asked, answer.path)).fetchall()[0])


def events_of(db: Connection) -> EventTables:
    """Return the events and waits of the database."""

    def execute(text: str, values: Sequence[object]) -> list[Row]:
        cursor = db.execute(text.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description else []

    def clock() -> float:
        [(now,)] = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
        assert isinstance(now, float)
        return now

    def lock(name: str, key: str) -> None:
        db.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"loopwright {name} {key}",)
        )

    def wake(event: Event) -> None:
        db.execute(
            "UPDATE loopwright.runs SET wake_at=extract(epoch FROM clock_timestamp()) WHERE queue<>'' AND status='suspended' "
            "AND run_id IN (SELECT run FROM loopwright.waits WHERE name=%s AND key=%s AND (%s='' OR run=%s))",
            (event.name, event.key, event.run, event.run),
        )

    return EventTables(execute, clock, "loopwright.", lock, wake)


def _inserted(row: RunRow) -> list[Value]:
    return [
        *sealed_values(row),
        *queue_values(row.info),
        storable(utf8(schedule_of(row.info))[0]),
    ]


def _first(info: RunInfo) -> RunInfo:
    return replace(info, epoch=1, status="running")


def _storable_info(info: RunInfo) -> RunInfo:
    """Return a row without NUL, which no text of PostgreSQL can hold."""
    if "\0" not in info.name + info.detail + info.queue:
        return info
    return replace(
        info,
        name=storable(info.name),
        detail=storable(info.detail),
        queue=storable(info.queue),
    )


def _write_row(db: Connection, row: RunRow, epoch: int) -> bool:
    """Write the variable columns of a row if its epoch is still this one; return whether it was."""
    return db.execute(_WRITE, (*sealed_values(row)[2:], row.key, epoch)).rowcount == 1


_SHARE = (
    "INSERT INTO loopwright.forks(run, origin) SELECT %(run)s, %(origin)s UNION "
    "SELECT %(run)s, origin FROM loopwright.forks WHERE run=%(origin)s"
)
# A run whose contents a fork refers to stays until the fork is deleted.
_OLD = (
    "SELECT id FROM loopwright.runs r WHERE status=ANY(%s) AND updated<%s "
    "AND NOT EXISTS(SELECT FROM loopwright.forks f WHERE f.origin=r.id) ORDER BY id LIMIT %s "
    "FOR UPDATE SKIP LOCKED"
)
_ENDED = ["satisfied", "exhausted", "failed", "impossible", "cancelled"]
# Each transaction stays short, so that running loops are not held up by its locks.
_PRUNED = 200  # runs that one transaction deletes


def prune(db: Connection, before: float) -> int:
    """Delete some of the runs that ended before a time; return their number."""
    # `SKIP LOCKED` leaves out a run that another process opens now.
    keys = [key for (key,) in db.execute(_OLD, (_ENDED, before, _PRUNED)).fetchall()]
    if keys:
        for table in ("entries", "contents", "inbox", "forks"):
            db.execute(f"DELETE FROM loopwright.{table} WHERE run=ANY(%s)", (keys,))
        # What the runs have spent stays, because it counts for the budgets of their queues.
        for table in ("returned", "hosts"):
            db.execute(
                f"DELETE FROM loopwright_queue.{table} WHERE run_id IN "
                "(SELECT run_id FROM loopwright.runs WHERE id=ANY(%s))",
                (keys,),
            )
        db.execute("DELETE FROM loopwright.runs WHERE id=ANY(%s)", (keys,))
    return len(keys)


_OPEN = "('queued','running','suspended','interrupted')"
_RECORDS = {
    "returned": "run_id IN (SELECT run_id FROM loopwright_queue.returned t WHERE at < %(before)s AND NOT EXISTS("
    f"SELECT FROM loopwright.runs r WHERE r.run_id = t.run_id AND r.status IN {_OPEN}) LIMIT %(most)s)",
    "hosts": "run_id IN (SELECT run_id FROM loopwright_queue.hosts t WHERE NOT EXISTS(SELECT FROM loopwright.runs r "
    f"WHERE r.run_id = t.run_id AND (r.status IN {_OPEN} OR r.updated >= %(before)s)) LIMIT %(most)s)",
    # What the default engine writes about each delivery; that of a delivery of an open run stays.
    "pgqueuer_log": "id IN (SELECT id FROM loopwright_queue.pgqueuer_log t WHERE created < to_timestamp(%(before)s) "
    "AND NOT EXISTS(SELECT FROM loopwright_queue.pgqueuer j JOIN loopwright.runs r "
    f"ON r.run_id = convert_from(j.payload, 'UTF8') AND r.status IN {_OPEN} WHERE j.id = t.job_id) LIMIT %(most)s)",
}
_PRUNED_RECORDS = 5000  # of each table, in one transaction


def prune_records(db: Connection, before: float) -> int:
    """Delete some of the records about runs that no longer wait, from before a time; return their number."""
    # Another engine than the default one has its own log.
    [(log,)] = db.execute("SELECT to_regclass('loopwright_queue.pgqueuer_log')::text").fetchall()
    values = {"before": before, "most": _PRUNED_RECORDS}
    return sum(
        db.execute(f"DELETE FROM loopwright_queue.{table} WHERE {old}", values).rowcount
        for table, old in _RECORDS.items()
        if log or table != "pgqueuer_log"
    )


# A content is stored before the entry that refers to it, so a new one is not unused yet.
_OLD_FILES = "stored < now() - interval '1 day'"
# Every place in which a digest can be, read once: there are many files, and no index of their users.
_UNUSED = f"""
WITH used AS MATERIALIZED (
  SELECT DISTINCT m[1] AS digest FROM (
    SELECT body FROM loopwright.entries UNION ALL SELECT body FROM loopwright.contents
    UNION ALL SELECT input FROM loopwright.runs UNION ALL SELECT source FROM loopwright.runs
    UNION ALL SELECT value FROM loopwright.inbox UNION ALL SELECT value FROM loopwright.memories) t(body),
    regexp_matches(body, '[0-9a-f]{{64}}', 'g') m)
DELETE FROM loopwright.files f WHERE {_OLD_FILES}
  AND NOT EXISTS (SELECT FROM used u WHERE u.digest = encode(f.digest, 'hex'))
"""


def prune_files(db: Connection) -> int:
    """Delete the old files that no run uses; return their number."""
    [(some,)] = db.execute(
        f"SELECT EXISTS(SELECT FROM loopwright.files WHERE {_OLD_FILES})"
    ).fetchall()
    return db.execute(_UNUSED).rowcount if some else 0
