"""All deliverers obey the rules of one suite."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable

import celery
import kombu
import psycopg
import pytest
from pgqueuer import PsycopgDriver, Queries
from pgqueuer.core.qm import QueueManager

from journal.proxy import Proxy
from loopwright import step
from loopwright.cluster import (
    Deliverer,
    InMemoryDeliverer,
    Submission,
    Worker,
    open_deliverer,
    submit,
)
from loopwright.cluster.deliverers import celery as celery_deliverer
from loopwright.cluster.deliverers import temporal as temporal_deliverer
from loopwright.cluster.deliverers.celery import worker_name
from loopwright.cluster.deliverers.pgqueuer import _Driver
from loopwright.cluster.delivery import Delivery
from loopwright.errors import ConfigurationError, JournalUnavailable
from loopwright.journal import MemoryJournal, open_journal
from loopwright.testing.deliverers import DelivererSuite

from .waiting import serving, until, until_status


class TestInMemory(DelivererSuite):
    """Deliveries in memory."""

    @pytest.fixture
    def address(self) -> str:
        """One deliverer per test."""
        self.deliverer = InMemoryDeliverer()
        return ""

    async def connect(self, address: str) -> Deliverer:
        """Return the deliverer of the test."""
        return self.deliverer


class TestPgQueuer(DelivererSuite):
    """Deliveries by PgQueuer, in a database of its own."""

    @pytest.fixture
    def address(self, postgres_url: str) -> str:
        """A fresh database per test."""
        return postgres_url

    async def connect(self, address: str) -> Deliverer:
        """Return a deliverer on the database."""
        return open_deliverer("pgqueuer", address)


async def test_the_options_of_the_url_apply_to_each_session(postgres_url: str) -> None:
    """The journal, the state of workers and the engine use them in place of the usual ones."""
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}application_name=loops"
    async with open_journal(url) as journal, Worker(journal=journal):
        await submit(str.upper, "a", journal=journal)
        with psycopg.connect(postgres_url) as db:
            names = db.execute(
                "SELECT DISTINCT application_name FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
    assert names == [("loops",)]


async def test_a_worker_does_not_hear_that_deliveries_of_others_ended(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many workers this is most of what the server does; a new delivery is heard, and its end by its own worker."""
    heard: list[str] = []
    listening = asyncio.Event()
    listen = _Driver.add_listener

    async def add(driver: _Driver, channel: str, callback: Callable[[str], None]) -> None:
        def note(payload: str) -> None:
            if operation := json.loads(payload).get("operation"):
                heard.append(operation)
            else:  # a test of the listener, when the worker starts
                listening.set()
            callback(payload)

        await listen(driver, channel, note)

    monkeypatch.setattr(_Driver, "add_listener", add)
    worker, other = (open_deliverer("pgqueuer", postgres_url) for _ in range(2))
    await worker.prepare()

    async def end(_: str) -> bool:
        return True

    async def hears(*operations: str) -> None:
        async def so_far() -> bool:
            return heard == list(operations)

        await until(so_far)

    serving = asyncio.create_task(worker.serve(end, queues={"default": 1}))
    async with asyncio.timeout(20):
        await listening.wait()
    await other.enqueue([Delivery("first", "elsewhere")])
    await other.remove(["first"])
    await other.enqueue([Delivery("second", "default")])
    await hears("insert", "insert", "delete")
    serving.cancel()
    await asyncio.wait([serving])
    await asyncio.gather(worker.close(), other.close())


async def test_a_delivery_of_a_lost_worker_does_not_wait(postgres_url: str) -> None:
    """Its job stays, but the sweeper enqueues the run, which wakes a worker before the next poll of the engine."""
    engine, delivery = open_deliverer("pgqueuer", postgres_url), Delivery("r", "default")
    await engine.prepare()
    await engine.enqueue([delivery])
    picked = "UPDATE loopwright_queue.pgqueuer SET status='picked', heartbeat=now() - %s * interval '1 second'"
    for age, waits in ((0, {"r"}), (3600, set[str]())):
        with psycopg.connect(postgres_url, autocommit=True) as db:
            db.execute(picked, (age,))
        assert await engine.waiting([delivery]) == waits
    await engine.close()


class TestCelery(DelivererSuite):
    """Deliveries by Celery on RabbitMQ; the broker finds no single task, so `waiting` is a bound."""

    exact = False

    @pytest.fixture
    def address(self, rabbitmq_url: str) -> str:
        """The broker without the queues of earlier tests."""
        with kombu.Connection(rabbitmq_url) as connection, connection.channel() as channel:
            for name in ("default", "slow", "fast", "mine", "others"):
                channel.queue_delete(f"loopwright.{name}")
        return rabbitmq_url

    async def connect(self, address: str) -> Deliverer:
        """Return a deliverer on the broker."""
        return open_deliverer(f"celery:{address}", "")


