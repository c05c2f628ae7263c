"""What operators say to queues and workers, in memory and in PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest

from loopwright import Loop, MaxIterations
from loopwright.cluster import InMemoryDeliverer, Worker, submit
from loopwright.cluster.shared_runs import QueueInfo, SharedRuns, open_runs
from loopwright.journal import Journal, MemoryJournal, RunInfo, open_journal

from .waiting import serving, until, until_status

count = Loop(lambda n: n + 1, until=MaxIterations(1), name="count")


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Journal]:
    """A journal that workers share."""
    memory = request.param == "memory"
    journal = MemoryJournal() if memory else open_journal(request.getfixturevalue("postgres_url"))
    yield journal
    await journal.close()


def shared(worker: Worker) -> SharedRuns:
    """Return the shared state of a worker."""
    assert worker.runs is not None
    return worker.runs


async def test_a_paused_queue_waits_and_continues(store: Journal) -> None:
    """Workers take none of its runs, those in progress go on, and other queues are served."""
    started, may_end = asyncio.Event(), asyncio.Event()

    async def hold(value: str) -> str:
        started.set()
        await may_end.wait()
        return value

    held = Loop(hold, until=MaxIterations(1), name="hold")
    engine = InMemoryDeliverer()
    worker = Worker(
        journal=store, steps=[held, count], deliverer=engine, queues={"slow": 2, "default": 2}
    )
    async with serving(worker):
        runs = shared(worker)
        in_progress = await submit(held, "a", journal=store, queue="slow", deliverer=engine)
        await started.wait()
        assert await runs.pause_queue("slow", on=True)
        assert not await runs.pause_queue("slow", on=True)
        await until(lambda: _hears(worker, {"slow"}))
        waits = await submit(count, 1, journal=store, queue="slow", deliverer=engine)
        other = await submit(count, 1, journal=store, deliverer=engine)
        await until_status(store, other, "exhausted")
        may_end.set()
        await until_status(store, in_progress, "exhausted")
        assert (await store.find(waits)).status == "queued"
        assert [(one.name, one.waiting, one.paused) for one in await runs.queues()] == [
            ("slow", 1, True)
        ]
        assert await runs.pause_queue("slow", on=False)
        await until_status(store, waits, "exhausted")


async def _hears(worker: Worker, paused: set[str]) -> bool:
    return (await shared(worker).beat(0)).paused == paused == worker.paused


async def test_a_worker_that_starts_knows_what_is_paused(postgres_url: str) -> None:
    """It takes no run of a paused queue before its first beat."""
    async with open_journal(postgres_url) as journal:
        await journal.runs(limit=1)
        runs = open_runs(journal)
        await runs.prepare()
        await runs.pause_queue("default", on=True)
        async with Worker(journal=journal, deliverer=InMemoryDeliverer()) as worker:
            assert worker.paused == {"default"}
        await runs.close()


async def test_a_worker_is_drained_from_elsewhere(store: Journal) -> None:
    """It ends as after SIGTERM; a name that no live worker has is refused."""
    worker = Worker(journal=store, steps=[count], deliverer=InMemoryDeliverer())
    async with worker:
        serve = asyncio.create_task(worker.serve())
        runs = shared(worker)
        [info] = await runs.workers()
        assert not await runs.drain("elsewhere:1")
        assert not info.draining
        assert await runs.drain(info.owner)
        async with asyncio.timeout(20):
            await serve
        assert not worker.held


async def test_each_run_is_counted_once_in_its_queue(postgres_url: str) -> None:
    """A run waits, is scheduled, runs or is suspended; one that was returned or lost its worker waits."""
    later = time.time() + 3600
    async with open_journal(postgres_url) as journal:
        runs = open_runs(journal)
        states = {
            "waits": ("queued", 0.0, 1), "due": ("queued", 1.0, 2), "scheduled": ("queued", later, 3),
            "returned": ("queued", later, 4), "given back": ("interrupted", 0.0, 5), "postponed": ("interrupted", later, 6),
            "lost": ("running", 0.0, 7), "asks": ("suspended", 0.0, 8), "throttled": ("suspended", later, 9),
            "ended": ("exhausted", 0.0, 10),
        }  # fmt: skip
        created = [RunInfo(name, "count", queue="default", created=9.0) for name in states]
        await journal.create([*created, RunInfo("of no queue", "count")])
        held = await journal.open(RunInfo("held", "count", queue="default"))
        await runs.prepare()
        await runs.put_back("returned", delay=1.0, reason="no such step")
        with psycopg.connect(postgres_url, autocommit=True) as db:
            for run_id, (status, wake_at, made) in states.items():
                db.execute(
                    "UPDATE loopwright.runs SET status = %s, wake_at = %s, created = %s WHERE run_id = %s",
                    (status, wake_at, made, run_id),
                )
        await runs.pause_queue("empty", on=True)
        assert await runs.queues() == [
            QueueInfo("default", waiting=5, scheduled=2, running=1, suspended=2, oldest=1.0),
            QueueInfo("empty", paused=True),
        ]
        await held.close(replace(held.info, status="interrupted"))
        await runs.close()
