"""Faults of the failure matrix on PostgreSQL: a blocked event loop, and answers and cancellations at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from loopwright import step
from loopwright.cluster import (
    Delivery,
    InMemoryDeliverer,
    Submission,
    Worker,
    open_deliverer,
    submit,
)
from loopwright.cluster.shared_runs import open_runs
from loopwright.engine.budgets import Limits
from loopwright.errors import LoopwrightError
from loopwright.journal import Journal, open_journal
from loopwright.journal.questions import answer, pending
from postgres_server import PostgresServer

from .process import Process, block, repeated
from .waiting import serving, until, until_status


@pytest.fixture
async def journal(postgres_url: str) -> AsyncIterator[Journal]:
    """A journal in a fresh database."""
    store = open_journal(postgres_url)
    yield store
    await store.close()


async def _ask(value: str, ctx: object) -> object:
    return ctx.ask("publish", {}, "Publish it?")  # type: ignore[attr-defined]


asking = step(_ask, name="asking", fingerprint="ask/1")


async def test_a_doubled_delivery_waits_while_a_step_blocks_the_event_loop(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """The worker keeps its run, because its lease is renewed by a thread; the effect happens once."""
    ledger = tmp_path / "ledger"
    run_id = await submit(Submission(block), 3, journal=journal)
    engine = open_deliverer("", postgres_url)
    processes = [Process(postgres_url, "", ledger) for _ in range(2)]
    try:
        await until(lambda: _exists(ledger))
        owner = (await journal.find(run_id)).owner
        await engine.enqueue([Delivery(run_id)])
        await until_status(journal, run_id, "satisfied")
        assert owner
        assert (await journal.find(run_id)).epoch == 1
    finally:
        for process in processes:
            process.kill()
        await engine.close()
    assert repeated(ledger) == {}
    assert len(ledger.read_text().splitlines()) == 1


async def _exists(file: Path) -> bool:
    return file.exists()


async def _suspended(journal: Journal, deliverer: InMemoryDeliverer) -> tuple[str, str]:
    """Return a suspended run and the path of its question."""
    run_id = await submit(asking, "draft", journal=journal, deliverer=deliverer)
    await until_status(journal, run_id, "suspended")
    [question] = await pending(journal, run_id)
    return run_id, question.path


async def test_of_two_answers_at_once_one_counts(journal: Journal, postgres_url: str) -> None:
    """Two people answer from two processes: one is refused, and the run has the other answer."""
    deliverer = InMemoryDeliverer()
    async with serving(Worker(journal=postgres_url, steps=[asking], deliverer=deliverer)):
        run_id, path = await _suspended(journal, deliverer)
        async with open_journal(postgres_url) as other:
            results = await asyncio.gather(
                answer(journal, run_id, path, "yes"),
                answer(other, run_id, path, "no"),
                return_exceptions=True,
            )
        await until_status(journal, run_id, "satisfied")
    refused = [isinstance(result, LoopwrightError) for result in results]
    assert sorted(refused) == [False, True]
    [answered] = [e for e in await journal.entries(run_id) if e.kind == "answered"]
    assert "yes" in str(answered.value) if refused == [False, True] else "no" in str(answered.value)


async def test_of_a_cancellation_and_an_answer_at_once_none_is_lost(
    journal: Journal, postgres_url: str
) -> None:
    """The run is cancelled, or it continued with the answer before; it is never left waiting."""
    deliverer = InMemoryDeliverer()
    async with serving(Worker(journal=postgres_url, steps=[asking], deliverer=deliverer)):
        run_id, path = await _suspended(journal, deliverer)
        async with open_journal(postgres_url) as other:
            await asyncio.gather(
                other.cancel(run_id), answer(journal, run_id, path, "yes"), return_exceptions=True
            )
        await until_status(journal, run_id, "satisfied", "cancelled")


async def test_permits_wait_for_a_restart_of_the_database(
    journal: Journal, postgres_server: PostgresServer
) -> None:
    """A call of a run does not fail because the database restarts while it asks for a permit or a pause."""
    runs = open_runs(journal)
    await runs.enter({"default": 1})
    assert await runs.permits.take("openai", Limits(cap=1)) == 0.0
    await asyncio.to_thread(postgres_server.stop, immediate=True)
    waiting = asyncio.create_task(runs.permits.paused("openai"))
    await asyncio.sleep(0)
    await asyncio.to_thread(postgres_server.start)
    assert await waiting == 0.0
    await runs.permits.release("openai")
    await runs.close()


async def test_a_worker_that_stops_after_a_restart_leaves_the_list(
    journal: Journal, postgres_url: str
) -> None:
    """Its connection is lost, so its row is closed over another one."""
    runs, readers = open_runs(journal), open_runs(journal)
    await runs.enter({"default": 1})
    assert len(await readers.workers()) == 1
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'INSERT INTO loopwright_queue.workers%'"
        )
    await runs.close()
    assert await readers.workers() == []
    await readers.close()