class TestTemporal(DelivererSuite):
    """Deliveries by Temporal's development server, which has no order of priority."""

    ordered = False

    @pytest.fixture
    async def address(self, temporal_address: str) -> AsyncIterator[str]:
        """The server; the workflows of a test end with it."""
        yield temporal_address
        deliverer = await self.connect(temporal_address)
        await deliverer.prepare()
        names = ["r1", "r2", "low", "high", "fast1", *(f"slow{number}" for number in range(4))]
        await deliverer.remove(names)

    async def connect(self, address: str) -> Deliverer:
        """Return a deliverer on the server."""
        return open_deliverer(f"temporal:{address}", "")


class TestDbos(DelivererSuite):
    """Deliveries by DBOS, which leaves the runs of a dead worker to the sweeper."""

    redelivers = False

    @pytest.fixture
    def address(self, postgres_url: str) -> str:
        """A fresh database per test."""
        return postgres_url

    async def connect(self, address: str) -> Deliverer:
        """Return a deliverer on the database."""
        return open_deliverer("dbos", address)


def test_redis_is_refused() -> None:
    """Celery on Redis loses runs of dead workers, so its address is an error before anything starts."""
    with pytest.raises(ConfigurationError, match="redis"):
        open_deliverer("celery:redis://localhost/0", "")


async def test_a_namespace_that_is_not_there_is_named_before_a_run_is_stored(
    temporal_address: str,
) -> None:
    """A connection does not notice a missing namespace, and a retry of a failed submission would repeat the run."""
    engine = open_deliverer(f"temporal:{temporal_address}/nothere", "")
    journal = MemoryJournal()
    with pytest.raises(ConfigurationError, match="has no namespace 'nothere'"):
        await submit(str.upper, "a", journal=journal, deliverer=engine)
    await engine.close()
    assert not await journal.runs()


async def test_the_journal_is_named_before_the_engine_that_shares_its_database() -> None:
    """The journal's message has the remedy; the engine's would be that of its library."""
    with pytest.raises(JournalUnavailable, match="cannot be reached"):
        await submit(str.upper, "a", journal="postgres://127.0.0.1:1/nowhere")


async def test_a_broker_that_cannot_be_used_is_named_in_one_sentence(rabbitmq_url: str) -> None:
    """A wrong password and a closed port are mistakes of the configuration, not defects."""
    wrong = rabbitmq_url.replace("//guest:guest@", "//guest:wrong@")
    assert wrong != rabbitmq_url
    for address, message in (
        (wrong, "refuses the user 'guest'"),
        ("amqp://127.0.0.1:1//", ":1 cannot be reached"),
    ):
        engine = open_deliverer(f"celery:{address}", "")
        with pytest.raises(ConfigurationError, match=message):
            await engine.prepare()
        await engine.close()


def test_an_unknown_deliverer_is_named() -> None:
    """The message names the nearest deliverer."""
    with pytest.raises(ConfigurationError, match="pgqueuer"):
        open_deliverer("pgqueue", "memory:")


def test_pgqueuer_needs_a_postgresql_url() -> None:
    """The default deliverer refuses a journal of one machine."""
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        open_deliverer("", "sqlite:runs.db")


async def test_pgqueuer_and_the_journal_create_their_schema_at_once(postgres_url: str) -> None:
    """Several processes submit to a fresh database: the tables of both are created once."""
    await asyncio.gather(
        *(submit(len, "x", journal=postgres_url, id=f"run {number}") for number in range(4))
    )
    async with open_journal(postgres_url) as journal:
        assert len(await journal.runs()) == 4


