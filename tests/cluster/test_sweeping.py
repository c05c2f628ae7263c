"""What the sweeper brings to its start, whatever waits beside it, whoever leads, and whatever the clock of a worker says."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from journal.proxy import Proxy
from loopwright.cluster import Submission, submit, submit_all
from loopwright.cluster.schedules import at_tick
from loopwright.cluster.shared_runs import open_runs
from loopwright.journal import Journal, RunInfo, open_journal
from loopwright.journal.questions import runs_of_schedule
from postgres_server import PostgresServer

from .process import Process, repeated, sums
from .waiting import until, until_status

pytestmark = pytest.mark.timeout(280)
HOUR = 3600.0
SOON = 12.0  # seconds until a run that should start at once has failed


@pytest.fixture
async def journal(postgres_url: str) -> AsyncIterator[Journal]:
    """A journal in a fresh database."""
    store = open_journal(postgres_url)
    yield store
    await store.close()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """The processes of a test, which are killed at its end."""
    started: list[Process] = []
    yield started
    for process in started:
        process.kill()


async def _serve(journal: Journal, processes: list[Process], process: Process) -> None:
    """Wait until a worker is registered, so that the earlier ones lead."""
    processes.append(process)
    await journal.runs()  # creates the tables
    runs = open_runs(journal)

    async def registered() -> bool:
        return any(one.owner.endswith(f":{process.pid}") for one in await runs.workers())

    try:
        await until(registered)
    finally:
        await runs.close()


async def test_a_backlog_that_nobody_serves_stops_no_other_queue(
    journal: Journal, postgres_url: str, tmp_path: Path, processes: list[Process]
) -> None:
    """1,100 runs wait in a queue without a worker; runs of another queue start at their time, those of cron too."""
    waiting = Submission(sums, queue="nobody")
    await journal.create([waiting.row({"number": n}, "") for n in range(1100)])
    later = await submit(sums, {"number": 7}, journal=journal, at=time.time() + 1)
    tick = at_tick(Submission(sums).row({"number": 1}, ""), "* * * * *", "minutely", _now() - 120)
    await journal.create([tick])
    processes.append(Process(postgres_url, "", tmp_path / "ledger"))
    await until_status(journal, later, "exhausted", patience=SOON)
    await until_status(journal, tick.run_id, "exhausted", patience=SOON)
    rows = await runs_of_schedule(journal, "minutely", status="queued")
    assert [row.wake_at > tick.wake_at for row in rows] == [True]


async def test_a_run_whose_time_has_come_starts_before_those_that_wait(
    journal: Journal, postgres_url: str, tmp_path: Path, processes: list[Process]
) -> None:
    """All slots are busy for long with runs of the same queue: a scheduled run has the next free one."""
    waiting = [({"number": 1, "wait": 0.2}, "") for _ in range(60)]
    await submit_all(Submission(sums), waiting, journal=journal)
    later = await submit(sums, {"number": 7}, journal=journal, at=time.time() + 1)
    processes.append(Process(postgres_url, "", tmp_path / "ledger", slots=2))
    await until_status(journal, later, "exhausted", patience=SOON)
    assert len(await journal.runs(limit=60, status="queued")) > 30


@pytest.mark.parametrize("fault", ["stopped", "lost"])
async def test_another_worker_sweeps_when_the_leader_is_silent(
    journal: Journal,
    postgres_server: PostgresServer,
    postgres_url: str,
    tmp_path: Path,
    processes: list[Process],
    fault: str,
) -> None:
    """The leader is frozen, or its machine is lost without a word: after its lease another worker sweeps."""
    ledger = tmp_path / "ledger"
    with Proxy(postgres_server.port) as proxy:
        through = postgres_server.url_of(postgres_url.rpartition("/")[2], port=proxy.port)
        leader = Process(through, "", ledger, lease=2.0)
        await _serve(journal, processes, leader)
        # Only a sweep starts it, so that afterwards the first worker leads.
        first = await submit(sums, {"number": 1}, journal=journal, at=time.time() - 1)
        await until_status(journal, first, "exhausted")
        await _serve(journal, processes, Process(postgres_url, "", ledger, lease=2.0))
        if fault == "stopped":
            leader.signal(signal.SIGSTOP)
        else:
            proxy.frozen = True
        later = await submit(sums, {"number": 2}, journal=journal, at=time.time() + 0.5)
        try:
            await until_status(journal, later, "exhausted", patience=SOON)
        finally:
            leader.kill()
    assert repeated(ledger) == {}


@pytest.mark.parametrize("clock", [-3 * HOUR, 26 * HOUR])
async def test_a_scheduled_run_starts_once_whatever_the_clock_of_its_worker(
    journal: Journal, postgres_url: str, tmp_path: Path, processes: list[Process], clock: float
) -> None:
    """The clock of the database says when a run starts: not delivered in vain, not early, not twice."""
    ledger = tmp_path / "ledger"
    processes.append(Process(postgres_url, "", ledger, clock=clock))
    soon = await submit(sums, {"number": 1}, journal=journal, at=time.time() + 1)
    later = await submit(sums, {"number": 2}, journal=journal, at=time.time() + 2 * HOUR)
    await until_status(journal, soon, "exhausted", patience=SOON)
    assert (await journal.find(soon)).epoch == 1
    assert (await journal.find(later)).status == "queued"
    assert repeated(ledger) == {}


@pytest.mark.parametrize("clock", [-3 * HOUR, 26 * HOUR])
async def test_the_next_tick_is_that_of_the_database(
    journal: Journal, postgres_url: str, tmp_path: Path, processes: list[Process], clock: float
) -> None:
    """A leader with a wrong clock neither skips times of a schedule nor adds times that have passed."""
    began = _now()
    row = Submission(sums).row({"number": 1}, "")
    tick = at_tick(row, "* * * * *", "minutely", began - 600)
    await journal.create([tick])
    processes.append(Process(postgres_url, "", tmp_path / "ledger", clock=clock))

    async def is_next() -> bool:
        rows = await runs_of_schedule(journal, "minutely")
        times = {
            one.wake_at for one in rows if one.run_id != tick.run_id and one.status == "queued"
        }
        return any(began < at <= _now() + 60 for at in times) and len(rows) <= 3

    await until(is_next, SOON)


@pytest.mark.parametrize("clock", [-3 * HOUR, 26 * HOUR])
async def test_a_lost_delivery_is_repeated_whatever_the_clock_of_the_leader(
    journal: Journal, postgres_url: str, tmp_path: Path, processes: list[Process], clock: float
) -> None:
    """A run whose delivery never reached the engine is enqueued after its grace, by the clock of the database."""
    row: RunInfo = Submission(sums).row({"number": 3}, "")
    await journal.create([row])
    processes.append(Process(postgres_url, "", tmp_path / "ledger", clock=clock))
    await until_status(journal, row.run_id, "exhausted", patience=SOON)
    assert (await journal.find(row.run_id)).epoch == 1


def _now() -> float:
    # The database of a test is on this machine.
    return time.time()
