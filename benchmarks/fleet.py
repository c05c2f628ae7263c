"""A fleet of workers: runs per second beside a bare loop, queries of a large journal, and what idle workers cost.

`make bench-cluster`. The server is started here and shares the cores with all sides, so compare only the rows of one call. The bare
loop takes runs by `SKIP LOCKED` and makes eight commits for a run: when it is taken, when it begins, after each effect, and when it ends.
The notes have the commits that the server counted, those of starting and of polling included; workers make about seven for a run,
because those of runs that go on at the same time are one. The loop has one connection; another row says what it does with eight, over
which the server writes the commits of several runs at once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg

from loopwright import Loop, MaxIterations
from loopwright.cluster import Submission, Worker, submit_all
from loopwright.cluster.postgres import PostgresSharedRuns
from loopwright.journal import RunInfo, open_journal
from loopwright.journal.recorded.rows import RunRow, queue_values, sealed_values
from loopwright.records.codec import encode

from .measuring import Row
from .workers import SLOTS, WAIT, wait

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from cluster.process import Process, sums
from postgres_server import PostgresServer, ServerMissing

RUNS = 600
EFFECTS = 5
COMMITS = EFFECTS + 3  # of a run: taken, begun, each effect, ended
MANY = 8  # connections of a bare loop that has more than one
ENDED, WAITING = 200_000, 100_000
IDLE = 20  # workers
SECONDS = 15.0  # for which statements are counted
_BODY = "x" * 260
_COLUMNS = (
    "run_id, name, status, reason, detail, input, source, fingerprint, created, updated, active, epoch, iterations, "
    "score, usage, opened, last, head, seal, owner, cancel, queue, priority, wake_at, deliveries"
)
short = Loop(wait, until=MaxIterations(EFFECTS), name="short")


async def bare_loop(url: str, connections: int) -> None:
    """Take runs and commit for each of them as often as a worker does, until cancelled."""
    idle: asyncio.Queue[psycopg.AsyncConnection[tuple[int]]] = asyncio.Queue()
    for _ in range(connections):
        idle.put_nowait(await psycopg.AsyncConnection.connect(url, autocommit=True))
    free = asyncio.Semaphore(SLOTS)

    async def execute(query: str, *values: object) -> int:
        db = await idle.get()
        cursor = await db.execute(query.encode(), values)
        row = await cursor.fetchone() if cursor.description else None
        idle.put_nowait(db)
        return row[0] if row else 0

    async def run(number: int) -> None:
        await execute("INSERT INTO bare VALUES (%s, %s)", number, "begun")
        for effect in range(EFFECTS):
            await asyncio.sleep(WAIT)
            body = encode({"path": f"{number}/{effect}", "of": _BODY})
            await execute("INSERT INTO bare VALUES (%s, %s)", number, body)
        await execute("DELETE FROM bare_jobs WHERE id = %s", number)
        free.release()

    async with asyncio.TaskGroup() as tasks:
        while True:
            await free.acquire()
            number = await execute(
                "UPDATE bare_jobs SET taken = true WHERE id IN (SELECT id FROM bare_jobs WHERE NOT taken ORDER BY id "
                "LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"
            )
            if number:
                tasks.create_task(run(number))
            else:
                free.release()
                await asyncio.sleep(0.02)


@contextmanager
def _processes(url: str, connections: int, count: int) -> Iterator[None]:
    """Start bare loops with some connections, or workers for none."""
    command = [sys.executable, "-m", "benchmarks.fleet", "--serve", str(connections), url]
    processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
        if any(process.poll() is not None for process in processes):
            raise RuntimeError(f"a process ended; start it by hand: {' '.join(command)}")
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=60)


async def _bare_rate(url: str, connections: int, count: int) -> float:
    """Return the runs per second of bare loops, from the last row to the last end."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        await db.execute("CREATE TABLE bare_jobs(id bigserial PRIMARY KEY, taken bool)")
        await db.execute("CREATE TABLE bare(run int, body text)")
        with _processes(url, connections, count):
            await _until(
                db,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
                connections * count + 1,
            )
            await db.execute(
                "INSERT INTO bare_jobs(taken) SELECT false FROM generate_series(1, %s)", (RUNS,)
            )
            began = time.perf_counter()
            await _until(db, f"SELECT {RUNS} - count(*) FROM bare_jobs", RUNS)
            return RUNS / (time.perf_counter() - began)


async def _our_rate(url: str, count: int) -> float:
    """Return the runs per second of workers, from the last row to the last end."""
    async with open_journal(url) as journal:
        await journal.runs()
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
            with _processes(url, 0, count):
                await _until(db, "SELECT count(*) FROM loopwright_queue.workers", count)
                await submit_all(Submission(short), [(n, "") for n in range(RUNS)], journal=journal)
                began = time.perf_counter()
                await _until(
                    db,
                    "SELECT count(*) FROM loopwright.runs WHERE status = 'exhausted'",
                    RUNS,
                )
                return RUNS / (time.perf_counter() - began)


