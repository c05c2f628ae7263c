"""Runs that workers return to their queues: the delay until the next attempt, in memory and in PostgreSQL."""

from __future__ import annotations

import time

import pytest

from loopwright import Loop, MaxIterations
from loopwright.cluster import InMemoryDeliverer, submit
from loopwright.cluster.shared_runs import open_runs
from loopwright.journal import MemoryJournal, open_journal

count = Loop(lambda n: n + 1, until=MaxIterations(1), name="count")


@pytest.mark.parametrize("store", ["memory", "postgres"])
async def test_the_delay_of_a_returned_run_doubles(
    store: str, request: pytest.FixtureRequest
) -> None:
    """It follows the number of returns up to the longest delay, and ends when a worker of the queue starts."""
    memory = store == "memory"
    journal = MemoryJournal() if memory else open_journal(request.getfixturevalue("postgres_url"))
    run_id = await submit(count, 1, journal=journal, deliverer=InMemoryDeliverer())
    runs = open_runs(journal)
    delays = []
    for _ in range(6):
        # A delivery that is returned is not counted, so the delay cannot follow that count.
        await runs.counted(run_id)
        await runs.put_back(run_id, delay=1000, reason="no step", counted=True, longest=10_000)
        delays.append(round((await journal.find(run_id)).wake_at - time.time(), -3))
    assert delays == [1000, 2000, 4000, 8000, 10_000, 10_000]
    assert await runs.returns([run_id]) == {run_id: ("no step", 6)}
    await runs.put_back(run_id, delay=1000, reason="no step")
    assert round((await journal.find(run_id)).wake_at - time.time(), -3) == 1000

    await runs.enter({"other": 1})
    assert not await runs.due()
    await runs.enter({"default": 1})
    assert [row.run_id for row in await runs.due()] == [run_id]
    await runs.close()
    await journal.close()
