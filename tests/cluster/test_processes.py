"""Workers in processes of their own, on PostgreSQL: they are killed, stopped and frozen."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from loopwright.cluster import Submission, submit, submit_all
from loopwright.journal import Journal, open_journal

from .process import EFFECTS, Process, poison, repeated, sums
from .waiting import until, until_status

pytestmark = pytest.mark.timeout(280)


@pytest.fixture(params=["pgqueuer", "celery", "temporal", "dbos"])
def deliverer(request: pytest.FixtureRequest) -> str:
    """Each engine, on its server."""
    if request.param == "celery":
        import kombu

        url = request.getfixturevalue("rabbitmq_url")
        with kombu.Connection(url) as connection, connection.channel() as channel:
            channel.queue_delete("loopwright.default")
        return f"celery:{url}"
    if request.param == "temporal":
        return f"temporal:{request.getfixturevalue('temporal_address')}"
    return str(request.param)


@pytest.fixture
async def journal(postgres_url: str) -> AsyncIterator[Journal]:
    """A journal in a fresh database."""
    store = open_journal(postgres_url)
    yield store
    await store.close()


async def _ended(journal: Journal, count: int) -> bool:
    return len(await journal.runs(limit=count, status="exhausted")) == count


async def test_the_runs_of_a_killed_worker_continue_on_another(
    deliverer: str, journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """All runs end with the same results, and each repeats at most the effect in progress."""
    ledger = tmp_path / "ledger"
    count = 40
    inputs = [({"number": n}, f"run {n}") for n in range(count)]
    await submit_all(Submission(sums), inputs, journal=journal, deliverer=deliverer)
    first = Process(postgres_url, deliverer, ledger)
    second = Process(postgres_url, deliverer, ledger)
    try:
        await until(lambda: _written(ledger, count))
        first.kill()
        await until(lambda: _ended(journal, count))
    finally:
        for process in (first, second):
            process.kill()
    rows = await journal.runs(limit=count)
    results = {row.input["number"]: (await journal.entries(row.run_id))[-1] for row in rows}
    assert {n: entry.value["output"]["sum"] for n, entry in results.items()} == {
        n: EFFECTS * n for n in range(count)
    }
    assert max(repeated(ledger).values(), default=0) <= 1


async def test_runs_delivered_twice_and_in_reverse_order_run_once(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """Each delivery is doubled, in reverse order and to two workers; no effect happens twice."""
    from loopwright.cluster import Delivery, open_deliverer

    ledger = tmp_path / "ledger"
    ids = await submit_all(
        Submission(sums), [({"number": n}, "") for n in range(30)], journal=journal
    )
    engine = open_deliverer("", postgres_url)
    await engine.remove(ids[::2])  # lost jobs are enqueued again too
    processes = [Process(postgres_url, "", ledger) for _ in range(2)]
    try:
        for _ in range(3):
            await engine.enqueue([Delivery(run_id) for run_id in reversed(ids)])
        await until(lambda: _ended(journal, 30))
    finally:
        for process in processes:
            process.kill()
        await engine.close()
    assert repeated(ledger) == {}


async def test_a_frozen_worker_writes_nothing_after_a_takeover(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """A worker that was frozen for longer than its lease loses its runs, and takes new ones afterwards."""
    ledger = tmp_path / "ledger"
    run_id = await submit(sums, {"number": 1, "wait": 2.0}, journal=journal)
    frozen = Process(postgres_url, "", ledger)
    try:
        await until(lambda: _written(ledger, 1))
        frozen.signal(signal.SIGSTOP)
        other = Process(postgres_url, "", ledger)
        try:
            await until_status(journal, run_id, "exhausted")
        finally:
            other.kill()
        entries = len(await journal.entries(run_id))
        frozen.signal(signal.SIGCONT)
        again = await submit(sums, {"number": 2}, journal=journal)
        await until_status(journal, again, "exhausted")
        assert len(await journal.entries(run_id)) == entries
        assert not frozen.ended
    finally:
        frozen.kill()
    assert repeated(ledger) == {run_id: 1}


async def test_a_poison_run_is_suspended_and_harms_no_other(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """A run that kills each of its workers is suspended; the others end."""
    ledger = tmp_path / "ledger"
    bad = await submit(poison, 1, journal=journal)
    good = await submit_all(
        Submission(sums), [({"number": n}, "") for n in range(5)], journal=journal
    )
    process = Process(postgres_url, "", ledger)

    async def suspended() -> bool:
        nonlocal process
        if process.ended:
            process.kill()
            process = Process(postgres_url, "", ledger)
        return (await journal.find(bad)).status == "suspended"

    try:
        async with asyncio.timeout(240):
            while not await suspended():
                await asyncio.sleep(0.05)
        for run_id in good:
            await until_status(journal, run_id, "exhausted")
    finally:
        process.kill()
    assert (await journal.find(bad)).reason == "needs_attention"


async def test_a_worker_that_is_told_to_stop_returns_its_runs(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """After SIGTERM a worker takes no new run, and lets those in progress end."""
    ledger = tmp_path / "ledger"
    inputs = [({"number": n, "wait": 0.1}, "") for n in range(10)]
    await submit_all(Submission(sums), inputs, journal=journal)
    process = Process(postgres_url, "", ledger, slots=4)
    try:
        await until(lambda: _written(ledger, 1))
        process.signal(signal.SIGTERM)
        await until(lambda: _has_ended(process))
        rows = await journal.runs(limit=10)
        assert {row.status for row in rows} <= {"exhausted", "queued"}
        assert any(row.status == "queued" for row in rows)
    finally:
        process.kill()
    assert repeated(ledger) == {}


async def _written(ledger: Path, lines: int) -> bool:
    return ledger.exists() and ledger.read_text().count("\n") >= lines


async def _has_ended(process: Process) -> bool:
    return process.ended
