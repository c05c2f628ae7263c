"""A fleet of workers: runs per second beside a bare loop, queries of a large journal, and what idle workers cost.

`make bench-cluster`. The server is started here and shares the cores with all sides, so compare only the rows of one call. The bare
loop takes runs by `SKIP LOCKED` and makes eight commits for a run: when it is taken, when it begins, after each effect, and when it ends.
The notes have the commits that the server counted, those of starting and of polling included; workers make about seven for a run,
because those of runs that go on at the same time are one. The loop has one connection; another row says what it does with eight, over
which the server writes the commits of several runs at once.

`simulate` measures what workers and runs cost the server here, and computes what larger fleets would cost it. The costs are linear: of
a worker that is idle, of a run, and of a run for each worker that hears of it. Three measurements that the costs do not come from say
how far that is right: more idle workers, runs beside them, and queries of a larger journal.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg

from loopwright import Loop, MaxIterations
from loopwright.cluster import Submission, Worker, submit_all
from loopwright.cluster.delivery import open_deliverer
from loopwright.cluster.postgres import PostgresSharedRuns
from loopwright.journal import RunInfo, open_journal
from loopwright.journal.postgres.journal import PostgresJournal
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
FITTED = (5, 20)  # workers whose costs are measured
CHECKED = (
    40,
    80,
)  # workers whose statements are compared with what those predict; beside the first, runs too
SINGLE = 60  # runs that are submitted one after the other
FLEETS = (10, 100, 1000)  # workers that are simulated
RATES = (100_000, 1_000_000, 10_000_000)  # runs a day that are simulated
KEPT = 10_000_000  # ended runs
BUSY = 5  # connections of a worker with runs
# What an operator may have: connections of a server without a pooler, its cores, its gigabytes for a day, and the share
# of the time in which runs are deleted.
LIMITS = {"connections": 500.0, "cores": 16.0, "commits": 0.0, "gigabytes": 20.0, "deleting": 0.5}
_BODY = "x" * 260
_COLUMNS = (
    "run_id, name, status, reason, detail, input, source, fingerprint, created, updated, active, epoch, iterations, "
    "score, usage, opened, last, head, seal, owner, cancel, queue, priority, wake_at, deliveries, tags"
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
    _count_statements(server)
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


def _count_statements(server: PostgresServer) -> None:
    """Let a server count statements, and have connections for many workers."""
    with server.connect() as db:
        db.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        db.execute("ALTER SYSTEM SET max_connections = 500")
    server.restart()


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


@dataclass(frozen=True)
class Costs:
    """What workers and runs cost a server: a second of an idle worker, or a run.

    `herd` is the CPU of a run for each worker, `commit_rate` how many commits a second the disk takes, `bytes` the growth
    by table, of which `index` are indexes, and `delete` the seconds until a run is deleted.
    """

    statements: float
    connections: float
    idle: float
    run: float
    herd: float
    commit_rate: float
    bytes: dict[str, float]
    index: float
    delete: float

    def cores(self, workers: int, rate: float) -> float:
        """Return the cores of the server for some runs a second."""
        return workers * self.idle + rate * (self.run + workers * self.herd)

    def row(self, workers: int, a_day: int) -> Row:
        """Return what a fleet needs, and of which limit it needs the largest part."""
        rate = a_day / 86400
        needs = {
            "connections": BUSY * workers, "cores": self.cores(workers, rate), "commits": rate * COMMITS,
            "gigabytes": a_day * sum(self.bytes.values()) / 1e9, "deleting": rate * self.delete,
        }  # fmt: skip
        limits = {**LIMITS, "commits": self.commit_rate}
        first = sorted(needs, key=lambda name: -needs[name] / limits[name])
        parts = ", ".join(f"{name} {needs[name] / limits[name]:.2g}" for name in first)
        note = (
            f"{self.connections * workers:.0f} to {needs['connections']} connections, "
            f"{self.statements * workers:.0f} statements/s if idle, {needs['commits']:.0f} commits/s, "
            f"{needs['gigabytes']:.1f} GB and {needs['deleting'] * 86400:.0f} s of deleting a day; of its limit: {parts}"
        )
        return Row(
            f"{workers:,} workers, {a_day:,} runs a day",
            needs["cores"],
            None,
            "cores of the server",
            note,
        )


def _server_cpu(db: psycopg.Connection[tuple[int]]) -> float:
    """Return the CPU seconds of the server and of its sessions, those that have ended included."""
    query = "SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)::int"
    [(server,)] = db.execute(query).fetchall()
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    ticks = 0
    for pid in [str(server), *children]:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        # Of the process itself, and of the children for which it has waited.
        ticks += sum(map(int, fields[11:15] if pid == str(server) else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _idle_costs(db: psycopg.Connection[tuple[int]], workers: int) -> tuple[float, float, float]:
    """Return the statements a second, the CPU a second and the connections of idle workers."""
    time.sleep(8)  # until the connections of runs are closed
    began = _server_cpu(db)
    statements = _statements(db).value
    used = (_server_cpu(db) - began) / SECONDS
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    [(connections,)] = db.execute(query).fetchall()
    return statements, used, connections


async def _one_after_the_other(url: str, runs: int) -> None:
    """Submit runs as single ones arrive, and wait until they have ended."""
    async with (
        open_journal(url) as journal,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as db,
    ):
        engine = open_deliverer("", url)
        for number in range(runs):
            inputs = [({"number": number, "wait": 0.02}, "")]
            await submit_all(Submission(sums), inputs, journal=journal, deliverer=engine)
            await asyncio.sleep(0.1)
        query = (
            "SELECT (count(*) = 0)::int FROM loopwright.runs WHERE status IN ('queued', 'running')"
        )
        await _until(db, query, 1)
        await engine.close()


def _run_cost(db: psycopg.Connection[tuple[int]], url: str, idle: float) -> float:
    """Return the CPU seconds of the server for a run, without what idle workers cost meanwhile."""
    began, at = _server_cpu(db), time.perf_counter()
    asyncio.run(_one_after_the_other(url, SINGLE))
    return (_server_cpu(db) - began - idle * (time.perf_counter() - at)) / SINGLE


def _sizes(db: psycopg.Connection[tuple[int]]) -> dict[str, tuple[int, int]]:
    """Return the bytes of each table, and of its indexes."""
    query = (
        "SELECT relname, pg_table_size(c.oid), pg_indexes_size(c.oid) FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = relnamespace WHERE nspname IN ('loopwright', 'loopwright_queue') AND relkind = 'r'"
    )
    return {str(name): (size, index) for name, size, index in db.execute(query).fetchall()}


def _growth(db: psycopg.Connection[tuple[int]], url: str) -> tuple[dict[str, float], float, float]:
    """Return the bytes of a run by table, those of indexes, and the seconds until one is deleted."""

    async def execute() -> None:
        async with (
            open_journal(url) as journal,
            await psycopg.AsyncConnection.connect(url, autocommit=True) as waiting,
        ):
            await submit_all(
                Submission(sums), [({"number": n}, "") for n in range(RUNS)], journal=journal
            )
            query = "SELECT (count(*) = 0)::int FROM loopwright.runs WHERE status IN ('queued', 'running')"
            await _until(waiting, query, 1)

    async def delete() -> int:
        async with PostgresJournal(url) as journal:
            await journal.prune(time.time() - 86400)  # connects
            began = time.perf_counter()
            deleted = await journal.prune(time.time() + 60)
            return (time.perf_counter() - began) / deleted

    before = _sizes(db)
    asyncio.run(execute())
    after = _sizes(db)
    tables = {
        name: (size - before[name][0], index - before[name][1])
        for name, (size, index) in after.items()
    }
    growth = {name: sum(both) / RUNS for name, both in tables.items() if sum(both) > RUNS}
    index = sum(index for _, index in tables.values()) / RUNS
    return growth, index, asyncio.run(delete())


async def _commit_rate(url: str) -> float:
    """Return the commits a second of several connections."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        await db.execute("CREATE TABLE committed(body text)")

    async def commit() -> int:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
            until, count = time.monotonic() + 3, 0
            while time.monotonic() < until:
                await db.execute("INSERT INTO committed VALUES (%s)", (_BODY,))
                count += 1
            return count

    return sum(await asyncio.gather(*(commit() for _ in range(MANY)))) / 3


