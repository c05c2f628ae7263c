"""Runs that wait for something outside, executed by workers."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import Context, run, signal, step
from loopwright.cluster import InMemoryDeliverer, Worker, submit
from loopwright.cluster.postgres import PostgresSharedRuns
from loopwright.journal import open_journal

from .waiting import serving, until, until_status


async def twice(value: Any, ctx: Context) -> Any:
    woken = await ctx.wait("event", event="go", timeout="1h")
    await ctx.wait("time", for_=0.3)
    return woken["value"]


async def test_a_worker_leaves_a_waiting_run_and_continues_it(postgres_url: str) -> None:
    """Its one slot is free for another run meanwhile; a signal lets the run start, and so does a time."""
    journal, deliverer = open_journal(postgres_url), InMemoryDeliverer()
    waits = step(twice, name="twice", idempotent=True, fingerprint="twice/1")
    plain = step(lambda value: value, name="plain", idempotent=True, fingerprint="plain/1")
    run_id = await submit(waits, journal=journal, deliverer=deliverer)
    async with serving(
        Worker(journal=journal, steps=[waits, plain], deliverer=deliverer, queues={"default": 1})
    ):
        await until_status(journal, run_id, "suspended")
        other = await submit(plain, 1, journal=journal, deliverer=deliverer)
        await until_status(journal, other, "satisfied")
        assert (await journal.find(run_id)).reason == "waiting"
        assert (await signal("go", "green", key=run_id, journal=journal)).waiting == 1
        await until_status(journal, run_id, "satisfied")
    assert (await journal.result(run_id)).output == "green"
    assert await journal.waits(run_id) == []
    await journal.close()


@pytest.mark.parametrize("delay", [0.0, 3600.0])
async def test_a_run_whose_worker_was_killed_as_it_left_continues(
    delay: float, postgres_url: str
) -> None:
    """A suspended run without a time, or with that of before its event, is found by its open wait."""
    journal, deliverer = open_journal(postgres_url), InMemoryDeliverer()
    waits = step(twice, name="twice", idempotent=True, fingerprint="twice/1")
    run_id = await submit(waits, journal=journal, deliverer=InMemoryDeliverer())
    await signal("go", "green", key=run_id, journal=journal)
    # A process that is no worker sets no time, as one that is killed before that.
    await run(waits, run_id=run_id, journal=journal, on_wait="leave")
    if delay:
        runs = PostgresSharedRuns(postgres_url)
        await runs.put_back(run_id, delay=delay, reason="")
        await runs.close()
    row = await journal.find(run_id)
    assert (row.status, row.wake_at > 0) == ("suspended", delay > 0)
    async with serving(Worker(journal=journal, steps=[waits], deliverer=deliverer)):
        await until_status(journal, run_id, "satisfied")
    await journal.close()


async def test_a_wake_up_without_a_result_is_no_suspect_delivery(postgres_url: str) -> None:
    """A run that looks and goes on waiting, as one that waits for a file does each minute, is not taken for one that kills workers."""
    journal, deliverer = open_journal(postgres_url), InMemoryDeliverer()

    async def number(value: Any, ctx: Context) -> Any:
        return await ctx.wait("w", event="go", schema={"type": "integer"})

    waits = step(number, name="number", idempotent=True, fingerprint="number/1")
    run_id = await submit(waits, journal=journal, deliverer=deliverer)
    async with serving(Worker(journal=journal, steps=[waits], deliverer=deliverer)):
        await until_status(journal, run_id, "suspended")
        await signal("go", "no number", key=run_id, journal=journal)

        async def looked() -> bool:
            row = await journal.find(run_id)
            return row.epoch > 1 and row.status == "suspended" and not row.deliveries

        await until(looked)
    await journal.close()
