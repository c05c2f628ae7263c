"""The files of an SQLite journal: the database with its tables, and the contents above 1 MiB.

::

    runs       a row per run: its name, state and owner; sealed by a checksum
    owners     a row per opened store: its process and the end of its lease
    entries    a row per run and commit with its entries, chained by checksums; small rows only
    inbox      answers of people, a row per question; the first answer stays
    events     events from outside, a row each; `waits` has a row for each event or time that a run waits for
    contents   long values, each once per run; above 1 MiB the body is a file named by the digest

The run list uses `runs` and its indexes by name and by status and reason, a timeline uses
`entries_by_run`, a page of iterations uses `entries_by_loop`. That index has only rows with an
iteration (entry number `mark`, of the loop at path `loop`) that no rewind discarded. None of these
queries reads a content.

Rules of the files:

1. New files have mode 0600, new folders 0700. The modes of existing ones are not changed.
2. A content file or database is complete before its name exists: write, sync, rename, sync the
   folder. So a crash never leaves a file that looks like a lost one.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..._home import HOME, Home
from ...errors import JournalDamaged, JournalUnavailable, LoopwrightError
from ..events import TABLES
from ..recorded.rows import content_digest

FILE = 1 << 20  # bytes; a larger content becomes a file
_PRIVATE = 0o600
_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)
_LOCKED = "another program has locked it; close that program, or wait"
_DENIED = "permission was denied; allow your user to write the file and its folder"
_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, then resume the run",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write; check it and its quota, then resume",
    sqlite3.SQLITE_READONLY: "it is read-only; allow your user to write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that its folder exists and that you may write there",
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_NOMEM: "there is not enough memory; free some, then resume the run",
    sqlite3.SQLITE_TOOBIG: "a value is too large for a journal; keep it in a file, or restore the journal from a backup",
}
_DAMAGE = {
    sqlite3.SQLITE_CORRUPT: "its structure is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "it is not an SQLite file; name another, or restore it from a backup",
}
_SYSTEM = {
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_FULL,
    errno.EFBIG: sqlite3.SQLITE_FULL,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.EACCES: sqlite3.SQLITE_PERM,
    errno.EPERM: sqlite3.SQLITE_PERM,
    errno.EIO: sqlite3.SQLITE_IOERR,
}


def journal_error(error: Exception, path: str) -> LoopwrightError:
    """Return the error of the journal at `path` for an error of SQLite or the system.

    Corruption is JournalDamaged; everything that the system refuses is JournalUnavailable.
    """
    if isinstance(error, LoopwrightError):
        return error
    if isinstance(error, OSError):
        code = _SYSTEM.get(error.errno or 0, sqlite3.SQLITE_CANTOPEN)
    else:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGE:
        return JournalDamaged(f"{path}: {_DAMAGE[code]}")
    if code in _CAUSES:
        return JournalUnavailable(f"{path}: {_CAUSES[code]}")
    # Tables or texts of another shape; sqlite3 cannot even decode some of these messages.
    if isinstance(error, sqlite3.Error | UnicodeError):
        return JournalDamaged(
            f"{path}: it cannot be read as a journal ({error}); restore it from a backup"
        )
    return JournalUnavailable(f"{path}: {type(error).__name__}: {error}; report this")


APPLICATION_ID = 0x4C6F7057  # "LopW"
PAGE_SIZE = 1024  # bytes; this size needs the least space for outputs of a few KB
# Bytes of WAL after which a commit moves it into the database and the next one starts at its beginning:
# a sync of a growing file takes half as long again as a sync of a file that is overwritten.
_CHECKPOINT = 1 << 18
_WAL_LIMIT = 16 << 20  # bytes of the file that stay after a large transaction
# Of a row. Long values are in files, so that a larger row is not ours; to read it would take ten times its size in memory.
_LONGEST = 64 << 20
_CACHE = 16 << 10  # KiB of pages in the writer's cache

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
# The steps from version n to n + 1, in order, for new and older journals.
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
_FIFTH = (
    "ALTER TABLE runs ADD COLUMN queue TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN wake_at REAL NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN deliveries INTEGER NOT NULL DEFAULT 0",
)
# A damaged row must not keep the others from being read.
COST = "CASE WHEN json_valid(usage) THEN json_extract(usage,'$[3]') END"
_SIXTH = (
    # Two words less than the others: the statement of the table fits into a page of the schema.
    "ALTER TABLE runs ADD COLUMN tags TEXT DEFAULT ''",
    # All that lists are sorted and filtered by, so that they read no row of another page of the list. The key is in
    # the third place: runs with one end are in its order.
    "DROP INDEX runs_by_end",
    (
        "CREATE INDEX runs_by_end ON runs(status,reason,id,created,updated,score,iterations,"
        f"{COST},name,queue,tags)"
    ),
)
_SEVENTH = tuple(
    text.format("", "INTEGER", "REAL") + "STRICT" * text.startswith("CREATE TABLE")
    for text in TABLES
)
STEPS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH, _SEVENTH)
VERSION = len(STEPS)
_FOREIGN = (
    "SELECT CASE WHEN type='table' THEN 'virtual table' ELSE type END,name FROM sqlite_schema "
    "WHERE type IN('view','trigger') OR sql LIKE 'CREATE VIRTUAL%'"
)


def connect_writer(path: Path, synchronous: str) -> sqlite3.Connection:
    """Return a connection that may write, on a database with all tables.

    Call it with the side lock held. A missing file becomes a new journal, which is created under
    another name and renamed. An empty file, which a crash of an older version can leave, becomes one
    too. An older journal is migrated in one transaction. Text is returned as bytes, so that it can be
    checked before it is decoded.

    Raises:
        sqlite3.Error: if the file is not an SQLite file, is damaged or cannot be written.
        JournalUnavailable: if it belongs to another program or a newer version.
        JournalDamaged: if the database is missing but its log exists.
    """
    refuse_network(path)
    if not expect_journal(path) and not path.exists():
        _create(path)
    db = _connect(f"{path.resolve().as_uri()}?mode=rw")
    try:
        db.execute(f"PRAGMA page_size={PAGE_SIZE}")
        version = _version(db, path)
        # Readers of the page and of other processes do not wait for the writer.
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={'NORMAL' if synchronous == 'normal' else 'FULL'}")
        size = db.execute("PRAGMA page_size").fetchone()[0]
        db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT // size}")
        db.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT}")
        db.execute(f"PRAGMA cache_size=-{_CACHE}")
        migrate(db, version)
        db.text_factory = bytes
    except BaseException:
        db.close()
        raise
    return db


def _create(path: Path) -> None:
    """Create a complete new journal, or no file at this path."""
    # The side lock is held, so that no other process creates a file of this name.
    draft = path.with_name(f"{path.name}-new")
    for left in (draft, draft.with_name(f"{draft.name}-journal")):
        left.unlink(missing_ok=True)  # of a process that was killed here
    try:
        create_private(draft)
        db = _connect(f"{draft.resolve().as_uri()}?mode=rw")
        try:
            db.execute(f"PRAGMA page_size={PAGE_SIZE}")
            db.execute("PRAGMA synchronous=FULL")
            migrate(db, 0)
        finally:
            db.close()
        # Renamed durably, with the side lock held. An existing file stays as it is: a link fails if the name
        # exists, a rename would replace the journal of another process.
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not path.exists():
                draft.replace(path)
        draft.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def connect_reader(path: Path) -> tuple[sqlite3.Connection, int]:
    """Return a read-only connection and the version of the tables; 0 if there are none yet.

    Text is returned as bytes, as from `connect_writer`.

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
        # SQLite cannot create the WAL in a read-only folder; it is empty, so it is not needed.
        db = _connect(f"{uri}?mode=ro&immutable=1")
        version = _version(db, path)
    db.text_factory = bytes
    return db, version


