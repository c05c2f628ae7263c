"""The shared state of workers in PostgreSQL: what a journal's rows say about queues, and the tables of workers.

The journal creates and migrates these tables (`journal.postgres.connection`). All times are those of the database.

The calls of one worker that begin and end together cost one statement for their permits, not one each:

1. One statement at a time settles a name: it returns the permits of ended calls and asks for those of all waiting
   calls. It states totals, so it can be repeated after a lost connection.
2. A permit of a cap goes from an ended call to a waiting one without a statement, while this worker has no more than
   its share and has asked the store within the last second.
3. A permit that no call of this worker waits for goes back at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.rows import TupleRow
from psycopg.waiting import wait_async

from ..engine.budgets import Limits, SharedPermits
from ..errors import JournalError, JournalUnavailable
from ..journal import RunInfo
from ..journal.postgres import connection
from ..journal.postgres.connection import DEAD, NO_JIT, Server, is_transient, migrate
from ..journal.postgres.database import PATIENCE
from ..journal.postgres.ownership import OWNED
from ..journal.protocol import session_options
from ..journal.questions import PAUSED
from ..records import Usage
from .shared_runs import (
    MAX_DELIVERIES,
    MAX_DOUBLINGS,
    SUSPECT,
    Beat,
    DelayedRun,
    QueueInfo,
    SweepInfo,
    WorkerInfo,
)

__all__ = [
    "PATIENCE",
    "WAKE",
    "PermitPool",
    "PermitStore",
    "PostgresSession",
    "PostgresSharedRuns",
    "Settled",
]

Fetched = TypeVar("Fetched")
_TURN = 1.0  # seconds after which the store is asked again whether other workers wait


class Settled(NamedTuple):
    """What a store grants.

    Args:
        granted: the number of new permits.
        wait: the seconds after which it may grant more.
        allowed: how many permits this worker may keep while others wait.
    """

    granted: int
    wait: float
    allowed: int


class PermitStore(Protocol):
    """Where the permits of all workers are counted, by the clock of the store."""

    async def settle(self, name: str, limits: Limits, *, have: int, want: int) -> Settled:
        """Record that this worker has `have` permits of a name, and grant up to `want` more."""

    async def pause(self, name: str, seconds: float) -> None:
        """Refuse permits of this name for a number of seconds."""

    async def paused(self, name: str) -> float:
        """Return the remaining seconds of the pause of a name."""


class _Waiter(NamedTuple):
    """A call that waits for a permit, with the limits of its run: documents may limit one name differently."""

    future: asyncio.Future[None]
    limits: Limits


class _Share:
    """The permits of a name in this worker.

    `held` counts the calls in progress, `allowed` is how many there may be while other workers wait, and `asked` is
    when the store was asked last. `returned` is whether a permit is to be given back.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held = 0
        self.allowed = 0
        self.asked = 0.0
        self.returned = False
        self.waiting: deque[_Waiter] = deque()
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()

    def is_wanted(self) -> bool:
        """Return whether a call waits; the limits of the first one apply from now on."""
        while self.waiting and self.waiting[0].future.done():  # the call was cancelled
            self.waiting.popleft()
        if self.waiting:
            self.limits = self.waiting[0].limits
        return bool(self.waiting)

    def wanted(self) -> int:
        """Return how many calls wait for the same limits as the first one."""
        if not self.is_wanted():
            return 0
        same = itertools.takewhile(lambda waiter: waiter.limits == self.limits, self.waiting)
        return sum(not waiter.future.done() for waiter in same)

    def may_pass_on(self, now: float) -> bool:
        """Return whether the permit of an ended call may go to the first waiting one."""
        # Each call takes a token of a rate, so a permit with a rate is never passed on.
        if not self.is_wanted() or self.limits.calls or now - self.asked > _TURN:
            return False
        return self.held < min(self.allowed, self.limits.cap)

    def grant(self) -> bool:
        """Let the first waiting call begin; return False if none waits."""
        if not self.is_wanted():
            return False
        self.held += 1
        self.waiting.popleft().future.set_result(None)
        return True


