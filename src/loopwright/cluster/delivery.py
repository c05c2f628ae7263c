"""The protocol of deliverers, by which an existing engine hands run IDs to workers, and deliveries in memory.

1. A delivery is a hint and the journal is the truth. A lost, late or repeated delivery is not an error: the
   sweeper of the workers enqueues runs again that no engine holds, and a run that has ended is acknowledged.
2. A deliverer knows run IDs only. Delays, attempts and results are in the journal.
3. An engine repeats a delivery whose worker died before it acknowledged it. If an engine cannot, the sweeper does.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from .._extras import EXTRAS, require
from ..errors import ConfigurationError, nearest

__all__ = [
    "DEFAULT",
    "DEFAULT_QUEUE",
    "GROUP",
    "Deliverer",
    "Delivery",
    "Handle",
    "InMemoryDeliverer",
    "not_in_postgres",
    "open_deliverer",
    "queue_name",
    "sentence_of",
]

GROUP = "loopwright.deliverers"  # the group of entry points
DEFAULT = "pgqueuer"
_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,63}")
DEFAULT_QUEUE = "default"

Handle = Callable[[str], Awaitable[bool]]
"""Runs the run with an ID until it ends or pauses; True if it has ended."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A run to hand to a worker.

    Args:
        run_id: the run. An engine that holds a run already need not take it twice.
        queue: the queue of the run.
        priority: runs with a higher number are delivered first.

    Example:
        >>> Delivery("r1").queue
        'default'
    """

    run_id: str
    queue: str = DEFAULT_QUEUE
    priority: int = 0


class Deliverer(Protocol):
    """Hands run IDs to workers; a distribution adds one as an entry point of `loopwright.deliverers`.

    The entry point is a callable with two texts: the address of the engine (empty: its default) and the URL of
    the journal. All deliverers pass `loopwright.testing.deliverers`.

    Example:
        >>> from loopwright.cluster import InMemoryDeliverer
        >>> deliverer: Deliverer = InMemoryDeliverer()
    """

    async def prepare(self) -> None:
        """Create the tables and queues of the engine; do nothing if they exist."""

    async def enqueue(self, deliveries: Sequence[Delivery]) -> None:
        """Hand deliveries to the engine; a run that it holds already may be skipped."""

    async def waiting(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return the runs among these deliveries that the engine still holds, waiting or delivered.

        A run that the engine may have lost is left out; the sweeper enqueues it again.
        """

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs to `handle` until cancelled; a delivery is acknowledged when `handle` returns.

        Args:
            handle: Runs a run; never raises. A cancelled one is delivered again.
            queues: The number of runs at a time, by the name of the queue.
        """

    async def remove(self, run_ids: Collection[str]) -> None:
        """Drop the waiting deliveries of these runs, if the engine can."""

    async def close(self) -> None:
        """Close all connections."""


def open_deliverer(name: str, journal: str) -> Deliverer:
    """Return the deliverer with a name.

    Args:
        name: `NAME` or `NAME:ADDRESS`, such as `celery:amqp://localhost//`. Empty: `pgqueuer`.
        journal: the URL of the journal, where PostgreSQL deliverers keep their tables.

    Returns:
        The deliverer; call `prepare` before its other methods, and close it.

    Raises:
        ConfigurationError: for an unknown name or address, or if its package is not installed.

    Example:
        >>> type(open_deliverer("memory", "memory:")).__name__
        'InMemoryDeliverer'
    """
    kind, _, address = (name or DEFAULT).partition(":")
    points = _entry_points()
    if kind not in points:
        hint = nearest(kind, points) or f"; use one of {', '.join(sorted(points))}"
        raise ConfigurationError(f"deliverer: {kind!r} is not a deliverer{hint}")
    if kind in EXTRAS:  # of ours: its module may import its packages
        require(f"the deliverer {kind}", kind)
    made: Deliverer = points[kind].load()(address, journal)
    return made


def not_in_postgres(name: str, address: str) -> ConfigurationError:
    """Return the error for the address of a deliverer whose tables are in PostgreSQL."""
    if address:
        return ConfigurationError(
            f"deliverer {name}: {address!r} is not a PostgreSQL URL. Use {name}:postgres://HOST/DATABASE"
        )
    return ConfigurationError(
        "journal: submitted runs and workers need a journal in PostgreSQL. Use --journal postgres://HOST/DATABASE"
    )


def queue_name(name: str) -> str:
    """Return the name of a queue.

    Raises:
        ConfigurationError: if it has other characters than those that all engines accept.
    """
    if not isinstance(name, str) or not _QUEUE.fullmatch(name):
        raise ConfigurationError(
            f"queue: {name!r} is not the name of a queue; use 1 to 64 letters, digits, and - _ . / after the first"
        )
    return name


def sentence_of(error: BaseException) -> str:
    """Return the first line of an error; of a group of its first error."""
    while isinstance(error, BaseExceptionGroup):
        # The message of a group has only the number of its errors.
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".partition("\n")[0]


@functools.cache  # reading the metadata of all packages takes as long as a submission
def _entry_points() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


class InMemoryDeliverer:
    """A deliverer that lasts as long as its process. Use it in tests.

    Several workers of one process can serve one deliverer. A worker that is cancelled returns its deliveries.

    Args:
        address: not used.
        journal: not used.

    Example:
        >>> import asyncio
        >>> from loopwright.cluster import Delivery
        >>> async def example() -> None:
        ...     deliverer = InMemoryDeliverer()
        ...     await deliverer.enqueue([Delivery("r1"), Delivery("r2", priority=1)])
        ...     print(sorted(await deliverer.waiting([Delivery("r1"), Delivery("r3")])))
        >>> asyncio.run(example())
        ['r1']
    """

    def __init__(self, address: str = "", journal: str = "") -> None:
        self._waiting: list[tuple[int, int, Delivery]] = []
        self._held: set[str] = set()  # runs that are waiting or delivered
        self._order = itertools.count()
        self._changed = asyncio.Event()

    async def prepare(self) -> None:
        """Do nothing: there is nothing to create."""

    async def enqueue(self, deliveries: Sequence[Delivery]) -> None:
        """Add deliveries; see Deliverer.enqueue."""
        for delivery in deliveries:
            if delivery.run_id not in self._held:
                self._held.add(delivery.run_id)
                heapq.heappush(self._waiting, (-delivery.priority, next(self._order), delivery))
        self._changed.set()

    async def waiting(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return the runs that are waiting or delivered; see Deliverer.waiting."""
        return self._held & {delivery.run_id for delivery in deliveries}

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs until cancelled; see Deliverer.serve."""
        free = dict(queues)
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                while (delivery := self._next(free)) is not None:
                    free[delivery.queue] -= 1
                    tasks.create_task(self._deliver(handle, delivery, free))
                await self._changed.wait()

    async def _deliver(self, handle: Handle, delivery: Delivery, free: dict[str, int]) -> None:
        try:
            await handle(delivery.run_id)
        except asyncio.CancelledError:
            heapq.heappush(self._waiting, (-delivery.priority, next(self._order), delivery))
            raise
        else:
            self._held.discard(delivery.run_id)
        finally:
            free[delivery.queue] += 1
            self._changed.set()

    def _next(self, free: Mapping[str, int]) -> Delivery | None:
        """Take the first waiting delivery of a queue that has a free slot."""
        skipped, result = [], None
        while self._waiting and result is None:
            item = heapq.heappop(self._waiting)
            if item[2].run_id not in self._held:  # it was removed
                continue
            if free.get(item[2].queue, 0) > 0:
                result = item[2]
            else:
                skipped.append(item)
        for item in skipped:
            heapq.heappush(self._waiting, item)
        return result

    async def remove(self, run_ids: Collection[str]) -> None:
        """Drop waiting deliveries; see Deliverer.remove."""
        self._held -= {one.run_id for _, _, one in self._waiting} & set(run_ids)

    async def close(self) -> None:
        """Do nothing: there is no connection."""