def _connect(uri: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        uri,
        uri=True,
        timeout=5,
        isolation_level=None,
        # The writer opens the connection in its thread, and a finalizer may close a reader in
        # another.
        check_same_thread=False,
        cached_statements=64,
    )
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    return db


def expect_journal(path: Path) -> bool:
    """Return whether a file may contain runs: it exists and is not empty.

    Raises:
        JournalDamaged: if it is missing or empty but its log exists, so that runs are lost.
    """
    try:
        if path.stat().st_size:
            return True
    except FileNotFoundError:
        pass
    except OSError as error:
        raise journal_error(error, str(path)) from error
    wal = path.with_name(f"{path.name}-wal")
    try:
        size = wal.stat().st_size
    except OSError:
        return False
    # A new database would overwrite this log, which may hold the only copy of recent runs.
    if size:
        raise JournalDamaged(
            f"{path}: the database was deleted or moved, but its log {wal.name} still exists; put the "
            f"database back, or delete {wal.name} and {path.name}-shm to start a new journal"
        )
    return False


def _version(db: sqlite3.Connection, path: Path) -> int:
    application = db.execute("PRAGMA application_id").fetchone()[0]
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    # An empty file has no identity yet, and becomes a journal.
    if application != APPLICATION_ID and (application or version or tables):
        raise JournalUnavailable(f"{path}: it belongs to another program; use another file")
    # A query of ours would run theirs, which need never end.
    if foreign := db.execute(_FOREIGN).fetchone():
        raise JournalUnavailable(
            f"{path}: it has the {foreign[0]} {foreign[1]!r}, which Loopwright does not make; use another file, or "
            "restore it from a backup"
        )
    if version > VERSION:
        raise JournalUnavailable(
            f"{path}: a newer version of Loopwright wrote it (format {version}, this version reads "
            f"{VERSION}); upgrade Loopwright"
        )
    return version


