"""Waits: how long a signal takes to the next effect, what waiting runs cost, and events of the last moment. `python -m benchmarks.waiting`.

PostgreSQL is a server of its own, with fsync. The rows of many waits are written without their runs. A wait whose event is there is
measured beside a recorded function call, by turns. The worker is in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from loopwright import Context, Loop, MaxIterations, resume, run, signal, step
from loopwright.cluster import Worker, submit
from loopwright.cluster.postgres import PostgresSharedRuns
from loopwright.journal import Journal, open_journal
from loopwright.journal.events import OpenWait
from loopwright.journal.questions import answer, pending

from .measuring import Row

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from postgres_server import PostgresServer, ServerMissing

FEW, MANY = 100_000, 1_000_000  # waiting runs
TIMES = 20
DUE = 100  # due rows of a query
LAST = 500  # events of the last moment
NEAR = 0.012  # seconds between such an event and the due time, at most
PAIRS = 300  # waits and effects of one run
_SEND = """
import sys, time
from loopwright import signal_sync
print(time.time(), flush=True)
signal_sync("go", key=sys.argv[2], journal=sys.argv[1])
"""


async def latency(url: str, *, elsewhere: bool) -> list[float]:
    """Return the seconds from a signal, in this or in another process, to the next effect."""
    async with open_journal(url) as journal:
        woken: list[float] = []

        async def waits(value: str, ctx: Context) -> None:
            await ctx.wait("go", event="go", key=value)
            await ctx.call("effect", lambda: woken.append(time.time()))

        taken = []
        for number in range(TIMES):
            key = f"{elsewhere}-{number}"
            task = asyncio.create_task(run(waits, key, journal=journal))
            while not any(row.key == key for row in await journal.waits()):
                await asyncio.sleep(0.02)
            if elsewhere:
                words = [sys.executable, "-c", _SEND, url, key]
                output = (await asyncio.to_thread(subprocess.check_output, words)).decode()
                sent = float(output)
            else:
                sent = time.time()
                await signal("go", key=key, journal=journal)
            await task
            taken.append(woken[-1] - sent)
        return taken


def rows_of(url: str, count: int) -> None:
    """Fill an empty table with waits that end in a day, DUE of them a second ago."""
    now = time.time()
    rows = (
        (f"run-{n:07}", "flow/wait", "go", f"{n}", now - 1 if n % (count // DUE) == 0 else now + 86400)
        for n in range(count)
    )  # fmt: skip
    if url.startswith("sqlite:"):
        import sqlite3

        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:"))) as db:
            db.executemany("INSERT INTO waits VALUES (?,?,?,?,?)", rows)
            db.commit()
        return
    with psycopg.connect(url) as db:
        with db.cursor().copy(
            "COPY loopwright.waits(run, path, name, key, due) FROM STDIN"
        ) as copy:
            for row in rows:
                copy.write_row(row)
        db.commit()
        db.autocommit = True
        db.execute("VACUUM ANALYZE loopwright.waits")


async def _median(work: Any, times: int = TIMES) -> float:
    """Return the median milliseconds of a call, without the first one."""
    taken = []
    for number in range(times + 1):
        began = time.perf_counter()
        await work(number)
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken[1:])


async def many(url: str, count: int, where: str) -> list[Row]:
    """Measure a query for due waits, and a signal, among many waiting runs."""
    async with open_journal(url) as journal:
        await journal.look_for([OpenWait("r", "p")])  # creates the tables
        await journal.end_wait("r")
        await asyncio.to_thread(rows_of, url, count)

        async def due(_: int) -> None:
            assert len(await journal.waits(due=time.time())) == DUE

        async def none(_: int) -> None:
            assert await journal.waits(due=time.time() - 60) == []

        async def send(number: int) -> None:
            assert (await signal("go", key=f"{number * 100 + 1}", journal=journal)).waiting == 1

        what = f"{where}, {count:,} waiting runs"
        return [
            Row(f"{what}: query without a due one", await _median(none), 5.0, "ms"),
            Row(f"{what}: query with {DUE} due ones", await _median(due), 5.0 + 0.05 * DUE, "ms"),
            Row(f"{what}: signal", await _median(send), 10.0, "ms"),
        ]


async def one_wait(url: str, where: str) -> Row:
    """Compare a wait whose event is there with an effect of the same run, by turns."""
    async with open_journal(url) as journal:
        taken: dict[str, list[float]] = {"wait": [], "effect": []}

        async def both(value: Any, ctx: Context) -> None:
            for number in range(PAIRS):
                await signal("go", number, key=ctx.run_id, journal=journal)
                began = time.perf_counter()
                await ctx.wait(f"wait-{number}", event="go")
                middle = time.perf_counter()
                await ctx.call(f"call-{number}", _nothing)
                taken["wait"].append(middle - began)
                taken["effect"].append(time.perf_counter() - middle)

        result = await run(both, journal=journal)
        assert result.error is None, result.error
    wait, effect = (statistics.median(taken[name]) for name in ("wait", "effect"))
    note = f"{wait * 1e6:.0f} and {effect * 1e6:.0f} us"
    return Row(f"{where}: a wait whose event is there, to an effect", wait / effect, 1.0, note=note)


async def _nothing(value: Any) -> None:
    """Act as an effect that takes no time."""


async def resumed(url: str, where: str) -> Row:
    """Measure from the resume of a run before its 1,000th iteration, whose event is there, to its next effect."""
    async with open_journal(url) as journal:
        done: list[float] = []

        async def execute(value: Any, ctx: Context) -> int:
            if ctx.iteration == 1000:
                await ctx.wait("go", event="go")
                done.append(time.perf_counter())
            return ctx.iteration

        loop = Loop(execute, name="long", until=MaxIterations(1000))
        taken = []
        for number in range(5):
            name = f"long-{number}"
            await run(loop, journal=journal, run_id=name, on_wait="leave")
            await signal("go", key=name, journal=journal)
            began = time.perf_counter()
            await resume(loop, name, journal=journal, on_wait="leave")
            taken.append(done[-1] - began)
    note = f"most {max(taken):.2f}"
    return Row(
        f"{where}: resume of 1,000 iterations by an event", statistics.median(taken), 0.3, "s", note
    )


async def last_moment(url: str) -> list[Row]:
    """Send events within NEAR of the due times of staying runs, and compare what ended each wait with the times of the store."""
    chance = random.Random(1)
    wrong = events = 0

    async def one(journal: Journal, other: Journal, number: int) -> None:
        nonlocal wrong, events
        name = f"last-{number}"

        async def waits(value: Any, ctx: Context) -> str:
            return str((await ctx.wait("w", event="go", timeout=0.5, default=None))["ended"])

        task = asyncio.create_task(run(waits, journal=journal, run_id=name))
        waiting = None
        while waiting is None:
            await asyncio.sleep(0.02)
            with contextlib.suppress(Exception):
                entries = await other.entries(name)
                waiting = next((e for e in entries if e.kind == "waiting"), None)
        due = waiting.value["due"]
        await asyncio.sleep(max(0.0, due + chance.uniform(-NEAR, NEAR / 2) - time.time()))
        sent = await signal("go", key=name, journal=other)
        ended = (await task).output
        events += ended == "event"
        # The event is committed a moment after its time, so a timeout may have been decided only for a later one.
        wrong += (ended == "event") != (sent.event.at <= due)

    async with open_journal(url) as journal, open_journal(url) as other:
        for first in range(0, LAST, 10):
            await asyncio.gather(*(one(journal, other, first + n) for n in range(10)))
    note = f"{events} ended by the event, {LAST - events} by the time"
    return [
        Row(
            f"PostgreSQL: {LAST} events within {NEAR * 1000:g} ms of the due time, wrong",
            wrong,
            0,
            "",
            note,
        )
    ]


@step(fingerprint="bench.asks/1", idempotent=True)
async def asks(value: str, ctx: Context) -> str:
    """Ask eight questions in a row."""
    return "".join(str(ctx.ask(f"question-{n}", {}, "Yes?")) for n in range(8))


_EFFECTS: list[float] = []


@step(fingerprint="bench.events/1", idempotent=True)
async def ten(value: str, ctx: Context) -> None:
    """Wait for ten events, with an effect after each."""
    for number in range(10):
        await ctx.wait(f"wait-{number}", event="go")
        await ctx.call(f"effect-{number}", lambda: _EFFECTS.append(time.time()))


@step(fingerprint="bench.time/1", idempotent=True)
async def later(value: str, ctx: Context) -> float:
    """Wait for a second, and return when it continued."""
    await ctx.wait("time", for_=1)
    return time.time()


async def by_workers(url: str) -> list[Row]:
    """Measure a worker: eight answers and ten events in a row, and a time."""

    async def status(*wanted: str) -> None:
        while (await journal.find(run_id)).status not in wanted:
            await asyncio.sleep(0.01)

    async with (
        open_journal(url) as journal,
        Worker(journal=url, steps=[asks, ten, later]) as worker,
    ):
        serving = asyncio.create_task(worker.serve())
        run_id, answers = await submit(asks, "", journal=journal), []
        for _ in range(8):
            await status("suspended")
            while not (questions := await pending(journal, run_id)):
                await asyncio.sleep(0.01)
            began = time.perf_counter()
            epoch = (await journal.find(run_id)).epoch
            await answer(journal, run_id, questions[0].path, "y")
            while (await journal.find(run_id)).epoch == epoch:
                await asyncio.sleep(0.005)
            answers.append(time.perf_counter() - began)
        await status("satisfied")
        run_id, events = await submit(ten, "", journal=journal), []
        for number in range(10):
            await status("suspended")
            while not await journal.waits(run_id):
                await asyncio.sleep(0.01)
            sent = time.time()
            await signal("go", key=run_id, journal=journal)
            while len(_EFFECTS) <= number:
                await asyncio.sleep(0.005)
            events.append(_EFFECTS[number] - sent)
        await status("satisfied")
        late = []
        for _ in range(5):
            run_id = await submit(later, "", journal=journal)
            await status("satisfied")
            entries = await journal.entries(run_id)
            due = next(entry.value["due"] for entry in entries if entry.kind == "waiting")
            late.append((await journal.result(run_id)).output - due)
        worker.stop()
        await serving

    def row(what: str, taken: Sequence[float], bound: float) -> Row:
        each = " ".join(f"{one:.2f}" for one in taken)
        return Row(
            f"worker: {what}, the longest",
            max(taken),
            bound,
            "s",
            f"median {statistics.median(taken):.2f}; {each}",
        )

    return [
        row("answer to the next opening, eight in a row", answers, 1.0),
        row("event to the next effect, ten in a row", events, 2.0),
        row("time of a wait to its continuation, of five", late, 2.0),
    ]


async def sweep(url: str, count: int) -> Row:
    """Measure the due query of workers among suspended runs with open waits that end in a day."""
    from .fleet import fill

    async with open_journal(url) as journal:
        await journal.look_for([OpenWait("r", "p")])
    fill(url, 0, count)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "UPDATE loopwright.runs SET status='suspended', reason='waiting', queue='default', "
            "wake_at=extract(epoch FROM now())+86400"
        )
        db.execute(
            "INSERT INTO loopwright.waits SELECT run_id, 'wait', 'go', run_id, wake_at FROM loopwright.runs"
        )
        db.execute("VACUUM ANALYZE loopwright.runs")
        db.execute("VACUUM ANALYZE loopwright.waits")
    async with Worker(journal=url, steps=[later], queues={"default": 1}):
        runs = PostgresSharedRuns(url)
        taken = await _median(lambda _: runs.due())
        await runs.close()
    return Row(f"worker: the due query at {count:,} suspended runs", taken, 5.0, "ms")


def rows() -> Iterator[Row]:
    """Measure everything; yield the figures."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        file = f"sqlite:{name}/few.db"
        for elsewhere, bound in ((False, 0.3), (True, 0.5)):
            taken = asyncio.run(latency(file, elsewhere=elsewhere))
            where = "another process" if elsewhere else "the same process"
            note = f"median {statistics.median(taken):.2f}"
            yield Row(
                f"SQLite: signal of {where} to effect, the longest of {TIMES}",
                max(taken),
                bound,
                "s",
                note,
            )
        yield asyncio.run(one_wait(file, "SQLite"))
        yield asyncio.run(resumed(file, "SQLite"))
        for count in (FEW, MANY):
            yield from asyncio.run(many(f"sqlite:{name}/{count}.db", count, "SQLite"))
        size = Path(name, f"{MANY}.db").stat().st_size / MANY
        yield Row(f"SQLite, {MANY:,} waiting runs: a row", size, 400, "bytes")
    try:
        server = PostgresServer(fsync=True)
    except ServerMissing as missing:
        yield Row(f"PostgreSQL: not measured: {missing}", 0.0, None, "")
        return
    with contextlib.closing(server):

        def url() -> str:
            return server.url_of(server.create_database())

        yield asyncio.run(one_wait(url(), "PostgreSQL"))
        yield asyncio.run(resumed(url(), "PostgreSQL"))
        yield from asyncio.run(by_workers(url()))
        yield from asyncio.run(last_moment(url()))
        yield asyncio.run(sweep(url(), FEW))
        for count in (FEW, MANY):
            yield from asyncio.run(many(url(), count, "PostgreSQL"))


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
