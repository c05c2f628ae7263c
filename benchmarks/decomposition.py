"""Where the time goes in the bounds that are missed: 1,000 durable runs, and 10,000 loops in memory.

    BENCH_FOLDER=/dev/shm .venv/bin/python -m benchmarks.decomposition

Each row adds work that the bare baseline does not do. The figures are CPU times of all threads, medians
of three, because other processes change them least. Decision 74 explains them.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from loopwright import Loop, MaxIterations, MemoryJournal, ScoreAtLeast, run
from loopwright.journal.recorded.log import Contents, entry_text, sealed_row
from loopwright.journal.sqlite import SqliteJournal

from .durable import bare
from .engine import adapt, bare_waiting, evaluate, execute, loop_of, waiting
from .floor import tasks as floor
from .measuring import Row, cpu

RUNS, ITERATIONS = 1000, 10
EFFECTS = 3 * ITERATIONS - 1  # of a run: the first iteration does not adapt
LOOPS = 10_000
BOUND = 2.5  # decision 74


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", ".")) as scratch:
        numbers = itertools.count()
        yield from _durable(lambda: Path(scratch) / f"{next(numbers)}.db")
    yield from _many()


def _cpu(work: Callable[[], object]) -> float:
    return statistics.median(cpu(work) for _ in range(3))


def _durable(path: Callable[[], Path]) -> Iterator[Row]:
    effect = 1e6 / (RUNS * EFFECTS)
    plain = _cpu(lambda: bare(path(), "full", 200, 100)) / 20_000 * 1e6
    one = _cpu(lambda: floor(path(), RUNS, EFFECTS)) * effect
    two = _cpu(lambda: floor(path(), RUNS, EFFECTS, records=2)) * effect
    unkept = _cpu(lambda: _in_memory(None)) * effect
    kept = _cpu(lambda: _in_memory(MemoryJournal())) * effect
    measured = [_on_sqlite(path()) for _ in range(3)]
    loop, writer, collector = (statistics.median(c) * effect for c in zip(*measured, strict=True))
    for what, value in (
        ("bare: one thread, no tasks, prepared records, 100 per commit", plain),
        ("tasks that create one JSON text per effect and wait for its commit", one),
        ("the same with two texts per effect: its intent and its outcome", two),
        ("the engine without a journal", unkept),
        ("the engine with a journal in memory", kept),
        ("JSON texts and checksums of the entries of a run", _encoding() / EFFECTS * 1e6),
        ("Loopwright: the thread of the event loop", loop),
        ("Loopwright: the thread of the writer", writer),
        ("Loopwright: of these, the garbage collector", collector),
    ):
        yield Row(f"CPU per effect of 1,000 runs, FULL: {what}", value, None, "us")
    parts = "to tasks with two texts, plus the engine with a journal in memory"
    yield Row(f"CPU per effect of 1,000 runs, FULL, {parts}", (loop + writer) / (two + kept), BOUND)


def _in_memory(journal: MemoryJournal | None) -> None:
    async def work() -> None:
        loop = loop_of(ITERATIONS)
        await asyncio.gather(*(run(loop, 1, journal=journal) for _ in range(RUNS)))

    asyncio.run(work())


def _encoding() -> float:
    """Return the CPU seconds of the texts and checksums of one run's entries."""

    async def recorded() -> MemoryJournal:
        journal = MemoryJournal()
        await run(loop_of(ITERATIONS), 1, journal=journal, run_id="r")
        return journal

    journal = asyncio.run(recorded())
    entries = asyncio.run(journal.entries("r"))
    repeats = 200
    start = time.process_time()
    for _ in range(repeats):
        contents, checksum = Contents(lambda: 1), b""
        for at in range(
            0, len(entries), 2
        ):  # most rows have the end of an effect and the next intent
            texts = [entry_text(entry, contents) for entry in entries[at : at + 2]]
            contents.here = []
            _, checksum = sealed_row(texts, checksum, at)
    return (time.process_time() - start) / repeats


class _Collector:
    """Measures the CPU time of the garbage collector."""

    def __init__(self) -> None:
        self.seconds = self._start = 0.0

    def __call__(self, phase: str, _: object) -> None:
        if phase == "start":
            self._start = time.thread_time()
        else:
            self.seconds += time.thread_time() - self._start

    def __enter__(self) -> _Collector:
        gc.collect()
        gc.callbacks.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self)


def _on_sqlite(path: Path) -> tuple[float, float, float]:
    """Return the CPU seconds of the event loop's thread, of the writer's thread and of the collector."""

    async def work() -> tuple[float, float]:
        journal, loop = SqliteJournal(path, synchronous="full"), loop_of(ITERATIONS)
        await run(loop_of(1), 1, journal=journal)
        own, writer = time.thread_time(), _others()
        await asyncio.gather(*(run(loop, 1, journal=journal) for _ in range(RUNS)))
        spent = time.thread_time() - own, _others() - writer
        await journal.close()
        return spent

    with _Collector() as collector:
        return (*asyncio.run(work()), collector.seconds)


def _others() -> float:
    """Return the CPU seconds of the other threads of this process."""
    ids = [t.ident for t in threading.enumerate() if t is not threading.current_thread()]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(i)) for i in ids if i is not None)


def _many() -> Iterator[Row]:
    loop = Loop(waiting, evaluate, adapt, ScoreAtLeast(0.9) | MaxIterations(5), name="bench")
    quick = Loop(execute, evaluate, adapt, ScoreAtLeast(0.9) | MaxIterations(5), name="bench")

    async def at_once(of: Loop) -> None:
        await asyncio.gather(*(run(of, 1) for _ in range(LOOPS)))

    async def in_turn() -> None:
        for _ in range(LOOPS):
            await run(quick, 1)

    async def plain() -> None:
        await asyncio.gather(*(bare_waiting() for _ in range(LOOPS)))

    for name, work in (
        ("plain asyncio", plain),
        ("Loopwright, one loop after the other, without waits", in_turn),
        ("Loopwright, at once", lambda: at_once(loop)),
    ):
        measured = [_with_collector(work) for _ in range(3)]
        total, collected = (statistics.median(column) for column in zip(*measured, strict=True))
        note = f"of these {collected:.2f} s in the garbage collector"
        yield Row(f"CPU of 10,000 loops of 5 waits: {name}", total, None, "s", note)


def _with_collector(work: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU seconds of a coroutine, and those of the collector."""
    with _Collector() as collector:
        start = time.process_time()
        asyncio.run(work())  # type: ignore[arg-type]
        return time.process_time() - start, collector.seconds


if __name__ == "__main__":
    for row in rows():
        print(row)
