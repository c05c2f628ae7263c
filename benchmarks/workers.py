"""Workers on PostgreSQL: the default engine beside a bare loop with `SKIP LOCKED`, and what a user waits for."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from loopwright import Loop, MaxIterations, step
from loopwright.cluster import (
    Cap,
    Delivery,
    Handle,
    Submission,
    Worker,
    open_deliverer,
    submit,
    submit_all,
)
from loopwright.cluster.postgres import PostgresSharedRuns
from loopwright.engine.budgets import limits_of
from loopwright.journal import open_journal
from loopwright.journal.questions import answer, pending

from .measuring import Row

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from postgres_server import PostgresServer, ServerMissing

RUNS = 300
EFFECTS = 15
WAIT = 0.02  # seconds of an effect
SLOTS = 100


@step(fingerprint="bench.wait/1", idempotent=True)
async def wait(value: int) -> int:
    await asyncio.sleep(WAIT)
    return value + 1


@step(fingerprint="bench.ask/1", idempotent=True)
async def ask(value: str, ctx: object) -> object:
    return ctx.ask("question", {}, "A question")  # type: ignore[attr-defined]


waits = Loop(wait, until=MaxIterations(EFFECTS), name="waits")
one = Loop(wait, until=MaxIterations(1), name="one")
long = Loop(wait, until=MaxIterations(500), name="long")


class SkipLocked:
    """The floor: a table of jobs, taken by `SKIP LOCKED` in batches and deleted when they are handled."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def _run(self, query: str, *values: object) -> list[tuple[str]]:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as db:
            cursor = await db.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def prepare(self) -> None:
        await self._run(
            "CREATE TABLE IF NOT EXISTS bare_jobs(id bigserial PRIMARY KEY, run_id text, taken bool)"
        )

    async def enqueue(self, deliveries: Sequence[Delivery]) -> None:
        await self._run(
            "INSERT INTO bare_jobs(run_id, taken) SELECT unnest(%s::text[]), false",
            [delivery.run_id for delivery in deliveries],
        )

    async def waiting(self, deliveries: Sequence[Delivery]) -> set[str]:
        return {delivery.run_id for delivery in deliveries}

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        free = sum(queues.values())
        async with (
            await psycopg.AsyncConnection.connect(self._url, autocommit=True) as db,
            asyncio.TaskGroup() as tasks,
        ):
            done: list[int] = []

            async def deliver(key: int, run_id: str) -> None:
                nonlocal free
                await handle(run_id)
                done.append(key)
                free += 1

            while True:
                if done:
                    await db.execute("DELETE FROM bare_jobs WHERE id = ANY(%s)", (done[:],))
                    done.clear()
                cursor = await db.execute(
                    "UPDATE bare_jobs SET taken = true WHERE id IN (SELECT id FROM bare_jobs WHERE NOT taken "
                    "ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id, run_id",
                    (free,),
                )
                for key, run_id in await cursor.fetchall():
                    free -= 1
                    tasks.create_task(deliver(key, run_id))
                await asyncio.sleep(0.02)

    async def remove(self, run_ids: Collection[str]) -> None:
        del run_ids

    async def close(self) -> None:
        """Nothing is open."""


def rows() -> Iterator[Row]:
    """Measure all rows on a server of their own."""
    try:
        server = PostgresServer()
    except ServerMissing as missing:
        yield Row(f"workers: not measured: {missing}", 0.0, None, "")
        return
    try:
        yield from _throughput(server)
        for measure in (_submitting, _answering, _permits):
            yield from asyncio.run(measure(server.url_of(server.create_database())))
        yield from _takeover(server)
    finally:
        server.close()


