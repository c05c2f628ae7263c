"""Deliveries in memory, for tests and for workers of one process."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Collection, Mapping, Sequence

from ..delivery import Delivery, Handle

__all__ = ["InMemoryDeliverer"]


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
