"""The same runs in SQLite and in PostgreSQL: the same entries, results, pages and views."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import (
    Context,
    Evaluation,
    Loop,
    MaxIterations,
    ScoreAtLeast,
    Workflow,
    parallel,
    run,
)
from loopwright.errors import StepError
from loopwright.journal import Entry, Journal, RunInfo
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.sqlite import SqliteJournal
from loopwright.journal.views import RunView, Wanted

from .any_entries import plain_entries, round_entries
from .recording import record, shown


async def write(value: Any, ctx: Context) -> str:
    """Write something long, and something short."""
    return f"{value} {ctx.iteration} " * (100 if ctx.iteration % 2 else 1)


async def judge(output: Any, ctx: Context) -> Evaluation:
    """Judge it in few or many words."""
    return Evaluation(0.2 * ctx.iteration, feedback="word " * (100 if ctx.iteration > 1 else 1))


async def refuse(value: Any) -> None:
    """Fail."""
    raise StepError("there is no paper", kind="no_paper")


inner = Loop(write, judge, until=MaxIterations(2), name="inner")
STEPS = {
    "loop": Loop(write, judge, until=ScoreAtLeast(0.5) | MaxIterations(4), name="loop"),
    "nested": Loop(inner, judge, until=MaxIterations(3), name="nested"),
    "parallel": parallel(
        Loop(write, judge, until=MaxIterations(2), name="left"), write, name="both"
    ),
    "workflow": Workflow("flow", {"a": write, "b": inner}, needs={"b": ["a"]}),
    "failing": Loop(refuse, name="failing"),
}


def _timeless(value: Any) -> Any:
    """Return JSON without times, which differ between two runs."""
    if isinstance(value, dict):
        times = ("at", "seconds", "took", "since", "active", "created", "updated", "traceback")
        return {key: _timeless(item) for key, item in value.items() if key not in times}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def _looked(view: RunView) -> dict[str, Any]:
    loops = view.loops()
    return {
        "last": view.last,
        "total": view.total(),
        "loops": loops,
        "counts": [view.count(loop) for loop in loops],
        "outlines": [
            [(seq, _timeless(item.to_json())) for seq, item in view.outline(loop)] for loop in loops
        ],
        "inputs": [view.inputs(loop, 0, 9) for loop in loops],
        "effects": [_timeless(shown(view.effects(loop, 1))) for loop in loops],
        "retries": [view.retries(loop) for loop in loops],
        "ending": _timeless(view.ending()),
    }


@pytest.mark.parametrize("name", STEPS)
async def test_a_run_is_recorded_alike(tmp_path: Path, postgres_url: str, name: str) -> None:
    """Run, rewind and resume a step in both stores: entry by entry the same, and the same result."""
    step = STEPS[name]
    async with SqliteJournal(tmp_path / "r.db") as one, PostgresJournal(postgres_url) as two:
        results, recorded, views = [], [], []
        for journal in (one, two):
            await run(step, "x", journal=journal, run_id="r")
            first = next(e.path for e in await journal.entries("r") if e.kind == "finished")
            await journal.rewind("r", first)
            result = await run(step, journal=journal, run_id="r")
            results.append(_timeless(result.to_json()))
            recorded.append(_timeless(shown(await journal.entries("r"))))
            views.append(await journal.view("r", _looked))
        assert results[0] == results[1]
        if name != "parallel":  # the order of branches is that of their ends
            assert recorded[0] == recorded[1]
            assert views[0] == views[1]


def test_any_entries_are_recorded_alike(tmp_path: Path, postgres_url: str) -> None:
    """Whatever entries a run has, both stores return the same."""
    stores: list[Any] = [SqliteJournal(tmp_path / "r.db"), PostgresJournal(postgres_url)]
    numbers = iter(range(1_000_000))

    async def compare(entries: list[Entry]) -> None:
        name = f"run-{next(numbers)}"
        seen = []
        for journal in stores:
            log = await journal.open(RunInfo(name, "any", created=1.0))
            await record(log, entries)
            await log.close(log.info)
            seen.append(
                (shown(await journal.entries(name)), shown((await journal.open(log.info)).recorded))
            )
        assert seen[0] == seen[1]

    @given(st.lists(plain_entries | round_entries, max_size=6))
    @settings(max_examples=25)
    def check(entries: list[Entry]) -> None:
        asyncio.run(compare(entries))

    check()
    for journal in stores:
        asyncio.run(journal.close())


async def test_pages_of_the_list_are_alike(tmp_path: Path, postgres_url: str) -> None:
    """Pages by name, status, reason, text and place have the same runs in the same order."""
    async with SqliteJournal(tmp_path / "r.db") as one, PostgresJournal(postgres_url) as two:
        for journal in (one, two):
            await _fill(journal)
        wanted = [
            Wanted(limit=4), Wanted(before=6, limit=3), Wanted(after=6, limit=3), Wanted(name="flow-1"),
            Wanted(status="satisfied"), Wanted(status="interrupted"), Wanted(status="queued"),
            Wanted(reason="max_iterations"), Wanted(text="WORD"), Wanted(text="100%"),
            Wanted(text="x_1"), Wanted(text="flow", after=3), Wanted(status="running"),
            Wanted(queue="q"), Wanted(worker=(await journal.find("run-r")).owner),
        ]  # fmt: skip
        for page in wanted:
            pages = [await journal.listing(page, _ids) for journal in (one, two)]
            assert pages[0] == pages[1], page


def _ids(page: Any) -> Any:
    return [(key, view.info.run_id) for key, view in page.rows], page.names, page.total


async def _fill(journal: Journal) -> None:
    for number in range(10):
        until = ScoreAtLeast(0.4) | MaxIterations(1 + number % 2)
        loop = Loop(write, judge, until=until, name=f"flow-{number % 3}")
        value = ("a long input " * 40 + "word") if number == 5 else f"100% x_{number}"
        await run(loop, value, journal=journal, run_id=f"run-{number}")
    await journal.create([RunInfo("run-q", "queued", "later", queue="q")])
    log = await journal.open(RunInfo("run-i", "stopped"))
    await log.close(RunInfo("run-i", "stopped", status="interrupted", epoch=1))
    await journal.open(RunInfo("run-r", "running"))
