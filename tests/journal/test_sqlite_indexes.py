"""The SQLite journal: every reading goes by an index."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest

from loopwright.journal.sqlite import tables
from loopwright.journal.sqlite.journal import STATEMENTS, page_query
from loopwright.journal.views import Wanted


def plans(statement: str, values: list[Any]) -> list[str]:
    """How SQLite goes about a statement on empty tables."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        tables.migrate(db, 0)
        rows = db.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
        return [row[3] for row in rows]


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_reading_goes_by_index(name: str) -> None:
    """A timeline, a page of iterations and contents are found by index, never by a scan."""
    statement = STATEMENTS[name]
    for plan in plans(statement, ["1"] * statement.count("?")):
        assert not plan.startswith("SCAN entries"), plan
        assert not plan.startswith("SCAN contents"), plan
        if name != "iterations":  # of all loops: sorts marks that are in the index
            assert "TEMP B-TREE" not in plan, plan


@pytest.mark.parametrize("end", [None, ("running", ""), ("failed", "error")])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("name", ["", "refine"])
def test_the_run_list_goes_by_index(name: str, end: tuple[str, str] | None, live: bool) -> None:
    """The list of runs is read newest first by row or index, sorts nothing, touches no other table."""
    statement, values = page_query(Wanted(name), end, "[1]", live_only=live)
    found = " | ".join(plans(statement, values))
    assert "SEARCH runs USING " in found
    assert ("INDEX runs_by_" in found) is bool(name or end)
    for word in ("contents", "entries", "TEMP B-TREE"):
        assert word not in found