async def test_pgqueuer_hears_its_first_test_of_the_listener(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine tests its listener before it has begun to listen, and the test does not fail after 10 seconds."""
    sent, passed = asyncio.Event(), asyncio.Event()
    notify, listen = Queries.notify_health_check, PsycopgDriver.add_listener
    check = QueueManager.listener_healthy

    async def noted(self: Queries, event: object) -> None:
        await notify(self, event)
        sent.set()

    async def late(self: PsycopgDriver, channel: str, callback: object) -> None:
        await sent.wait()
        await listen(self, channel, callback)

    async def checked(self: QueueManager, **options: object) -> object:
        event = await check(self, **options)
        passed.set()
        return event

    monkeypatch.setattr(Queries, "notify_health_check", noted)
    monkeypatch.setattr(PsycopgDriver, "add_listener", late)
    monkeypatch.setattr(QueueManager, "listener_healthy", checked)
    async with serving(Worker(journal=postgres_url)):
        await asyncio.wait_for(passed.wait(), 9)


async def test_pgqueuer_starts_again_when_it_lost_its_session(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The session of the worker's engine ends: the engine is started again, and runs are delivered.

    The log has one sentence and no traceback of PgQueuer.
    """
    shout = step(str.upper, name="shout", fingerprint="shout/1")
    async with (
        open_journal(postgres_url) as journal,
        serving(Worker(journal=postgres_url, steps=[shout])),
    ):
        first = await submit(shout, "a", journal=journal)
        await until_status(journal, first, "satisfied")
        with psycopg.connect(postgres_url, autocommit=True) as db:
            ended = db.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'loopwright queue' AND pid IN ("
                "SELECT pid FROM pg_stat_activity WHERE backend_start = (SELECT min(backend_start) FROM "
                "pg_stat_activity WHERE datname = current_database() AND application_name = 'loopwright queue'))"
            ).fetchone()
        assert ended == (1,)
        second = await submit(shout, "b", journal=journal)
        await until_status(journal, second, "satisfied")

        async def restarted() -> bool:
            return "a connection of PgQueuer was lost" in caplog.text

        await until(restarted)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the deliverer stopped (ConnectionError: a connection of PgQueuer was lost) and is started again"
    ]


@pytest.mark.parametrize("engine", ["celery", "temporal"])
async def test_a_worker_takes_runs_again_after_its_server_went_silent(
    engine: str, rabbitmq_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A balancer forgets the connections of a worker to its broker or to Temporal: it connects again."""
    monkeypatch.setattr(celery_deliverer, "_HEARTBEAT", 1.0)
    monkeypatch.setattr(temporal_deliverer, "_PING", 500)
    monkeypatch.setattr(temporal_deliverer, "_PONG", 500)
    shout = step(str.upper, name="shout", fingerprint="shout/1")
    address = rabbitmq_url if engine == "celery" else temporal_address
    found = re.search(r"(?<=:)\d+", address)
    assert found is not None
    journal, direct = MemoryJournal(), open_deliverer(f"{engine}:{address}", "")
    queue = Submission(shout, queue="silent")
    await direct.prepare()
    with Proxy(int(found[0])) as proxy:
        through = address.replace(found[0], str(proxy.port))
        worker = Worker(
            journal=journal,
            steps=[shout],
            deliverer=open_deliverer(f"{engine}:{through}", ""),
            queues={"silent": 2},
        )
        async with serving(worker):
            first = await submit(queue, "a", journal=journal, deliverer=direct)
            await until_status(journal, first, "satisfied")
            proxy.one_way = "silent"
            await asyncio.sleep(0.5)  # each thread of the proxy looks every 20 ms
            proxy.one_way = ""
            second = await submit(queue, "b", journal=journal, deliverer=direct)
            await until_status(journal, second, "satisfied", patience=20.0)
    await direct.close()


async def test_celery_inspect_lists_a_worker(rabbitmq_url: str) -> None:
    """`celery status` and `celery inspect` show a worker with its queues and runs; other commands are refused."""
    may_end = asyncio.Event()

    async def wait(value: str) -> str:
        await may_end.wait()
        return value

    waiting = step(wait, name="wait", fingerprint="wait/1")
    journal = MemoryJournal()
    engine = open_deliverer(f"celery:{rabbitmq_url}", "")
    await engine.prepare()
    async with serving(
        Worker(journal=journal, steps=[waiting], deliverer=engine, queues={"inspected": 3})
    ):
        run_id = await submit(
            Submission(waiting, queue="inspected"), "a", journal=journal, deliverer=engine
        )
        await until_status(journal, run_id, "running")
        app = celery.Celery(broker=rabbitmq_url)
        inspect = app.control.inspect([worker_name()], timeout=5.0)
        ask = asyncio.to_thread
        assert await ask(inspect.ping) == {worker_name(): {"ok": "pong"}}
        active = await ask(inspect.active)
        assert [task["id"] for task in active[worker_name()]] == [run_id]
        queues = await ask(inspect.active_queues)
        assert [queue["name"] for queue in queues[worker_name()]] == ["loopwright.inspected"]
        stats = await ask(inspect.stats)
        assert stats[worker_name()]["pool"]["max-concurrency"] == 3
        refused = await ask(app.control.pool_grow, 1, [worker_name()], reply=True, timeout=5.0)
        assert "does not support" in refused[0][worker_name()]["error"]
        may_end.set()
        await until_status(journal, run_id, "satisfied")
    await engine.close()
