"""Deliveries by DBOS: a run is a workflow in one of its queues, in the database of the journal.

The open-source DBOS continues workflows of its own process only. If a worker dies, our sweeper enqueues its runs again.
DBOS allows one instance per process, so a process serves one deliverer at a time.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from psycopg import Notify

from ...errors import ConfigurationError
from ...journal.postgres.connection import WRITING, Connection
from ...journal.protocol import session_options
from ..delivery import Delivery, Handle, not_in_postgres

if TYPE_CHECKING:
    import sqlalchemy
    from dbos import DBOSClient, DBOSConfig

__all__ = ["DbosDeliverer"]

_NAME = "loopwright"  # of the application, its version and its workflow
_PREFIX = "loopwright-"  # of the queues
_KEY = "-at-"  # between the run and the attempt in the ID of a workflow
_POLL = 0.2  # seconds
_FIRST = 100  # DBOS runs the lowest priority first, from 1
_QUIET = 10.0  # seconds without a notification after which its listener waits anew


class _Connection(Connection):
    """A connection of DBOS, which waits without a limit; that of its listener may be quiet."""

    def notifies(
        self, *, timeout: float | None = None, stop_after: int | None = None
    ) -> Generator[Notify, None, None]:
        return super().notifies(timeout=timeout or _QUIET, stop_after=stop_after)


class DbosDeliverer:
    """A deliverer for operators of DBOS.

    Args:
        address: a PostgreSQL URL. Empty: that of the journal.
        journal: the URL of the journal.

    Raises:
        ConfigurationError: if DBOS is not installed or no address is a PostgreSQL URL.

    Example:
        >>> deliverer = DbosDeliverer("postgresql://localhost/loops", "")
    """

    def __init__(self, address: str, journal: str) -> None:
        url = address or journal
        scheme, _, rest = url.partition(":")
        if scheme not in ("postgres", "postgresql"):
            raise not_in_postgres("dbos", address)
        self._url = f"postgresql:{rest}"
        self._client: DBOSClient | None = None
        self._engine: sqlalchemy.Engine | None = None  # of the client and of the workflows
        self._lock = asyncio.Lock()
        self._serving = asyncio.Lock()
        self._executor = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"

    async def prepare(self) -> None:
        """Create the tables of DBOS; see Deliverer.prepare."""
        async with self._lock:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)

    def _connect(self) -> DBOSClient:
        import sqlalchemy
        from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer

        DBOS.migrate(self._url)
        self._engine = sqlalchemy.create_engine(
            f"postgresql+psycopg:{self._url.partition(':')[2]}",
            creator=self._session,
            pool_size=20,
            max_overflow=0,
            pool_pre_ping=True,
        )
        return DBOSClient(
            system_database_engine=self._engine, serializer=DBOSPortableJSONSerializer()
        )

    def _session(self) -> _Connection:
        session = _Connection.connect(**session_options(self._url, "dbos"))
        session.execute(WRITING)
        session.commit()
        return session

    def _connected(self) -> DBOSClient:
        if self._client is None:
            raise ConfigurationError("deliverer dbos: call prepare first")
        return self._client

    async def enqueue(self, deliveries: Sequence[Delivery]) -> None:
        """Enqueue workflows; see Deliverer.enqueue. A repeated workflow is harmless."""
        await asyncio.to_thread(self._enqueue, deliveries)

    def _enqueue(self, deliveries: Sequence[Delivery]) -> None:
        for one in deliveries:
            self._connected().enqueue(
                {
                    "workflow_name": _NAME,
                    "queue_name": f"{_PREFIX}{one.queue}",
                    "workflow_id": f"{one.run_id}{_KEY}{uuid4().hex[:8]}",
                    "app_version": _NAME,
                    "priority": max(1, _FIRST - one.priority),
                },
                one.run_id,
            )

    async def waiting(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return the runs with a workflow that waits, or that this process has: others may be of a dead worker."""
        rows = await self._connected().list_workflows_async(
            workflow_id_prefix=[f"{one.run_id}{_KEY}" for one in deliveries],
            status=["ENQUEUED", "PENDING"],
            load_input=False,
            load_output=False,
        )
        return {
            row.workflow_id.rpartition(_KEY)[0]
            for row in rows
            if row.status == "ENQUEUED" or row.executor_id == self._executor
        }

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs until cancelled; see Deliverer.serve."""
        # Its end takes a while if connections are silent, and would end an instance that was made meanwhile.
        async with self._serving:
            await self._serve(handle, queues)

    async def _serve(self, handle: Handle, queues: Mapping[str, int]) -> None:
        from dbos import DBOS, DBOSPortableJSONSerializer

        loop = asyncio.get_running_loop()
        config: DBOSConfig = {
            "name": _NAME,
            "system_database_engine": self._engine,
            "executor_id": self._executor,
            "application_version": _NAME,
            "serializer": DBOSPortableJSONSerializer(),  # its default is pickle
            "log_level": "ERROR",
        }
        DBOS(config=config)

        @DBOS.workflow(name=_NAME)
        async def run(run_id: str) -> bool:
            # Workflows have an event loop of their own, and the worker's runs are on the worker's.
            return await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(_awaited(handle, run_id), loop)
            )

        DBOS.listen_queues([f"{_PREFIX}{name}" for name in queues])
        try:
            await asyncio.to_thread(DBOS.launch)
            for name, slots in queues.items():
                # In a thread, because DBOS would make its own threads those of this event loop.
                await asyncio.to_thread(
                    DBOS.register_queue,
                    f"{_PREFIX}{name}",
                    worker_concurrency=slots,
                    polling_interval_sec=_POLL,
                    on_conflict="always_update",
                )
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(DBOS.destroy, destroy_registry=True)

    async def remove(self, run_ids: Collection[str]) -> None:
        """Cancel the waiting workflows of these runs; see Deliverer.remove."""
        rows = await self._connected().list_workflows_async(
            workflow_id_prefix=[f"{run_id}{_KEY}" for run_id in run_ids],
            status="ENQUEUED",
            load_input=False,
            load_output=False,
        )
        if rows:
            await self._connected().cancel_workflows_async([row.workflow_id for row in rows])

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await asyncio.to_thread(self._client.destroy)
        if self._engine is not None:
            self._engine.dispose()


async def _awaited(handle: Handle, run_id: str) -> bool:
    return await handle(run_id)
