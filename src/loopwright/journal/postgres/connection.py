"""Connections to a PostgreSQL database, and the errors of the journal for those of the database."""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Buffer, Loader

from ...errors import ConfigurationError, JournalDamaged, JournalError, JournalUnavailable
from ...records.codec import Json
from ..urls import session_options, shown_url

Row = tuple[Json, ...]
OLDEST = 140000  # the number of the oldest server version
# Longer than the lock timeout of 15 s, so that the server answers a waiting statement first.
SILENCE = 20.0  # seconds without an answer after which a connection counts as lost
_RV = TypeVar("_RV")
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between two attempts
# A process that hangs inside a transaction must not hold the row of a run for ever.
_SESSION = "SET lock_timeout='15s'; SET idle_in_transaction_session_timeout='10s'"
# The outcome is unknown, or the same statement can succeed later.
_TRANSIENT = (
    errors.AdminShutdown, errors.CannotConnectNow, errors.CrashShutdown, errors.DeadlockDetected,
    errors.DiskFull, errors.IdleInTransactionSessionTimeout, errors.LockNotAvailable,
    errors.OutOfMemory, errors.SerializationFailure, errors.TooManyConnections,
    errors.ReadOnlySqlTransaction,
)  # fmt: skip
# Reasons for which a server refuses a login; waiting changes none of them.
_REFUSED = re.compile(r"password|authentication|pg_hba.conf|does not exist|permission denied")
_BEGINNING = re.compile(r"^connection to server at .*? failed: |^connection failed: |FATAL: +")


class Connection(psycopg.Connection[Row]):
    """A connection that gives up when the server has not answered for `SILENCE` seconds.

    `pooled` is whether a connection pooler is between, so that a session may have several servers.
    """

    pooled = False

    def wait(self, gen: PQGen[_RV], interval: float = 0.1, timeout: float | None = None) -> _RV:
        """Wait for the server; see psycopg."""
        try:
            return super().wait(gen, interval, SILENCE if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if error.sqlstate is None:  # of the client: the state of the session is unknown
                self.pgconn.finish()
            raise


class _Bytes(Loader):
    """Returns text as bytes, so that it can be checked before it is decoded."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class Server:
    """The database of a journal.

    Args:
        url: a URL as libpq reads it.

    Raises:
        ConfigurationError: if it is not valid.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = shown_url(url)
        rest = url.partition(":")[2]
        if not rest.startswith("//"):
            raise ConfigurationError(
                f"journal: {self.name!r} has no host. Use postgres://HOST/DATABASE."
            )
        try:
            session_options(url, "")
        except psycopg.ProgrammingError as error:
            cause = shown_url(str(error).strip())
            raise ConfigurationError(
                f"journal: {self.name!r}: {cause}. Use postgres://HOST/DATABASE."
            ) from None

    def connect(self, role: str) -> Connection:
        """Return a connection that commits each statement; text is returned as bytes.

        Raises:
            JournalUnavailable: if the server refuses, or is too old.
            psycopg.OperationalError: if it cannot be reached now.
        """
        try:
            db = Connection.connect(**session_options(self.url, role), autocommit=True)
        except psycopg.OperationalError as error:
            if is_transient(error):
                raise
            raise self.error(error) from error
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: Connection) -> None:
        if db.info.server_version < OLDEST:
            major = db.info.server_version // 10000
            raise JournalUnavailable(
                f"{self.name}: this server is PostgreSQL {major}; use PostgreSQL 14 or newer"
            )
        [(pid,)] = db.execute("SELECT pg_backend_pid()").fetchall()
        # A pooler answers the start of the connection itself, so the two numbers differ.
        db.pooled = pid != db.info.backend_pid
        if db.pooled:
            # A prepared statement belongs to one server session, and the pooler may change it.
            db.prepare_threshold = None
        else:
            db.execute(_SESSION)
        # A checksum must see the bytes; decoding could raise before the damage is reported as damage.
        db.adapters.register_loader("text", _Bytes)

    def error(self, error: Exception) -> JournalError:
        """Return the error of the journal for an error of the database."""
        if isinstance(error, JournalError):
            return error
        if isinstance(error, psycopg.Error):
            # A missing table or a broken index does not return by waiting.
            kind = JournalDamaged if isinstance(error, _SHAPES) else JournalUnavailable
            return kind(f"{self.name}: {self._cause(error)}")
        return JournalUnavailable(f"{self.name}: {type(error).__name__}: {error}; report this")

    def _cause(self, error: psycopg.Error) -> str:
        text = _BEGINNING.sub("", str(error).strip().splitlines()[0] if str(error) else "")
        text = _BEGINNING.sub("", text).rstrip(".")
        if "no password supplied" in text:
            return "the server asks for a password; set PGPASSWORD, or name a service file"
        if "password authentication failed" in text:
            return (
                f"the server refused the password ({text}); correct PGPASSWORD or the service file"
            )
        if isinstance(error, errors.InsufficientPrivilege):
            return (
                f"{text}; a user that may create the schema 'loopwright' runs once: "
                "loopwright journal init"
            )
        if isinstance(error, _SHAPES):
            return f"it cannot be read as a journal ({text}); restore it from a backup"
        if isinstance(error, errors.DiskFull):
            return "the disk of the server is full; free some space, then resume the run"
        if "does not exist" in text and "database" in text:
            named = re.search(r'"(.+?)"', text)
            return (
                f"{text}; create it with: createdb {shlex.quote(named[1]) if named else 'DATABASE'}"
            )
        if isinstance(error, psycopg.OperationalError):
            return f"the server cannot be reached ({text}); check its address and that it runs"
        return f"{text}; report this"


_SHAPES = (
    errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction, errors.DataCorrupted,
    errors.IndexCorrupted, errors.UniqueViolation, errors.NotNullViolation,
)  # fmt: skip


def patiently(work: Callable[[], _RV], reset: Callable[[], None], patience: float) -> _RV:
    """Return the result of `work`, which is repeated while the database is away.

    `reset` drops the connection after each failure.

    Raises:
        psycopg.Error: the last one, if the database is away for longer than `patience` seconds.
    """
    until = time.monotonic() + patience
    for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
        try:
            return work()
        except psycopg.Error as error:
            reset()
            if not is_transient(error) or time.monotonic() + pause > until:
                raise
        time.sleep(pause)
    raise AssertionError


def is_transient(error: Exception) -> bool:
    """Return whether a commit may succeed if it is repeated later."""
    if isinstance(error, _TRANSIENT):
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    # Errors while connecting have no state, only a text.
    return error.sqlstate is None and not _REFUSED.search(str(error))


def storable(text: str) -> str:
    """Return a text without NUL, which no text of PostgreSQL can hold."""
    return text.replace("\0", "\ufffd")
