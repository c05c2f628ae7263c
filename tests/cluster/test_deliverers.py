"""All deliverers obey the rules of one suite."""

from __future__ import annotations

import pytest

from loopwright.cluster import Deliverer, InMemoryDeliverer, open_deliverer
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