def _throughput(server: PostgresServer) -> Iterator[Row]:
    def rate(engine: str, workers: int) -> float:
        return asyncio.run(_rate(server.url_of(server.create_database()), engine, workers))

    pairs = [(rate("bare", 2), rate("", 2)) for _ in range(3)]
    single = rate("", 1)
    floor = statistics.median(floor for floor, _ in pairs)
    ours = statistics.median(ours for _, ours in pairs)
    ratio = statistics.median(floor / ours for floor, ours in pairs)
    note = f"{floor:.0f} and {ours:.0f} runs/s of {EFFECTS} effects"
    yield Row("bare SKIP LOCKED, to the default engine, 2 workers", ratio, 1 / 0.8, note=note)
    yield Row(
        "1 worker, to 2 workers", ours / single, None, note=f"{single:.0f} runs/s alone; 1.5 wanted"
    )


async def _rate(url: str, engine: str, workers: int) -> float:
    """Return the runs per second of so many workers, counted from the first to the last end."""
    async with open_journal(url) as journal:
        deliverer = SkipLocked(url) if engine else ""
        if isinstance(deliverer, SkipLocked):
            # Two workers that create a table at the same moment fail, also with `IF NOT EXISTS`.
            await deliverer.prepare()
        with _processes(url, engine, workers) as processes:
            await _ready(url, workers, processes)
            await submit_all(
                Submission(waits),
                [(n, "") for n in range(RUNS)],
                journal=journal,
                deliverer=deliverer,
            )
            began = time.perf_counter()
            await _count(url, RUNS)
            return RUNS / (time.perf_counter() - began)


@contextmanager
def _processes(url: str, engine: str, workers: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "benchmarks.workers", url, engine]
    processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(workers)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=60)


async def _until(
    url: str, query: str, wanted: int, processes: Sequence[subprocess.Popen[bytes]] = ()
) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        while True:
            if any(process.poll() is not None for process in processes):
                raise RuntimeError("a worker ended; start it by hand to see its error")
            try:
                row = await (await db.execute(query.encode())).fetchone()
            except psycopg.errors.UndefinedTable:
                row = None
            if row is not None and row[0] >= wanted:
                return
            await asyncio.sleep(0.02)


async def _ready(url: str, workers: int, processes: Sequence[subprocess.Popen[bytes]] = ()) -> None:
    await _until(url, "SELECT count(*) FROM loopwright_queue.workers", workers, processes)


async def _count(url: str, runs: int) -> None:
    await _until(url, "SELECT count(*) FROM loopwright.runs WHERE status = 'exhausted'", runs)


async def _submitting(url: str) -> list[Row]:
    async with open_journal(url) as journal:
        await submit(one, 0, journal=journal)
        began = time.perf_counter()
        await submit_all(Submission(one), [(n, "") for n in range(2000)], journal=journal)
        many = (time.perf_counter() - began) / 2000
        alone = []
        for number in range(20):
            began = time.perf_counter()
            await submit(one, number, journal=journal)
            alone.append(time.perf_counter() - began)
        reused = []
        deliverer = open_deliverer("", url)
        for number in range(20):
            began = time.perf_counter()
            await submit(one, number, journal=journal, deliverer=deliverer)
            reused.append(time.perf_counter() - began)
        await deliverer.close()
    fresh, bare = [], []
    for number in range(10):
        began = time.perf_counter()
        await submit(one, number, journal=url)
        fresh.append(time.perf_counter() - began)
        began = time.perf_counter()
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
            await db.execute("SELECT 1")
        bare.append(time.perf_counter() - began)
    connecting = f"a connection and SELECT 1 take {1000 * statistics.median(bare):.1f} ms"
    return [
        Row(
            "submit one run, with new connections of the journal and the engine",
            1000 * statistics.median(fresh),
            None,
            "ms",
            note=connecting,
        ),
        Row("submit 2,000 runs, each", 1000 * many, 0.5, "ms"),
        Row(
            "submit one run, with a new connection of the engine",
            1000 * statistics.median(alone),
            None,
            "ms",
        ),
        Row(
            "submit one run, with a deliverer that stays open",
            1000 * statistics.median(reused),
            10,
            "ms",
        ),
    ]


