"""What all tests share: how hard the properties are tried, and which event loop async tests use."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from rabbitmq_server import start_broker
from servers import ServerMissing
from temporal_server import TemporalServer

if TYPE_CHECKING:
    from postgres_server import PostgresServer

# No test writes into the state folder of the person, nor depends on what it knows. Set before a module of tests
# copies the environment; the folder is removed with this object, at the end.
_STATE = tempfile.TemporaryDirectory(prefix="loopwright-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name
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


Started = TypeVar("Started")


def _started(start: Callable[[], Started]) -> Started:
    """Start a server. Without its program the test is skipped, and fails in CI."""
    try:
        return start()
    except ServerMissing as missing:
        what = f"NOT TESTED: {missing}"
        pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for this process of tests."""
    from postgres_server import start_server

    server = _started(start_server)
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
    """The address of a RabbitMQ server."""
    server = _started(start_broker)
    yield server.url
    server.close()


@pytest.fixture(scope="session")
def temporal_address() -> Iterator[str]:
    """The address of Temporal's development server."""
    server = _started(TemporalServer)
    yield server.address
    server.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not tested, and why: a skipped test says nothing in the line of dots."""
    whys: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        why = why.removeprefix("Skipped: ").removeprefix("*** ").removeprefix("NOT TESTED: ")
        whys[f"{report.nodeid.partition('::')[0]}: {why}"] += 1
    for line, count in sorted(whys.items()):
        terminalreporter.write_line(f"NOT TESTED: {count} in {line}")
