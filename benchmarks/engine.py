"""The engine in memory: cost of an iteration against a bare loop, its growth, and many loops at once."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, MemoryJournal, ScoreAtLeast, run

from .measuring import Row, by_turns, cpu

ITERATIONS = 1000


async def execute(value: Any) -> Any:
    return value


async def evaluate(output: Any) -> float:
    return 0.5


async def judge(output: Any) -> Any:
    return {"score": 0.5, "feedback": "more"}


async def adapt(last: Any) -> Any:
    return None


@dataclass(slots=True)
class Record:
    number: int
    input: Any
    output: Any
    score: float
    seconds: float


async def bare_loop(limit: int) -> list[Record]:
    """The floor: the same three awaits, a slotted record, the best so far and three conditions."""
    records: list[Record] = []
    value: Any = 1
    best, stall, began = -1.0, 0, time.perf_counter()
    while True:
        start = time.perf_counter()
        if records:
            value = await adapt(records[-1])
        output = await execute(value)
        score = await evaluate(output)
        records.append(Record(len(records) + 1, value, output, score, time.perf_counter() - start))
        if score > best:
            best, stall = score, 0
        else:
            stall += 1
        if score >= 0.9 or len(records) >= limit or time.perf_counter() - began > 3600:
            return records


def loop_of(limit: int) -> Loop:
    """Return the measured loop: default guards, the same conditions."""
    return Loop(execute, evaluate, adapt, ScoreAtLeast(0.9) | MaxIterations(limit), name="bench")


def tune_collector() -> None:
    """Let the collector look at what is new once a million objects are, and never at what is loaded.

    Ten thousand loops in flight are over half a million objects that live: walking them again and
    again is a third of the time. A process of that kind does this before it starts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 100)


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    yield from _iteration()
    yield from _growth()
    yield from _at_once(10_000, "collector as it is", 3)
    tune_collector()
    yield from _at_once(10_000, "collector tuned, for bare too", 4, memory=False)


def _iteration() -> Iterator[Row]:
    loop = loop_of(ITERATIONS)

    def bare() -> None:
        asyncio.run(bare_loop(ITERATIONS))

    def journaled() -> None:
        asyncio.run(run(loop, 1, journal=MemoryJournal()))

    def unkept() -> None:
        asyncio.run(run(loop, 1))

    floor, ours, ratio = by_turns(bare, journaled, rounds=15)
    note = f"bare {floor / ITERATIONS * 1e6:.2f} us, ours {ours / ITERATIONS * 1e6:.1f} us an iteration"
    yield Row(
        "CPU of an iteration with three effects in a memory journal, to bare", ratio, 8.5, note=note
    )
    _, ours, ratio = by_turns(bare, unkept, rounds=15)
    note = f"ours {ours / ITERATIONS * 1e6:.1f} us"
    yield Row("the same without a journal, to bare", ratio, 4.8, note=note)
    judged = Loop(
        execute, judge, adapt, ScoreAtLeast(0.9) | MaxIterations(ITERATIONS), name="bench"
    )

    def objects() -> None:
        asyncio.run(run(judged, 1))

    numbers, ours, ratio = by_turns(unkept, objects, rounds=15)
    note = f"number {numbers / ITERATIONS * 1e6:.1f} us, object {ours / ITERATIONS * 1e6:.1f} us"
    yield Row("an iteration whose evaluation is an object, to a number", ratio, 1.3, note=note)


def _growth() -> Iterator[Row]:
    count = 1000  # the ceiling of one loop; ten of them in turn make 10,000 iterations
    stamps: list[float] = []

    async def stamped(value: Any) -> Any:
        stamps.append(time.process_time())
        return value

    inner = Loop(stamped, evaluate, adapt, MaxIterations(count), name="inner")
    outer = Loop(inner, evaluate, adapt, MaxIterations(10), name="outer")
    ratios = []
    for _ in range(5):
        stamps.clear()
        gc.collect()
        asyncio.run(run(outer, 1, journal=MemoryJournal()))
        tenth = len(stamps) // 10
        first = stamps[tenth - 1] - stamps[0]
        last = stamps[-1] - stamps[-tenth]
        ratios.append(last / first)
    ratio = sorted(ratios)[len(ratios) // 2]
    yield Row("step cost, last tenth of 10,000 iterations to first", ratio, 1.2)


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def waiting(value: Any) -> Any:
    await asyncio.sleep(0.05)
    return value


async def bare_waiting() -> None:
    for number in range(5):
        if number:
            await adapt(None)
        await evaluate(await waiting(1))


def _at_once(count: int, how: str, bound: float, *, memory: bool = True) -> Iterator[Row]:
    loop = Loop(waiting, evaluate, adapt, ScoreAtLeast(0.9) | MaxIterations(5), name="bench")
    peak = 0

    async def bare() -> None:
        await asyncio.gather(*(bare_waiting() for _ in range(count)))

    async def ours() -> None:
        nonlocal peak
        start = _rss()

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, _rss() - start)
                await asyncio.sleep(0.02)

        watcher = asyncio.create_task(watch())
        await asyncio.gather(*(run(loop, 1) for _ in range(count)))
        watcher.cancel()

    def timed(work: Any) -> float:
        start = time.perf_counter()
        asyncio.run(work())
        return time.perf_counter() - start

    # The least of seven: on a shared machine every one but it has the time of others in it.
    pairs = [(timed(bare), timed(ours)) for _ in range(7)]
    floor, mine = min(b for b, _ in pairs), min(o for _, o in pairs)
    note = f"the least of 7: bare {floor:.2f} s, ours {mine:.2f} s"
    yield Row(f"{count} loops at once, wall to bare asyncio, {how}", mine / floor, bound, note=note)
    if memory:  # once: a tuned collector keeps more
        yield Row("memory per loop", peak / count / 1024, 12, "KB")


if __name__ == "__main__":
    print(f"empty call {cpu(lambda: None) * 1e6:.0f} us")
    for row in rows():
        print(row)