async def _answering(url: str) -> list[Row]:
    times = []
    async with (
        open_journal(url) as journal,
        Worker(journal=url, steps=[ask]) as worker,
    ):
        serving = asyncio.create_task(worker.serve())
        for number in range(5):
            run_id = await submit(ask, str(number), journal=journal)
            while (await journal.find(run_id)).status != "suspended":
                await asyncio.sleep(0.02)
            [question] = await pending(journal, run_id)
            began = time.perf_counter()
            await answer(journal, run_id, question.path, "yes")
            while (await journal.find(run_id)).status != "satisfied":
                await asyncio.sleep(0.002)
            times.append(time.perf_counter() - began)
        worker.stop()
        await serving
    return [
        Row("answer, to the end of the run by a worker", 1000 * statistics.median(times), 150, "ms")
    ]


async def _permits(url: str) -> list[Row]:
    runs = PostgresSharedRuns(url)
    await runs.enter({"default": 1})
    limits, permits = limits_of(Cap(10)), runs.permits
    alone, bare = [], []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        for _ in range(500):
            began = time.perf_counter()
            await permits.take("x", limits)
            await permits.release("x")
            alone.append(time.perf_counter() - began)
            began = time.perf_counter()
            await db.execute("SELECT 1")
            bare.append(time.perf_counter() - began)

    async def call() -> None:
        await permits.take("y", limits)
        await asyncio.sleep(0)
        await permits.release("y")

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(1000)))
    together = (time.perf_counter() - began) / 1000
    await runs.close()
    note = f"SELECT 1 takes {1e6 * statistics.median(bare):.0f} us"
    return [
        Row(
            "take and return a permit of a shared cap",
            1000 * statistics.median(alone),
            0.5,
            "ms",
            note=note,
        ),
        Row("the same, of 1,000 calls at once under a cap of 10", 1000 * together, 0.5, "ms"),
    ]


def _takeover(server: PostgresServer) -> Iterator[Row]:
    """Measure from the kill of a worker to the next effect of its run on another, without and with a backlog."""
    for backlog in (0, 1000):
        longest = max(
            asyncio.run(_takeover_once(server.url_of(server.create_database()), backlog))
            for _ in range(2)
        )
        what = f"takeover after kill -9, {backlog:,} runs waiting, the longer of 2"
        yield Row(what, longest, 5.0, "s")


async def _takeover_once(url: str, backlog: int) -> float:
    async with open_journal(url) as journal:
        run_id = await submit(long, 0, journal=journal)
        with _processes(url, "", 1) as [first]:
            await _until(
                url,
                f"SELECT count(*) FROM loopwright.runs WHERE run_id = '{run_id}' AND status = 'running'",
                1,
            )
            with _processes(url, "", 1):
                await _ready(url, 2)
                if backlog:
                    await submit_all(
                        Submission(waits), [(n, "") for n in range(backlog)], journal=journal
                    )
                first.kill()
                first.wait(timeout=60)
                began = time.perf_counter()
                entries = len(await journal.entries(run_id))
                while len(await journal.entries(run_id)) <= entries:
                    await asyncio.sleep(0.05)
                seconds = time.perf_counter() - began
        return seconds


async def _serve(url: str, engine: str) -> None:
    deliverer: object = SkipLocked(url) if engine else ""
    worker = Worker(
        journal=url,
        steps=[waits, one, long, ask],
        queues={"default": SLOTS},
        deliverer=deliverer,  # type: ignore[arg-type]
    )
    async with worker:
        await worker.serve()


def main(work: Callable[[], Iterator[Row]] = rows) -> None:
    """Print the rows, or serve as a worker with the arguments URL and ENGINE."""
    if len(sys.argv) > 2:
        asyncio.run(_serve(*sys.argv[1:3]))
        return
    for row in work():
        print(row, flush=True)


if __name__ == "__main__":
    main()
