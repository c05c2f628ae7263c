"""The tables, how a database is opened, and how an older one is brought forward.

::

    runs       a row per run: what it is, how far it is, who owns it; sealed by a checksum
    owners     a row per opened store: which process it is, and until when it holds its runs
    entries    what happened, a row per run and commit, chained by checksums; small rows only
    inbox      answers of people, a row per question, whoever owns the run; the first one stays
    contents   long values, each once per run; above 1 MiB the body is a file named by the digest

The run list goes by `runs` and its indexes by name and by status and reason, a timeline by `entries_by_run`, a page of
iterations by `entries_by_loop`, which holds only rows with an iteration (entry number `mark`, of
the loop at path `loop`) that no rewind set aside. None of them reads a content.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ...errors import JournalUnavailable
from .errors import journal_error
from .files import create_private, publish, refuse_lost, refuse_network

__all__ = [
    "STEPS",
    "VERSION",
    "bring_forward",
    "connect_reader",
    "connect_writer",
    "expect_journal",
]

APPLICATION_ID = 0x4C6F7057  # "LopW"
PAGE_SIZE = 1024  # bytes; the least space for outputs of a few KB, and small commits
# Bytes of WAL before a commit moves it into the database and the next begins at its start: a sync of
# a file that grows costs half as much again as one of a file that is written over.
_CHECKPOINT = 1 << 18
_WAL_MOST = 16 << 20  # bytes that the file keeps after a large transaction
_CACHE = 16 << 10  # KiB of pages that the writer keeps

_RUNS = (
    "CREATE TABLE runs(id INTEGER PRIMARY KEY,run_id TEXT NOT NULL UNIQUE,name TEXT NOT NULL,"
    "status TEXT NOT NULL,reason TEXT NOT NULL,detail TEXT NOT NULL,input TEXT NOT NULL,"
    "source TEXT NOT NULL,fingerprint TEXT NOT NULL,created REAL NOT NULL,updated REAL NOT NULL,"
    "active REAL NOT NULL,epoch INTEGER NOT NULL,iterations INTEGER NOT NULL,score REAL,"
    "usage TEXT NOT NULL,opened REAL NOT NULL,last INTEGER NOT NULL,head BLOB NOT NULL,"
    "seal BLOB NOT NULL,owner INTEGER,cancel INTEGER NOT NULL)STRICT"
)
_OWNERS = (
    "CREATE TABLE owners(id INTEGER PRIMARY KEY,place TEXT NOT NULL,host TEXT NOT NULL,"
    "pid INTEGER NOT NULL,started TEXT NOT NULL,until REAL NOT NULL,seconds REAL NOT NULL,"
    "seal BLOB NOT NULL)STRICT"
)
_ENTRIES = (
    "CREATE TABLE entries(id INTEGER PRIMARY KEY,run INTEGER NOT NULL,first INTEGER NOT NULL,"
    "loop TEXT,mark INTEGER,body TEXT NOT NULL,sum BLOB NOT NULL)STRICT"
)
_CONTENTS = (
    "CREATE TABLE contents(id INTEGER PRIMARY KEY,digest BLOB NOT NULL,size INTEGER NOT NULL,"
    "body TEXT)STRICT"
)
_FIRST = (
    _RUNS,
    "CREATE INDEX runs_by_name ON runs(name)",
    "CREATE INDEX runs_by_status ON runs(status)",
    _OWNERS,
    _ENTRIES,
    "CREATE INDEX entries_by_run ON entries(run,first)",
    "CREATE INDEX entries_by_loop ON entries(run,loop,mark)WHERE loop IS NOT NULL",
    _CONTENTS,
)
# From version n to n + 1, in order: what a new journal and an older one go through.
_SECOND = ("CREATE INDEX runs_by_reason ON runs(reason)",)
_THIRD = (  # a reason goes with one status, and every index costs the smallest journal a page
    "DROP INDEX runs_by_reason",
    "DROP INDEX runs_by_status",
    "CREATE INDEX runs_by_end ON runs(status,reason)",
)
_INBOX = (
    "CREATE TABLE inbox(run INTEGER NOT NULL,asked INTEGER NOT NULL,path TEXT NOT NULL,"
    "value TEXT NOT NULL,who TEXT NOT NULL,at REAL NOT NULL,seal BLOB NOT NULL,"
    "PRIMARY KEY(run,asked,path))STRICT,WITHOUT ROWID"
)
_FOURTH = (_INBOX,)
STEPS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD, _FOURTH)
VERSION = len(STEPS)


def connect_writer(path: Path, synchronous: str) -> sqlite3.Connection:
    """Return a connection that may write, with the journal's tables in place.

    To be called with the side lock held. A missing file becomes a new journal, which is made under
    another name and renamed; an empty one is made one, as a crash of an older version can have left it;
    an older one is brought forward in one transaction. Text comes as bytes, so that it can be checked
    before it is decoded.

    Raises:
        sqlite3.Error: if it is not an SQLite file, damaged, or cannot be written.
        JournalUnavailable: if it belongs to another program or a newer version.
        JournalDamaged: if it is lost, and its log is left.
    """
    refuse_network(path)
    if not expect_journal(path) and not path.exists():
        _create(path)
    db = _connect(f"{path.resolve().as_uri()}?mode=rw")
    try:
        db.execute(f"PRAGMA page_size={PAGE_SIZE}")
        version = _version(db, path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={'NORMAL' if synchronous == 'normal' else 'FULL'}")
        size = db.execute("PRAGMA page_size").fetchone()[0]
        db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT // size}")
        db.execute(f"PRAGMA journal_size_limit={_WAL_MOST}")
        db.execute(f"PRAGMA cache_size=-{_CACHE}")
        bring_forward(db, version)
        db.text_factory = bytes
    except BaseException:
        db.close()
        raise
    return db


def _create(path: Path) -> None:
    """Make a new journal: all of it, or nothing at this path."""
    draft = path.with_name(f"{path.name}-new")  # the side lock is held: nobody else makes one
    for left in (draft, draft.with_name(f"{draft.name}-journal")):
        left.unlink(missing_ok=True)  # of a process that ended in the middle
    try:
        create_private(draft)
        db = _connect(f"{draft.resolve().as_uri()}?mode=rw")
        try:
            db.execute(f"PRAGMA page_size={PAGE_SIZE}")
            db.execute("PRAGMA synchronous=FULL")
            bring_forward(db, 0)
        finally:
            db.close()
        publish(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def connect_reader(path: Path) -> tuple[sqlite3.Connection, int]:
    """Return a connection that may only read, and the version of the tables; 0 is none yet.

    Text comes as bytes, as from `connect_writer`.

    Raises:
        sqlite3.Error, JournalUnavailable: as for `connect_writer`.
    """
    uri = path.resolve().as_uri()
    db = _connect(f"{uri}?mode=ro")
    try:
        version = _version(db, path)
    except sqlite3.OperationalError:
        db.close()
        wal = path.with_name(f"{path.name}-wal")
        if wal.exists() and wal.stat().st_size:
            raise
        # A folder that may only be read has no room for the WAL, which is empty anyway.
        db = _connect(f"{uri}?mode=ro&immutable=1")
        version = _version(db, path)
    db.text_factory = bytes
    return db, version


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=5,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )


def expect_journal(path: Path) -> bool:
    """Return whether there is a file in which runs can be looked for: none is in an empty one.

    Raises:
        JournalDamaged: if it is missing or empty, and its log is there: then runs are lost.
    """
    try:
        if path.stat().st_size:
            return True
    except FileNotFoundError:
        pass
    except OSError as error:
        raise journal_error(error, str(path)) from error
    refuse_lost(path)
    return False


def _version(db: sqlite3.Connection, path: Path) -> int:
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if application != APPLICATION_ID and (application or version or tables):
        raise JournalUnavailable(f"{path}: it belongs to another program; name another file")
    if version > VERSION:
        raise JournalUnavailable(
            f"{path}: a newer version of this program wrote it (format {version}, this one knows "
            f"{VERSION}); upgrade"
        )
    return version


def bring_forward(
    db: sqlite3.Connection, version: int, steps: Sequence[Sequence[str]] = STEPS
) -> None:
    """Take the tables from a version to the latest, in one transaction."""
    if version == len(steps):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in (statement for step in steps[version:] for statement in step):
            db.execute(statement)
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={len(steps)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
