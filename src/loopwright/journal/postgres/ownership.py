"""The processes that own runs, by the clock of the database, and the beats that keep them alive.

Each opened store is an owner. It beats on a session and a thread of its own, so that an event loop that is
busy keeps its runs. Safety does not depend on leases, because every write compares the epoch of its run.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version

import psycopg

from ...errors import JournalError
from ..recorded.log import DurableLog
from ..recorded.ownership import OwnerState
from .connection import Connection, Server

LEASE = 10.0  # seconds that a lease lasts without a beat
_SILENT_BEATS = 4  # beats that a session that is gone may miss before its owner counts as dead
CHANGES = "loopwright"
"""The channel on which a process announces, at most once per beat, that it committed."""

_REGISTER = (
    "INSERT INTO loopwright.owners(host, pid, version, since, beat, lease, silence, held, closed, backend, backend_start) "
    "VALUES (%s, %s, %s, clock_timestamp(), clock_timestamp(), %s, %s, 0, false, %s, "
    "(SELECT backend_start FROM pg_stat_activity WHERE pid=%s)) RETURNING id"
)
_DEAD = (
    "DELETE FROM loopwright.owners o USING loopwright.owners_now n WHERE n.id=o.id AND NOT n.alive "
    "AND n.beat < clock_timestamp() - interval '1 minute' AND NOT EXISTS("
    "SELECT FROM loopwright.runs r WHERE r.status='running' AND r.owner=o.id)"
)
_OLD_COMMITS = "DELETE FROM loopwright.commits WHERE at < now() - interval '1 day'"
_BEAT = (
    "UPDATE loopwright.owners SET beat=clock_timestamp(), held=%s, claims=%s::bigint[], backend=%s, backend_start="
    "(SELECT backend_start FROM pg_stat_activity WHERE pid=%s) WHERE id=%s"
)
_AGAIN = (
    "INSERT INTO loopwright.owners(id, host, pid, version, since, beat, lease, silence, held, closed) "
    "VALUES (%s, %s, %s, %s, clock_timestamp() - make_interval(secs => %s), clock_timestamp(), %s, %s, 0, false) "
    "ON CONFLICT DO NOTHING"
)
_CLOSE = "UPDATE loopwright.owners SET closed=true, beat=clock_timestamp() WHERE id=%s"
_STATES = (
    "SELECT id, host, pid, seconds, seen, until, alive, lease, claims FROM loopwright.owners_now "
    "WHERE id=ANY(%s)"
)
OWNED = "coalesce(o.alive AND (o.claims IS NULL OR r.id=ANY(o.claims) OR o.seconds < r.opened + o.lease), false)"
"""Whether the owner `o` of a running run `r` is alive and has not given it up; see `OwnerState.owns`."""
_HELD = (  # with the number of new limits, which stand under the question 0
    "SELECT id, epoch, cancel, (SELECT count(*) FROM loopwright.inbox i WHERE i.run=r.id AND i.asked=0) "
    "FROM loopwright.runs r WHERE id=ANY(%s)"
)


def owners_of(db: Connection, keys: Iterable[int | None]) -> dict[int, OwnerState]:
    """Return owners by key."""
    wanted = [key for key in set(keys) if key is not None]
    if not wanted:
        return {}
    owners = {}
    for key, host, *others in db.execute(_STATES, (wanted,)).fetchall():
        owners[key] = OwnerState(key, host.decode(), *others)
    return owners


def channel_of(owner: int) -> str:
    """Return the channel on which an owner is asked to check its runs at once."""
    return f"{CHANGES}_{owner}"


class LeaseRenewal:
    """The beats of one owner, on a thread and a session of their own.

    Args:
        server: the database.
        lease: seconds that the lease lasts without a beat.
        beat: seconds between two beats.
        logs: the open runs by key.
    """

    def __init__(
        self, server: Server, lease: float, beat: float, logs: Mapping[int, DurableLog]
    ) -> None:
        self.owner = 0
        self.committed = False  # whether a change is to be announced
        self._server = server
        self._lease, self._beat = lease, beat
        self._logs = logs
        self._since = 0.0
        self._stopped = False
        self._thread: threading.Thread | None = None

    def register(self, db: Connection) -> int:
        """Insert a row for this store, delete dead owners without runs, and begin to beat."""
        # Every process registers, so no separate clean-up is needed.
        db.execute(_DEAD)
        db.execute(_OLD_COMMITS)
        # Until the first beat, which has a session of its own, that of the writer shows that the process is there.
        backend = None if db.pooled else db.info.backend_pid
        [(key,)] = db.execute(_REGISTER, (*self._row(), backend, backend)).fetchall()
        assert isinstance(key, int)
        self.owner = key
        self._since = time.monotonic()
        # `select` waits for the database and for the end of the thread at once.
        self._wake_in, self._wake_out = socket.socketpair()
        self._thread = threading.Thread(target=self._work, name=f"beats {key}", daemon=True)
        self._thread.start()
        return key

    @property
    def seconds(self) -> float:
        """The age of the owner in seconds."""
        return time.monotonic() - self._since if self.owner else 0.0

    def _row(self, *since: float) -> tuple[str | float, ...]:
        process = socket.gethostname(), os.getpid(), version("loopwright")
        return *process, *since, self._lease, _SILENT_BEATS * self._beat

    def stop(self, db: Connection | None) -> None:
        """End the beats; with a connection, the owner is recorded as closed."""
        if self._thread is None:
            return
        self._stopped = True
        self._wake_out.send(b".")
        # It may connect to a server that is silent; then it ends by itself later.
        self._thread.join(self._beat)
        if db is not None:
            with suppress(psycopg.Error):
                db.execute(_CLOSE, (self.owner,))
                self._announce(db)

    def _work(self) -> None:
        while not self._stopped:
            with suppress(psycopg.Error, JournalError, OSError):
                db = self._server.connect("beats")
                try:
                    self._beat_on(db)
                finally:
                    db.close()
            self._wait([])  # the database is away: a lease decides only how soon others take a run
        self._wake_out.close()
        self._wake_in.close()

    def _beat_on(self, db: Connection) -> None:
        if not db.pooled:
            db.add_notify_handler(lambda _: None)  # else notifications would collect
            db.execute(f"LISTEN {channel_of(self.owner)}")
            # A lost beat does no harm, and a flush twice a second for each process would.
            db.execute("SET synchronous_commit=off")
        backend = None if db.pooled else db.info.backend_pid
        while not self._stopped:
            held = dict(self._logs)
            # Without the runs that this process gave up: until it can release them, others take them.
            claims = [key for key, log in held.items() if log.failure is None]
            if not db.execute(_BEAT, (len(held), claims, backend, backend, self.owner)).rowcount:
                # Others deleted the row of an owner that seemed dead.
                db.execute(_AGAIN, (self.owner, *self._row(self.seconds)))
            if held:
                self._check_runs(held, db)
            if self.committed:
                self.committed = False
                self._announce(db)
            self._wait([db])

    def _check_runs(self, held: Mapping[int, DurableLog], db: Connection) -> None:
        """Notify the runs that were taken over, that a person cancelled or that have new limits."""
        for key, epoch, cancel, posted in db.execute(_HELD, (list(held),)).fetchall():
            log = held[key]
            if epoch != log.info.epoch:
                if self._logs.get(log.key) is log:
                    log.take_away()
            else:
                if cancel:
                    log.request_cancel()
                log.count_posted(posted)

    def _wait(self, sources: list[Connection]) -> None:
        """Wait until the next beat, a notification or the end."""
        select.select(
            [self._wake_in.fileno(), *(db.fileno() for db in sources)], [], [], self._beat
        )

    @staticmethod
    def _announce(db: Connection) -> None:
        db.execute("SELECT pg_notify(%s, '')", (CHANGES,))


class CommitListener:
    """Counts the announcements of commits, for pages: on a thread and a session of its own.

    Behind a connection pooler, and while the database is away, it counts every `poll` seconds.
    """

    def __init__(self, server: Server, poll: float = 2.0) -> None:
        self.count = 0
        self._server = server
        self._poll = poll
        self._stopped = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._thread = threading.Thread(target=self._work, name="changes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        if not self._stopped:
            self._stopped = True
            self._wake_out.send(b".")
            self._thread.join()
            self._wake_out.close()
            self._wake_in.close()

    def _work(self) -> None:
        while not self._stopped:
            with suppress(psycopg.Error, JournalError, OSError):
                db = self._server.connect("changes")
                try:
                    self._listen(db)
                finally:
                    db.close()
            self._wait([])
            self.count += 1

    def _listen(self, db: Connection) -> None:
        if not db.pooled:
            db.add_notify_handler(lambda _: None)
            db.execute(f"LISTEN {CHANGES}")
        while not self._stopped:
            self._wait([] if db.pooled else [db])
            self.count += 1
            db.execute("SELECT 1")  # reads what was announced

    def _wait(self, sources: list[Connection]) -> None:
        select.select(
            [self._wake_in.fileno(), *(db.fileno() for db in sources)], [], [], self._poll
        )
