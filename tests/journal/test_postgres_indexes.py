"""The PostgreSQL journal: every reading goes by an index."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from loopwright.journal.postgres.journal import STATEMENTS, WATCHED, PostgresJournal, page_query
from loopwright.journal.views import Wanted

from .recording import info, recorded, rounds


@pytest.fixture
def filled(postgres_url: str) -> str:
    """A database with a run."""

    async def fill() -> None:
        async with PostgresJournal(postgres_url) as journal:
            await recorded(journal, info(), rounds(1))

    asyncio.run(fill())
    return postgres_url


def plan(url: str, statement: str, values: Any) -> str:
    """Return how PostgreSQL goes about a statement if it avoids scans and sorts."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET enable_seqscan=off; SET enable_sort=off; SET enable_bitmapscan=off")
        return "\n".join(
            str(row[0]) for row in db.execute(f"EXPLAIN {statement}", values).fetchall()
        )


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_reading_goes_by_index(filled: str, name: str) -> None:
    """A timeline, a page of iterations and contents are found by index, never by a scan."""
    statement = STATEMENTS[name]
    values: list[Any] = [1] * statement.count("%s")
    if name == "contents":
        values[1] = "[1]"
    elif name == "names":
        values = [""]
    elif "loop=%s" in statement or "loop>%s" in statement:
        values[1] = "refine"
    found = plan(filled, statement, values)
    assert "Seq Scan" not in found, found
    if name != "iterations":  # of all loops: sorts marks that are in the index
        assert "Sort" not in found, found


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(),
        Wanted(name="refine"),
        Wanted(reason="error"),
        Wanted(before=9),
        Wanted(after=1),
        Wanted(queue="q"),
        Wanted(queue="q", reason="error"),
    ],
)
def test_the_run_list_goes_by_index(filled: str, wanted: Wanted) -> None:
    """The list of runs is read newest first by an index, and sorts nothing."""
    found = plan(filled, *page_query(wanted, [1], "*"))
    assert "Seq Scan" not in found and "Sort" not in found, found


def test_watching_goes_by_index(filled: str) -> None:
    """What changed of a run is one row of each index."""
    assert "Seq Scan" not in plan(filled, WATCHED, ("run-1",))
