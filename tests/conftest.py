"""What all tests share: how hard the properties are tried, and which event loop async tests use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from postgres_server import PostgresServer

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("default", max_examples=100, deadline=None, suppress_health_check=_QUIET)
settings.register_profile(
    "thorough", max_examples=10_000, deadline=None, suppress_health_check=_QUIET
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, which is what the engine is written for."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_paid_model() -> None:
    """No test may reach a real model: if the library that could is loaded, it is told so."""
    models = sys.modules.get("pydantic_ai.models")
    if models is not None:
        models.ALLOW_MODEL_REQUESTS = False


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for this process of tests. Without one a test is skipped, and fails in CI."""
    from postgres_server import ServerMissing, start_server

    try:
        server = start_server()
    except ServerMissing as missing:
        what = f"NOT TESTED: {missing}"
        pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh database."""
    name = postgres_server.create_database()
    yield postgres_server.url_of(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    """The address of a RabbitMQ server. Without one a test is skipped, and fails in CI."""
    from rabbitmq_server import BrokerMissing, start_broker

    try:
        server = start_broker()
    except BrokerMissing as missing:
        what = f"NOT TESTED: {missing}"
        pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)
    yield server.url
    server.close()


@pytest.fixture(scope="session")
def temporal_address() -> Iterator[str]:
    """The address of Temporal's development server. Without one a test is skipped, and fails in CI."""
    from temporal_server import TemporalMissing, TemporalServer

    try:
        server = TemporalServer()
    except TemporalMissing as missing:
        what = f"NOT TESTED: {missing}"
        pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)
    yield server.address
    server.close()
