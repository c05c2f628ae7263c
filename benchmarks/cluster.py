"""The journal in PostgreSQL: beside a bare writer that commits in groups, and beside SQLite, in one run.

The server is started here, with fsync. The sides take turns. The
server shares the cores with both, so only ratios mean something. A figure of effects per second is shown
as the time of ours divided by the time of the other.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import psycopg

from loopwright import Context, Loop, MaxIterations, run
from loopwright.errors import RunLocked
from loopwright.journal import Journal, RunInfo
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.sqlite import SqliteJournal
from loopwright.records.codec import encode

from .measuring import Row

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import PostgresServer, ServerMissing

RUNS = 200
EFFECTS = 15
PAUSE = 0.02
ROUNDS = 5
_BODY = "x" * 260


class BareWriter:
    """A thread that commits what waits for it, in one statement; the least that keeps a row an effect."""

    def __init__(self, url: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute("CREATE TABLE IF NOT EXISTS bare(run int, body text)")
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    async def commit(self, number: int, body: str) -> None:
        """Wait until a row is durable."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._jobs.put((loop, waiter, number, body))
        await waiter

    def close(self) -> None:
        """End the thread."""
        self._jobs.put(None)
        self._thread.join()
        self._db.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            try:
                while (more := self._jobs.get_nowait()) is not None:
                    jobs.append(more)
                self._jobs.put(None)
            except Empty:
                pass
            self._db.execute(
                "INSERT INTO bare SELECT * FROM unnest(%s::int[], %s::text[])",
                ([job[2] for job in jobs], [job[3] for job in jobs]),
            )
            jobs[0][0].call_soon_threadsafe(self._done, [job[1] for job in jobs])

    @staticmethod
    def _done(waiters: list[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            waiter.set_result(None)


async def bare_tasks(writer: BareWriter, pause: float) -> None:
    """Let tasks wait for the durable effects of as many runs, without an engine."""

    async def task(number: int) -> None:
        for effect in range(EFFECTS):
            await asyncio.sleep(pause)
            await writer.commit(number, encode({"path": f"{number}/{effect}", "of": _BODY}))

    await asyncio.gather(*(task(number) for number in range(RUNS)))


async def loops(journal: Journal, pause: float, name: str) -> None:
    """Run loops with as many effects in a journal."""

    async def execute(value: int, ctx: Context) -> int:
        await asyncio.sleep(pause)
        return value + 1

    loop = Loop(execute, until=MaxIterations(EFFECTS), name="loop")
    runs = (run(loop, 1, journal=journal, run_id=f"{name}-{i}") for i in range(RUNS))
    await asyncio.gather(*runs)


async def _timed(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - wall, time.process_time() - cpu


async def _compared(url: str, folder: Path, pause: float) -> dict[str, float]:
    """Return the medians of the ratios to the bare writer and to SQLite."""
    bare = BareWriter(url)
    ratios: dict[str, list[float]] = {"bare": [], "sqlite": [], "cpu": []}
    async with PostgresJournal(url) as ours, SqliteJournal(folder / f"{pause}.db") as sqlite:
        for number in range(ROUNDS + 1):
            name = f"ms{pause * 1000:.0f}-{number}"
            floor, _ = await _timed(lambda: bare_tasks(bare, pause))
            own, own_cpu = await _timed(lambda name=name: loops(ours, pause, name))  # type: ignore[misc]
            file, file_cpu = await _timed(lambda name=name: loops(sqlite, pause, name))  # type: ignore[misc]
            if number:  # the first round opens connections and prepares statements
                ratios["bare"].append(own / floor)
                ratios["sqlite"].append(own / file)
                ratios["cpu"].append(own_cpu / file_cpu)
    bare.close()
    return {name: statistics.median(values) for name, values in ratios.items()}


async def _one_run(url: str) -> tuple[float, float]:
    """Return the median seconds of an effect of a run alone, and of a bare commit, taken in turn."""
    from .journal import effect

    ours, theirs = [], []
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE IF NOT EXISTS alone(run int, number int, body text)")
        async with PostgresJournal(url) as journal:
            log = await journal.open(RunInfo("one", "bench"))
            for number in range(300):
                start = time.perf_counter()
                for entry in effect(number):
                    log.append(entry)
                pending = log.sync()
                if pending is not None:
                    await pending
                ours.append(time.perf_counter() - start)
                start = time.perf_counter()
                db.execute("INSERT INTO alone VALUES (1, %s, %s)", (number, _BODY))
                theirs.append(time.perf_counter() - start)
            await log.close(log.info)
    return statistics.median(ours), statistics.median(theirs)


async def _created(url: str) -> float:
    """Return the seconds in which a queued run is created, among 1,500."""
    async with PostgresJournal(url) as journal:
        await journal.runs()
        runs = [RunInfo(f"queued-{i}", "bench", {"topic": i}, queue="bench") for i in range(1500)]
        start = time.perf_counter()
        await journal.create(runs)
        return (time.perf_counter() - start) / len(runs)


_HOLDER = """
import asyncio, sys
from loopwright.journal import Entry, RunInfo
from loopwright.journal.postgres.journal import PostgresJournal

async def main():
    journal = PostgresJournal(sys.argv[1])
    log = await journal.open(RunInfo(sys.argv[2], "held"))
    print("held", flush=True)
    while True:
        log.append(Entry("finished", "step", 1.0, "x"))
        if (pending := log.sync()) is not None:
            await pending
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


async def _taken_over(url: str, name: str) -> float:
    """Return the seconds after which the run of a killed process is open again."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, url, name], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    async with PostgresJournal(url) as journal:
        await journal.runs()
        holder.send_signal(signal.SIGKILL)
        start = time.perf_counter()
        while True:
            try:
                await journal.open(RunInfo(name, "held"))
                break
            except RunLocked:
                await asyncio.sleep(0.02)
        took = time.perf_counter() - start
    holder.communicate()
    return took


def rows() -> Iterator[Row]:
    """Measure everything; yield the figures."""
    try:
        server = PostgresServer(fsync=True)
    except ServerMissing as missing:
        print(f"NOT MEASURED: {missing}")
        return
    try:
        yield from _rows(server)
    finally:
        server.close()


def _rows(server: PostgresServer) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for pause, floor, file in ((PAUSE, 1 / 0.7, 1 / 0.75), (0.0, 1 / 0.2, 1 / 0.55)):
            url = server.url_of(server.create_database())
            found = asyncio.run(_compared(url, Path(folder), pause))
            what = f"{RUNS} runs of {EFFECTS} effects, {pause * 1000:g} ms each"
            yield Row(f"{what} / bare writer", found["bare"], floor)
            yield Row(f"{what} / SQLite", found["sqlite"], file)
            yield Row(f"CPU of {what} / SQLite", found["cpu"], 1.5)
    url = server.url_of(server.create_database())
    ours, bare = asyncio.run(_one_run(url))
    note = f"{ours * 1e6:.0f} us and {bare * 1e6:.0f} us"
    yield Row("an effect of one run alone / bare commit", ours / bare, 2.0, note=note)
    yield Row("a queued run, of 1,500", asyncio.run(_created(url)) * 1000, 0.5, "ms")
    took = max(asyncio.run(_taken_over(url, f"held-{i}")) for i in range(3))
    yield Row("takeover after kill -9, the longest of 3", took, 5.0, "s")


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
