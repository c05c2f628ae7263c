"""The SQLite journal alone, beside a bare sqlite3 writer: an effect, 1,000 runs, bytes on disk.

An effect is what the engine appends for one: the end of it and the beginning of the next, a row and
a durable commit together. Bare is one table and one statement, with rows as long as the journal's.
The two sides take turns, so that a busy machine or a slow disk weighs on both. The scratch files go
to the folder that BENCH_FOLDER names, or here.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import statistics
import string
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, Usage, run
from loopwright.journal import Entry, RunInfo
from loopwright.journal.recorded.log import DurableLog
from loopwright.journal.sqlite import SqliteJournal

from .measuring import Row

ROUNDS = 7
SPENT = Usage(calls=1, input_tokens=812, output_tokens=164, usd=0.00123)
OUTPUT = "The draft covers the three changes and names who is affected. It could be shorter."
FINGERPRINT = "541ad38a42815cc3:ab54e0a5e04a2a03fcd9fbe25678a49e"


def effect(number: int) -> tuple[Entry, Entry]:
    """The end of one effect and the beginning of the next, as the engine appends them."""
    at = number * 0.25
    path, following = f"refine/{number}/execute", f"refine/{number + 1}/execute"
    ended = Entry("finished", path, at, OUTPUT, FINGERPRINT, usage=SPENT, seconds=0.25)
    return ended, Entry("started", following, at, fingerprint=FINGERPRINT)


class Bare:
    """The least that keeps a row."""

    def __init__(self, path: Path, synchronous: str, length: int) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute(f"PRAGMA synchronous={synchronous}")
        self.db.execute("CREATE TABLE entries(id INTEGER PRIMARY KEY, run INTEGER, body TEXT)")
        self.body = "x" * length

    def commit(self, rows: int) -> None:
        """Insert rows in one durable transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        rows_of = [(i, self.body) for i in range(rows)]
        self.db.executemany("INSERT INTO entries(run, body) VALUES(?, ?)", rows_of)
        self.db.execute("COMMIT")


def row_length(path: Path) -> int:
    """Return the mean length of what the journal keeps of an effect."""
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT avg(length(body) + length(sum)) FROM entries").fetchone()
    return round(found[0])


async def one_run(folder: Path, synchronous: str, effects: int) -> tuple[float, float]:
    """Return the median seconds of a durable effect, and of a bare commit, taken in turn."""
    bare = Bare(folder / "bare.db", synchronous, 260)
    ours, theirs = [], []
    async with SqliteJournal(folder / "runs.db", synchronous=synchronous) as journal:
        log = await journal.open(RunInfo("one", "bench"))
        for number in range(effects):
            start = time.perf_counter()
            for entry in effect(number):
                log.append(entry)
            pending = log.sync()
            if pending is not None:
                await pending
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            bare.commit(1)
            theirs.append(time.perf_counter() - start)
        await log.close(log.info)
    bare.db.close()
    return statistics.median(ours), statistics.median(theirs)


async def many_runs(folder: Path, runs: int, effects: int) -> float:
    """Return the effects a second that many runs at once make durable."""

    async def one(log: DurableLog) -> None:
        for number in range(effects):
            for entry in effect(number):
                log.append(entry)
            pending = log.sync()
            if pending is not None:
                await pending

    async with SqliteJournal(folder / "runs.db") as journal:
        logs = await asyncio.gather(*(journal.open(RunInfo(f"r{i}", "bench")) for i in range(runs)))
        start = time.perf_counter()
        await asyncio.gather(*map(one, logs))
        taken = time.perf_counter() - start
        await asyncio.gather(*(log.close(log.info) for log in logs))
    return runs * effects / taken


def bare_batches(folder: Path, rows: int, length: int) -> float:
    """Return the rows a second that a bare writer makes durable, 100 at a time."""
    bare = Bare(folder / "bare.db", "full", length)
    start = time.perf_counter()
    for _ in range(rows // 100):
        bare.commit(100)
    taken = time.perf_counter() - start
    bare.db.close()
    return rows / taken


def texts(seed: int, produced: list[int]) -> Callable[[Any], str]:
    """Return a step that produces 4 KB of words, and adds up what it produced."""
    chance = random.Random(seed)
    letters = string.ascii_lowercase
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(3000)]

    def execute(_: Any) -> str:
        text = " ".join(chance.choices(words, k=900))[:4096]
        produced[0] += len(text)
        return text

    return execute


async def growth(folder: Path, iterations: int, adapts: bool) -> tuple[float, float]:
    """Return bytes on disk for each byte of output: beyond an empty journal, and in all."""
    path, produced = folder / "runs.db", [0]
    async with SqliteJournal(path) as journal:
        log = await journal.open(RunInfo("empty", "bench"))
        await log.close(log.info)
    empty = path.stat().st_size
    loop = Loop(
        texts(1, produced),
        lambda _: {"score": 0.5, "feedback": "needs a clearer structure and an example"},
        (lambda last: f"round {last.number}: {last.feedback}") if adapts else None,
        MaxIterations(iterations),
        name="refine",
    )
    async with SqliteJournal(path) as journal:
        await run(loop, "write a text about loops", journal=journal)
    total = sum(file.stat().st_size for file in folder.iterdir())
    return (total - empty) / produced[0], total / produced[0]


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    yield from _one_run()
    yield from _many_runs()
    yield from _growth()


def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", "."))


def _one_run() -> Iterator[Row]:
    for synchronous, allowed in (("full", 150.0), ("normal", 150.0)):
        pairs = []
        for _ in range(ROUNDS):
            with _scratch() as folder:
                pairs.append(asyncio.run(one_run(Path(folder), synchronous, 500)))
        ours, theirs = (statistics.median(side) * 1e6 for side in zip(*pairs, strict=True))
        over = statistics.median(o - t for o, t in pairs) * 1e6
        bound = max(allowed, 0.3 * theirs) if synchronous == "full" else allowed
        note = f"{ours:.0f} us, bare commit {theirs:.0f} us, {ours / theirs:.2f} x"
        yield Row(f"an effect, {synchronous}, over a bare commit", over, bound, "us", note)


def _many_runs() -> Iterator[Row]:
    pairs, length = [], 0
    for _ in range(ROUNDS):
        with _scratch() as folder:
            ours = asyncio.run(many_runs(Path(folder), 1000, 20))
            length = row_length(Path(folder) / "runs.db")
            pairs.append((ours, bare_batches(Path(folder), 20_000, length)))
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(t / o for o, t in pairs)
    note = (
        f"{ours:,.0f} effects/s of {length} bytes ({1e6 / ours:.1f} us), bare {theirs:,.0f} rows/s"
    )
    yield Row("1,000 runs at once: bare batches of 100 to ours", ratio, 2, note=note)


def _growth() -> Iterator[Row]:
    for adapts in (False, True):
        for iterations in (10, 100, 1000):
            with _scratch() as folder:
                beyond, total = asyncio.run(growth(Path(folder), iterations, adapts))
            stages = "adapt, execute, evaluate" if adapts else "execute, evaluate"
            note = f"{total:.3f} with the empty journal"
            what = f"bytes on disk per byte of 4 KB outputs, {iterations} x {stages}"
            yield Row(what, beyond, 1.3, note=note)


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
