"""The signature test on a journal in PostgreSQL: kill -9 at writes, resume, the same result."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from crash.harness import POSITIONS, Reference, crash, reference
from postgres_server import PostgresServer

SAMPLE = (1, 9, 33)


def crash_on_server(
    server: PostgresServer, folder: Path, position: str, point: int, expected: Reference
) -> bool | str:
    """Kill the program at a point of its journal in a fresh database; see `crash`."""
    url = server.url_of(server.create_database())

    def end() -> None:
        """Let the killed process count as dead before its session has been silent for a while."""
        missing = psycopg.errors.UndefinedTable  # killed before its first transaction
        with suppress(missing), psycopg.connect(url, autocommit=True) as db:
            db.execute("UPDATE loopwright.owners SET closed=true")

    return crash(folder, position, point, expected, url=url, killed_for_good=end)


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_a_killed_run_resumes_to_the_same_result(
    tmp_path: Path, postgres_server: PostgresServer, position: str
) -> None:
    """I35, I36: any crash gives the result of the undisturbed run, and re-pays only what was in flight."""
    url = postgres_server.url_of(postgres_server.create_database())
    expected = reference(tmp_path / "reference", url=url)
    for point in SAMPLE:
        folder = tmp_path / f"{position}-{point}"
        assert not crash_on_server(postgres_server, folder, position, point, expected)
