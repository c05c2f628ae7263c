"""The rows of runs: opening, closing, cancelling and rewinding a run, and its inbox.

Each function that writes runs inside a transaction of the writer's thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from ..protocol import Posted, RunInfo, missing_run
from ..recorded.encoding import (
    Contents,
    RunRow,
    answer_values,
    queue_values,
    read_answer,
    read_row,
    sealed_values,
)
from ..recorded.log import DurableLog
from ..recorded.rows import (
    OpenedRun,
    RewindPlan,
    closed_row,
    find_row,
    locked,
    new_row,
    rewound,
    taken,
)
from .database import SqliteDatabase
from .leases import owner_at

_BY_ID = "SELECT * FROM runs WHERE run_id=?"
_BY_BEGINNING = "SELECT * FROM runs WHERE run_id>=? AND run_id<?"
_LATEST = "SELECT sum FROM entries WHERE run=? ORDER BY first DESC LIMIT 1"
_ASIDE = "UPDATE entries SET loop=NULL, mark=NULL WHERE run=? AND loop IS NOT NULL AND mark>=?"
_INSERT = (
    "INSERT INTO runs VALUES (NULL,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) "
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


def find_run(db: sqlite3.Connection, run_id: str) -> RunRow:
    """Return the row of a run by its id or a unique prefix of it. Raises RunNotFound."""
    return find_row(
        run_id,
        lambda name: db.execute(_BY_ID, (name,)).fetchall(),
        lambda first, end: db.execute(_BY_BEGINNING, (first, end)).fetchall(),
    )


class SqliteRuns:
    """The rows of runs in an SQLite journal; see RunTable."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def take(
        self, db: sqlite3.Connection, info: RunInfo, *, resume: bool, takeover: bool
    ) -> OpenedRun:
        """Take the lease of a run, which is created if it is new. Raises RunNotFound, RunLocked."""
        first = replace(info, epoch=1, status="running")
        new = None if resume else self._create(db, first, self._database.owner.key)
        if new is not None:
            return OpenedRun(new, "")
        values = db.execute(_BY_ID, (info.run_id,)).fetchone()
        if values is None:
            raise missing_run(info.run_id)
        row = read_row(values)
        database = self._database
        owner = owner_at(db, row.owner, database.clocks.wall())
        if owner is not None and owner.alive and not takeover:
            raise locked(info.run_id, owner)
        opened = taken(row, owner, opened=database.seconds, owner=database.owner.key)
        _write_row(db, opened.row, row.info.epoch)
        return opened

    def create(self, db: sqlite3.Connection, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs without an owner; return the ids of those that are new."""
        queued = (replace(info, epoch=0, status="queued") for info in runs)
        return [info.run_id for info in queued if self._create(db, info, None) is not None]

    def _create(self, db: sqlite3.Connection, info: RunInfo, owner: int | None) -> RunRow | None:
        """Create a run and return its row; None if its id is taken."""
        contents = Contents(self._database.new_content)
        row = new_row(info, contents, opened=self._database.seconds, owner=owner)
        filed = self._database.filed(contents.take())  # first, as files can be refused
        cursor = db.execute(_INSERT, [*sealed_values(row), *queue_values(info)])
        if not cursor.rowcount:
            return None
        self._database.keep_contents(db, filed)
        return replace(row, key=cursor.lastrowid or 0)

    def give_back(self, log: DurableLog, info: RunInfo, db: sqlite3.Connection) -> DurableLog:
        """Write the row of a run and release it, if the log still owns it; return the log."""
        if log.failure is not None:  # the entries may lack the end that `info` describes
            return self.leave(log, "interrupted", db)
        contents = Contents(self._database.new_content)
        closed = closed_row(log, info, contents)
        filed = self._database.filed(contents.take())  # first, as files can be refused
        if _write_row(db, closed, log.row.info.epoch):
            self._database.keep_contents(db, filed)
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
        owner = owner_at(db, row.owner, self._database.clocks.wall())
        if owner is None or not owner.alive:
            return False
        db.execute("UPDATE runs SET cancel=1 WHERE id=?", (row.key,))
        log = self._database.logs.get(row.key)
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
        rewind = rewound(
            plan,
            row,
            owner_at(db, row.owner, self._database.clocks.wall()),
            head=None if latest is None else latest[0],
            contents=Contents(self._database.new_content),
        )
        values = (row.key, rewind.row.last, rewind.body, rewind.row.head)
        db.execute("INSERT INTO entries(run,first,body,sum) VALUES(?,?,?,?)", values)
        # Only the marks of the index are removed, the entries stay.
        db.execute(_ASIDE, (row.key, plan.first))
        _write_row(db, rewind.row, row.info.epoch)

    def share(self, db: sqlite3.Connection, origin: int, run: int) -> None:
        """Do nothing: contents belong to the file, and no run is ever deleted from it."""

    def post(self, db: sqlite3.Connection, run_id: str, answer: Posted) -> Posted:
        """Store an answer unless the question has one; see RunTable."""
        return put(db, find_run(db, run_id).key, answer)


def _write_row(db: sqlite3.Connection, row: RunRow, epoch: int) -> bool:
    """Write the variable columns of a row if its epoch is still this one; return whether it was."""
    values = sealed_values(row)
    # The epoch is the fence: after a takeover the old owner changes nothing.
    return db.execute(_WRITE, (*values[2:], row.key, epoch)).rowcount == 1


def put(db: sqlite3.Connection, run: int, answer: Posted) -> Posted:
    """Store an answer unless the question has one; return the answer that is stored."""
    db.execute(_PUT, answer_values(run, answer))
    return read_answer(db.execute(_ANSWER, (run, answer.asked, answer.path)).fetchone())


def posted(db: sqlite3.Connection, run: int) -> list[Posted]:
    """Return the answers to the questions of a run."""
    return [read_answer(row) for row in db.execute(_ANSWERS, (run,)).fetchall()]
