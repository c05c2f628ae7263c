"""The conformance suite of deliverers: rules that every engine behind `loopwright.cluster.Deliverer` obeys.

Write a test class that inherits from DelivererSuite and defines `connect`. pytest collects the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from ..cluster.delivery import Deliverer, Delivery

__all__ = ["DelivererSuite"]

PATIENCE = 30.0  # seconds until a rule has failed


class DelivererSuite:
    """The rules of a deliverer, as tests of a class.

    Attributes:
        redelivers: Whether the engine repeats a delivery whose worker disappeared. If not, the sweeper does.
        ordered: Whether the engine delivers runs with a higher priority first.
        exact: Whether the engine finds a single delivery, to name or remove it.

    Example:
        >>> from loopwright.cluster import InMemoryDeliverer
        >>> class TestMine(DelivererSuite):
        ...     async def connect(self, address):
        ...         return InMemoryDeliverer()
    """

    redelivers = True
    ordered = True
    exact = True

    async def connect(self, address: str) -> Deliverer:
        """Return a deliverer; those with one address share their deliveries.

        Args:
            address: The fixture `address` of the test class.

        Returns:
            A deliverer that is not prepared yet.
        """
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def _open(self, address: str) -> AsyncIterator[Deliverer]:
        deliverer = await self.connect(address)
        await deliverer.prepare()
        try:
            yield deliverer
        finally:
            await deliverer.close()

    async def test_a_run_is_delivered_once_and_acknowledged(self, address: str) -> None:
        """A run that was handled is not delivered again, and the engine does not hold it any more."""
        async with self._open(address) as deliverer:
            await deliverer.enqueue([Delivery("r1"), Delivery("r2")])
            handled = await _handled(deliverer, 2)
            assert sorted(handled) == ["r1", "r2"]
            await _until(lambda: _none_waiting(deliverer, "r1", "r2"))
            assert sorted(handled) == ["r1", "r2"]

    async def test_preparing_twice_changes_nothing(self, address: str) -> None:
        """Workers prepare the engine at each start, also at the same time."""
        async with self._open(address) as first, self._open(address) as second:
            await first.enqueue([Delivery("r1")])
            await asyncio.gather(first.prepare(), second.prepare())
            assert await _handled(second, 1) == ["r1"]

    async def test_a_waiting_run_is_held(self, address: str) -> None:
        """`waiting` names the runs that the engine holds, and no others."""
        async with self._open(address) as deliverer:
            await deliverer.enqueue([Delivery("r1")])
            await _until(lambda: _all_waiting(deliverer, "r1"))
            held = await deliverer.waiting([Delivery("r1"), Delivery("other")])
            assert "other" not in held or not self.exact

    async def test_a_repeated_delivery_is_harmless(self, address: str) -> None:
        """A run that is enqueued twice is delivered once or twice, and then no more."""
        async with self._open(address) as deliverer:
            for _ in range(2):
                await deliverer.enqueue([Delivery("r1")])
            handled = await _handled(deliverer, 1)
            assert set(handled) == {"r1"}
            assert len(handled) <= 2

    async def test_a_queue_has_its_own_slots(self, address: str) -> None:
        """At most so many runs of a queue are handled at once, and another queue does not wait for them."""
        async with self._open(address) as deliverer:
            running: list[str] = []
            most: list[int] = []
            release, fast = asyncio.Event(), asyncio.Event()

            async def handle(run_id: str) -> bool:
                if run_id.startswith("fast"):
                    fast.set()
                    return True
                running.append(run_id)
                most.append(len(running))
                await release.wait()
                running.remove(run_id)
                return True

            slow = [Delivery(f"slow{number}", "slow") for number in range(4)]
            await deliverer.enqueue([*slow, Delivery("fast1", "fast")])
            async with _serving(deliverer, handle, {"slow": 2, "fast": 2}):
                await asyncio.wait_for(fast.wait(), PATIENCE)
                await _until(lambda: _true(len(running) == 2))
                release.set()
                await _until(
                    lambda: _none_waiting(deliverer, *(one.run_id for one in slow), queue="slow")
                )
            assert len(most) == 4
            assert max(most) <= 2

    async def test_a_queue_that_is_not_served_keeps_its_runs(self, address: str) -> None:
        """A worker receives runs of its own queues only."""
        async with self._open(address) as deliverer:
            await deliverer.enqueue([Delivery("r1", "others"), Delivery("r2", "mine")])
            assert await _handled(deliverer, 1, queues={"mine": 2}) == ["r2"]
            assert await _handled(deliverer, 1, queues={"others": 2}) == ["r1"]

    async def test_the_higher_priority_is_first(self, address: str) -> None:
        """Of two runs that wait, the one with the higher priority is delivered first."""
        if not self.ordered:
            return
        async with self._open(address) as deliverer:
            await deliverer.enqueue([Delivery("low", priority=0), Delivery("high", priority=9)])
            assert (await _handled(deliverer, 2, queues={"default": 1}))[0] == "high"

    async def test_a_removed_run_is_not_delivered(self, address: str) -> None:
        """A delivery that was removed before it was delivered is gone."""
        if not self.exact:
            return
        async with self._open(address) as deliverer:
            await deliverer.enqueue([Delivery("r1"), Delivery("r2")])
            await deliverer.remove(["r1"])
            assert await _handled(deliverer, 1) == ["r2"]

    async def test_a_worker_that_stops_returns_its_runs(self, address: str) -> None:
        """A run whose worker stopped before it was handled is delivered to another worker."""
        if not self.redelivers:
            return
        async with self._open(address) as first, self._open(address) as second:
            began = asyncio.Event()

            async def handle(run_id: str) -> bool:
                began.set()
                await asyncio.sleep(3600)
                return True

            await first.enqueue([Delivery("r1")])
            async with _serving(first, handle, {"default": 2}):
                await asyncio.wait_for(began.wait(), PATIENCE)
            assert await _handled(second, 1) == ["r1"]


@contextlib.asynccontextmanager
async def _serving(
    deliverer: Deliverer, handle: Callable[[str], Awaitable[bool]], queues: Mapping[str, int]
) -> AsyncIterator[None]:
    task = asyncio.create_task(deliverer.serve(handle, queues=queues))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _handled(
    deliverer: Deliverer, count: int, *, queues: Mapping[str, int] | None = None
) -> list[str]:
    """Serve until so many runs were handled; return all that were, in order."""
    handled: list[str] = []
    enough = asyncio.Event()

    async def handle(run_id: str) -> bool:
        handled.append(run_id)
        if len(handled) >= count:
            enough.set()
        return True

    async with _serving(deliverer, handle, queues or {"default": 4}):
        await asyncio.wait_for(enough.wait(), PATIENCE)
        for queue in queues or ("default",):
            await _until(functools.partial(_none_waiting, deliverer, *handled, queue=queue))
    return handled


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.05)


async def _true(value: bool) -> bool:
    return value


async def _none_waiting(deliverer: Deliverer, *run_ids: str, queue: str = "default") -> bool:
    return not await deliverer.waiting([Delivery(run_id, queue) for run_id in run_ids])


async def _all_waiting(deliverer: Deliverer, *run_ids: str) -> bool:
    return await deliverer.waiting([Delivery(run_id) for run_id in run_ids]) == set(run_ids)
