"""What a sweep reads, and which worker sweeps: rules of the shared state in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from loopwright import Loop, MaxIterations
from loopwright.cluster import InMemoryDeliverer, Submission, submit_all
from loopwright.cluster.delivery import Delivery
from loopwright.cluster.shared_runs import SharedRuns, open_runs
from loopwright.cluster.sweeper import Sweeper
from loopwright.journal import open_journal

count = Loop(lambda n: n + 1, until=MaxIterations(1), name="count")


async def submitted(url: str, queue: str, number: int, *, at: float | None = None) -> list[str]:
    """Submit runs to a queue whose engine loses them."""
    async with open_journal(url) as journal:
        inputs = [(n, "") for n in range(number)]
        return await submit_all(
            Submission(count, queue=queue, at=at),
            inputs,
            journal=journal,
            deliverer=InMemoryDeliverer(),
        )


@pytest.fixture
async def runs(postgres_url: str) -> AsyncIterator[SharedRuns]:
    """The shared state of a worker of the queue `default`."""
    journal = open_journal(postgres_url)
    await journal.runs(limit=1)  # creates the tables
    shared = open_runs(journal)
    await shared.enter({"default": 1})
    yield shared
    await shared.close()
    await journal.close()


async def test_a_queue_without_a_worker_is_not_read(runs: SharedRuns, postgres_url: str) -> None:
    """What waits there, however much, does not stand before the runs of other queues."""
    await submitted(postgres_url, "nobody", 3, at=1.0)
    await submitted(postgres_url, "nobody", 3)
    timed = await submitted(postgres_url, "default", 1, at=2.0)
    waiting = await submitted(postgres_url, "default", 1)
    assert {row.run_id for row in await runs.due(limit=2)} == {*timed, *waiting}


async def test_each_kind_and_queue_has_its_own_limit(runs: SharedRuns, postgres_url: str) -> None:
    """A backlog that waits does not stop what has a time, nor the other way round."""
    await submitted(postgres_url, "default", 5)
    timed = await submitted(postgres_url, "default", 5, at=1.0)
    due = await runs.due(limit=2)
    assert [row.wake_at > 0 for row in due] == [True, True, False, False]
    assert {row.run_id for row in due[:2]} <= set(timed)
    assert (await runs.beat(0)).due


async def test_sweeps_read_a_backlog_part_by_part(runs: SharedRuns, postgres_url: str) -> None:
    """Each sweep continues where the one before ended, and begins again at the end; to wait alone is not to be due."""
    assert not (await runs.beat(0)).due
    waiting = await submitted(postgres_url, "default", 5)
    read = [[row.run_id for row in await runs.due(limit=2)] for _ in range(4)]
    assert read == [waiting[:2], waiting[2:4], waiting[4:], waiting[:2]]


async def test_a_damaged_row_does_not_stop_a_sweep(runs: SharedRuns, postgres_url: str) -> None:
    """What is due beside it reaches the engine, and the next time of each sound schedule is created."""
    [damaged] = await submitted(postgres_url, "default", 1, at=1.0)
    [sound] = await submitted(postgres_url, "default", 1, at=2.0)
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("UPDATE loopwright.runs SET name='changed' WHERE run_id=%s", (damaged,))
    engine = InMemoryDeliverer()
    async with open_journal(postgres_url) as journal:
        await Sweeper(journal, runs, engine).sweep()
        sound_row = Delivery(sound, "default")
        assert await engine.waiting([sound_row]) == {sound}


async def test_another_worker_sweeps_after_the_turn_of_a_silent_one(
    runs: SharedRuns, postgres_url: str
) -> None:
    """One worker sweeps at a time. Its turn ends by the clock of the database, whatever its session does."""
    async with open_journal(postgres_url) as journal:
        other = open_runs(journal)
        await other.enter({"default": 1})
        assert [(await one.beat(0)).sweeps for one in (runs, other, runs)] == [True, False, True]
        await runs.beat(0, swept=True)
        first = await runs.sweep_info()
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute(
                "UPDATE loopwright_queue.sweeper SET until = clock_timestamp(), swept = now() - interval '9 s'"
            )
        assert [(await one.beat(0)).sweeps for one in (other, runs)] == [True, False]
        second = await runs.sweep_info()
        assert first.worker == second.worker != ""  # one process
        assert first.lag < 9 <= second.lag
        await other.close()


async def test_another_worker_sweeps_at_once_when_the_session_of_one_is_gone(
    runs: SharedRuns, postgres_url: str
) -> None:
    """The session of a killed process ends: nobody waits until its turn is over."""
    async with open_journal(postgres_url) as journal:
        other = open_runs(journal)
        await other.enter({"default": 1})
        assert [(await one.beat(0)).sweeps for one in (runs, other)] == [True, False]
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(backend, 5000) FROM loopwright_queue.sweeper")
        assert (await other.beat(0)).sweeps
        await other.close()
