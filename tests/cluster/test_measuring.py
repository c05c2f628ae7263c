"""What a worker with telemetry sends about queues and takeovers, over OTLP/HTTP to a collector on loopback."""

from __future__ import annotations

from pathlib import Path

import psycopg

from loopwright.cluster import InMemoryDeliverer, Worker, submit
from loopwright.journal import Journal, open_journal
from loopwright.telemetry import over_http
from telemetry.sink import Server, attributes

from .process import Process, sums
from .waiting import serving, until, until_status


async def test_a_worker_measures_the_sweep_the_queues_and_its_takeovers(
    postgres_url: str, tmp_path: Path
) -> None:
    """A worker is killed, and a run waits in a queue that nobody serves: the next worker counts both."""
    async with open_journal(postgres_url) as journal:
        await submit(sums, {"number": 1}, journal=journal, queue="other")
        run_id = await submit(sums, {"number": 1, "wait": 0.5}, journal=journal)
        killed = Process(postgres_url, "", tmp_path / "ledger")
        await until_status(journal, run_id, "running")
        killed.kill()
        with psycopg.connect(postgres_url, autocommit=True) as db:  # as after 10 seconds
            db.execute("UPDATE loopwright_queue.sweeper SET until = now() - interval '1 second'")
        with Server() as sink:
            telemetry = over_http(sink.url)
            async with serving(Worker(journal=journal, steps=[sums], telemetry=telemetry)):
                await until_status(journal, run_id, "exhausted")  # a sweep or more later
            assert telemetry.close() == ""
            metrics = sink.metrics()
            names = [span.name for span in sink.spans()]
    [takeovers] = metrics["loopwright.takeovers"]
    assert (takeovers.as_int, attributes(takeovers)) == (1, {"loopwright.queue.name": "default"})
    waiting = {
        attributes(point)["loopwright.queue.name"]: point.as_int
        for point in metrics["loopwright.queue.waiting"]
    }
    assert waiting["other"] == 1
    assert all(point.as_double >= 0 for point in metrics["loopwright.queue.oldest"])
    [lag] = metrics["loopwright.sweep.lag"]
    assert lag.as_double > 0
    assert "loop sums" in names


async def test_a_run_that_was_given_back_is_no_takeover(postgres_url: str) -> None:
    """A worker ends as after SIGTERM and another one continues its run: no worker was lost."""
    async with open_journal(postgres_url) as journal:
        with Server() as sink:
            telemetry = over_http(sink.url)
            engine = InMemoryDeliverer()
            run_id = await submit(
                sums, {"number": 1, "wait": 0.1}, journal=journal, deliverer=engine
            )
            first = Worker(
                journal=journal, steps=[sums], deliverer=engine, drain=0.0, telemetry=telemetry
            )
            async with serving(first):
                await until(lambda: _has_begun(journal, run_id))
            await until_status(journal, run_id, "interrupted")
            second = Worker(journal=journal, steps=[sums], deliverer=engine, telemetry=telemetry)
            async with serving(second):
                await until_status(journal, run_id, "exhausted")
            assert telemetry.close() == ""
            metrics = sink.metrics()
    assert "loopwright.takeovers" not in metrics
    assert "loopwright.iterations" in metrics


async def _has_begun(journal: Journal, run_id: str) -> bool:
    return bool(await journal.entries(run_id))
