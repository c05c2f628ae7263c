"""Errors of SQLite and of the operating system as errors of the journal."""

from __future__ import annotations

import errno
import sqlite3

from ...errors import JournalDamaged, JournalError, JournalUnavailable

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
    sqlite3.SQLITE_TOOBIG: "a value is too large for a journal; keep it in a file",
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


def journal_error(error: Exception, path: str) -> JournalError:
    """Return the error of the journal at `path` for an error of SQLite or the system.

    Corruption is JournalDamaged; everything that the system refuses is JournalUnavailable.
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
    # Tables or texts of another shape; sqlite3 cannot even decode some of these messages.
    if isinstance(error, sqlite3.Error | UnicodeError):
        return JournalDamaged(
            f"{path}: it cannot be read as a journal ({error}); restore it from a backup"
        )
    return JournalUnavailable(f"{path}: {type(error).__name__}: {error}; report this")