def migrate(db: sqlite3.Connection, version: int, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Migrate the tables from a version to the latest, in one transaction."""
    if version == len(steps):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in (statement for step in steps[version:] for statement in step):
            db.execute(statement)
        # In the same transaction: a crash leaves either the old tables or the new ones.
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={len(steps)}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def create_private(path: Path) -> None:
    """Create an empty file of mode 0600, and its folder of mode 0700, if they do not exist."""
    _private_folder(path.parent)
    # An existing file is not opened: closing it would drop the locks that SQLite holds on it in this
    # process, and another process could then remove the WAL under its connections.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _PRIVATE))


def own_folder(path: Path) -> None:
    """Make the default folder of journals, if the journal is in it.

    Raises:
        ConfigurationError: if the folder has contents that this user did not make.
    """
    if HOME in (path.absolute().parent.name, path.resolve().parent.name):
        Home(path.parent).make()


def _private_folder(folder: Path) -> None:
    if not folder.exists():
        _private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Refuse a journal on a network file system, where locks and shared memory are unreliable.

    Raises:
        JournalUnavailable: naming the file system, on systems that list their mounts.
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return
    folder = f"{path.parent.resolve()}/"
    point, kind = "", ""
    for fields in (line.split(" ") for line in lines):
        mounted = fields[1].replace("\\040", " ").rstrip("/")
        if folder.startswith(f"{mounted}/") and len(mounted) >= len(point):
            # The deepest mount that contains the folder is its file system.
            point, kind = mounted, fields[2]
    if kind in _NETWORK:
        raise JournalUnavailable(
            f"{path}: it is on a network file system ({kind}), where SQLite's locks are unreliable; "
            "use a path on a local disk"
        )


def _content_path(folder: Path, digest: bytes) -> Path:
    return folder / digest.hex()[:2] / digest.hex()


def write_content(folder: Path, digest: bytes, body: bytes) -> None:
    """Write a content as a durable file, unless the same one exists."""
    # Read and compared: a damaged file of that name is written again.
    if read_content(folder, digest) is not None:
        return
    path = _content_path(folder, digest)
    _private_folder(path.parent)
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    # All levels: a name is durable only after its folder is synced, and each of them may be new.
    for changed in (path.parent, folder, folder.parent):
        _sync_folder(changed)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there; a rename is durable without it
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_content(folder: Path, digest: bytes) -> bytes | None:
    """Return a content stored as a file; None if it is missing or does not match its digest."""
    try:
        body = _content_path(folder, digest).read_bytes()
    except OSError:
        return None
    return body if content_digest(body) == digest else None
