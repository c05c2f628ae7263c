"""A limit that another process changes reaches a live run, in each store that processes share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import Context, Loop, MaxIterations, change_limits, run
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.sqlite import SqliteJournal


@pytest.fixture(params=["sqlite", "postgres"])
def journals(request: Any, tmp_path: Path) -> tuple[Any, Any]:
    """Return two journals on one store, each with connections as those of a process."""
    if request.param == "sqlite":
        return SqliteJournal(tmp_path / "runs.db"), SqliteJournal(tmp_path / "runs.db")
    url = request.getfixturevalue("postgres_url")
    return PostgresJournal(url), PostgresJournal(url)


async def test_a_live_run_takes_a_limit_of_another_process(journals: tuple[Any, Any]) -> None:
    """The owner records the request while a step is in flight, and its next decision uses it."""
    mine, other = journals

    async def work(value: int, ctx: Context) -> int:
        if value == 1:
            await change_limits("r", journal=other, max_iterations=3, who="Ann")
            while not ctx.run.tuned:
                await asyncio.sleep(0.01)
        return value + 1

    loop = Loop(work, adapt=lambda last: last.output, until=MaxIterations(2), name="count")
    async with mine, other:
        assert (await run(loop, 1, journal=mine, run_id="r")).iterations == 3
        entries = await other.entries("r")
    [tuned] = [entry for entry in entries if entry.kind == "tuned"]
    assert (tuned.path, tuned.value["new"]) == ("count", 3)
    in_postgres = isinstance(mine, PostgresJournal)
    assert tuned.value["who"].startswith("Ann (database role " if in_postgres else "Ann")
