"""Workers that delete old runs, and what `prune` deletes beside them."""

from __future__ import annotations

import logging
import time

import psycopg
import pytest

from loopwright import Loop, MaxIterations
from loopwright.cluster import InMemoryDeliverer, Worker, submit
from loopwright.cluster.shared_runs import open_runs
from loopwright.errors import ConfigurationError
from loopwright.journal import MemoryJournal
from loopwright.journal.postgres.journal import PostgresJournal

from .waiting import serving, until, until_status

count = Loop(lambda n: n + 1, until=MaxIterations(1), name="count")


async def test_a_worker_that_sweeps_deletes_what_ended_long_ago(postgres_url: str) -> None:
    """An old run is deleted; a new one and one that waits stay."""
    engine = InMemoryDeliverer()
    async with PostgresJournal(postgres_url) as journal:
        worker = Worker(journal=journal, steps=[count], deliverer=engine)
        async with serving(worker):
            ids = [await submit(count, n, journal=journal, deliverer=engine) for n in range(2)]
            for run_id in ids:
                await until_status(journal, run_id, "exhausted")
        waits = await submit(count, 1, journal=journal, queue="other", deliverer=engine)
        with psycopg.connect(postgres_url, autocommit=True) as db:
            # The seal covers the time, but no deletion reads the seal.
            db.execute(
                "UPDATE loopwright.runs SET updated = updated - 86400 WHERE run_id = %s", (ids[0],)
            )

            async def deleted() -> bool:
                rows = db.execute("SELECT run_id FROM loopwright.runs ORDER BY id").fetchall()
                return [run_id for (run_id,) in rows] == [ids[1], waits]

            keeping = Worker(journal=journal, deliverer=engine, retain=3600.0)
            async with serving(keeping):
                await until(deleted)


async def test_a_worker_goes_on_when_it_may_not_delete(
    postgres_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has the reason once, however often it tries, and it runs what is submitted."""
    monkeypatch.setattr("loopwright.cluster.sweeper._BETWEEN_REMOVALS", 0.0)
    engine = InMemoryDeliverer()
    async with PostgresJournal(postgres_url) as journal:
        await journal.runs()
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE insufficient_privilege USING MESSAGE = 'not allowed'; END $$"
            )
            db.execute(
                "CREATE TRIGGER refuse BEFORE DELETE ON loopwright_queue.hosts EXECUTE FUNCTION refuse()"
            )
            worker = Worker(journal=journal, steps=[count], deliverer=engine, retain=60.0)
            with caplog.at_level(logging.DEBUG, "loopwright.cluster"):
                async with serving(worker):

                    def told() -> list[int]:
                        return [
                            one.levelno
                            for one in caplog.records
                            if "could not be deleted" in one.message
                        ]

                    async def tried() -> bool:
                        return len(told()) > 2

                    await until(tried)
                    assert [level for level in told() if level > logging.INFO] == [logging.WARNING]
                    run_id = await submit(count, 1, journal=journal, deliverer=engine)
                    await until_status(journal, run_id, "exhausted")


async def test_prune_deletes_what_workers_recorded_about_ended_runs(postgres_url: str) -> None:
    """The reasons of returns and the hosts of workspaces go with time; those of open runs stay."""
    async with PostgresJournal(postgres_url) as journal:
        ids = [
            await submit(count, n, journal=journal, deliverer=InMemoryDeliverer()) for n in range(2)
        ]
        runs = open_runs(journal)
        await runs.prepare()
        for run_id in ids:
            await runs.put_back(run_id, delay=60.0, reason="no such step")
            await runs.pin(run_id, "host")
        await journal.cancel(ids[0])
        with psycopg.connect(postgres_url, autocommit=True) as db:
            # Its row stays, because a fork refers to it.
            db.execute("INSERT INTO loopwright.forks SELECT id + 1, id FROM loopwright.runs")
            assert await journal.prune(time.time() + 60) == 0
            for table in ("returned", "hosts"):
                left = db.execute(f"SELECT run_id FROM loopwright_queue.{table}").fetchall()
                assert left == [(ids[1],)]
        await runs.close()


def test_a_journal_that_cannot_be_pruned_is_refused() -> None:
    """One sentence names a journal that can."""
    with pytest.raises(ConfigurationError, match="retain: the runs of this journal cannot be"):
        Worker(journal=MemoryJournal(), deliverer=InMemoryDeliverer(), retain=60.0)
