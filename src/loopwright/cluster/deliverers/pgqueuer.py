"""Deliveries by PgQueuer: the queue is a table beside the journal, and PostgreSQL is the only server.

Each queue is an entrypoint of PgQueuer. A worker has one manager per queue, so that slots are per worker: PgQueuer's own
limit of an entrypoint counts over all workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import psycopg
from pgqueuer import Job, PgQueuer, PsycopgDriver, Queries, RetryRequested
from pgqueuer.adapters.persistence import qb
from pgqueuer.domain.settings import DBSettings
from pgqueuer.types import Channel
from psycopg import OperationalError, errors

from ...errors import JournalUnavailable
from ...journal.postgres.connection import Server
from ...journal.protocol import shown_url
from ..delivery import Delivery, Handle, not_in_postgres
from ..postgres import PostgresSession

__all__ = ["PgQueuerDeliverer"]

_LIBRARY_LOG = logging.getLogger("pgqueuer")
SCHEMA = "loopwright_queue"
_PREFIX = "loopwright:"  # of the entrypoints
_BEAT = timedelta(seconds=3)  # a delivery without a heartbeat for so long is repeated
_POLL = timedelta(seconds=10)  # without a notification
_POOLED_POLL = timedelta(seconds=2)  # behind a pooler, which passes no notifications on
_INDEX = "pgqueuer_payload_idx"  # created last
_BATCH = 10  # deliveries per query
_DELETED = '"operation" : "delete"'  # in the notification of a job that ended
# That of the migration of the journal, which creates the same schema and may run at the same moment.
_LOCK = 0x4C6F7057


class PgQueuerDeliverer:
    """The default deliverer. It needs PostgreSQL only; its tables are in the schema `loopwright_queue`.

    Args:
        address: a PostgreSQL URL. Empty: that of the journal.
        journal: the URL of the journal.

    Raises:
        ConfigurationError: if no address is a PostgreSQL URL.

    Example:
        >>> deliverer = PgQueuerDeliverer("postgresql://localhost/loops", "")
    """

    def __init__(self, address: str, journal: str) -> None:
        url = address or journal
        if not url.startswith(("postgres:", "postgresql:")):
            raise not_in_postgres("pgqueuer", address)
        self._url = url
        self._session: PostgresSession | None = None
        self._lock = asyncio.Lock()
        self._prepared = False

    async def _connected(self) -> PostgresSession:
        """Return the session of this deliverer, which is opened again after a loss."""
        async with self._lock:
            if self._session is None or self._session.closed:
                self._session = await PostgresSession.to(self._url, "queue")
            return self._session

    @asynccontextmanager
    async def _queries(self) -> AsyncIterator[Queries]:
        """Yield the statements of PgQueuer; an error of the database is one of the journal, which names the remedy."""
        try:
            yield _queries_on(PsycopgDriver(await self._connected()))
        except psycopg.Error as error:
            raise Server(self._url).error(error) from error

    async def prepare(self) -> None:
        """Create the tables of PgQueuer once; see Deliverer.prepare."""
        if self._prepared:  # a process that submits often calls this for each run
            return
        async with self._queries() as queries:
            # PgQueuer's own check takes ten statements.
            [row] = await queries.driver.fetch(
                f"SELECT to_regclass('{SCHEMA}.{_INDEX}') IS NOT NULL AS it"
            )
            if not row["it"]:
                await self._create(queries)
        self._prepared = True

    async def _create(self, queries: Queries) -> None:
        """Create the tables. Raises JournalUnavailable if this role may not."""
        try:
            async with (await self._connected()).transaction():
                # Two workers that start at once would both create them. A pooler gives each statement outside of a
                # transaction another session, so the lock is one of the transaction.
                await queries.driver.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
                if not await queries.schema_is_installed():
                    await queries.install()
                table = queries.qbe.qualified.queue_table
                await queries.driver.execute(
                    f"CREATE INDEX IF NOT EXISTS {_INDEX} ON {table} (payload)"
                )
        except errors.InsufficientPrivilege as error:
            raise JournalUnavailable(
                f"{shown_url(self._url)}: the tables of the engine pgqueuer are missing, and this role may not create "
                "them; the owner of the journal's tables runs once, where loopwright[pgqueuer] is installed: "
                "loopwright journal init"
            ) from error

    async def enqueue(self, deliveries: Sequence[Delivery]) -> None:
        """Insert jobs; see Deliverer.enqueue."""
        async with self._queries() as queries:
            await queries.enqueue(
                [f"{_PREFIX}{one.queue}" for one in deliveries],
                [one.run_id.encode() for one in deliveries],
                [one.priority for one in deliveries],
                dedupe_key=[one.run_id for one in deliveries],
                on_conflict="skip",
            )

    async def waiting(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return the runs with a job that waits or is delivered; see Deliverer.waiting."""
        async with self._queries() as queries:
            # Not those whose worker was lost. They keep their job, but to enqueue them wakes a worker that takes it
            # over at once; at its next poll it would do so up to ten seconds later.
            rows = await queries.driver.fetch(
                f"SELECT DISTINCT payload FROM {queries.qbe.qualified.queue_table} "  # noqa: S608
                "WHERE payload = ANY($1::bytea[]) AND (status = 'queued' OR (status = 'picked' AND "
                f"heartbeat > now() - interval '{_BEAT.seconds} seconds'))",
                [one.run_id.encode() for one in deliveries],
            )
        return {bytes(row["payload"]).decode() for row in rows}  # type: ignore[call-overload]

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs until cancelled; see Deliverer.serve."""
        _LIBRARY_LOG.addFilter(_without_losses)  # adds it once
        lost = asyncio.Event()
        session = await self._connected()
        callbacks: list[Callable[[str], None]] = []

        def receive(note: psycopg.Notify) -> None:
            # The end of a delivery gives work to nobody but its own worker, and each notification costs four statements.
            if _DELETED in note.payload and note.pid != session.info.backend_pid:
                return
            for callback in callbacks:
                callback(note.payload)

        try:
            await session.listen([SCHEMA], receive, lost.set)
            async with asyncio.TaskGroup() as tasks:
                for queue, slots in queues.items():
                    driver = _Driver(session, callbacks, lost)
                    tasks.create_task(self._serve(handle, queue, slots, driver))
        finally:
            await session.close()

    async def _serve(self, handle: Handle, queue: str, slots: int, driver: _Driver) -> None:
        lost = driver.lost
        queries = _queries_on(driver)
        engine = PgQueuer(driver, channel=Channel(SCHEMA), queries=queries)
        free = asyncio.Semaphore(slots)

        # `hold` keeps a job that failed; by default PgQueuer deletes it.
        @engine.entrypoint(f"{_PREFIX}{queue}", on_failure="hold")
        async def deliver(job: Job) -> None:
            async with free:
                if not await _until(handle((job.payload or b"").decode()), lost):
                    raise RetryRequested(reason="this worker stops serving")

        batch = max(1, min(_BATCH, slots // 2))
        serving = asyncio.create_task(
            engine.qm.run(
                dequeue_timeout=_POLL if not driver.session.pooled else _POOLED_POLL,
                batch_size=batch,
                max_concurrent_tasks=max(slots, 2 * batch),  # PgQueuer requires twice the batch
                heartbeat_timeout=_BEAT,
                # A step that blocks the event loop fails its test of the listener too. Without notifications the
                # engine polls, and a connection that is lost sets `lost`.
                shutdown_on_listener_failure=False,
            )
        )
        losing = asyncio.create_task(lost.wait())
        try:
            await asyncio.wait({serving, losing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            losing.cancel()
            # The manager waits for its jobs before it ends, and a cancelled job would be deleted.
            lost.set()
            engine.shutdown.set()
            await asyncio.wait([serving])
        serving.result()
        raise ConnectionError("a connection of PgQueuer was lost")

    async def remove(self, run_ids: Collection[str]) -> None:
        """Delete waiting jobs; see Deliverer.remove."""
        async with self._queries() as queries:
            await queries.driver.execute(
                f"DELETE FROM {queries.qbe.qualified.queue_table} "  # noqa: S608
                "WHERE payload = ANY($1::bytea[]) AND status = 'queued'",
                [run_id.encode() for run_id in run_ids],
            )

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()


def _queries_on(driver: PsycopgDriver) -> Queries:
    """Return the statements of PgQueuer for our schema."""
    settings = DBSettings(db_schema=SCHEMA, channel=Channel(SCHEMA))
    return Queries(
        driver,
        qbe=qb.QueryBuilderEnvironment(settings),
        qbq=qb.QueryQueueBuilder(settings),
        qbs=qb.QuerySchedulerBuilder(settings),
    )


class _Driver(PsycopgDriver):
    """The driver of one queue on the session of all queues, whose notifications all receive; see `PostgresSession.listen`.

    psycopg holds a connection for as long as it waits for notifications, so with the library's driver each statement
    would wait up to a second.
    """

    def __init__(
        self, session: PostgresSession, callbacks: list[Callable[[str], None]], lost: asyncio.Event
    ) -> None:
        super().__init__(session)
        self.session, self.lost = session, lost
        self._callbacks = callbacks

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except OperationalError:
            self.lost.set()
            raise

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        with self._noticing():
            return await super().fetch(query, *args)

    async def execute(self, query: str, *args: object) -> str:
        with self._noticing():
            return await super().execute(query, *args)

    async def add_listener(self, channel: str, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)

    async def remove_listener(self, channel: str, callback: Callable[[str], None]) -> None:
        self._callbacks.remove(callback)


def _without_losses(record: logging.LogRecord) -> bool:
    """Lower the records of PgQueuer about a lost connection to DEBUG; return whether they are written.

    A loss ends each of its tasks with a traceback, and the worker reports it in one sentence.
    """
    error = record.exc_info[1] if record.exc_info else None
    # Deliveries whose end could not be written are repeated, and acknowledged then.
    is_loss = str(record.msg).startswith("Shutdown flush failed")
    if not is_loss and not isinstance(error, OperationalError | RetryRequested | OSError):
        return True
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return _LIBRARY_LOG.isEnabledFor(logging.DEBUG)


async def _until(work: Awaitable[object], event: asyncio.Event) -> bool:
    """Wait for a delivery; return False if the event came first, and the delivery was cancelled."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return task.done()
    finally:
        waiting.cancel()
        task.cancel()
