"""The SQLite journal beside a bare sqlite3 writer: `python -m benchmarks.journal`.

Each ratio is measured in one run, the two sides in turn, so that a busy machine or a slow disk
weighs on both:

- sequential: one run, one effect after the other (its "finished" and the next "started" are one
  durable commit), against a bare insert of a row as long as the journal's, committed by itself
- concurrent: 1,000 runs at once, against a bare thread that commits 100 such rows at a time
- size: bytes on disk after closing for each byte of output, for a loop with 4 KB outputs
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopwright.conditions import MaxIterations
from loopwright.journal import Entry, RunInfo
from loopwright.loop import Loop
from loopwright.records import Usage
from loopwright.run import run
from loopwright.stores.sqlite import SqliteJournal

USED = Usage(calls=1, input_tokens=812, output_tokens=164, usd=0.00123)
OUTPUT = "The draft covers the three changes and names who is affected. It could be shorter."
FINGERPRINT = "541ad38a42815cc3:ab54e0a5e04a2a03fcd9fbe25678a49e"


@contextmanager
def fresh_folder(parent: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=parent or None) as name:
        yield Path(name)


def pair(path: str, after: str, at: float) -> tuple[Entry, Entry]:
    """The end of one effect and the beginning of the next, as the engine appends them."""
    ended = Entry("finished", path, at, OUTPUT, FINGERPRINT, usage=USED, seconds=0.25)
    return ended, Entry("started", after, at, None, FINGERPRINT)


class Bare:
    """The least that keeps a row: one table, one prepared statement."""

    def __init__(self, folder: Path, synchronous: str, length: int) -> None:
        self.db = sqlite3.connect(folder / "bare.db", isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute(f"PRAGMA synchronous={synchronous}")
        self.db.execute("CREATE TABLE entries(id INTEGER PRIMARY KEY, run INTEGER, body TEXT)")
        self.body = "x" * length

    def commit(self, rows: int) -> None:
        if rows == 1:
            self.db.execute("INSERT INTO entries(run, body) VALUES(?, ?)", (1, self.body))
            return
        self.db.execute("BEGIN IMMEDIATE")
        values = [(i, self.body) for i in range(rows)]
        self.db.executemany("INSERT INTO entries(run, body) VALUES(?, ?)", values)
        self.db.execute("COMMIT")


def mean_length(path: Path) -> int:
    db = sqlite3.connect(path)
    length = db.execute("SELECT avg(length(body)) + 16 FROM entries").fetchone()[0]
    db.close()
    return round(length)


async def sequential(
    folder: Path, synchronous: str, effects: int, length: int
) -> tuple[float, float]:
    """Return the median microseconds of a durable effect, and of a bare commit, taken in turn."""
    bare = Bare(folder, synchronous, length)
    ours, theirs = [], []
    async with SqliteJournal(folder / "runs.db", synchronous=synchronous) as journal:
        log = await journal.open(RunInfo("one", "bench"))
        for i in range(effects):
            begin = time.perf_counter()
            for entry in pair(f"refine/{i}/execute", f"refine/{i + 1}/execute", i * 0.25):
                log.append(entry)
            await log.sync()
            ours.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            bare.commit(1)
            theirs.append(time.perf_counter() - begin)
        await log.close(log.info)
    bare.db.close()
    return statistics.median(ours) * 1e6, statistics.median(theirs) * 1e6


async def concurrent(folder: Path, runs: int, effects: int) -> float:
    """Return the effects per second that many runs at once make durable."""

    async def one(log, number: int) -> None:
        for i in range(effects):
            for entry in pair(f"refine/{i}/execute", f"refine/{i + 1}/execute", i * 0.25):
                log.append(entry)
            await log.sync()

    async with SqliteJournal(folder / "runs.db") as journal:
        logs = await asyncio.gather(*(journal.open(RunInfo(f"r{i}", "bench")) for i in range(runs)))
        begin = time.perf_counter()
        await asyncio.gather(*(one(log, i) for i, log in enumerate(logs)))
        rate = runs * effects / (time.perf_counter() - begin)
        await asyncio.gather(*(log.close(log.info) for log in logs))
    return rate


def bare_batches(folder: Path, rows: int, length: int) -> float:
    bare = Bare(folder, "full", length)
    begin = time.perf_counter()
    for _ in range(rows // 100):
        bare.commit(100)
    rate = rows / (time.perf_counter() - begin)
    bare.db.close()
    return rate


def writer_of_text(seed: int, produced: list[int]) -> object:
    rng = random.Random(seed)
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(3000)]

    def execute(value: object) -> str:
        text = " ".join(rng.choices(words, k=900))[:4096]
        produced[0] += len(text)
        return text

    return execute


async def size(folder: Path, iterations: int, adapts: bool) -> tuple[float, float]:
    """Return bytes on disk for each byte of output: beyond an empty journal's, and in all."""
    path, produced = folder / "runs.db", [0]
    async with SqliteJournal(path) as journal:
        log = await journal.open(RunInfo("empty", "bench"))
        await log.close(log.info)
    empty = path.stat().st_size
    loop = Loop(
        writer_of_text(1, produced),
        lambda text: {"score": 0.5, "feedback": "needs a clearer structure and an example"},
        (lambda last: f"round {last.number}: {last.feedback}") if adapts else None,
        MaxIterations(iterations),
        name="refine",
    )
    async with SqliteJournal(path) as journal:
        await run(loop, "write a text about loops", journal=journal)
    total = sum(file.stat().st_size for file in folder.iterdir())
    return (total - empty) / produced[0], total / produced[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--folder", default="", help="where to write; default: the system's for temporary files"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", choices=["", "sequential", "concurrent", "size"])
    given = parser.parse_args()
    print(f"python {sys.version.split()[0]}, sqlite {sqlite3.sqlite_version}")
    length = 320
    if given.only in ("", "sequential"):
        for synchronous in ("full", "normal"):
            found = []
            for _ in range(given.rounds):
                with fresh_folder(given.folder) as folder:
                    found.append(asyncio.run(sequential(folder, synchronous, 600, length)))
            ours, theirs = (statistics.median(side) for side in zip(*found, strict=True))
            print(
                f"sequential {synchronous}: {ours:.0f} us an effect, bare commit {theirs:.0f} us: "
                f"{ours / theirs:.2f}x, {ours - theirs:+.0f} us"
            )
    if given.only in ("", "concurrent"):
        found = []
        for _ in range(given.rounds):
            with fresh_folder(given.folder) as folder:
                rate = asyncio.run(concurrent(folder, 1000, 20))
                length = mean_length(folder / "runs.db")
                found.append((rate, bare_batches(folder, 20_000, length)))
        for ours, theirs in found:
            print(f"  {ours:.0f} of {theirs:.0f}: {ours / theirs:.0%}")
        ours, theirs = (statistics.median(side) for side in zip(*found, strict=True))
        print(
            f"concurrent: 1000 runs, {ours:.0f} effects/s ({1e6 / ours:.1f} us each) of rows of
            {length} bytes, " f"bare batches of 100: {theirs:.0f} rows/s: {ours / theirs:.0%}"
        )
    if given.only in ("", "size"):
        for adapts in (False, True):
            for iterations in (10, 100, 1000):
                with fresh_folder(given.folder) as folder:
                    growth, total = asyncio.run(size(folder, iterations, adapts))
                stages = "adapt, execute, evaluate" if adapts else "execute, evaluate"
                print(
                    f"size: {stages} x {iterations}: {growth:.3f} bytes per byte ({total:.3f} in
                    all)"
                )


if __name__ == "__main__":
    main()
