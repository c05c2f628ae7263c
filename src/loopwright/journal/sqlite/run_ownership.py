"""The rows of runs: opening, closing, cancelling and rewinding a run, and its inbox.

Each function that writes runs inside a transaction of the writer's thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from ...records.codec import Json
from ..entries import Entry
from ..protocol import Posted, RunInfo, missing_run
from ..recorded.encoding import (
    Content,
    Contents,
    RunRow,
    answer_values,
    chain_start,
    chained,
    entry_text,
    queue_values,
    read_answer,
    read_row,
    sealed_values,
    utf8,
)
from ..recorded.journal import OpenedRun, RewindPlan, running
from ..recorded.writer import DurableLog
from .database import SqliteDatabase
from .leases import LEASE, LeaseOwner, locked, read_owners

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


def find_row(db: sqlite3.Connection, run_id: str) -> RunRow:
    """Return the row of a run by its id or a unique prefix of it. Raises RunNotFound."""
    rows = db.execute(_BY_ID, (run_id,)).fetchall()
    if not rows and run_id:
        # A range instead of LIKE: it uses the index, and % and _ are ordinary characters.
        rows = db.execute(_BY_BEGINNING, (run_id, f"{run_id}\U0010ffff")).fetchall()
    if len(rows) != 1:
        raise missing_run(run_id, len(rows))
    return read_row(rows[0])


def present(row: RunRow, owners: dict[int, LeaseOwner], now: float) -> RunInfo:
    """Return a run in its present state: a running run without a live owner is interrupted."""
    info = row.info
    if info.status != "running":
        return info
    owner = owners.get(row.owner or 0)
    if owner is not None:
        active = info.active + max(0.0, owner.seconds - row.opened)
        # The row is written at the opening and closing only; the owner's beat shows that the run
        # was alive since.
        info = replace(info, active=active, updated=max(info.updated, owner.until - LEASE))
    if owner is None or not owner.alive(now):
        return replace(info, status="interrupted")
    return replace(info, owner=owner.name)


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
        owners, now = read_owners(db), self._database.clocks.wall()
        owner = owners.get(row.owner or 0)
        if owner is not None and owner.alive(now) and not takeover:
            raise locked(info.run_id, owner)
        before = present(row, owners, now)
        opened_info = replace(before, epoch=before.epoch + 1, status="running", owner="")
        epoch = row.info.epoch
        row = replace(
            row, info=opened_info, opened=self._database.seconds, owner=self._database.owner.key
        )
        _write_row(db, row, epoch)
        return OpenedRun(row, "interrupted" if before.status == "running" else before.status)

    def create(self, db: sqlite3.Connection, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs without an owner; return the ids of those that are new."""
        queued = (replace(info, epoch=0, status="queued") for info in runs)
        return [info.run_id for info in queued if self._create(db, info, None) is not None]

    def _create(self, db: sqlite3.Connection, info: RunInfo, owner: int | None) -> RunRow | None:
        """Create a run and return its row; None if its id is taken."""
        contents = Contents(self._database.new_content)
        row = RunRow(
            key=0,
            info=info,
            input=_folded(info.input, contents),
            source=_folded(info.source, contents),
            opened=self._database.seconds,
            last=0,
            head=chain_start(info.run_id),
            owner=owner,
        )
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
        row, source = log.row, log.row.source
        filed: list[Content] = []
        if info.source != log.info.source:
            contents = Contents(self._database.new_content)
            source = _folded(info.source, contents)
            filed = self._database.filed(contents.take())  # first, as files can be refused
        last, head = log.position
        closed = replace(row, info=info, source=source, last=last, head=head, owner=None)
        if _write_row(db, closed, row.info.epoch):
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
        row = find_row(db, run_id)
        owner = read_owners(db).get(row.owner or 0)
        if owner is None or not owner.alive(self._database.clocks.wall()):
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
        row = find_row(db, plan.row.info.run_id)
        info = present(row, read_owners(db), self._database.clocks.wall())
        latest = db.execute(_LATEST, (row.key,)).fetchone()
        changed = row.info.epoch != plan.row.info.epoch
        if info.status == "running" or changed or (latest is not None and latest[0] != plan.head):
            raise running(info.run_id)
        last = plan.last + 1
        entry = Entry("rewound", plan.path, info.active)
        body = f"[{entry_text(entry, Contents(self._database.new_content))}]"
        head = chained(plan.head, last, body.encode())
        values = (row.key, last, body, head)
        db.execute("INSERT INTO entries(run,first,body,sum) VALUES(?,?,?,?)", values)
        # Only the marks of the index are removed, the entries stay.
        db.execute(_ASIDE, (row.key, plan.first))
        info = replace(info, status="interrupted", reason="", detail="", epoch=info.epoch + 1)
        _write_row(db, replace(row, info=info, last=last, head=head, owner=None), row.info.epoch)

    def share(self, db: sqlite3.Connection, origin: int, run: int) -> None:
        """Do nothing: contents belong to the file, and no run is ever deleted from it."""

    def post(self, db: sqlite3.Connection, run_id: str, answer: Posted) -> Posted:
        """Store an answer unless the question has one; see RunTable."""
        return put(db, find_row(db, run_id).key, answer)


def _folded(value: Json, contents: Contents) -> str:
    return utf8(contents.fold(value))[0]


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