def _costs(server: PostgresServer) -> Iterator[Row | Costs]:
    """Measure costs, with the rows that compare them with larger fleets."""
    _count_statements(server)
    url = server.url_of(server.create_database())
    found: dict[int, tuple[float, float, float]] = {}
    runs: dict[int, float] = {}
    with psycopg.connect(url, autocommit=True) as db, tempfile.TemporaryDirectory() as folder:
        db.execute("CREATE EXTENSION pg_stat_statements")
        processes: list[Process] = []
        growth: tuple[dict[str, float], float, float] = ({}, 0.0, 0.0)
        try:
            for workers in (*FITTED, *CHECKED):
                while len(processes) < workers:
                    ledger = Path(folder) / f"ledger-{len(processes)}"
                    processes.append(Process(url, "", ledger, slots=20))
                    _wait_until(db, len(processes))
                if not growth[0]:
                    growth = _growth(db, url)
                found[workers] = _idle_costs(db, workers)
                if workers != CHECKED[-1]:
                    runs[workers] = _run_cost(db, url, found[workers][1])
        finally:
            for process in processes:
                process.kill()
    few, many = FITTED
    herd = (runs[many] - runs[few]) / (many - few)
    statements, used, connections = (value / many for value in found[many])
    costs = Costs(
        statements, connections, used, runs[few] - few * herd, herd, asyncio.run(_commit_rate(url)), *growth
    )  # fmt: skip
    yield costs
    for workers in CHECKED:
        predicted = statements * workers
        note = f"predicted {predicted:.0f}"
        yield Row(
            f"statements of {workers} idle workers",
            found[workers][0],
            1.2 * predicted,
            "a second",
            note,
        )
    predicted = costs.run + CHECKED[0] * herd
    note = (
        f"predicted {1000 * predicted:.0f}; this machine has {os.cpu_count()} cores for all of them"
    )
    yield Row(
        f"CPU of a run beside {CHECKED[0]} workers", 1000 * runs[CHECKED[0]], None, "ms", note
    )