async def _until(db: psycopg.AsyncConnection[tuple[object, ...]], query: str, wanted: int) -> None:
    async with asyncio.timeout(120):
        while True:
            [(found,)] = await (await db.execute(query.encode())).fetchall()
            if int(str(found)) >= wanted:
                return
            await asyncio.sleep(0.02)


def throughput(server: PostgresServer, rounds: int = 3) -> Iterator[Row]:
    """Compare workers with bare loops, by turns."""
    for count, connections, bound in ((1, 1, 1 / 0.8), (2, 1, 1 / 0.8), (2, MANY, None)):
        pairs = []
        for _ in range(rounds):
            databases = server.create_database(), server.create_database()
            floor = asyncio.run(_bare_rate(server.url_of(databases[0]), connections, count))
            ours = asyncio.run(_our_rate(server.url_of(databases[1]), count))
            pairs.append((floor, ours))
        commits = [_commits(server, database) / RUNS for database in databases]
        ratio = statistics.median(floor / ours for floor, ours in pairs)
        floor = statistics.median(floor for floor, _ in pairs)
        ours = statistics.median(ours for _, ours in pairs)
        note = (
            f"{floor:.0f} and {ours:.0f} runs/s; ours is {1 / ratio:.2f} of it; "
            f"{commits[0]:.1f} and {commits[1]:.1f} commits a run"
        )
        what = f"SKIP LOCKED loop with {COMMITS} commits a run and {connections} connection(s), to workers: {count}"
        yield Row(what, ratio, bound, note=note)


def _commits(server: PostgresServer, database: str) -> int:
    """Return the commits in a database, whose sessions have ended."""
    time.sleep(1.5)  # sessions report them at most once a second
    with server.connect() as db:
        query = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
        [(count,)] = db.execute(query, (database,)).fetchall()
    return int(str(count))


def fill(url: str, ended: int, waiting: int) -> None:
    """Fill the tables with sound rows.

    A tenth of a percent of the ended runs is in the queue `rare`, the others in `default`. Of the waiting ones 80 percent are
    in a queue that nobody serves; 10 percent start in a day, and 10 percent are suspended until then.
    """
    now = time.time()
    with psycopg.connect(url) as db:
        with db.cursor().copy(f"COPY loopwright.runs({_COLUMNS}) FROM STDIN") as copy:
            for info in _rows(ended, waiting, now):
                row = RunRow(0, info, "0", "{}", 0.0, 0, b"", None)
                copy.write_row([*sealed_values(row), *queue_values(info)])
        db.commit()
        db.autocommit = True
        db.execute("VACUUM ANALYZE loopwright.runs")


def _rows(ended: int, waiting: int, now: float) -> Iterator[RunInfo]:
    info = RunInfo("", "short", 0, short.fingerprint, created=now, updated=now, queue="default")
    for number in range(ended):
        queue = "rare" if number % 1000 == 0 else "default"
        yield replace(
            info, run_id=f"ended-{number}", status="exhausted", reason="max_iterations", epoch=1, queue=queue
        )  # fmt: skip
    for number in range(waiting):
        row = replace(info, run_id=f"waiting-{number}", status="queued")
        if number % 10 == 0:
            yield replace(row, wake_at=now + 86400)
        elif number % 10 == 1:
            yield replace(row, status="suspended", reason="throttled", epoch=1, wake_at=now + 86400)
        else:
            yield replace(row, queue="nobody")


async def _median(work: Callable[[], Awaitable[object]], times: int = 7) -> float:
    """Return the median milliseconds of a call, without the first one."""
    taken = []
    for _ in range(times + 1):
        began = time.perf_counter()
        await work()
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken[1:])


async def _queries(url: str) -> list[Row]:
    """Measure what is asked each second, and by the page, of a large journal."""
    runs = PostgresSharedRuns(url)
    async with open_journal(url) as journal:
        found = [
            Row("the due query", await _median(runs.due), 10.0, "ms"),
            Row("the answered query", await _median(runs.answered), 10.0, "ms"),
            Row("the queues of the page", await _median(runs.queues), 40.0, "ms"),
        ]
        for queue in ("rare", "default"):

            async def listed(queue: str = queue) -> object:
                rows = await journal.runs(queue=queue, limit=20)
                assert len(rows) == 20
                return rows

            found.append(
                Row(f"runs --queue {queue}, a page of 20", await _median(listed), 5.0, "ms")
            )
    await runs.close()
    return found


def large(server: PostgresServer, ended: int = ENDED, waiting: int = WAITING) -> Iterator[Row]:
    """Measure queries at many ended and waiting runs."""
    url = server.url_of(server.create_database())

    async def create() -> None:
        async with open_journal(url) as journal:
            await journal.runs()

    asyncio.run(create())
    fill(url, ended, waiting)
    for row in asyncio.run(_queries(url)):
        yield replace(row, what=f"{row.what}; {ended:,} ended and {waiting:,} waiting runs")


