"""Faults of the failure matrix with workers in processes: all killed, a failover, wrong clocks, an emptied queue."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from journal.proxy import Proxy
from loopwright.cluster import InMemoryDeliverer, Submission, Worker, submit, submit_all
from loopwright.cluster.schedules import at_tick
from loopwright.cluster.shared_runs import open_runs
from loopwright.cluster.sweeper import Sweeper
from loopwright.journal import Journal, open_journal
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.questions import answer, pending
from postgres_server import PostgresServer, ServerMissing, StandbyServer

from .process import EFFECTS, Process, add, ask, repeated, sums
from .waiting import serving, until, until_status

pytestmark = pytest.mark.timeout(280)
HOUR = 3600.0


@pytest.fixture
async def journal(postgres_url: str) -> AsyncIterator[Journal]:
    """A journal in a fresh database."""
    store = open_journal(postgres_url)
    yield store
    await store.close()


async def _ended(journal: Journal, count: int) -> bool:
    return len(await journal.runs(limit=count, status="exhausted")) == count


async def _written(ledger: Path, lines: int) -> bool:
    return ledger.exists() and ledger.read_text().count("\n") >= lines


async def _sums(journal: Journal, ids: list[str]) -> list[int]:
    return [(await journal.entries(run_id))[-1].value["output"]["sum"] for run_id in ids]


async def test_all_workers_are_killed_and_started_again(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """No worker is left for a while; afterwards all runs end, and each repeats at most one effect."""
    ledger, count = tmp_path / "ledger", 20
    inputs = [({"number": n}, "") for n in range(count)]
    ids = await submit_all(Submission(sums), inputs, journal=journal)
    processes = [Process(postgres_url, "", ledger) for _ in range(2)]
    try:
        await until(lambda: _written(ledger, count))
        for process in processes:
            process.kill()
        processes = [Process(postgres_url, "", ledger) for _ in range(2)]
        await until(lambda: _ended(journal, count))
    finally:
        for process in processes:
            process.kill()
    assert await _sums(journal, ids) == [EFFECTS * n for n in range(count)]
    assert max(repeated(ledger).values(), default=0) <= 1


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, StandbyServer]]:
    """A server, and a standby that has each of its commits."""
    try:
        primary = PostgresServer()
    except ServerMissing as missing:
        pytest.fail(str(missing)) if os.environ.get("CI") else pytest.skip(f"NOT TESTED: {missing}")
    try:
        standby = StandbyServer(primary)
    except ServerMissing as missing:  # the programs of a wheel may lack pg_basebackup
        primary.close()
        pytest.skip(f"NOT TESTED: {missing}")
    yield primary, standby
    primary.close()
    standby.close()


async def test_runs_survive_a_failover(
    servers: tuple[PostgresServer, StandbyServer], tmp_path: Path
) -> None:
    """The server dies and its standby takes over at the same address: all runs end, and none has failed."""
    primary, standby = servers
    ledger, count = tmp_path / "ledger", 20
    database = primary.create_database()
    with Proxy(primary.port) as proxy:
        url = primary.url_of(database, port=proxy.port)
        async with open_journal(url) as journal:
            inputs = [({"number": n}, "") for n in range(count)]
            ids = await submit_all(Submission(sums), inputs, journal=journal)
            processes = [Process(url, "", ledger) for _ in range(2)]
            try:
                await until(lambda: _written(ledger, 2 * count))
                await asyncio.to_thread(primary.stop, immediate=True)
                proxy.target = standby.port
                await asyncio.to_thread(standby.promote)
                await until(lambda: _ended(journal, count))
                assert await _sums(journal, ids) == [EFFECTS * n for n in range(count)]
            finally:
                for process in processes:
                    process.kill()
    # Nobody was killed, so no effect is repeated: each commit was on the standby.
    assert repeated(ledger) == {}


@pytest.mark.parametrize("clock", [HOUR, -HOUR])
async def test_the_clocks_of_two_workers_differ_by_an_hour(
    journal: Journal, postgres_url: str, tmp_path: Path, clock: float
) -> None:
    """Ownership, redeliveries and start times are those of the database: each run has one owner."""
    ledger, count = tmp_path / "ledger", 10
    inputs = [({"number": n, "wait": 0.1}, "") for n in range(count)]
    processes = [Process(postgres_url, "", ledger, 5, clock=offset) for offset in (0.0, clock)]
    try:
        ids = await submit_all(Submission(sums), inputs, journal=journal)
        later = await submit(sums, {"number": 7}, journal=journal, at=time.time() + 2)
        await until(lambda: _ended(journal, count + 1))
    finally:
        for process in processes:
            process.kill()
    assert {(await journal.find(run_id)).epoch for run_id in [*ids, later]} == {1}
    assert repeated(ledger) == {}


async def test_an_emptied_queue_is_filled_again(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """All jobs of the engine are deleted; the sweeper enqueues every run that has not ended."""
    ledger, count = tmp_path / "ledger", 30
    inputs = [({"number": n}, "") for n in range(count)]
    await submit_all(Submission(sums), inputs, journal=journal)
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DELETE FROM loopwright_queue.pgqueuer")
        processes = [Process(postgres_url, "", ledger, slots=3) for _ in range(2)]
        try:
            await until(lambda: _written(ledger, count))
            db.execute("DELETE FROM loopwright_queue.pgqueuer")
            await until(lambda: _ended(journal, count))
        finally:
            for process in processes:
                process.kill()
    assert repeated(ledger) == {}


async def test_an_answer_comes_while_the_worker_dies(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """The answer is in the inbox, whoever runs the run: another worker continues with it, once."""
    ledger = tmp_path / "ledger"
    processes = [Process(postgres_url, "", ledger) for _ in range(2)]
    try:
        ids = [await submit(ask, str(number), journal=journal) for number in range(6)]
        for run_id in ids:
            await until_status(journal, run_id, "suspended")

        async def answered(run_id: str) -> None:
            [question] = await pending(journal, run_id)
            await answer(journal, run_id, question.path, "yes")

        await asyncio.gather(*map(answered, ids), asyncio.to_thread(processes[0].kill))
        for run_id in ids:
            await until_status(journal, run_id, "satisfied")
    finally:
        for process in processes:
            process.kill()
    for run_id in ids:
        kinds = [entry.kind for entry in await journal.entries(run_id)]
        assert kinds.count("answered") == 1


async def test_a_disk_that_stays_full_fails_no_run(journal: Journal, postgres_url: str) -> None:
    """After its patience the worker gives the runs up, and the sweeper brings them back once there is space."""
    await journal.runs()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
        )
        db.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON loopwright.entries EXECUTE FUNCTION full_disk()"
        )
        impatient = PostgresJournal(postgres_url, patience=0.3)
        deliverer = InMemoryDeliverer()
        async with impatient, serving(Worker(journal=impatient, steps=[add], deliverer=deliverer)):
            run_id = await submit(add, {"number": 1}, journal=journal, deliverer=deliverer)
            await until_status(journal, run_id, "interrupted")
            db.execute("DROP TRIGGER full_disk ON loopwright.entries")
            await until_status(journal, run_id, "satisfied")


async def test_two_schedulers_create_one_run_for_each_time(
    journal: Journal, postgres_url: str
) -> None:
    """Two workers sweep at once, as after a cut network: each time of a schedule has one run."""
    row = Submission(add).row({"number": 1}, "")
    yesterday = at_tick(row, "0 6 * * *", "nightly", time.time() - 2 * 24 * HOUR)
    await journal.create([yesterday])
    deliverer = InMemoryDeliverer()
    async with PostgresJournal(postgres_url) as other:
        stores = [journal, other]
        shared = [open_runs(store) for store in stores]
        for runs in shared:
            await runs.enter({"default": 1})
        sweepers = [
            Sweeper(store, runs, deliverer) for store, runs in zip(stores, shared, strict=True)
        ]
        await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers))
        for runs in shared:
            await runs.close()
    rows = await journal.runs()
    assert [row.status for row in rows] == ["queued", "queued"]
    assert rows[-1].run_id == yesterday.run_id
