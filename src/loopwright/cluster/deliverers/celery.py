"""Deliveries by Celery on RabbitMQ: a run is a Celery task in a queue of the broker.

Celery publishes the tasks. A worker consumes them with Kombu, the messaging library of Celery, because Celery's own
pools of processes and threads hold one run each, and a worker has many runs on one event loop. RabbitMQ delivers a task
again when the connection of its worker ends.

Redis is refused: in a test 29 of 200 runs of a killed worker were not delivered again within a minute.

A worker answers `celery inspect` and `celery status`, so it looks like one of Celery to its operators. Only questions
are answered. A command that changes a worker, such as `shutdown`, has the reply that it is not supported.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue as queues_of_threads
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from ...errors import ConfigurationError
from ...journal.postgres.connection import SILENCE
from ..delivery import DEFAULT_QUEUE, Delivery, Handle

if TYPE_CHECKING:
    import celery
    import kombu

__all__ = [
    "CeleryDeliverer",
    "answer_inspections",
    "worker_name",
]

Reply = dict[str, Any] | list[Any]  # JSON, in the forms that Celery's commands print


def worker_name() -> str:
    """Return the name under which `celery inspect` lists this process."""
    return f"loopwright-{os.getpid()}@{socket.gethostname()}"


class _Handlers(dict[str, Callable[..., Reply]]):
    """The answers by the name of the command."""

    def __missing__(self, command: str) -> Callable[..., Reply]:
        # Kombu logs a missing handler as an error with a traceback.
        return lambda _state, **_: {"error": f"a Loopwright worker does not support {command!r}"}


def answer_inspections(
    app: celery.Celery,
    channel: kombu.transport.virtual.Channel,
    *,
    task: str,
    queues: Mapping[str, int],
    held: Collection[str],
) -> None:
    """Answer on a channel from now on, as its connection receives messages.

    Args:
        app: the application of Celery.
        channel: a channel of the connection that receives messages.
        task: the name of the task that runs a run.
        queues: the slots by the name of the queue at the broker.
        held: the runs in progress.
    """
    name = worker_name()

    def active(_state: object, **_: object) -> Reply:
        return [
            {"id": run_id, "name": task, "args": [run_id], "kwargs": {}, "hostname": name}
            for run_id in sorted(held)
        ]

    def active_queues(_state: object, **_: object) -> Reply:
        return [{"name": queue, "routing_key": queue} for queue in queues]

    def stats(_state: object, **_: object) -> Reply:
        pool = {"implementation": "loopwright", "max-concurrency": sum(queues.values())}
        return {"pid": os.getpid(), "pool": pool, "total": {task: len(held)}}

    def nothing(_state: object, **_: object) -> Reply:
        return []

    handlers = _Handlers(
        ping=lambda _state, **_: {"ok": "pong"},
        active=active,
        active_queues=active_queues,
        stats=stats,
        registered=lambda _state, **_: [task],
        reserved=nothing,
        scheduled=nothing,
        revoked=nothing,
    )
    app.control.mailbox.Node(name, channel=channel, handlers=handlers).listen()


TASK = "loopwright.run"
DEFAULT_ADDRESS = "amqp://guest:guest@localhost:5672//"
_PREFIX = "loopwright."  # of the queues
_PRIORITIES = 9  # the highest that RabbitMQ recommends
_TICK = 0.02  # seconds between two looks at what is to be acknowledged
_HEARTBEAT = 5.0  # seconds
_REFUSED = (403, 530)  # ACCESS_REFUSED and NOT_ALLOWED of AMQP
# RabbitMQ 3.12 and later read this argument of a queue; before, `consumer_timeout` of the broker counts.
_LONGEST_RUN = 30 * 24 * 3600 * 1000  # milliseconds until RabbitMQ expects an acknowledgement


class CeleryDeliverer:
    """A deliverer for operators of RabbitMQ.

    The broker expects an acknowledgement within 30 minutes by default. Set `consumer_timeout` of the broker above the
    longest run; before RabbitMQ 3.12 a queue cannot set it.

    Args:
        address: the URL of the broker. Empty: `amqp://guest:guest@localhost:5672//`.
        journal: not used.

    Raises:
        ConfigurationError: if Celery is not installed, or if the address is not of a RabbitMQ broker.

    Example:
        >>> deliverer = CeleryDeliverer("amqp://localhost//", "")
    """

    def __init__(self, address: str, journal: str) -> None:
        del journal
        address = address or DEFAULT_ADDRESS
        if urlsplit(address).scheme not in ("amqp", "amqps", "pyamqp"):
            raise ConfigurationError(
                f"deliverer celery: {urlsplit(address).scheme or address!r} is not supported, only RabbitMQ is. Redis "
                "can lose the runs of a worker that dies. Use celery:amqp://HOST//"
            )
        from celery import Celery

        self._app: celery.Celery = Celery("loopwright", broker=address)
        self._app.conf.update(
            broker_transport_options={"confirm_publish": True, **_limits(SILENCE)},
            broker_connection_timeout=10,
            task_ignore_result=True,
        )
        self._address = address
        self._held: set[str] = set()

    async def prepare(self) -> None:
        """Connect to the broker once; queues are declared when they are used.

        Raises:
            ConfigurationError: if the broker cannot be reached.
        """
        from amqp.exceptions import AMQPError
        from kombu.exceptions import OperationalError

        try:
            await asyncio.to_thread(self._declare, (DEFAULT_QUEUE,))
        except (OSError, AMQPError, OperationalError) as error:
            where = urlsplit(self._address)
            server = f"deliverer celery: {where.hostname}:{where.port or 5672}"
            if getattr(error, "reply_code", 0) in _REFUSED:
                raise ConfigurationError(
                    f"{server} refuses the user {where.username or 'guest'!r}. Check the password, and the user's "
                    f"permissions for the virtual host {where.path[1:] or '/'!r}"
                ) from error
            raise ConfigurationError(
                f"{server} cannot be reached: {error}. Start RabbitMQ there, or use celery:amqp://HOST//"
            ) from error

    def _declare(self, names: Collection[str]) -> dict[str, int]:
        """Declare queues, and return how many messages wait in each."""
        with self._connected() as connection, connection.channel() as channel:
            return {name: _queue(name)(channel).queue_declare().message_count for name in names}

    @contextlib.contextmanager
    def _connected(self) -> Iterator[kombu.Connection]:
        with self._app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=2, timeout=10)
            yield connection

    async def enqueue(self, deliveries: Sequence[Delivery]) -> None:
        """Publish tasks; see Deliverer.enqueue. A repeated task is harmless."""
        await asyncio.to_thread(self._publish, deliveries)

    def _publish(self, deliveries: Sequence[Delivery]) -> None:
        with self._connected() as connection, self._app.amqp.Producer(connection) as producer:
            for one in deliveries:
                self._app.send_task(
                    TASK,
                    args=[one.run_id],
                    queue=_queue(one.queue),
                    priority=max(0, min(_PRIORITIES, one.priority)),
                    task_id=f"{one.run_id}-{uuid4().hex[:8]}",
                    producer=producer,
                )

    async def waiting(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return the runs in queues in which tasks wait, and those delivered here: RabbitMQ finds no single task."""
        counts = await asyncio.to_thread(self._declare, {one.queue for one in deliveries})
        return {one.run_id for one in deliveries if counts[one.queue] or one.run_id in self._held}

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs until cancelled; see Deliverer.serve."""
        stop = threading.Event()
        consumers = [_Consumer(self, name, slots, handle, stop) for name, slots in queues.items()]
        # One of them: `celery inspect` lists processes, not queues.
        consumers[0].inspected = {f"{_PREFIX}{name}": slots for name, slots in queues.items()}
        threads = [asyncio.create_task(asyncio.to_thread(one.run)) for one in consumers]
        try:
            done, _ = await asyncio.wait(threads, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            stop.set()
            for one in consumers:
                one.cancel()
            await asyncio.gather(*threads, return_exceptions=True)

    async def remove(self, run_ids: Collection[str]) -> None:
        """Do nothing: a task of a run that has ended is acknowledged when it is delivered."""

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.to_thread(self._app.close)


class _Consumer:
    """Consumes one queue in a thread; connections of RabbitMQ's client belong to one thread."""

    def __init__(
        self,
        deliverer: CeleryDeliverer,
        name: str,
        slots: int,
        handle: Handle,
        stop: threading.Event,
    ) -> None:
        self._deliverer = deliverer
        self._name = name
        self._slots = slots
        self._handle = handle
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._over: queues_of_threads.SimpleQueue[tuple[Any, str]] = queues_of_threads.SimpleQueue()
        self._futures: set[Future[bool]] = set()
        self.inspected: Mapping[str, int] = {}  # the queues for which it answers `celery inspect`

    def run(self) -> None:
        """Consume until the event is set, or the connection is lost."""
        from kombu import Connection

        limits = _limits(_HEARTBEAT)
        with Connection(
            self._deliverer._address, heartbeat=_HEARTBEAT, transport_options=limits
        ) as connection:
            connection.ensure_connection(max_retries=2, timeout=10)
            channel = connection.channel()
            channel.basic_qos(0, self._slots, False)
            if self.inspected:
                deliverer = self._deliverer
                answer_inspections(
                    deliverer._app,
                    connection.channel(),
                    task=TASK,
                    queues=self.inspected,
                    held=deliverer._held,
                )
            with connection.Consumer(
                [_queue(self._name)], callbacks=[self._take], accept=["json"], channel=channel
            ):
                while not self._stop.is_set():
                    with contextlib.suppress(TimeoutError):
                        connection.drain_events(timeout=_TICK)
                    connection.heartbeat_check()
                    self._acknowledge()
                self._acknowledge()
        # What is not acknowledged is delivered again, as the connection is closed now.

    def _take(self, body: Any, message: kombu.Message) -> None:
        run_id = str(body[0][0])
        self._deliverer._held.add(run_id)
        future = asyncio.run_coroutine_threadsafe(self._delivered(run_id), self._loop)
        self._futures.add(future)

        def over(done: Future[bool]) -> None:
            self._futures.discard(done)
            if not done.cancelled() and done.exception() is None:
                self._over.put((message, run_id))
            else:
                self._deliverer._held.discard(run_id)

        future.add_done_callback(over)

    async def _delivered(self, run_id: str) -> bool:
        return await self._handle(run_id)

    def _acknowledge(self) -> None:
        while not self._over.empty():
            message, run_id = self._over.get()
            message.ack()
            self._deliverer._held.discard(run_id)

    def cancel(self) -> None:
        """Cancel the deliveries in progress."""
        for future in list(self._futures):
            future.cancel()


def _limits(silence: float) -> dict[str, float]:
    """Return the limits of a connection: also its end waits for an answer of the broker, which may be silent."""
    return {"read_timeout": silence, "write_timeout": silence}


def _queue(name: str) -> kombu.Queue:
    from kombu import Exchange, Queue

    return Queue(
        f"{_PREFIX}{name}",
        Exchange(f"{_PREFIX}runs", type="direct"),
        routing_key=name,
        max_priority=_PRIORITIES,
        queue_arguments={"x-consumer-timeout": _LONGEST_RUN},
    )