def simulate(server: PostgresServer) -> Iterator[Row]:
    """Compute what fleets need from costs that are measured here."""
    costs = None
    for one in _costs(server):
        if isinstance(one, Row):
            yield one
            continue
        costs = one
        tables = ", ".join(
            f"{name} {size:.0f}" for name, size in sorted(costs.bytes.items(), key=lambda x: -x[1])
        )
        yield Row("statements of an idle worker", costs.statements, None, "a second")
        yield Row("CPU of the server for an idle worker", 1000 * costs.idle, None, "ms a second")
        yield Row(f"CPU of the server for a run of {EFFECTS} effects", 1000 * costs.run, None, "ms")
        yield Row("the same, for each worker that hears of it", 1000 * costs.herd, None, "ms")
        yield Row(f"commits of {MANY} connections", costs.commit_rate, None, "a second")
        yield Row(
            "bytes of a run",
            sum(costs.bytes.values()),
            None,
            "bytes",
            f"{tables}; indexes {costs.index:.0f}",
        )
        yield Row("deleting a run", 1000 * costs.delete, None, "ms")
    sizes = (ENDED, 5 * ENDED)
    measured = [{row.what: row for row in large(server, ended)} for ended in sizes]
    for few, many in zip(measured[0].values(), measured[1].values(), strict=True):
        yield replace(many, note=f"predicted {few.value:.3g}, as with {ENDED:,} ended runs")
    assert costs is not None
    kept = KEPT * sum(costs.bytes.values()) / 1e9
    yield Row(
        f"{KEPT:,} ended runs",
        kept,
        None,
        "GB",
        f"deleted in {KEPT * costs.delete / 3600:.1f} hours",
    )
    for workers in FLEETS:
        yield from (costs.row(workers, rate) for rate in RATES)


def rows(parts: Iterable[str] = ("throughput", "large", "idle")) -> Iterator[Row]:
    """Measure the parts, each on a server of its own."""
    for part in parts:
        try:
            server = PostgresServer(fsync=part in ("throughput", "simulate"))
        except ServerMissing as missing:
            yield Row(f"fleet: not measured: {missing}", 0.0, None, "")
            return
        try:
            measure = {"throughput": throughput, "large": large, "idle": idle, "simulate": simulate}
            yield from measure[part](server)
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
