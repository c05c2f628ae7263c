"""Memory: 50 runs at once that append 100 entries each, beside a bare sqlite3 writer.

Bare is one table and one statement, 50 rows of the same length in each durable transaction. `direct` appends
from 50 tasks; `runs` are 50 recorded runs whose appends are journaled effects. The scratch files go to the
folder that BENCH_FOLDER names, or here.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from loopwright import Context, run, step
from loopwright.engine.loop_memory import remembered
from loopwright.journal.sqlite import SqliteJournal
from loopwright.memory import Memory, Space

from .measuring import Row

RUNS, APPENDS, ROUNDS = 50, 100, 3
LEAST = 2000.0  # durable appends a second
SAID = "Needs a clearer structure, and an example for each of the three changes."


async def _checked(memory: Memory) -> None:
    """Every append is there once, those of each run in their order."""
    entries = await memory.entries("lessons")
    assert len(entries) == RUNS * APPENDS, f"{len(entries)} entries"
    for number in range(RUNS):
        own = [item.value["n"] for item in entries if item.value["run"] == number]
        assert own == list(range(APPENDS)), f"run {number} is out of order"


async def direct(path: Path) -> float:
    """Return the seconds of all appends, made by tasks."""
    async with SqliteJournal(path) as journal:

        async def one(number: int) -> None:
            space = Space(journal.memory, "lessons", run=f"r{number}")
            for n in range(APPENDS):
                value = {"run": number, "n": n, "feedback": SAID}
                await space.note(value, at=float(n), key=f"{number}/{n}")

        start = time.perf_counter()
        await asyncio.gather(*map(one, range(RUNS)))
        taken = time.perf_counter() - start
        await _checked(journal.memory)
    return taken


async def in_runs(path: Path) -> float:
    """Return the seconds of 50 recorded runs that append as effects."""

    async def appends(number: int, ctx: Context) -> None:
        space = remembered(ctx, "lessons")
        for n in range(APPENDS):
            await space.note({"run": number, "n": n, "feedback": SAID})

    made: Any = step(appends)
    async with SqliteJournal(path) as journal:
        start = time.perf_counter()
        await asyncio.gather(*(run(made, n, journal=journal) for n in range(RUNS)))
        taken = time.perf_counter() - start
        await _checked(journal.memory)
    return taken


def bare(path: Path) -> float:
    """Return the seconds of as many rows, 50 to a durable transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, space TEXT, body TEXT)")
        start = time.perf_counter()
        for n in range(APPENDS):
            db.execute("BEGIN IMMEDIATE")
            rows = [("lessons", f"{n} {SAID}" + "x" * 60) for _ in range(RUNS)]
            db.executemany("INSERT INTO notes(space, body) VALUES(?, ?)", rows)
            db.execute("COMMIT")
        return time.perf_counter() - start


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    found: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", ".")) as folder:
            place = Path(folder)
            found.append(
                (
                    bare(place / "bare.db"),
                    asyncio.run(direct(place / "direct.db")),
                    asyncio.run(in_runs(place / "runs.db")),
                )
            )
    plain, ours, runs = (statistics.median(column) for column in zip(*found, strict=True))
    total = RUNS * APPENDS
    for what, taken in (("by tasks", ours), ("as effects of runs", runs)):
        rate = total / taken
        note = f"{rate:,.0f} appends/s, bare {total / plain:,.0f} rows/s, {taken / plain:.1f} x"
        what = f"memory, {RUNS} x {APPENDS} appends {what}: bound to reached appends/s"
        yield Row(what, LEAST / rate, 1.0, note=note)


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
