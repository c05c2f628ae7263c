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
from typing import Self

import psycopg
from pgqueuer import Job, PgQueuer, PsycopgDriver, Queries, RetryRequested
from pgqueuer.adapters.persistence import qb
from pgqueuer.domain.settings import DBSettings
from pgqueuer.types import Channel
from psycopg import OperationalError

from ..delivery import Delivery, Handle, not_in_postgres
from ..postgres import connected, is_pooled

__all__ = ["PgQueuerDeliverer"]

_LIBRARY_LOG = logging.getLogger("pgqueuer")
SCHEMA = "loopwright_queue"
_PREFIX = "loopwright:"  # of the entrypoints
_BEAT = timedelta(seconds=3)  # a delivery without a heartbeat for so long is repeated
_POLL = timedelta(seconds=2)  # without a notification
_INDEX = "pgqueuer_payload_idx"  # created last
_BATCH = 10  # deliveries per query
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
        self._connection: psycopg.AsyncConnection | None = None
        self._lock = asyncio.Lock()
        self._prepared = False

    @asynccontextmanager
    async def _queries(self) -> AsyncIterator[Queries]:
        """Yield the statements of PgQueuer on the connection of this deliverer, one user at a time."""
        async with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = await _connected(self._url)
            yield _queries_on(self._connection)

    async def prepare(self) -> None:
        """Create the tables of PgQueuer once; see Deliverer.prepare."""
        if self._prepared:  # a process that submits often calls this for each run
            return
        async with self._queries() as queries:
            # PgQueuer's own check takes ten statements.
            [row] = await queries.driver.fetch(
                f"SELECT to_regclass('{SCHEMA}.{_INDEX}') IS NOT NULL AS it"
            )
            if row["it"]:
                self._prepared = True
                return
            assert self._connection is not None
            # Two workers that start at once would both create them. A pooler gives each statement outside of a
            # transaction another session, so the lock is one of the transaction.
            async with self._connection.transaction():
                await queries.driver.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
                if not await queries.schema_is_installed():
                    await queries.install()
                table = queries.qbe.qualified.queue_table
                await queries.driver.execute(
                    f"CREATE INDEX IF NOT EXISTS {_INDEX} ON {table} (payload)"
                )
        self._prepared = True

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
            rows = await queries.driver.fetch(
                f"SELECT DISTINCT payload FROM {queries.qbe.qualified.queue_table} "  # noqa: S608
                "WHERE payload = ANY($1::bytea[]) AND status IN ('queued', 'picked')",
                [one.run_id.encode() for one in deliveries],
            )
        return {bytes(row["payload"]).decode() for row in rows}  # type: ignore[call-overload]

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs until cancelled; see Deliverer.serve."""
        _LIBRARY_LOG.addFilter(_without_losses)  # adds it once
        async with asyncio.TaskGroup() as tasks:
            for queue, slots in queues.items():
                tasks.create_task(self._serve(handle, queue, slots))

    async def _serve(self, handle: Handle, queue: str, slots: int) -> None:
        lost = asyncio.Event()
        connection, listening = await _connected(self._url), await _connected(self._url)
        # PgQueuer tests its listener as soon as it starts. On a connection of its own the listener may begin after
        # this test was sent, which then fails after 10 seconds and ends the engine.
        await listening.execute(f'LISTEN "{SCHEMA}"')
        queries = _queries_on(connection)
        queries.driver = _driver(connection, listening, lost)
        engine = PgQueuer(queries.driver, channel=Channel(SCHEMA), queries=queries)
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
                dequeue_timeout=_POLL,
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
            await connection.close()
            await listening.close()
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
        if self._connection is not None:
            await self._connection.close()


async def _connected(url: str) -> psycopg.AsyncConnection:
    connection = await connected(url, "queue")
    # A prepared statement belongs to one session. Runs may be submitted through a pooler, which changes it.
    if await is_pooled(connection):
        connection.prepare_threshold = None
    return connection


def _queries_on(connection: psycopg.AsyncConnection) -> Queries:
    """Return the statements of PgQueuer for our schema."""
    settings = DBSettings(db_schema=SCHEMA, channel=Channel(SCHEMA))
    return Queries(
        PsycopgDriver(connection),
        qbe=qb.QueryBuilderEnvironment(settings),
        qbq=qb.QueryQueueBuilder(settings),
        qbs=qb.QuerySchedulerBuilder(settings),
    )


def _driver(
    connection: psycopg.AsyncConnection, listening: psycopg.AsyncConnection, lost: asyncio.Event
) -> PsycopgDriver:
    """Return a driver with a connection of its own for notifications; it sets an event when a connection is lost.

    psycopg holds a connection for as long as it waits for notifications, so with one connection each statement
    would wait up to a second.
    """

    @contextmanager
    def noticing() -> Iterator[None]:
        try:
            yield
        except OperationalError:
            lost.set()
            raise

    class Listener(PsycopgDriver):
        async def watch_notifies(self) -> None:
            with noticing():
                await super().watch_notifies()

    listener = Listener(listening)

    class Driver(PsycopgDriver):
        async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
            with noticing():
                return await super().fetch(query, *args)

        async def execute(self, query: str, *args: object) -> str:
            with noticing():
                return await super().execute(query, *args)

        async def add_listener(
            self, channel: str, callback: Callable[[str | bytes | bytearray], None]
        ) -> None:
            await listener.add_listener(channel, callback)

        async def remove_listener(
            self, channel: str, callback: Callable[[str | bytes | bytearray], None]
        ) -> None:
            await listener.remove_listener(channel, callback)

        async def __aenter__(self) -> Self:
            await listener.__aenter__()
            return await super().__aenter__()

        async def __aexit__(self, *details: object) -> None:
            await listener.__aexit__(*details)
            await super().__aexit__(*details)

    return Driver(connection)


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
