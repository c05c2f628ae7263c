"""Permits of workers on PostgreSQL: caps over workers, their shares, and how many statements calls cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from journal.postgres_stores import query
from loopwright.cluster.postgres import PermitPool, PostgresSharedRuns, Settled
from loopwright.engine.budgets import Limits

CALL = 0.01  # seconds


class Counting:
    """A store of permits that counts its statements."""

    def __init__(self, runs: PostgresSharedRuns) -> None:
        self.runs = runs
        self.statements = 0

    async def settle(self, name: str, limits: Limits, *, have: int, want: int) -> Settled:
        self.statements += 1
        return await self.runs.settle(name, limits, have=have, want=want)

    async def pause(self, name: str, seconds: float) -> None:
        await self.runs.pause(name, seconds)

    async def paused(self, name: str) -> float:
        return await self.runs.paused(name)


@asynccontextmanager
async def worker(url: str) -> AsyncIterator[tuple[PermitPool, Counting]]:
    """A worker's permits; several are like workers on several machines."""
    runs = PostgresSharedRuns(url)
    await runs.enter({"default": 1})
    store = Counting(runs)
    pool = PermitPool(store)
    try:
        yield pool, store
    finally:
        await pool.close()
        await runs.close()


class Calls:
    """Calls in progress over all workers."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.made: dict[str, int] = {}

    async def call(self, pool: PermitPool, limits: Limits, who: str = "") -> None:
        await pool.take("openai", limits)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(CALL)
        self.now -= 1
        self.made[who] = self.made.get(who, 0) + 1
        await pool.release("openai")


async def test_calls_at_the_same_time_share_statements(postgres_url: str) -> None:
    """200 calls under a cap of 10 need far fewer than one statement each."""
    calls = Calls()
    async with worker(postgres_url) as (pool, store):
        await asyncio.gather(*(calls.call(pool, Limits(cap=10)) for _ in range(200)))
        assert calls.most == 10
        assert store.statements < 50


async def test_a_cap_counts_over_workers_and_each_has_a_share(postgres_url: str) -> None:
    """A worker that came later has calls in progress before the first one has made all of its calls."""
    calls, limits = Calls(), Limits(cap=4)
    async with worker(postgres_url) as (first, _), worker(postgres_url) as (second, _):
        early = [asyncio.create_task(calls.call(first, limits, "first")) for _ in range(800)]
        await asyncio.sleep(10 * CALL)
        await asyncio.gather(*(calls.call(second, limits, "second") for _ in range(40)))
        assert calls.made["first"] < 800
        await asyncio.gather(*early)
    assert calls.most == 4


async def test_a_cap_of_one_goes_round(postgres_url: str) -> None:
    """With fewer permits than workers, each has its turn."""
    calls, limits = Calls(), Limits(cap=1)
    async with worker(postgres_url) as (first, _), worker(postgres_url) as (second, _):
        early = [asyncio.create_task(calls.call(first, limits, "first")) for _ in range(250)]
        await asyncio.sleep(10 * CALL)
        await asyncio.gather(*(calls.call(second, limits, "second") for _ in range(5)))
        assert calls.made["first"] < 250
        await asyncio.gather(*early)
    assert calls.most == 1


async def test_each_call_takes_a_token_of_a_rate(postgres_url: str) -> None:
    """A permit with a rate is not passed on: the period begins with as many calls as it allows."""
    calls, limits = Calls(), Limits(cap=5, calls=20, per=60.0)
    async with worker(postgres_url) as (pool, _):
        tasks = [asyncio.create_task(calls.call(pool, limits)) for _ in range(25)]
        done, waiting = await asyncio.wait(tasks, timeout=1.0)
        assert (len(done), len(waiting)) == (20, 5)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_cancelled_call_leaves_its_permit(postgres_url: str) -> None:
    """A call that is cancelled while it waits, or in the moment of its permit, holds nothing."""
    limits = Limits(cap=1)
    async with worker(postgres_url) as (pool, _):
        await pool.take("openai", limits)
        waiting = [asyncio.create_task(pool.take("openai", limits)) for _ in range(3)]
        await asyncio.sleep(CALL)
        waiting[0].cancel()
        await pool.release("openai")
        waiting[1].cancel()
        assert await waiting[2] == 0.0
        await pool.release("openai")


async def test_the_stricter_limit_of_a_document_applies_to_its_calls(postgres_url: str) -> None:
    """Calls of one name may have different caps; a call begins only below its own."""
    async with worker(postgres_url) as (pool, _):
        await pool.take("openai", Limits(cap=3))
        strict = asyncio.create_task(pool.take("openai", Limits(cap=1)))
        _, waiting = await asyncio.wait({strict}, timeout=0.3)
        assert waiting
        await pool.release("openai")
        await strict
        await pool.release("openai")


async def test_permits_of_a_worker_that_closed_are_free(postgres_url: str) -> None:
    """What a worker held when it ended is free for the others, and its row is deleted."""
    async with worker(postgres_url) as (first, _):
        await first.take("openai", Limits(cap=1))
    async with worker(postgres_url) as (second, _):
        assert query(postgres_url, "SELECT * FROM loopwright_queue.permits") == []
        assert await second.take("openai", Limits(cap=1)) == 0.0


@pytest.mark.parametrize("limits", [Limits(cap=2), Limits(calls=100, per=1.0)])
async def test_a_pause_holds_all_calls_back(postgres_url: str, limits: Limits) -> None:
    """A paused name gives no permit to any worker until its time has come."""
    async with worker(postgres_url) as (first, _), worker(postgres_url) as (second, _):
        await first.pause("openai", 0.4)
        assert 0.0 < await second.paused("openai") <= 0.4
        await second.take("openai", limits)
        assert await second.paused("openai") == 0.0
