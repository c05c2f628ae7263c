"""What pages show of an SQLite journal: by key, by index, the same as from the entries."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loopwright import Evaluation, Loop, MaxIterations, ScoreAtLeast, run
from loopwright.errors import JournalDamaged, JournalUnavailable, RunNotFound
from loopwright.journal.sqlite import SqliteJournal
from loopwright.journal.sqlite.journal import (
    LIST_COLUMNS,
    PAGE_STATEMENTS,
    WATCH_STATEMENT,
    listed_query,
    page_query,
)
from loopwright.journal.sqlite.tables import connect_reader
from loopwright.journal.views import ORDERS, EntriesView, RunView, Wanted, enclosing, outermost


async def write(value: Any, ctx: Any) -> str:
    """Write something long, and something short."""
    return f"{value} {ctx.iteration} " * (100 if ctx.iteration % 2 else 1)


async def judge(output: Any, ctx: Any) -> Evaluation:
    """Judge it in few or many words."""
    said = "word " * (100 if ctx.iteration > 1 else 1)
    return Evaluation(0.2 * ctx.iteration, feedback=said)


inner = Loop(write, judge, until=MaxIterations(2), name="inner")
outer = Loop(inner, judge, until=MaxIterations(2), name="outer")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    """A journal of forty runs: names, statuses and reasons differ."""
    async with SqliteJournal(tmp_path / "runs.db", synchronous="normal") as made:
        for number in range(40):
            until = ScoreAtLeast(0.4) | MaxIterations(1 + number % 2)
            loop = Loop(write, judge, until=until, name=f"flow-{number % 3}")
            await run(loop, f"Input {number:02}", journal=made, run_id=f"run-{number:02}")
        await run(outer, "x", journal=made, run_id="nested")
        yield made


async def listed(journal: SqliteJournal, **wanted: Any) -> list[str]:
    """Return the ids on a page of the list."""
    return await journal.listing(
        Wanted(**wanted), lambda page: [view.info.run_id for _, view in page.rows]
    )


async def test_pages_go_by_the_key_of_the_last_row(journal: SqliteJournal) -> None:
    """Pages one after the other, older or newer, hold every run once."""
    found: list[str] = []
    before = 0
    while page := await journal.look(
        lambda pages, key=before: pages.listed(Wanted(before=key, limit=7))
    ):
        found += [view.info.run_id for _, view in page]
        before = page[-1][0]
    assert found == ["nested", *(f"run-{n:02}" for n in reversed(range(40)))]
    assert await listed(journal, after=38, limit=2) == ["run-39", "run-38"]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"name": "flow-1"}, 13), ({"status": "satisfied"}, 20), ({"status": "running"}, 0),
        ({"status": "interrupted"}, 0), ({"reason": "max_iterations"}, 21),
        ({"reason": "max_iterations", "name": "flow-0"}, 7), ({"text": "INPUT 07"}, 1),
        ({"text": "flow-2"}, 13), ({"text": "%"}, 0), ({"text": "input_07"}, 0),
        ({"text": "run-1", "status": "satisfied"}, 5),
    ],
)  # fmt: skip
async def test_runs_are_found_by_what_they_have_in_common(
    journal: SqliteJournal, wanted: dict[str, Any], count: int
) -> None:
    """Each filter, alone and with others, finds what it names, and text is no pattern."""
    assert len(await listed(journal, **wanted)) == count


async def test_no_statement_of_a_page_scans(journal: SqliteJournal) -> None:
    """SQLite goes about every statement of the pages by an index, and sorts nothing."""
    db, _ = connect_reader(journal.path)
    asked = []
    words = itertools.product(
        ("", "flow-1"), (None, ("satisfied", "score"), ("running", "")),
        ({}, {"before": 9}, {"after": 9}), (True, False),
    )  # fmt: skip
    for name, end, place, live in words:
        wanted = Wanted(name, **place)
        asked.append(page_query(wanted, end, "[1]", live_only=live))
        asked.append(page_query(wanted, end, "[]", live_only=live, columns=LIST_COLUMNS))
    asked.append((WATCH_STATEMENT, ["nested"]))
    asked += [(text, [1] * text.count("?")) for text in PAGE_STATEMENTS.values()]
    for query, values in asked:
        for *_, told in db.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall():
            step = told.decode() if isinstance(told, bytes) else told
            whole = step.startswith("SCAN") and "json_each" not in step
            assert not whole, (query, step)
            assert "TEMP B-TREE" not in step, (query, step)
    db.close()


@pytest.mark.parametrize("order", ORDERS)
async def test_other_orders_and_filters_read_one_index(journal: SqliteJournal, order: str) -> None:
    """No row of a run is read to sort, to filter or to count: only the index, and then the rows of the page."""
    db, _ = connect_reader(journal.path)
    every = [(None, True)]
    some = [(("failed", "error"), True), (("running", ""), False)]
    for wanted, ends in (
        (Wanted(sort=order), every),
        (Wanted("flow-1", tags=("team",), since=1.0, queue="q", sort=f"-{order}"), every),
        (Wanted(status="failed,interrupted", sort=order), some),
    ):
        for columns in ("id", "count(*)"):
            query, values = listed_query(wanted, ends, "[1]", columns)
            steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()]
            text = b" | ".join(steps).decode()
            assert "INDEX runs_by_end" in text and "SCAN entries" not in text, (query, text)
            # SQLite does not call an index covering if it has an expression instead of a column.
            if order != "cost" and ends is every:
                assert "COVERING INDEX runs_by_end" in text, (query, text)
    db.close()


def told(view: RunView) -> dict[str, Any]:
    """Return all that a view says of a run."""
    said: dict[str, Any] = {"last": view.last, "tops": view.loops(), "end": view.ending()}
    waiting = view.loops()
    while waiting:
        loop = waiting.pop()
        said[loop] = [
            view.count(loop), view.retries(loop), view.outline(loop), view.outline(loop, offset=1, limit=1),
            view.outline(loop, offset=-1),
        ]  # fmt: skip
        for number in range(1, view.count(loop) + 1):
            effects = [(e.seq, e.kind, e.path, e.value) for e in view.effects(loop, number)]
            said[f"{loop}/{number}"] = [view.iteration(loop, number), effects]
            waiting += view.loops(f"{loop}/{number}")
    said["since"] = [(e.seq, e.kind, e.path, e.at) for e in view.since(3)]
    said["between"] = [(e.seq, e.value) for e in view.between(3, 4)]
    return said


@pytest.mark.parametrize("run_id", ["run-07", "nested"])
async def test_both_views_say_the_same(journal: SqliteJournal, run_id: str) -> None:
    """What the indexes tell of a run is what its entries tell."""
    info = await journal.find(run_id)
    entries = await journal.entries(run_id)
    indexed = await journal.look(lambda pages: told(pages.view(run_id)))
    assert indexed == told(EntriesView(info, entries))


async def test_views_follow_a_rewind(journal: SqliteJournal) -> None:
    """What was set aside is in neither view."""
    await journal.rewind("nested", "outer/2")
    info, entries = await journal.find("nested"), await journal.entries("nested")
    indexed = await journal.look(lambda pages: told(pages.view("nested")))
    plain = told(EntriesView(info, entries))
    assert indexed == plain
    assert indexed["outer"][0] == 1


async def test_what_is_not_there_is_said(journal: SqliteJournal, tmp_path: Path) -> None:
    """A run, an iteration or a journal that is not there is an error with a sentence."""
    with pytest.raises(RunNotFound):
        await journal.look(lambda pages: pages.view("nothing"))
    for number in (0, 3, 9):
        with pytest.raises(RunNotFound, match="no iteration"):
            await journal.look(lambda p, n=number: p.view("nested").iteration("outer", n))
    with pytest.raises(JournalUnavailable, match="does not exist yet"):
        await SqliteJournal(tmp_path / "none.db").look(lambda pages: pages.newest())


async def test_an_outline_is_checked(journal: SqliteJournal) -> None:
    """A row that was changed behind our back is found before a figure of it is shown."""
    db = sqlite3.connect(journal.path, isolation_level=None)
    db.execute(
        "UPDATE entries SET body=replace(body, 'iteration\":2', 'iteration\":3') WHERE loop='outer'"
    )
    db.close()
    with pytest.raises(JournalDamaged, match="checksum"):
        await journal.look(lambda pages: pages.view("nested").outline("outer"))


async def test_the_counter_changes_with_each_commit(journal: SqliteJournal) -> None:
    """Whoever watches learns of a commit of another connection."""
    watch = journal.watch()
    before, state = watch.version(), await watch.state("nested")
    assert (watch.version(), await watch.state("nested")) == (before, state)
    await run(inner, "y", journal=journal, run_id="another")
    assert watch.version() != before
    assert await watch.state("nested") == state
    await journal.rewind("nested", "outer/2")
    assert await watch.state("nested") != state
    assert await watch.state("no such run") is None
    watch.close()


def test_paths_say_which_loops_are_around() -> None:
    """A number in a path follows the loop whose round it is."""
    assert outermost("both/second/2/execute/inner/1") == "both/second"
    assert outermost("refine") == "refine"
    assert enclosing("outer/2/execute") == ("outer", 2)
    assert enclosing("outer") is None


_OTHER = """
import asyncio, sys
from loopwright import Loop, MaxIterations, run
from loopwright.journal.open import open_journal
async def main():
    store = open_journal(sys.argv[1])
    if sys.argv[2] == "run":
        await run(Loop(lambda v: v, until=MaxIterations(1), name="o"), 1, journal=store, run_id="o")
    else:
        print([entry.kind for entry in await store.entries("nested")].count("rewound"))
    await store.close()
asyncio.run(main())
"""


def _other(path: Path, word: str) -> str:
    """Let another process open the journal, do something and close it."""
    done = subprocess.run(
        [sys.executable, "-c", _OTHER, f"sqlite:{path}", word],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip()


async def test_what_is_read_first_and_written_then_is_not_lost(tmp_path: Path) -> None:
    """A process that reads, and only then writes, keeps its place when others come and go."""
    path = tmp_path / "runs.db"
    async with SqliteJournal(path) as first:
        await run(outer, "x", journal=first, run_id="nested")
    async with SqliteJournal(path) as mine:
        await mine.find("nested")  # a connection to read with
        await mine.rewind("nested", "outer/2")  # and one to write with
        _other(path, "run")
        await mine.rewind("nested", "outer/1")
        assert _other(path, "read") == "2"
        assert len(await mine.runs()) == 2
