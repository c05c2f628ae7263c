"""Who may write a run: taking it, giving it back, asking its owner to stop, rewinding it.

Each function works within a transaction of the writer's thread.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from ...errors import RunLocked
from ...records.codec import Json
from .. import Entry, RunInfo, missing_run
from .database import Database
from .encoding import Content, Contents, entry_text, utf8
from .leases import LEASE, Owner, locked, read_owners
from .rows import RunRow, chain_start, chained, insert_row, read_row, write_row
from .run_log import SqliteLog

__all__ = [
    "OpenedRun", "ask_to_cancel", "find_row", "give_back", "leave_run", "present", "rewind_row",
    "running", "take",
]  # fmt: skip

_BY_ID = "SELECT * FROM runs WHERE run_id=?"
_BY_BEGINNING = "SELECT * FROM runs WHERE run_id>=? AND run_id<?"
_LATEST = "SELECT sum FROM entries WHERE run=? ORDER BY first DESC LIMIT 1"
_ASIDE = "UPDATE entries SET loop=NULL, mark=NULL WHERE run=? AND loop IS NOT NULL AND mark>=?"


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run whose lease was taken: its row now, and its status before; "" if it is new."""

    row: RunRow
    before: str


def find_row(db: sqlite3.Connection, run_id: str) -> RunRow:
    """Return the row of a run by its id or a unique beginning of it. Raises RunNotFound."""
    found = db.execute(_BY_ID, (run_id,)).fetchall()
    if not found and run_id:
        found = db.execute(_BY_BEGINNING, (run_id, f"{run_id}\U0010ffff")).fetchall()
    if len(found) != 1:
        raise missing_run(run_id, len(found))
    return read_row(found[0])


def present(row: RunRow, owners: dict[int, Owner], now: float) -> RunInfo:
    """Return a run as it is now: one that is running without a live owner is interrupted."""
    info = row.info
    if info.status != "running":
        return info
    owner = owners.get(row.owner or 0)
    if owner is not None:
        active = info.active + max(0.0, owner.seconds - row.opened)
        info = info.altered(active=active, updated=max(info.updated, owner.until - LEASE))
    if owner is None or not owner.alive(now):
        info = info.altered(status="interrupted")
    return info


def take(
    database: Database, db: sqlite3.Connection, info: RunInfo, *, resume: bool, takeover: bool
) -> OpenedRun:
    """Take the lease of a run, made if it is new. Raises RunNotFound, RunLocked."""
    new = None if resume else _create(database, db, info)
    if new is not None:
        return OpenedRun(new, "")
    found = db.execute(_BY_ID, (info.run_id,)).fetchone()
    if found is None:
        raise missing_run(info.run_id)
    row = read_row(found)
    owners, now = read_owners(db), database.clocks.wall()
    owner = owners.get(row.owner or 0)
    if owner is not None and owner.alive(now) and not takeover:
        raise locked(info.run_id, owner)
    kept = present(row, owners, now)
    taken = kept.altered(epoch=kept.epoch + 1, status="running")
    was = row.info.epoch
    row = replace(row, info=taken, opened=database.seconds, owner=database.owner.key)
    write_row(db, row, was)
    return OpenedRun(row, "interrupted" if kept.status == "running" else kept.status)


def _create(database: Database, db: sqlite3.Connection, info: RunInfo) -> RunRow | None:
    """Make a run and return its row; None if there is one of that id."""
    contents = Contents(database.new_content)
    info = info.altered(epoch=1, status="running")
    texts = _folded(info.input, contents), _folded(info.source, contents)
    head, owner = chain_start(info.run_id), database.owner.key
    row = RunRow(0, info, *texts, database.seconds, 0, head, owner)
    filed = database.filed(contents.take())  # what can be refused comes before what is written
    key = insert_row(db, row)
    if not key:
        return None
    if filed:
        database.keep_contents(db, filed)
    return RunRow(key, info, *texts, row.opened, 0, head, owner)


def _folded(value: Json, contents: Contents) -> str:
    return utf8(contents.fold(value))[0]


def give_back(database: Database, db: sqlite3.Connection, log: SqliteLog, info: RunInfo) -> None:
    """Write how far a run is and let go of it, if its owner is still the one that opened it."""
    if log.failure is not None:  # what `info` says of the end may be missing from the entries
        leave_run(db, log, "interrupted")
        return
    row, source = log.row, log.row.source
    filed: list[Content] = []
    if info.source != log.info.source:
        contents = Contents(database.new_content)
        source = _folded(info.source, contents)
        filed = database.filed(contents.take())  # what can be refused comes before what is written
    last, head = log.position
    given = RunRow(
        key=row.key,
        info=info,
        input=row.input,
        source=source,
        opened=row.opened,
        last=last,
        head=head,
        owner=None,
    )
    if write_row(db, given, row.info.epoch) and filed:
        database.keep_contents(db, filed)


def leave_run(db: sqlite3.Connection, log: SqliteLog, status: str) -> None:
    """Let go of a run without saying how far it is."""
    row = log.row
    write_row(db, replace(row, info=row.info.altered(status=status), owner=None), row.info.epoch)


def running(run_id: str) -> RunLocked:
    """Return the error for a rewind of a run that a live process owns."""
    return RunLocked(f"{run_id}: it is running; cancel it before you rewind it")


def ask_to_cancel(database: Database, db: sqlite3.Connection, run_id: str) -> bool:
    """Ask the owner of a run to cancel it; return whether it has a live one."""
    row = find_row(db, run_id)
    owner = read_owners(db).get(row.owner or 0)
    if owner is None or not owner.alive(database.clocks.wall()):
        return False
    db.execute("UPDATE runs SET cancel=1 WHERE id=?", (row.key,))
    log = database.logs.get(row.key)
    if log is not None and log.info.epoch == row.info.epoch:
        log.ask_to_cancel()
    return True


def rewind_row(
    database: Database,
    db: sqlite3.Connection,
    seen: RunRow,
    path: str,
    at: tuple[int, bytes],
    first: int,
) -> None:
    """Record a rewind of a run that nobody owns; iterations from entry `first` on leave the pages.

    `seen` is the row when its entries were read, up to the entry and sum `at`.

    Raises:
        RunLocked: if someone owns it, or wrote to it since.
    """
    row = find_row(db, seen.info.run_id)
    info = present(row, read_owners(db), database.clocks.wall())
    latest = db.execute(_LATEST, (row.key,)).fetchone()
    moved = row.info.epoch != seen.info.epoch or (latest is not None and latest[0] != at[1])
    if info.status == "running" or moved:
        raise running(info.run_id)
    last = at[0] + 1
    body = f"[{entry_text(Entry('rewound', path, info.active), Contents(database.new_content))}]"
    head = chained(at[1], last, body.encode())
    values = (row.key, last, body, head)
    db.execute("INSERT INTO entries(run,first,body,sum) VALUES(?,?,?,?)", values)
    db.execute(_ASIDE, (row.key, first))
    info = info.altered(status="interrupted", reason="", detail="", epoch=info.epoch + 1)
    write_row(db, replace(row, info=info, last=last, head=head, owner=None), row.info.epoch)
