"""One damaged row of a run, in a file and in PostgreSQL: lists show it as damaged, and everything else works."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from loopwright.errors import JournalDamaged
from loopwright.journal import Journal, open_journal
from loopwright.journal.open import copy_runs, oldest_first
from loopwright.journal.views import Wanted
from loopwright.ui.web.page import Records

from .recording import LONG, info, record, rounds

Store = tuple[Journal, Callable[[str], None]]


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A journal with the runs `first`, `broken` and `last`, and a function that changes its tables."""
    if request.param == "sqlite":
        path, schema = tmp_path / "runs.db", ""
        url = f"sqlite:{path}"
    else:
        url, schema = request.getfixturevalue("postgres_url"), "loopwright."

    def change(statement: str) -> None:
        text = statement.replace("UPDATE ", f"UPDATE {schema}")
        if schema:
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(text)
        else:
            with closing(sqlite3.connect(path)) as db:
                db.execute(text)
                db.commit()

    async with open_journal(url) as journal:
        for run_id in ("first", "broken", "last"):
            log = await journal.open(info(run_id=run_id, input=LONG))
            await record(log, rounds(1))
            await log.close(log.info)
        yield journal, change


CHANGES = {
    "name": "UPDATE runs SET name='changed' WHERE run_id='broken'",
    "status": "UPDATE runs SET status='queued' WHERE run_id='broken'",
    "usage": "UPDATE runs SET usage='{' WHERE run_id='broken'",
    "input": "UPDATE contents SET body='x' WHERE run=2",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_lists_show_a_damaged_row_and_read_the_others(store: Store, change: str) -> None:
    """The row has the status `damaged` and says why; the run itself is refused as before."""
    journal, damage = store
    if "contents" in change and "sqlite" in type(journal).__module__:
        change = change.replace(" WHERE run=2", "")  # a content belongs to all runs of a file
    damage(change)
    rows = {row.run_id: row for row in await journal.runs()}
    assert list(rows) == ["last", "broken", "first"]
    assert rows["broken"].status == "damaged"
    assert "restore the journal from a backup" in rows["broken"].detail
    with pytest.raises(JournalDamaged, match="restore the journal from a backup"):
        await journal.find("broken")
    if "contents" not in change:
        assert rows["first"].status == rows["last"].status == "interrupted"
        assert (await journal.find("first")).input == LONG
        assert [run.run_id for run in await journal.runs(text="last")] == ["last"]


@pytest.mark.parametrize("change", [CHANGES["name"], CHANGES["status"]], ids=["name", "status"])
async def test_the_page_shows_a_damaged_row(store: Store, change: str) -> None:
    """The list of the page has all runs."""
    journal, damage = store
    damage(change)
    listing = await Records(journal).listing(Wanted())
    assert [(row.info.run_id, row.info.status) for row in listing.rows] == [
        ("last", "interrupted"),
        ("broken", "damaged"),
        ("first", "interrupted"),
    ]


async def test_the_page_shows_a_run_whose_entries_are_damaged(store: Store) -> None:
    """The scores of the other runs stay."""
    journal, damage = store
    damage("UPDATE entries SET body=body||' ' WHERE run=2")
    listing = await Records(journal).listing(Wanted())
    assert [row.info.status for row in listing.rows] == ["interrupted", "damaged", "interrupted"]


async def test_a_check_and_a_copy_read_the_runs_beside_a_damaged_row(store: Store) -> None:
    """Both name the damaged run and go on."""
    journal, damage = store
    damage(CHANGES["name"])
    found = [(row.run_id, row.status) async for row in oldest_first(journal)]
    assert found == [("first", "interrupted"), ("broken", "damaged"), ("last", "interrupted")]
    async with open_journal("memory:") as target:
        copied = {one.run_id: one.problem async for one in copy_runs(journal, target)}
    assert copied.pop("broken").startswith("broken: the row of this run does not match")
    assert copied == {"first": "", "last": ""}
