"""The engine on SQLite: effects, many runs at once, bytes on disk, replay."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from loopwright import Loop, MaxIterations, run
from loopwright.journal.sqlite import SqliteJournal

from .engine import adapt, evaluate, execute, loop_of, waiting
from .floor import tasks as floors_of
from .measuring import Row

EFFECTS = 600
RECORD = b"x" * 300  # what one journaled effect takes, see `_record_size`


def bare(path: Path, synchronous: str, commits: int, per_commit: int) -> float:
    """Return the seconds that a bare writer takes for `commits` of so many records each."""
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("pragma journal_mode=wal")
    base.execute(f"pragma synchronous={synchronous}")
    base.execute("create table record(id integer primary key, body blob)")
    start = time.perf_counter()
    for _ in range(commits):
        base.execute("begin immediate")
        base.executemany("insert into record(body) values(?)", [(RECORD,)] * per_commit)
        base.execute("commit")
    taken = time.perf_counter() - start
    base.close()
    return taken


def _ours(path: Path, synchronous: str, loops: int, iterations: int) -> float:
    """Return the seconds that so many loops at once take on a journal."""

    async def main() -> float:
        journal = SqliteJournal(path, synchronous=synchronous)
        loop = loop_of(iterations)
        await run(loop_of(1), 1, journal=journal)  # the tables are made, as the bare writer's are
        start = time.perf_counter()
        await asyncio.gather(*(run(loop, 1, journal=journal) for _ in range(loops)))
        taken = time.perf_counter() - start
        await journal.close()
        return taken

    return asyncio.run(main())


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", ".")) as scratch:
        root = Path(scratch)
        yield from _one_run(root)
        yield from _many_runs(root)
        yield from _waiting_runs(root)
        yield from _bytes(root)
        yield from _replay(root)


def _one_run(root: Path) -> Iterator[Row]:
    iterations = EFFECTS // 3
    for synchronous in ("full", "normal"):
        found = []
        for number in range(7):
            paths = [
                root / f"{name}-{synchronous}-{number}.db"
                for name in ("bare", "one", "floor", "20")
            ]
            plain = bare(paths[0], synchronous, EFFECTS, 1) / EFFECTS
            one = _ours(paths[1], synchronous, 1, iterations) / EFFECTS
            if synchronous == "normal":
                found.append((plain, one, 0.0, 0.0))
                continue
            floor = floors_of(paths[2], 1, EFFECTS) / EFFECTS
            twenty = _ours(paths[3], synchronous, 20, 50) / (20 * (3 * 50 - 1))
            found.append((plain, one, floor, twenty))
        plain, one, _, twenty = (median(column) for column in zip(*found, strict=True))
        over = median(one - plain for plain, one, _, _ in found)
        bound = max(0.3 * plain, 150e-6) if synchronous == "full" else 150e-6
        note = f"bare commit {plain * 1e6:.0f} us, an effect {one * 1e6:.0f} us"
        name = f"an effect, {synchronous.upper()}, over a bare commit"
        yield Row(name, over * 1e6, bound * 1e6, "us", note)
        if synchronous == "full":
            ratio = median(one / plain for plain, one, _, _ in found)
            yield Row("an effect, FULL, to a bare commit", ratio, 1.0)
            ratio = median(floor / plain for plain, _, floor, _ in found)
            yield Row(
                "a task without an engine that waits for a record of a thread, to the same",
                ratio,
                None,
            )
            ratio = median(twenty / plain for plain, _, _, twenty in found)
            note = f"{1 / twenty:,.0f} effects/s, {1 / plain:,.0f} bare commits/s"
            yield Row("an effect of 20 runs at once, FULL, to a bare commit", ratio, 0.2, note=note)


def _many_runs(root: Path) -> Iterator[Row]:
    found, notes = [], ""
    for number in range(5):
        commits = 200
        plain = bare(root / f"batch-{number}.db", "full", commits, 100) / commits / 100
        loops, iterations = 1000, 10
        effects = loops * (3 * iterations - 1)
        ours = _ours(root / f"many-{number}.db", "full", loops, iterations) / effects
        floor = floors_of(root / f"floor-{number}.db", loops, effects // loops) / effects
        engine = _unkept(loops, iterations) / effects
        found.append((ours / plain, floor / plain, (floor + engine) / plain))
        notes = f"bare {1 / plain:,.0f} records/s, ours {1 / ours:,.0f} effects/s"
    ratio, floor, least = (sorted(column)[2] for column in zip(*found, strict=True))
    yield Row("1,000 runs at once, FULL: bare batch writer to ours", ratio, 2, note=notes)
    what = "1,000 tasks without an engine that wait for their records: bare batch writer to these"
    yield Row(what, floor, None, note=f"with the CPU of the loops in memory added {least:.2f} x")


def _unkept(loops: int, iterations: int) -> float:
    """Return the CPU seconds that so many loops at once take without a journal."""

    async def main() -> float:
        loop = loop_of(iterations)
        start = time.process_time()
        await asyncio.gather(*(run(loop, 1) for _ in range(loops)))
        return time.process_time() - start

    return asyncio.run(main())


def _waiting_runs(root: Path) -> Iterator[Row]:
    loop = Loop(waiting, evaluate, adapt, MaxIterations(5), name="bench")

    async def persisted(path: Path) -> float:
        journal = SqliteJournal(path)
        start = time.perf_counter()
        await asyncio.gather(*(run(loop, 1, journal=journal) for _ in range(1000)))
        taken = time.perf_counter() - start
        await journal.close()
        return taken

    async def unpersisted() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(run(loop, 1) for _ in range(1000)))
        return time.perf_counter() - start

    found = []
    for number in range(5):
        began = time.process_time()
        plain = asyncio.run(unpersisted())
        busy = time.process_time() - began
        kept = asyncio.run(persisted(root / f"waiting-{number}.db"))
        floor = floors_of(root / f"waits-{number}.db", 1000, 14, 0.05)
        found.append((kept / plain, floor / plain, (floor + busy) / plain, plain, kept))
    ratio, floor, least, plain, kept = (sorted(column)[2] for column in zip(*found, strict=True))
    note = f"unpersisted {plain:.2f} s, on SQLite {kept:.2f} s"
    yield Row("1,000 loops of 5 x 50 ms on SQLite FULL, to unpersisted", ratio, 2, note=note)
    what = "1,000 tasks without an engine that wait as long, and for 14 records each, to the same"
    yield Row(what, floor, None, note=f"with the CPU of the unpersisted loops added {least:.2f} x")


def _bytes(root: Path) -> Iterator[Row]:
    async def produce(value: Any) -> Any:
        return os.urandom(2048).hex()  # 4 KB that no compression shrinks

    async def empty(path: Path) -> int:
        journal = SqliteJournal(path)
        await run(Loop(execute, name="none", until=MaxIterations(1)), 1, journal=journal)
        await journal.close()
        return path.stat().st_size

    base = asyncio.run(empty(root / "empty.db"))
    for iterations in (10, 100, 1000):

        async def main(path: Path, count: int = iterations) -> int:
            journal = SqliteJournal(path)
            loop = Loop(produce, evaluate, produce, MaxIterations(count), name="bytes")
            await run(loop, "start", journal=journal)
            await journal.close()
            return path.stat().st_size

        size = asyncio.run(main(root / f"bytes-{iterations}.db"))
        produced = 4096 * (2 * iterations - 1)
        note = (
            f"file {size:,} bytes of {produced:,} produced; a journal with one small run {base:,}"
        )
        yield Row(
            f"bytes on disk per byte produced, {iterations} iterations",
            size / produced,
            1.3,
            note=note,
        )


def _replay(root: Path) -> Iterator[Row]:
    path = root / "replay.db"
    calls = 0

    async def counted(value: Any) -> Any:
        nonlocal calls
        calls += 1
        return value

    # 4 rounds of an inner loop of 834 with three effects each: some 10,000.
    inner = Loop(counted, evaluate, adapt, MaxIterations(834), name="inner")
    outer = Loop(inner, evaluate, adapt, MaxIterations(4), name="outer")

    async def main() -> float:
        journal = SqliteJournal(path, synchronous="normal")
        await run(outer, 1, journal=journal, run_id="replayed")
        before = calls
        start = time.perf_counter()
        await run(outer, journal=journal, run_id="replayed")
        taken = time.perf_counter() - start
        await journal.close()
        if calls != before:
            raise SystemExit("a replay performed an effect")
        return taken

    yield Row("replaying a finished run of 10,000 effects", asyncio.run(main()), 1, "s")


if __name__ == "__main__":
    for row in rows():
        print(row)
