"""Workers whose connections go silent or end, and how many connections and slots they use."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from journal.proxy import Proxy
from loopwright.cluster import (
    Handle,
    InMemoryDeliverer,
    Submission,
    Worker,
    submit,
    submit_all,
)
from loopwright.journal import Journal, open_journal
from loopwright.journal.postgres import connection
from postgres_server import PostgresServer

from .process import Process, repeated, sums
from .waiting import serving, until, until_status

pytestmark = pytest.mark.timeout(280)
SOON = 12.0  # seconds until what should happen within a second or two has failed
SLOTS = 2


@pytest.fixture
async def journal(postgres_url: str) -> AsyncIterator[Journal]:
    """A journal in a fresh database."""
    store = open_journal(postgres_url)
    await store.runs()  # creates the tables
    yield store
    await store.close()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    """A proxy before the server."""
    with Proxy(postgres_server.port) as made:
        yield made


@pytest.fixture
def through(postgres_server: PostgresServer, postgres_url: str, proxy: Proxy) -> str:
    """The URL of the database by the proxy."""
    return postgres_server.url_of(postgres_url.rpartition("/")[2], port=proxy.port)


async def _go_silent(proxy: Proxy) -> None:
    """Let all open connections be silent for ever; new ones are served."""
    proxy.one_way = "silent"
    await asyncio.sleep(0.5)  # each thread of the proxy looks every 20 ms
    proxy.one_way = ""


@pytest.mark.parametrize("engine", ["pgqueuer", "dbos"])
async def test_a_worker_takes_runs_again_after_its_connections_went_silent(
    journal: Journal, through: str, proxy: Proxy, tmp_path: Path, engine: str
) -> None:
    """A balancer forgets all connections of a worker: it connects again and takes the next run."""
    worker = Process(through, engine, tmp_path / "ledger", silence=1.0, patience=5.0)
    try:
        before = await submit(sums, {"number": 1}, journal=journal, deliverer=engine)
        await until_status(journal, before, "exhausted")
        await _go_silent(proxy)
        after = await submit(sums, {"number": 2}, journal=journal, deliverer=engine)
        await until_status(journal, after, "exhausted", patience=SOON)
        assert not worker.ended
    finally:
        worker.kill()


async def test_a_worker_takes_no_deliveries_while_its_journal_is_silent(
    journal: Journal, through: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine of another server delivers on while the journal is silent: its runs are left to other workers."""
    monkeypatch.setattr(connection, "SILENCE", 1.0)
    deliverer = _Noting()
    async with (
        open_journal(through) as silent,
        serving(Worker(journal=silent, steps=[sums], deliverer=deliverer)),
    ):
        await until(deliverer.is_serving)
        proxy.frozen = True
        await until(deliverer.is_idle, SOON)
        proxy.frozen = False
        run_id = await submit(sums, {"number": 1}, journal=journal, deliverer=deliverer)
        await until_status(journal, run_id, "exhausted", patience=SOON)


@pytest.mark.parametrize("busy", [False, True])
async def test_a_worker_with_silent_connections_stops_in_its_time(
    journal: Journal, through: str, proxy: Proxy, tmp_path: Path, busy: bool
) -> None:
    """SIGTERM ends it within the seconds of `drain` and of its limits, though no connection answers any more."""
    ledger = tmp_path / "ledger"
    wait = 30.0 if busy else 0.0
    worker = Process(through, "", ledger, silence=1.0, patience=1.0, drain=1.0)
    try:
        await submit(sums, {"number": 1, "wait": wait}, journal=journal)
        await until(lambda: _exists(ledger))
        if not busy:
            await until(lambda: _over(journal, 1))
        proxy.frozen = True  # new connections get no answer either
        worker.signal(signal.SIGTERM)
        await until(lambda: _ended(worker), SOON)
    finally:
        worker.kill()


async def test_slots_count_what_runs_after_a_restart_of_the_database(
    journal: Journal, postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """The engine of a worker starts again while its runs continue: it never holds more runs than slots."""
    ledger = tmp_path / "ledger"
    inputs = [({"number": n, "wait": 1.0}, "") for n in range(2 * SLOTS)]
    await submit_all(Submission(sums), inputs, journal=journal)
    worker = Process(postgres_url, "", ledger, SLOTS)
    most = 0

    async def over() -> bool:
        nonlocal most
        rows = await journal.runs(limit=2 * SLOTS)
        most = max(most, sum(row.status == "running" for row in rows))
        return most > SLOTS or all(row.status == "exhausted" for row in rows)

    try:
        await until(lambda: _running(journal, SLOTS))
        await asyncio.to_thread(postgres_server.restart, immediate=True)
        await until(over)
    finally:
        worker.kill()
    assert most == SLOTS
    assert repeated(ledger) == {}


async def test_an_idle_worker_has_at_most_three_connections(
    journal: Journal, postgres_url: str, tmp_path: Path
) -> None:
    """A worker that has served a run and waits closes its other sessions."""
    worker = Process(postgres_url, "", tmp_path / "ledger")
    try:
        run_id = await submit(sums, {"number": 1}, journal=journal)
        await until_status(journal, run_id, "exhausted")
        await journal.close()
        with psycopg.connect(postgres_url, autocommit=True) as db:

            async def few() -> bool:
                row = db.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid()"
                ).fetchone()
                return row is not None and 1 <= int(str(row[0])) <= 3

            await until(few)
    finally:
        worker.kill()


class _Noting(InMemoryDeliverer):
    """A deliverer that says whether a worker takes its deliveries."""

    _serving = False

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs until cancelled."""
        self._serving = True
        try:
            await super().serve(handle, queues=queues)
        finally:
            self._serving = False

    async def is_serving(self) -> bool:
        """Return whether it delivers."""
        return self._serving

    async def is_idle(self) -> bool:
        """Return whether it does not."""
        return not self._serving


async def _exists(file: Path) -> bool:
    return file.exists()


async def _ended(worker: Process) -> bool:
    return worker.ended


async def _over(journal: Journal, count: int) -> bool:
    return len(await journal.runs(limit=count, status="exhausted")) == count


async def _running(journal: Journal, count: int) -> bool:
    return len(await journal.runs(limit=count, status="running")) == count
