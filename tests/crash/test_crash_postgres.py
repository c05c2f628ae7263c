"""The signature test on a journal in PostgreSQL: kill -9 at writes, resume, the same result."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from crash.harness import POSITIONS, crash, reference
from postgres_server import PostgresServer

SAMPLE = (1, 9, 33)


@pytest.mark.slow
@pytest.mark.parametrize("position", POSITIONS)
def test_a_killed_run_resumes_to_the_same_result(
    tmp_path: Path, postgres_server: PostgresServer, position: str
) -> None:
    """I35, I36: any crash gives the result of the undisturbed run, and re-pays only what was in flight."""

    def url() -> str:
        return postgres_server.url_of(postgres_server.create_database())

    expected = reference(tmp_path / "reference", url=url())
    for point in SAMPLE:
        own = url()

        def end(database: str = own) -> None:
            """Let the killed process count as dead before its session has been silent for a while."""
            missing = psycopg.errors.UndefinedTable  # killed before its first transaction
            with suppress(missing), psycopg.connect(database, autocommit=True) as db:
                db.execute("UPDATE loopwright.owners SET closed=true")

        folder = tmp_path / f"{position}-{point}"
        assert not crash(folder, position, point, expected, url=own, killed_for_good=end)
