"""What SQLite and the system report, as errors of the journal."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import JournalDamaged, JournalError, JournalUnavailable

__all__ = ["as_damage", "journal_error"]

_LOCKED = "another program keeps it locked; close that program, or wait"
_DENIED = "permission was denied; make the file and its folder yours to write"
_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, then resume the run",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write; check it and its quota, then resume",
    sqlite3.SQLITE_READONLY: "it may only be read; make the file and its folder yours to write",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that its folder exists and is yours",
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_NOMEM: "there is not enough memory; free some, then resume the run",
    sqlite3.SQLITE_TOOBIG: "a value is larger than a journal can hold; keep it in a file",
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


@contextmanager
def as_damage(what: str) -> Iterator[None]:
    """Take values of the wrong type or shape, as damage can make them, for JournalDamaged."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise JournalDamaged(
            f"{what} does not read as what was written; restore the journal from a backup"
        ) from error


def journal_error(error: Exception, path: str) -> JournalError:
    """Return the error of the journal at `path` that a fault below it means.

    What SQLite calls corrupt is JournalDamaged, what the system refuses JournalUnavailable.
    """
    if isinstance(error, JournalError):
        return error
    if isinstance(error, OSError):
        code = _SYSTEM.get(error.errno or 0, sqlite3.SQLITE_CANTOPEN)
    else:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGE:
        return JournalDamaged(f"{path}: {_DAMAGE[code]}")
    if code in _CAUSES:
        return JournalUnavailable(f"{path}: {_CAUSES[code]}")
    # A table or a text is not what we wrote; sqlite3 cannot even decode some such messages.
    if isinstance(error, sqlite3.Error | UnicodeError):
        return JournalDamaged(
            f"{path}: it does not read as a journal ({error}); restore it from a backup"
        )
    return JournalUnavailable(f"{path}: {type(error).__name__}: {error}; report this")
