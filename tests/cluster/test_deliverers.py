"""All deliverers obey the rules of one suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import kombu
import pytest

from loopwright.cluster import Deliverer, InMemoryDeliverer, open_deliverer, submit
from loopwright.errors import ConfigurationError
from loopwright.journal import open_journal
from loopwright.testing.deliverers import DelivererSuite


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
        *(submit(len, "x", journal=postgres_url, key=f"run {number}") for number in range(4))
    )
    async with open_journal(postgres_url) as journal:
        assert len(await journal.runs()) == 4