class PermitPool:
    """SharedPermits of one worker, on the permits of a store.

    Args:
        store: where the permits of all workers are counted.
    """

    def __init__(self, store: PermitStore) -> None:
        self._store = store
        self._shares: dict[str, _Share] = {}

    async def take(self, name: str, limits: Limits) -> float:
        """Wait for a permit; see SharedPermits.take. The result is always 0.

        Raises:
            JournalUnavailable: if the store is away for too long.
        """
        share = self._shares.setdefault(name, _Share(limits))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append(_Waiter(future, limits))
        self._settle_soon(name, share)
        try:
            await future
        except asyncio.CancelledError:
            # Cancelled in the moment in which it was granted.
            if not future.cancelled() and future.exception() is None:
                await self.release(name)
            raise
        return 0.0

    async def release(self, name: str) -> None:
        """Return a permit; see SharedPermits.release. A waiting call of this worker may have it next."""
        share = self._shares[name]
        share.held -= 1
        if share.may_pass_on(asyncio.get_running_loop().time()) and share.grant():
            return
        share.returned = True
        share.changed.set()
        self._settle_soon(name, share)

    async def pause(self, name: str, seconds: float) -> None:
        """Pause a name; see SharedPermits.pause."""
        await self._store.pause(name, seconds)

    async def paused(self, name: str) -> float:
        """Return the remaining pause of a name; see SharedPermits.paused."""
        return await self._store.paused(name)

    async def close(self) -> None:
        """End the statements in progress."""
        tasks = [share.task for share in self._shares.values() if share.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _settle_soon(self, name: str, share: _Share) -> None:
        # A call that joins others which wait need not wake the task: the store would grant it nothing either.
        if share.task is None or share.task.done():
            share.task = asyncio.create_task(self._settle(name, share))

    async def _settle(self, name: str, share: _Share) -> None:
        """Ask the store until no call waits and no permit is to be given back."""
        try:
            while share.is_wanted() or share.returned:
                share.returned = False
                share.changed.clear()
                wait = await self._ask(name, share)
                if wait and share.waiting and not share.returned:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(share.changed.wait(), wait)
        except Exception as error:  # of the store, which was away for too long
            # The waiting calls fail with it; those in progress are not concerned.
            while share.is_wanted():
                future = share.waiting.popleft().future
                future.set_exception(JournalUnavailable(f"permits of {name}: {error}"))

    async def _ask(self, name: str, share: _Share) -> float:
        """Settle with the store once, and return the seconds after which it may grant more."""
        have, want = share.held, share.wanted()
        granted, wait, allowed = await self._store.settle(name, share.limits, have=have, want=want)
        share.allowed, share.asked = allowed, asyncio.get_running_loop().time()
        satisfied = granted >= want
        while granted and share.grant():
            granted -= 1
        # Calls that were cancelled meanwhile, or had the permit of a call that ended, leave some over.
        share.returned = share.returned or granted > 0
        return 0.0 if satisfied else wait


class PostgresSession(psycopg.AsyncConnection[TupleRow]):
    """A connection that commits each statement, gives up after `SILENCE` seconds without an answer, and listens.

    Notifications are received between the statements too, so that one connection serves both. `pooled` is whether a
    connection pooler is between, behind which nothing is received.
    """

    pooled = False
    # A file descriptor of its own: psycopg watches that of the connection during a statement.
    _receiving = 0

    @classmethod
    async def to(cls, url: str, role: str) -> PostgresSession:
        """Connect; see `session_options`."""
        session = await cls.connect(**session_options(url, role), autocommit=True)
        [(pid,)] = await (await session.execute("SELECT pg_backend_pid()")).fetchall()
        # A pooler answers the start of the connection itself, so the two numbers differ.
        session.pooled = pid != session.info.backend_pid
        if session.pooled:
            # A prepared statement belongs to one server session, and the pooler may change it.
            session.prepare_threshold = None
        else:
            await session.execute(NO_JIT.encode())
        return session

    async def wait(
        self, gen: PQGen[Fetched], interval: float = 0.1, timeout: float | None = None
    ) -> Fetched:
        """Wait for the server; see psycopg. A statement that is cancelled ends the session: the server may be silent."""
        silence = connection.SILENCE if timeout is None else timeout
        try:
            return await wait_async(gen, self.pgconn.socket, interval=interval, timeout=silence)
        except (psycopg.Error, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) or connection.ends_session(error):
                self.pgconn.finish()
            raise

    async def listen(
        self,
        channels: Iterable[str],
        receive: Callable[[psycopg.Notify], None],
        lose: Callable[[], None],
    ) -> None:
        """Call `receive` for each notification of some channels, and `lose` if the connection is lost meanwhile."""
        if self.pooled:
            return

        def read() -> None:
            if self.closed or not self.lock.locked():
                try:
                    self.pgconn.consume_input()
                except psycopg.OperationalError:
                    self.stop_listening()
                    self.pgconn.finish()
                    lose()
                    return
                while (note := self.pgconn.notifies()) is not None:
                    receive(psycopg.Notify(note.relname.decode(), note.extra.decode(), note.be_pid))

        self.add_notify_handler(receive)
        for channel in channels:
            await self.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        self._receiving = os.dup(self.fileno())
        asyncio.get_running_loop().add_reader(self._receiving, read)

    def stop_listening(self) -> None:
        """Receive no more notifications."""
        if self._receiving:
            asyncio.get_running_loop().remove_reader(self._receiving)
            os.close(self._receiving)
            self._receiving = 0

    async def close(self) -> None:
        """Close the connection; a statement whose server is silent ends at once, with an error."""
        self.stop_listening()
        if self.lock.locked() and not self.closed:
            with socket.socket(fileno=os.dup(self.fileno())) as shared, suppress(OSError):
                shared.shutdown(socket.SHUT_RDWR)
            async with self.lock:  # until the statement has noticed it
                pass
        await super().close()


WAKE = "loopwright_wake"
"""The channel on which a run that may continue is announced."""
_ANSWERED = "loopwright_waiting"  # on which the journal announces answers
_TURN_OF_SWEEPER = 3.0  # seconds after which another worker sweeps, if the one that does is silent
_LAST_WORD = 2.0  # seconds for which a worker that ends waits for the database
_PAUSE = 0.2  # seconds between two attempts while the database is away
# Not the time of each row, with which no index could be used.
_NOW = "extract(epoch FROM statement_timestamp())::float8"
_DOUBLED = (
    f"2::float8 ^ least({MAX_DOUBLINGS}, coalesce("
    "(SELECT times FROM loopwright_queue.returned WHERE run_id = %s), 0))"
)

# The queues that a live worker serves.
_SERVED = f"""
SELECT DISTINCT split_part(served, '=', 1) AS queue
FROM loopwright_queue.workers w, unnest(string_to_array(w.queues, ' ')) AS served
WHERE NOT w.closed AND w.beat > clock_timestamp() - interval '{DEAD} seconds'
EXCEPT SELECT queue FROM loopwright_queue.paused
"""
_HERE = f"""
NOT EXISTS(SELECT FROM loopwright_queue.hosts h WHERE h.run_id = r.run_id AND NOT EXISTS(
  SELECT FROM loopwright_queue.workers w WHERE w.host = h.host AND NOT w.closed
    AND w.beat > clock_timestamp() - interval '{DEAD} seconds'))
"""
# Runs that an engine should hold, in four parts, of which each has an index: their time has come; they were given back;
# their owner is dead; they wait. Of those that wait, an engine has nearly all, so a sweep reads the next few of each queue.
_TIMED = f"""loopwright.runs r WHERE r.queue = s.queue AND r.wake_at > 0 AND r.wake_at <= {_NOW}
  AND r.status IN ('queued', 'suspended', 'interrupted') AND {_HERE}"""
_GIVEN_BACK = f"""loopwright.runs r JOIN served s ON s.queue = r.queue
  WHERE r.status = 'interrupted' AND r.wake_at = 0 AND {_HERE}"""
_LOST = f"""loopwright.runs r JOIN served s ON s.queue = r.queue LEFT JOIN loopwright.owners_now o ON o.id = r.owner
  WHERE r.status = 'running' AND r.wake_at <= {_NOW} AND NOT {OWNED} AND {_HERE}"""
_WAITING = f"""loopwright.runs r WHERE r.queue = s.queue AND r.status = 'queued' AND r.wake_at = 0
  AND r.id > coalesce(c.id, 0) AND {_HERE}"""
_ANSWERS = """loopwright.runs r JOIN loopwright.inbox i ON i.run = r.id
  WHERE r.status = 'suspended' AND r.queue <> '' AND i.asked > 0"""
_FIELDS = (
    "run_id", "name", "status", "created", "updated", "epoch", "queue", "priority", "wake_at", "deliveries",
)  # fmt: skip
_DUE = f"""
WITH served AS MATERIALIZED ({_SERVED})
SELECT r.* FROM served s, LATERAL (SELECT {{columns}} FROM {_TIMED} ORDER BY r.wake_at LIMIT %(limit)s) r
UNION ALL SELECT r.* FROM (SELECT {{columns}} FROM {_GIVEN_BACK} ORDER BY r.id LIMIT %(limit)s) r
UNION ALL SELECT r.* FROM (SELECT {{columns}} FROM {_LOST} LIMIT %(limit)s) r
UNION ALL SELECT r.* FROM served s LEFT JOIN unnest(%(queues)s::text[], %(ids)s::bigint[]) AS c(queue, id)
  ON c.queue = s.queue, LATERAL (SELECT {{columns}} FROM {_WAITING} ORDER BY r.id LIMIT %(part)s) r
""".format(
    columns="r.run_id, r.name, CASE WHEN r.status = 'running' THEN 'interrupted' ELSE r.status END AS status, "
    "r.created, r.updated, r.epoch, r.queue, r.priority, r.wake_at, r.deliveries, r.id"
)
_PART = 200  # runs of each queue whose deliveries one sweep asks the engine for
# Renews the turn of the worker that sweeps, or takes it after another worker was silent for too long, or once its session
# is gone, as that of a killed process. Only for the one that sweeps it looks whether there is something to sweep, and lets
# runs start whose wait is over: a worker that is killed as it leaves one sets no time, or one from before the event.
_BEAT = f"""
WITH alive AS (UPDATE loopwright_queue.workers SET beat = clock_timestamp(), finished = %(finished)s, closed = false
    WHERE id = %(worker)s RETURNING drains),
  turn AS (UPDATE loopwright_queue.sweeper SET worker = %(worker)s, backend = %(backend)s,
      until = clock_timestamp() + interval '{_TURN_OF_SWEEPER} seconds',
      swept = CASE WHEN %(swept)s THEN clock_timestamp() ELSE swept END
    WHERE worker = %(worker)s OR until < clock_timestamp()
      OR (backend IS NOT NULL AND NOT EXISTS(SELECT FROM pg_stat_get_activity(backend))) RETURNING 1),
  served AS MATERIALIZED ({_SERVED}),
  over AS (UPDATE loopwright.runs SET wake_at = {_NOW} WHERE EXISTS(SELECT FROM turn) AND run_id IN (
      SELECT r.run_id FROM loopwright.waits w JOIN loopwright.runs r ON r.run_id = w.run
      WHERE w.due <= {_NOW} AND r.queue <> '' AND r.status = 'suspended' AND r.reason = 'waiting'
        AND (r.wake_at = 0 OR r.wake_at > {_NOW}) FOR UPDATE OF r SKIP LOCKED) RETURNING 1)
SELECT extract(epoch FROM clock_timestamp())::float8, EXISTS(SELECT FROM turn),
  CASE WHEN EXISTS(SELECT FROM turn) THEN EXISTS(SELECT FROM served s, LATERAL (SELECT FROM {_TIMED} LIMIT 1) r)
    OR EXISTS(SELECT FROM {_GIVEN_BACK}) OR EXISTS(SELECT FROM {_LOST}) OR EXISTS(SELECT FROM {_ANSWERS})
    OR EXISTS(SELECT FROM over) ELSE false END,
  ARRAY(SELECT queue FROM loopwright_queue.paused), coalesce((SELECT drains FROM alive), false)
"""
# The many are counted by an index alone: runs that wait, are scheduled or suspended. Those whose rows are read are few:
# what was returned, which waits for a worker that can run it, what is due, and what runs, if its worker is alive.
_QUEUES = f"""
SELECT queue, sum(waiting)::bigint, sum(scheduled)::bigint, sum(running)::bigint, sum(suspended)::bigint,
  coalesce(min(oldest), 0), queue IN (SELECT p.queue FROM loopwright_queue.paused p)
FROM (
  SELECT r.queue, count(*) AS waiting, 0 AS scheduled, 0 AS running, 0 AS suspended, (
      SELECT f.created FROM loopwright.runs f WHERE f.queue = r.queue AND f.status = 'queued' AND f.wake_at = 0
      ORDER BY f.id LIMIT 1) AS oldest
    FROM loopwright.runs r WHERE r.status = 'queued' AND r.wake_at = 0 GROUP BY r.queue
  UNION ALL SELECT r.queue, 0, count(*), 0, 0, NULL FROM loopwright.runs r
    WHERE r.status IN ('queued', 'interrupted') AND r.wake_at > {_NOW} GROUP BY r.queue
  UNION ALL SELECT r.queue, 0, 0, 0, count(*), NULL FROM loopwright.runs r WHERE r.status = 'suspended' GROUP BY r.queue
  UNION ALL SELECT r.queue, 1, -1, 0, 0, r.created
    FROM loopwright_queue.returned t JOIN loopwright.runs r ON r.run_id = t.run_id
    WHERE r.status IN ('queued', 'interrupted') AND r.wake_at > {_NOW}
  UNION ALL SELECT r.queue, 1, 0, 0, 0, r.created FROM loopwright.runs r
    WHERE (r.status = 'interrupted' OR (r.status = 'queued' AND r.wake_at > 0)) AND r.wake_at <= {_NOW}
  UNION ALL SELECT r.queue, (NOT owned)::integer, 0, owned::integer, 0, CASE WHEN NOT owned THEN r.created END
    FROM loopwright.runs r LEFT JOIN loopwright.owners_now o ON o.id = r.owner, LATERAL (SELECT {OWNED} AS owned) s
    WHERE r.status = 'running'
  UNION ALL SELECT p.queue, 0, 0, 0, 0, NULL FROM loopwright_queue.paused p
) q WHERE queue <> '' GROUP BY queue ORDER BY queue
"""
# A worker clears the time of a run that it takes, so a later return is in force.
_DELAYED = f"""
SELECT run_id, name, queue, reason, times, deliveries FROM (
  SELECT r.id, r.run_id, r.name, r.queue, t.reason, t.times, r.deliveries
    FROM loopwright.runs r JOIN loopwright_queue.returned t ON t.run_id = r.run_id
    WHERE r.queue <> '' AND r.wake_at > 0 AND r.status IN ('queued', 'interrupted')
  UNION
  SELECT r.id, r.run_id, r.name, r.queue, coalesce(t.reason, ''), coalesce(t.times, 0), r.deliveries
    FROM loopwright.runs r LEFT JOIN loopwright.owners_now o ON o.id = r.owner
      LEFT JOIN loopwright_queue.returned t ON t.run_id = r.run_id AND r.wake_at > 0
    WHERE r.queue <> '' AND r.deliveries >= {SUSPECT} AND (r.status IN ('queued', 'interrupted')
      OR r.status = 'running' AND NOT {OWNED} OR r.status = 'suspended' AND r.deliveries > {MAX_DELIVERIES})
) d ORDER BY id LIMIT %s
"""
# A worker without a run so far has no row among the owners; a killed one beats no more.
_WORKERS = """
SELECT w.host || ':' || w.pid, extract(epoch FROM w.since)::float8, extract(epoch FROM w.beat)::float8,
  w.beat > clock_timestamp() - interval '3 seconds'
    OR EXISTS(SELECT FROM loopwright.owners_now o WHERE o.host = w.host AND o.pid = w.pid AND o.alive), w.queues, w.finished, w.drains,
  ARRAY(SELECT r.run_id FROM loopwright.runs r JOIN loopwright.owners o ON o.id = r.owner
    WHERE r.status = 'running' AND o.host = w.host AND o.pid = w.pid ORDER BY r.id)
FROM loopwright_queue.workers w
WHERE NOT w.closed AND w.beat > clock_timestamp() - interval '10 minutes' ORDER BY w.id
"""
_SWEEP = """
SELECT CASE WHEN s.until > clock_timestamp() THEN w.host || ':' || w.pid ELSE '' END,
  extract(epoch FROM clock_timestamp() - s.swept)::float8
FROM loopwright_queue.sweeper s LEFT JOIN loopwright_queue.workers w ON w.id = s.worker
"""


class PostgresSharedRuns:
    """The shared state of workers in the database of a journal.

    Args:
        url: the URL of the journal.
        patience: seconds for which a statement of a run is repeated while the database is away (default: 60).
    """

    def __init__(self, url: str, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._server = Server(url)
        self._pool = PermitPool(self)
        self.permits: SharedPermits = self._pool
        self._url = url
        self._worker = 0
        self._queues = ""
        self._finished = 0
        self._session: PostgresSession | None = None
        self._changed = asyncio.Event()
        # By how much the clock of the database is ahead of the monotonic one.
        self._ahead = time.time() - time.monotonic()
        self._read_to: dict[str, int] = {}  # the last waiting run that was read, by queue
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def _db(self) -> AsyncIterator[PostgresSession]:
        """Yield the connection, one user at a time.

        Raises:
            JournalError: for an error of the database, which is its cause.
        """
        async with self._lock:
            try:
                if self._session is None or self._session.closed:
                    # With synchronous commits: the tables themselves and the host of a run must survive a crash
                    # of the server. Permits and rates do not wait for the disk, because they are unlogged.
                    self._session = await PostgresSession.to(self._url, "worker")
                    if self._worker:
                        await self._session.listen(
                            (WAKE, _ANSWERED), self._receive, self._changed.set
                        )
                yield self._session
            except psycopg.Error as error:
                raise self._server.error(error) from error

    async def _execute(self, statement: str, *values: Any) -> int:
        async with self._db() as db:
            return (await db.execute(statement.encode(), values)).rowcount

    async def _fetch(self, statement: str, *values: Any) -> list[TupleRow]:
        async with self._db() as db:
            return await (await db.execute(statement.encode(), values)).fetchall()

    async def _within_patience(self, work: Callable[[], Awaitable[Fetched]]) -> Fetched:
        """Repeat a statement of a run while the database is away, like the commits of the journal.

        Raises:
            JournalUnavailable: if the database is away for longer than `patience` seconds.
        """
        until = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                return await work()
            except JournalError as error:
                cause = error.__cause__
                if (
                    not isinstance(cause, psycopg.Error)
                    or not is_transient(cause)
                    or asyncio.get_running_loop().time() > until
                ):
                    # As for a commit: the run stops and is resumed later, and its step has not failed.
                    raise JournalUnavailable(str(error)) from error
            await asyncio.sleep(_PAUSE)

    async def _read(self, statement: str, *values: Any) -> list[TupleRow]:
        """Return rows for a person, who must not see an error because the database restarts."""
        return await self._within_patience(lambda: self._fetch(statement, *values))

    async def prepare(self) -> None:
        """Create or migrate the tables of the journal; do nothing if they are there."""
        [(table, now)] = await self._fetch(
            f"SELECT to_regclass('loopwright_queue.sweeper'), {_NOW}"  # the latest table
        )
        self._ahead = now - time.monotonic()
        if table is None:
            await asyncio.to_thread(_migrate, self._server)

    async def enter(self, queues: Mapping[str, int]) -> None:
        """Register this process as a worker of some queues."""
        await self.prepare()
        # Each start removes the rows of workers that ended more than a week ago, because no reader needs them.
        await self._execute(
            "DELETE FROM loopwright_queue.workers WHERE beat < clock_timestamp() - interval '7 days'"
        )
        await self._execute(
            "DELETE FROM loopwright_queue.permits p WHERE NOT EXISTS("
            "SELECT FROM loopwright_queue.workers w WHERE w.id = p.worker AND NOT w.closed)"
        )
        self._queues = " ".join(f"{name}={slots}" for name, slots in queues.items())
        [(self._worker,)] = await self._fetch(
            "INSERT INTO loopwright_queue.workers(host, pid, since, beat, queues, finished, closed) "
            "VALUES (%s, %s, clock_timestamp(), clock_timestamp(), %s, 0, false) RETURNING id",
            socket.gethostname(), os.getpid(), self._queues,
        )  # fmt: skip
        # Locked rows are skipped: workers that start at the same time would wait for each other in a circle.
        await self._execute(
            f"UPDATE loopwright.runs SET wake_at = {_NOW} WHERE run_id IN (SELECT r.run_id FROM loopwright.runs r "
            "JOIN loopwright_queue.returned t ON t.run_id = r.run_id WHERE r.queue = ANY(%s) "
            f"AND r.wake_at > {_NOW} AND r.wake_at < {PAUSED} AND r.status IN ('queued', 'interrupted') FOR UPDATE OF r SKIP LOCKED)",
            list(queues),
        )  # fmt: skip
        async with self._db() as db:
            await db.listen((WAKE, _ANSWERED), self._receive, self._changed.set)
        await self._execute(f"SELECT pg_notify('{WAKE}', '')")

    def _receive(self, note: psycopg.Notify) -> None:
        # A run that was only created is enqueued by the process that submits it.
        if note.channel == WAKE or note.payload:
            self._changed.set()

    def now(self) -> float:
        return time.monotonic() + self._ahead

    async def beat(self, finished: int, *, swept: bool = False) -> Beat:
        values = {"finished": finished, "worker": self._worker, "swept": swept}
        async with self._db() as db:
            backend = {"backend": None if db.pooled else db.info.backend_pid}
            [(now, sweeps, due, paused, drains)] = await (
                await db.execute(_BEAT.encode(), values | backend)
            ).fetchall()
        self._ahead = now - time.monotonic()
        return Beat(sweeps, due, frozenset(paused), drains)

    async def pause_queue(self, queue: str, *, on: bool) -> bool:
        statement = "DELETE FROM loopwright_queue.paused WHERE queue = %s"
        if on:
            statement = "INSERT INTO loopwright_queue.paused VALUES (%s) ON CONFLICT DO NOTHING"
        return await self._execute(statement, queue) > 0

    async def paused_queues(self) -> frozenset[str]:
        rows = await self._read("SELECT queue FROM loopwright_queue.paused")
        return frozenset(queue for (queue,) in rows)

    async def drain(self, worker: str) -> bool:
        host, _, pid = worker.rpartition(":")
        statement = (
            "UPDATE loopwright_queue.workers SET drains = true WHERE NOT closed AND host = %s AND pid::text = %s "
            f"AND beat > clock_timestamp() - interval '{DEAD} seconds'"
        )
        return await self._execute(statement, host, pid) > 0

    async def counted(self, run_id: str) -> int:
        [(count,)] = await self._fetch(
            "UPDATE loopwright.runs SET deliveries = deliveries + 1 WHERE run_id = %s RETURNING deliveries",
            run_id,
        )
        return int(count)

    async def progressed(self, run_id: str) -> None:
        await self._execute(
            "UPDATE loopwright.runs SET deliveries = 0 WHERE run_id = %s AND deliveries > 0", run_id
        )

    async def put_back(
        self,
        run_id: str,
        *,
        delay: float,
        reason: str,
        counted: bool = False,
        longest: float = 0.0,
    ) -> None:
        async with self._db() as db, db.transaction():
            await db.execute(
                f"UPDATE loopwright.runs SET wake_at = {_NOW} + least(%s, %s * {_DOUBLED}), "
                "deliveries = greatest(0, deliveries - %s) WHERE run_id = %s".encode(),
                (max(delay, longest), delay, run_id, int(counted), run_id),
            )
            await db.execute(
                f"INSERT INTO loopwright_queue.returned VALUES (%s, %s, {_NOW}, 1) ON CONFLICT (run_id) DO UPDATE "
                "SET reason = excluded.reason, at = excluded.at, times = returned.times + 1".encode(),
                (run_id, reason),
            )

    async def returns(self, run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return why runs went back to their queues, and how often."""
        rows = await self._read(
            "SELECT run_id, reason, times FROM loopwright_queue.returned WHERE run_id = ANY(%s)",
            list(run_ids),
        )
        return {run_id: (reason, times) for run_id, reason, times in rows}

    async def delayed(self, limit: int = 1000) -> list[DelayedRun]:
        """Return the waiting runs that workers returned, or that may have ended their workers."""
        return [DelayedRun(*row) for row in await self._read(_DELAYED, limit)]

    async def wake(self, run_id: str) -> bool:
        changed = await self._execute(
            f"UPDATE loopwright.runs SET wake_at = {_NOW}, deliveries = 0 WHERE run_id = %s "
            "AND status IN ('queued', 'suspended', 'interrupted')", run_id
        )  # fmt: skip
        await self._execute(f"SELECT pg_notify('{WAKE}', '')")
        return changed > 0

    async def pin(self, run_id: str, host: str) -> str:
        # One transaction: two hosts that pin a run at once read the same answer.
        async with self._db() as db, db.transaction():
            await db.execute(
                "INSERT INTO loopwright_queue.hosts VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (run_id, host),
            )
            [(pinned,)] = await (
                await db.execute(
                    "SELECT host FROM loopwright_queue.hosts WHERE run_id = %s", (run_id,)
                )
            ).fetchall()
        return str(pinned)

    async def unpin(self, run_id: str) -> None:
        await self._execute("DELETE FROM loopwright_queue.hosts WHERE run_id = %s", run_id)

    async def pinned(self) -> dict[str, list[str]]:
        rows = await self._read(
            "SELECT h.host, array_agg(r.run_id ORDER BY r.id) FROM loopwright_queue.hosts h JOIN loopwright.runs r "
            "ON r.run_id = h.run_id WHERE r.status IN ('queued', 'running', 'suspended', 'interrupted') "
            "GROUP BY h.host ORDER BY h.host"
        )
        return dict(rows)

    async def answered(self) -> dict[str, str]:
        rows = await self._fetch(
            f"SELECT r.run_id, count(*) || ' ' || r.updated FROM {_ANSWERS} GROUP BY r.id"
        )
        return dict(rows)

    async def due(self, limit: int = 500) -> list[RunInfo]:
        values = {
            "limit": limit, "part": min(limit, _PART), "queues": list(self._read_to), "ids": list(self._read_to.values()),
        }  # fmt: skip
        async with self._db() as db:
            found = await (await db.execute(_DUE.encode(), values)).fetchall()
        rows, waiting = [], defaultdict(list)
        for *fields, key in found:
            row = RunInfo(**dict(zip(_FIELDS, fields, strict=True)))
            rows.append(row)
            if row.status == "queued" and not row.wake_at:
                waiting[row.queue].append(key)
        # From the beginning again, after the last part of a queue.
        self._read_to = {
            queue: keys[-1] for queue, keys in waiting.items() if len(keys) == values["part"]
        }
        return sorted(rows, key=lambda row: (row.status == "queued", -row.priority))

    async def spend(self, reports: Sequence[tuple[str, str, Usage]]) -> None:
        # Sorted by account: two workers lock the accounts in the same order.
        if not reports:
            return
        columns = [
            [account for account, _, _ in reports],
            [run_id for _, run_id, _ in reports],
            [usage.usd for _, _, usage in reports],
            [usage.tokens for _, _, usage in reports],
            [usage.calls for _, _, usage in reports],
        ]
        await self._within_patience(
            lambda: self._execute(
                "SELECT loopwright_queue.spend(u.account, u.run, u.usd, u.tokens, u.calls) FROM unnest("
                "%s::text[], %s::text[], %s::float8[]::numeric[], %s::bigint[], %s::bigint[]) "
                "AS u(account, run, usd, tokens, calls)",
                *columns,
            )
        )

    async def spent(self) -> dict[str, Usage]:
        rows = await self._within_patience(
            lambda: self._fetch(
                "SELECT name, usd::float8, tokens, calls FROM loopwright_queue.accounts ORDER BY name"
            )
        )
        return {
            name: Usage(calls=calls, input_tokens=tokens, usd=usd)
            for name, usd, tokens, calls in rows
        }

    async def spending(self) -> list[tuple[str, str, Usage]]:
        rows = await self._fetch(
            "SELECT name, run_id, usd::float8, tokens, calls FROM loopwright_queue.spending"
        )
        return [
            (name, run_id, Usage(calls=calls, input_tokens=tokens, usd=usd))
            for name, run_id, usd, tokens, calls in rows
        ]

    async def timed(self, schedule: str = "") -> list[tuple[str, str, float]]:
        # As the index says it; one with both forms would not be used.
        named = "schedule = %s AND schedule <> ''" if schedule else "schedule <> %s"
        rows = await self._read(
            f"SELECT schedule, run_id, wake_at FROM loopwright.runs WHERE {named} AND status = 'queued' "
            "AND wake_at > 0 ORDER BY wake_at", schedule,
        )  # fmt: skip
        return [(name, run_id, start) for name, run_id, start in rows]

    async def start_at(self, run_id: str, moment: float) -> bool:
        statement = (
            "UPDATE loopwright.runs SET wake_at = %s WHERE run_id = %s AND status = 'queued' "
            "AND wake_at > 0"
        )
        changed = await self._execute(statement, moment, run_id)
        return changed > 0

    async def handed_over(self, run_ids: Sequence[str]) -> None:
        if run_ids:
            await self._execute(
                "UPDATE loopwright.runs SET wake_at = 0 WHERE run_id = ANY(%s) AND wake_at > 0",
                list(run_ids),
            )

    async def sweep_info(self) -> SweepInfo:
        [row] = await self._read(_SWEEP)
        return SweepInfo(*row)

    async def changed(self, timeout: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout)
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def workers(self) -> list[WorkerInfo]:
        return [
            WorkerInfo(
                owner,
                since,
                beat,
                alive=alive,
                held=tuple(held),
                queues=queues,
                finished=finished,
                draining=draining,
            )
            for owner, since, beat, alive, queues, finished, draining, held in await self._read(
                _WORKERS
            )
        ]

    async def queues(self) -> list[QueueInfo]:
        return [QueueInfo(*row) for row in await self._read(_QUEUES)]

    async def settle(self, name: str, limits: Limits, *, have: int, want: int) -> Settled:
        """Return and take permits in one statement; see PermitStore.settle."""
        row = (name, self._worker, have, want, limits.cap, limits.calls, limits.per)
        [values] = await self._within_patience(
            lambda: self._fetch(
                "SELECT granted, wait, allowed FROM loopwright_queue.settle("
                "%s::text, %s::bigint, %s::integer, %s::integer, %s::integer, %s::integer, %s::float8)",
                *row,
            )
        )
        return Settled(*values)

    async def pause(self, name: str, seconds: float) -> None:
        """Pause a name; see PermitStore.pause."""
        statement = (
            f"INSERT INTO loopwright_queue.rates VALUES (%s, NULL, 0, {_NOW} + %s) ON CONFLICT (name) DO UPDATE "
            "SET until = greatest(rates.until, excluded.until)"
        )
        await self._within_patience(lambda: self._execute(statement, name, seconds))

    async def paused(self, name: str) -> float:
        """Return the remaining pause of a name; see PermitStore.paused."""
        statement = (
            f"SELECT greatest(0, until - {_NOW}) FROM loopwright_queue.rates WHERE name = %s"
        )
        rows = await self._within_patience(lambda: self._fetch(statement, name))
        return float(rows[0][0]) if rows else 0.0

    async def close(self) -> None:
        await self._pool.close()
        # Twice: the first statement after a restart of the database fails, and the second one connects again.
        for _ in range(2 if self._worker else 0):
            with suppress(JournalError, TimeoutError):
                async with asyncio.timeout(_LAST_WORD):
                    # Its turn ends too, so that the runs that it gave back need not wait for it.
                    await self._execute(
                        "WITH turn AS (UPDATE loopwright_queue.sweeper SET until = clock_timestamp() WHERE worker = %s) "
                        "UPDATE loopwright_queue.workers SET closed = true WHERE id = %s",
                        self._worker, self._worker,
                    )  # fmt: skip
                break
        if self._session is not None:
            await self._session.close()


def _migrate(server: Server) -> None:
    db = server.connect("worker")
    try:
        migrate(db, server)
    finally:
        db.close()