def idle(server: PostgresServer, count: int = IDLE) -> Iterator[Row]:
    """Measure the statements of one idle worker, and the connections of one and of many; each has served a run."""
    with server.connect() as db:
        db.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        db.execute("ALTER SYSTEM SET max_connections = 400")
    server.restart()
    url = server.url_of(server.create_database())
    with psycopg.connect(url, autocommit=True) as db, tempfile.TemporaryDirectory() as folder:
        db.execute("CREATE EXTENSION pg_stat_statements")
        processes: list[Process] = []
        try:
            for wanted in (1, count):
                while len(processes) < wanted:
                    ledger = Path(folder) / f"ledger-{len(processes)}"
                    processes.append(Process(url, "", ledger, slots=1))
                    _wait_until(db, len(processes))
                asyncio.run(_serve_each(url, wanted))
                time.sleep(
                    6
                )  # what a start and an end ask once, and until the connections of runs are closed
                if wanted == 1:
                    yield _statements(db)
                found = db.execute(
                    "SELECT application_name, count(*) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid() GROUP BY 1 ORDER BY 1"
                ).fetchall()
                note = ", ".join(f"{name} {number}" for name, number in found)
                workers = f"{wanted} idle worker{'s' if wanted > 1 else ''}"
                total = sum(number for _, number in found)
                yield Row(f"connections of {workers}", total, 3 * wanted, "connections", note=note)
        finally:
            for process in processes:
                process.kill()


async def _serve_each(url: str, workers: int) -> None:
    """Submit runs until each worker has served one and all have ended."""
    async with (
        open_journal(url) as journal,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as db,
    ):
        query = "SELECT count(*) FROM loopwright_queue.workers WHERE finished > 0"
        while (await (await db.execute(query.encode())).fetchall())[0][0] < workers:
            inputs = [({"number": n, "wait": 0.1}, "") for n in range(workers)]
            await submit_all(Submission(sums), inputs, journal=journal)
            await _until(db, "SELECT (count(*) = 0)::int FROM loopwright.runs WHERE epoch = 0", 1)
            await asyncio.sleep(1.5)  # a beat says how many runs ended
        await _until(
            db, "SELECT (count(*) = 0)::int FROM loopwright.runs WHERE status = 'running'", 1
        )


def _wait_until(db: psycopg.Connection[tuple[int]], workers: int) -> None:
    until = time.monotonic() + 60
    query = "SELECT count(*) FROM loopwright_queue.workers WHERE NOT closed"
    while time.monotonic() < until:
        try:
            [(found,)] = db.execute(query).fetchall()
        except psycopg.errors.UndefinedTable:
            found = 0
        if found == workers:
            return
        time.sleep(0.05)
    raise RuntimeError("a worker did not start")


def _statements(db: psycopg.Connection[tuple[str, int]]) -> Row:
    """Count the statements of all sessions but this one."""
    db.execute("SELECT pg_stat_statements_reset()")
    time.sleep(SECONDS)
    found = db.execute(
        "SELECT query, calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid "
        "WHERE datname = current_database() AND query NOT LIKE '%pg_stat_statements%' ORDER BY calls DESC"
    ).fetchall()
    most = ", ".join(
        f"{calls / SECONDS:.1f} {' '.join(query.split()[:4])}" for query, calls in found[:6]
    )
    total = sum(calls for _, calls in found)
    return Row("statements of an idle worker", total / SECONDS, 2.0, "a second", note=most)


def rows(parts: Iterable[str] = ("throughput", "large", "idle")) -> Iterator[Row]:
    """Measure the parts, each on a server of its own."""
    for part in parts:
        try:
            server = PostgresServer(fsync=part == "throughput")
        except ServerMissing as missing:
            yield Row(f"fleet: not measured: {missing}", 0.0, None, "")
            return
        try:
            yield from {"throughput": throughput, "large": large, "idle": idle}[part](server)
        finally:
            server.close()


async def _serve(connections: int, url: str) -> None:
    if connections:
        await bare_loop(url, connections)
    async with Worker(journal=url, steps=[short], queues={"default": SLOTS}) as worker:
        await worker.serve()


def main() -> int:
    """Print the rows of the parts on the command line; exit with 1 if one is over its bound."""
    parser = argparse.ArgumentParser(description="Measure a fleet of workers.")
    parser.add_argument("parts", nargs="*", default=["throughput", "large", "idle"])
    parser.add_argument("--serve", nargs=2, metavar=("CONNECTIONS", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(int(given.serve[0]), given.serve[1]))
        return 0
    over = 0
    for row in rows(given.parts):
        print(row, flush=True)
        over += not row.holds
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
