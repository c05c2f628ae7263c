"""The rows of runs in PostgreSQL: opening, closing, cancelling and rewinding a run, and its inbox.

Every method works inside a transaction of the writer's thread. A row is locked before it is read, so that
the owner that is compared is the owner until the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ...errors import JournalUnavailable
from ..protocol import Posted, RunInfo, missing_run
from ..recorded.encoding import (
    RunRow,
    answer_values,
    queue_values,
    read_answer,
    read_row,
    sealed_values,
)
from ..recorded.log import Content, Contents, DurableLog, OpenedRun, new_row
from ..recorded.rows import (
    OwnerState,
    RewindPlan,
    find_row,
    locked,
    present,
    rewound,
    taken,
)
from .connection import Connection, storable
from .database import Database
from .owners import CHANGES, channel_of, owners_of

WAITING = f"{CHANGES}_waiting"
"""The channel on which the ids of runs are announced that were answered; empty for created ones."""

_SEALED = (
    "run_id,name,status,reason,detail,input,source,fingerprint,created,updated,active,epoch,"
    "iterations,score,usage,opened,last,head,seal,owner,cancel"
)
COLUMNS = f"id,{_SEALED},queue,priority,wake_at,deliveries"
_BY_ID = f"SELECT {COLUMNS} FROM loopwright.runs WHERE run_id=%s"
_BY_BEGINNING = f"SELECT {COLUMNS} FROM loopwright.runs WHERE run_id>=%s AND run_id<%s"
_BY_KEY_LOCKED = f"SELECT {COLUMNS} FROM loopwright.runs WHERE id=%s FOR UPDATE"
_BY_ID_LOCKED = f"{_BY_ID} FOR UPDATE"
_INSERT = (
    f"INSERT INTO loopwright.runs({_SEALED},queue,priority,wake_at,deliveries) "
    f"VALUES ({','.join(['%s'] * 25)}) ON CONFLICT (run_id) DO NOTHING RETURNING id"
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
    "WHERE run=%s AND loop IS NOT NULL AND mark>=%s"
)
_PUT = "INSERT INTO loopwright.inbox VALUES (%s,%s,%s,%s,%s,%s,%s) ON CONFLICT DO NOTHING"
_ANSWERS = (
    "SELECT run,asked,path,value,who,at,seal FROM loopwright.inbox WHERE run=%s ORDER BY asked,path"
)
_ANSWER = (
    "SELECT run,asked,path,value,who,at,seal FROM loopwright.inbox "
    "WHERE run=%s AND asked=%s AND path=%s"
)


NewRow = tuple[RunRow, list[Content]]  # a row, and the contents that it refers to


def find_run(db: Connection, run_id: str) -> RunRow:
    """Return the row of a run by its id or a unique prefix of it. Raises RunNotFound."""
    # PostgreSQL refuses a text with NUL, and an ID from a user must not raise an error of the database.
    return find_row(
        run_id.replace("\0", ""),
        lambda name: db.execute(_BY_ID, (name,)).fetchall(),
        lambda first, end: db.execute(_BY_BEGINNING, (first, end)).fetchall(),
    )


def presents(db: Connection, rows: Sequence[RunRow]) -> list[tuple[RunRow, RunInfo]]:
    """Return rows, and the runs in their present state."""
    owners = owners_of(db, [row.owner for row in rows if row.info.status == "running"])
    return [(row, present(row, owners.get(row.owner or 0))) for row in rows]


def answers_of(db: Connection, run: int) -> list[Posted]:
    """Return the answers to the questions of a run."""
    return [read_answer(row) for row in db.execute(_ANSWERS, (run,)).fetchall()]


class PostgresRuns(Database):
    """The database with the rows of runs; see OwningStore."""

    def take(self, db: Connection, info: RunInfo, *, resume: bool, takeover: bool) -> OpenedRun:
        """Take the lease of a run, which is created if it is new. Raises RunNotFound, RunLocked."""
        new = None if resume else self.inserted.pop(info.run_id, None)
        if new is None and not resume:
            new = self._create(db, _first(info), self.owner)
        if new is not None:
            self.taken.add(new.key)
            return OpenedRun(new, "")
        values = db.execute(_BY_ID_LOCKED, (info.run_id,)).fetchone()
        if values is None:
            raise missing_run(info.run_id)
        row = read_row(values)
        owner = self._owner(db, row)
        if owner is not None and owner.owns(row) and not takeover:
            raise locked(info.run_id, owner)
        opened = taken(row, owner, opened=self.seconds, owner=self.owner)
        _write_row(db, opened.row, row.info.epoch)
        self.taken.add(row.key)
        return opened

    def _owner(self, db: Connection, row: RunRow) -> OwnerState | None:
        """Return the owner of a run; None if it is this store and the run is not open here."""
        if row.owner is None:
            return None
        if row.owner == self.owner and not self.holds(row.key):
            return None
        return owners_of(db, [row.owner]).get(row.owner)

    def create(self, db: Connection, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs without an owner; return the ids of those that are new."""
        queued = (replace(info, epoch=0, status="queued") for info in runs)
        created = self._insert(db, [self._new_row(info, None) for info in queued])
        if created:
            db.execute("SELECT pg_notify(%s, '')", (WAITING,))
        return [row.info.run_id for row in created]

    def insert_all(self, db: Connection, runs: Sequence[RunInfo]) -> dict[str, RunRow]:
        """Insert the rows of runs that are new and owned by this store; see Database."""
        rows = []
        for info in runs:
            with suppress(JournalUnavailable):  # `take` reports a value that is too large
                rows.append(self._new_row(_first(info), self.owner))
        return {row.info.run_id: row for row in self._insert(db, rows)}

    def _insert(self, db: Connection, rows: Sequence[NewRow]) -> list[RunRow]:
        """Insert rows with their contents, in one round trip each; return those that are new."""
        cursor = db.cursor()
        values = [[*sealed_values(row), *queue_values(row.info)] for row, _ in rows]
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
        values = [*sealed_values(row), *queue_values(row.info)]
        new = db.execute(_INSERT, values).fetchone()
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
        rewind = rewound(
            plan,
            row,
            owners_of(db, [row.owner]).get(row.owner or 0),
            head=None if latest is None else latest[0],
            contents=Contents(self.new_content),
        )
        db.execute(
            "INSERT INTO loopwright.entries(run,first,body,sum) VALUES(%s,%s,%s,%s)",
            (row.key, rewind.row.last, rewind.body, rewind.row.head),
        )
        db.execute(_ASIDE, (row.key, plan.first))
        _write_row(db, rewind.row, row.info.epoch)

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
        return read_answer(db.execute(_ANSWER, (row.key, answer.asked, answer.path)).fetchall()[0])


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
    values = sealed_values(row)
    return db.execute(_WRITE, (*values[2:], row.key, epoch)).rowcount == 1


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
