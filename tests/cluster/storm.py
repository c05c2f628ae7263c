"""Many runs on two workers while processes, connections, clocks and the database fail: `make torture`.

All runs must end once with the results of an undisturbed run, and a run repeats at most one effect for each death of its worker.
Beside the runs that wait from the beginning, one run a second is scheduled, and a schedule has a run each minute. The faults:

1. Workers are killed, and the database restarts, at random shares of the work.
2. The worker that sweeps is stopped for a while, then continues.
3. All connections of a worker are silent for a while; connections that it opens meanwhile are too.
4. The clock of one worker is ahead, and that of the other behind.
5. Runs wait in a queue that nobody serves.

`python tests/cluster/storm.py 1 --runs 60 --kills 3 --restarts 0 --stopped 5 --silent 5 --clocks 26 --backlog 1200` takes a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

TESTS = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))

from cluster.outages import ENGINES, deliverer_of  # noqa: E402
from cluster.process import EFFECTS, Process, repeated, sums  # noqa: E402
from journal.proxy import Proxy  # noqa: E402
from loopwright.cluster import Submission, submit_all  # noqa: E402
from loopwright.cluster.schedules import at_tick  # noqa: E402
from loopwright.journal import Journal, RunInfo, open_journal  # noqa: E402
from loopwright.journal.questions import runs_of_schedule  # noqa: E402
from postgres_server import PostgresServer, start_server  # noqa: E402

PATIENCE = 600.0  # seconds beside those of the faults until a storm has failed
LATEST_START = 5.0  # seconds after its time in which a scheduled run must start
TAKEOVER = {"temporal": (15.0, 30.0)}  # seconds, the median and the longest
_TAKEOVER = (5.0, 15.0)  # of the other engines
_AGAIN = 60.0  # seconds in which a worker must serve again after a silence
_HOLDING = (
    "SELECT r.run_id, r.epoch FROM loopwright.runs r "
    "JOIN loopwright.owners o ON o.id = r.owner WHERE r.status = 'running' AND o.pid = %s"
)
_OPENED = (
    "SELECT run_id, epoch, extract(epoch FROM clock_timestamp())::float8 FROM loopwright.runs "
    "WHERE run_id = ANY(%s) AND epoch > 0"
)
_EPOCHS = "SELECT run_id, epoch FROM loopwright.runs WHERE run_id = ANY(%s)"
_LEFT = (
    "SELECT count(*) FROM loopwright.runs WHERE queue = 'default' AND status <> 'exhausted' AND wake_at <= "
    "extract(epoch FROM clock_timestamp())"
)


@dataclass(frozen=True)
class Faults:
    """What goes wrong in a storm.

    Attributes:
        kills: how many workers are killed.
        restarts: how often the database restarts.
        stopped: seconds for which the worker that sweeps is stopped.
        silent: seconds for which the connections of a worker are silent.
        clocks: hours by which the clock of one worker is ahead, and that of the other behind.
        backlog: how many runs wait in a queue that nobody serves.
    """

    kills: int = 0
    restarts: int = 0
    stopped: float = 0.0
    silent: float = 0.0
    clocks: float = 0.0
    backlog: int = 0

    @property
    def scheduling(self) -> bool:
        """Whether runs are scheduled beside those that wait: a storm of kills alone has none."""
        return bool(self.stopped or self.silent or self.clocks or self.backlog)


@dataclass
class Storm:
    """The result of a storm.

    Attributes:
        wrong: sentences about runs that did not end as they should.
        lost: how many runs did not end.
        twice: how many runs ended more than once.
        repeats: how many effects were done more than once, over all runs.
        kills: how many workers were killed.
        seconds: how long it took.
        delays: the seconds after its time in which each scheduled run started.
        takeovers: the seconds from the death or silence of a worker to the next opening of each run that it had, or that
            had been delivered to it.
        again: the seconds after its silence in which a worker opened a run again; None if it did not.
    """

    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    twice: int = 0
    repeats: int = 0
    kills: int = 0
    seconds: float = 0.0
    delays: list[float] = field(default_factory=list)
    takeovers: list[float] = field(default_factory=list)
    again: float | None = None

    def over(self, engine: str) -> list[str]:
        """Return a sentence for each figure that is over its bound."""
        median, longest = TAKEOVER.get(engine, _TAKEOVER)
        figures = [
            ("start of a scheduled run, the latest", max(self.delays, default=0.0), LATEST_START),
            ("takeover, median", statistics.median(self.takeovers or [0.0]), median),
            ("takeover, the longest", max(self.takeovers, default=0.0), longest),
        ]
        return [
            f"OVER {what}: {value:.1f} s (at most {bound:g})"
            for what, value, bound in figures
            if value > bound
        ]


class Observer:
    """Looks at the rows of runs by the clock of the database, and notes when a run is opened that waits for it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._db: psycopg.AsyncConnection[tuple[object, ...]] | None = None
        self._lock = asyncio.Lock()
        self._orphans: dict[str, tuple[int, float]] = {}  # epoch and time of the death of the owner
        self._scheduled: dict[str, float] = {}  # when a run that has not begun is to start
        self.delays: list[float] = []
        self.takeovers: list[float] = []

    async def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a query, which is repeated while the database restarts."""
        async with self._lock:
            while True:
                try:
                    if self._db is None or self._db.closed:
                        connect = psycopg.AsyncConnection.connect
                        self._db = await connect(self._url, autocommit=True)
                    return await (await self._db.execute(query.encode(), values)).fetchall()
                except psycopg.OperationalError:
                    await asyncio.sleep(0.1)

    async def died(self, process: Process) -> None:
        """Note the runs of a worker that has just been killed, stopped or cut off.

        A run that was delivered to it and that it has not opened cannot start before the delivery is known to be lost, so
        its start counts as a takeover from now on: that of a scheduled run is not one that is late, and that of a run
        whose former worker died counts from the death of the last worker that had its delivery.
        """
        holding = await self.rows(_HOLDING, process.pid)
        delivered = process.delivered & (self._scheduled.keys() | self._orphans.keys())
        epochs = {
            str(run_id): int(str(epoch)) for run_id, epoch in await self.rows(_EPOCHS, [*delivered])
        }
        now = await self._now()
        self._orphans |= {str(run_id): (int(str(epoch)), now) for run_id, epoch in holding}
        for run_id in delivered:
            if self._orphans.get(run_id, (0, 0.0))[0] == epochs[run_id]:
                self._scheduled.pop(run_id, None)
                self._orphans[run_id] = (epochs[run_id], now)

    def expect(self, run_id: str, at: float) -> None:
        """Note a run that is to start at a time."""
        self._scheduled[run_id] = at

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            ids = [*self._orphans, *self._scheduled]
            for run_id, epoch, now in await self.rows(_OPENED, ids) if ids else ():
                name, seen = str(run_id), float(str(now))
                if name in self._scheduled:
                    self.delays.append(seen - self._scheduled.pop(name))
                if name in self._orphans and int(str(epoch)) > self._orphans[name][0]:
                    self.takeovers.append(seen - self._orphans.pop(name)[1])
            await asyncio.sleep(0.1)

    async def _now(self) -> float:
        [(now,)] = await self.rows("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(str(now))

    async def close(self) -> None:
        """Count what was never opened as late by the time until now, and close the connection."""
        end = await self._now()
        self.delays += [end - at for at in self._scheduled.values() if at < end]
        # A run that ended before its worker was cut off needs nobody else.
        left = await self.rows(
            "SELECT run_id FROM loopwright.runs WHERE run_id = ANY(%s) AND status <> 'exhausted'",
            [*self._orphans],
        )
        self.takeovers += [end - self._orphans[str(run_id)][1] for (run_id,) in left]
        if self._db is not None:
            await self._db.close()


class Fleet:
    """The workers of a storm; the first one has its connections through proxies, so that they can be silent."""

    def __init__(self, url: str, deliverer: str, ledger: Path, faults: Faults, count: int) -> None:
        self._stack = contextlib.ExitStack()
        self._ledger = ledger
        self.ended: list[int | None] = []  # the exit codes of workers that ended by themselves
        self._clocks = [faults.clocks * 3600, -faults.clocks * 3600]
        self._proxies: list[Proxy] = []
        self._addresses = [(url, deliverer)] * count
        if faults.silent:
            self._addresses[0] = (self._through(url), self._through(deliverer))
        self.processes = [self._started(number) for number in range(count)]

    def _through(self, address: str) -> str:
        """Return an address by a proxy of its own; one without a port is that of no server."""
        found = re.search(r"(?<=127\.0\.0\.1:)\d+", address)
        if found is None:
            return address
        self._proxies.append(self._stack.enter_context(Proxy(int(found[0]))))
        return address.replace(found[0], str(self._proxies[-1].port))

    def _started(self, number: int) -> Process:
        url, deliverer = self._addresses[number]
        return Process(url, deliverer, self._ledger, clock=self._clocks[number % 2])

    @property
    def pids(self) -> list[int]:
        """The processes of the workers."""
        return [process.pid for process in self.processes]

    def start(self, number: int) -> None:
        """Start a worker in the place of one that has ended."""
        self.processes[number].kill()  # closes its log
        self.processes[number] = self._started(number)

    def repair(self) -> None:
        """Start the workers again that ended with an error, as an operator does."""
        for number, process in enumerate(self.processes):
            if process.ended:
                self.ended.append(process.code)
                self.start(number)

    def silence(self, mode: str) -> None:
        """Let the connections of the first worker be silent, or with an empty mode those be served that it opens."""
        for proxy in self._proxies:
            proxy.one_way = mode

    def close(self) -> None:
        """End all processes and proxies."""
        for process in self.processes:
            process.kill()
        self._stack.close()


async def storm(
    server: PostgresServer,
    *,
    runs: int,
    seed: int,
    faults: Faults,
    deliverer: str = "",
    workers: int = 2,
    patience: float = PATIENCE,
) -> Storm:
    """Submit runs, and let the faults happen until all runs ended."""
    result, began = Storm(), time.monotonic()
    database = server.create_database()
    url = server.url_of(database)
    ledger = Path(tempfile.mkdtemp(prefix="lw-storm-")) / "ledger"
    journal = open_journal(url)
    inputs = [({"number": n}, f"storm {n}") for n in range(runs)]
    ids = await submit_all(Submission(sums), inputs, journal=journal, deliverer=deliverer)
    if faults.backlog:
        unserved = Submission(sums, queue="nobody")
        waiting = [({"number": n}, "") for n in range(faults.backlog)]
        await submit_all(unserved, waiting, journal=journal, deliverer=deliverer)
    observer = Observer(url)
    fleet = Fleet(url, deliverer, ledger, faults, workers)
    first = time.time()
    tasks = [asyncio.create_task(observer.watch())]
    if faults.scheduling:
        await journal.create([_tick(first)])
        tasks.append(asyncio.create_task(_schedule(journal, observer, ids)))
    try:
        async with asyncio.timeout(patience + faults.stopped + faults.silent):
            await _kill(server, fleet, observer, ledger, result, random.Random(seed), runs, faults)
            if faults.stopped:
                await _stop_leader(fleet, observer, faults.stopped)
            if faults.silent:
                result.again = await _be_silent(fleet, observer, faults.silent)
            for task in tasks[1:]:
                await _end(task)
            while (await observer.rows(_LEFT))[0][0]:
                fleet.repair()
                await asyncio.sleep(0.2)
    except TimeoutError:
        result.wrong.append("not all runs ended in time")
    finally:
        for task in tasks:
            await _end(task)
        fleet.close()
    await observer.close()
    # A worker that starts while the database restarts ends with an error.
    if fleet.ended and not faults.restarts:
        result.wrong.append(f"workers ended by themselves with the exit codes {fleet.ended}")
    result.delays, result.takeovers = observer.delays, observer.takeovers
    for number, run_id in enumerate(ids):
        await _judge(journal, run_id, EFFECTS * number, result)
    if faults.scheduling:
        result.wrong += await _wrong_ticks(journal, first)
    await journal.close()
    deaths = result.kills + 2 * bool(faults.stopped) + bool(faults.silent)
    repeats = repeated(ledger)
    result.repeats = sum(repeats.values())
    result.wrong += [
        f"{run_id} repeated {times} effects after {deaths} deaths"
        for run_id, times in repeats.items()
        if times > deaths
    ]
    result.seconds = time.monotonic() - began
    server.drop_database(database)
    return result


async def _end(task: asyncio.Task[None]) -> None:
    # Not by awaiting the task: its cancellation and that of the storm by its timeout are to be told apart.
    task.cancel()
    await asyncio.wait({task})


def _tick(now: float) -> RunInfo:
    return at_tick(Submission(sums).row({"number": 0, "wait": 0.1}, ""), "* * * * *", "storm", now)


async def _schedule(journal: Journal, observer: Observer, ids: list[str]) -> None:
    """Create a run each second that is to start two seconds later, until cancelled."""
    while True:
        at = time.time() + 2  # the database has the clock of this process
        row = Submission(sums, at=at).row({"number": len(ids), "wait": 0.5}, "")
        await journal.create([row])
        ids.append(row.run_id)
        observer.expect(row.run_id, at)
        await asyncio.sleep(1.0)


async def _kill(
    server: PostgresServer,
    fleet: Fleet,
    observer: Observer,
    ledger: Path,
    result: Storm,
    chance: random.Random,
    runs: int,
    faults: Faults,
) -> None:
    """Kill workers and restart the database at even shares of the work, so that a quick machine has as many as a slow one."""
    total = runs * EFFECTS
    shares = sorted(
        [(chance.uniform(0.02, 0.9) * total, "kill") for _ in range(faults.kills)]
        + [(chance.uniform(0.1, 0.8) * total, "restart") for _ in range(faults.restarts)]
    )
    while shares:
        while shares and _lines(ledger) >= shares[0][0]:
            _, fault = shares.pop(0)
            if fault == "restart":
                await asyncio.to_thread(server.restart, immediate=True)
                continue
            number = chance.randrange(len(fleet.processes))
            fleet.processes[number].kill()
            await observer.died(fleet.processes[number])
            result.kills += 1
            fleet.start(number)
        fleet.repair()
        await asyncio.sleep(0.1)


async def _stop_leader(fleet: Fleet, observer: Observer, seconds: float) -> None:
    """Stop the worker that sweeps for a while: the first one, after it was the only one for as long as a lease."""
    for process in fleet.processes[1:]:
        process.kill()
        await observer.died(process)
    await asyncio.sleep(12)
    for number in range(1, len(fleet.processes)):
        fleet.start(number)
    registered = (
        "SELECT DISTINCT pid FROM loopwright_queue.workers WHERE pid = ANY(%s) AND NOT closed"
    )
    # Each time the present ones: a worker that ended has another process.
    while len(await observer.rows(registered, fleet.pids)) != len(fleet.pids):
        fleet.repair()
        await asyncio.sleep(0.1)
    leader = fleet.processes[0]
    leader.signal(signal.SIGSTOP)
    await observer.died(leader)
    await asyncio.sleep(seconds)
    leader.signal(signal.SIGCONT)


async def _be_silent(fleet: Fleet, observer: Observer, seconds: float) -> float | None:
    """Let the connections of a worker that has runs be silent; return the seconds after that in which it opened a run again."""
    await _seconds_until_opened(fleet, observer)
    fleet.silence("silent")
    await observer.died(fleet.processes[0])
    await asyncio.sleep(seconds)
    fleet.silence("")
    return await _seconds_until_opened(fleet, observer)


async def _seconds_until_opened(fleet: Fleet, observer: Observer) -> float | None:
    """Return the seconds until the first worker opened another run than those it has."""
    began = time.monotonic()
    # What it held before has other owners by now, or it could not be heard of.
    known = {row[0] for row in await observer.rows(_HOLDING, fleet.processes[0].pid)}
    while time.monotonic() < began + _AGAIN:
        fleet.repair()
        if {row[0] for row in await observer.rows(_HOLDING, fleet.processes[0].pid)} - known:
            return time.monotonic() - began
        await asyncio.sleep(0.1)
    return None


async def _judge(journal: Journal, run_id: str, total: int, result: Storm) -> None:
    """Add what is wrong with a run."""
    entries = await journal.entries(run_id)
    ends = [entry for entry in entries if entry.kind == "ended" and not entry.path]
    if not ends:
        row = await journal.find(run_id)
        result.lost += 1
        result.wrong.append(f"{run_id} has not ended: {row.status} {row.owner} {row.detail}")
    elif len(ends) > 1:
        result.twice += 1
        result.wrong.append(f"{run_id} ended {len(ends)} times")
    elif entries[-1] is not ends[0] or ends[0].value["output"]["sum"] != total:
        result.wrong.append(f"{run_id}: {ends[0]}")


async def _wrong_ticks(journal: Journal, first: float) -> list[str]:
    """Return a sentence for each minute of the storm without a run of the schedule, and for each run of another time."""
    now = time.time()
    minutes = [first + 60 * n for n in range(int((now - first) // 60) + 2)]
    expected = {_tick(minute).run_id for minute in minutes if minute + 60 < now}
    rows = {row.run_id: row for row in await runs_of_schedule(journal, "storm")}
    allowed = {_tick(minute).run_id for minute in minutes}
    return [f"the schedule skipped {run_id}" for run_id in sorted(expected - rows.keys())] + [
        f"the schedule has another time: {run_id}" for run_id in sorted(rows.keys() - allowed)
    ]


def _lines(ledger: Path) -> int:
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "none"
    return f"{statistics.median(values):.1f} s in the median and {max(values):.1f} s at most of {len(values):,}"


def main() -> int:
    """Run a storm for each engine and seed of the command line."""
    parser = argparse.ArgumentParser(description="Let much go wrong while runs go on.")
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--engine", nargs="*", choices=ENGINES, default=["pgqueuer"])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument(
        "--stopped", type=float, default=0.0, help="seconds for which the leader is stopped"
    )
    parser.add_argument(
        "--silent", type=float, default=0.0, help="seconds for which the connections are silent"
    )
    parser.add_argument(
        "--clocks", type=float, default=0.0, help="hours by which the clocks are wrong"
    )
    parser.add_argument("--backlog", type=int, default=0, help="runs in a queue that nobody serves")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds beside those of the faults"
    )
    given = parser.parse_args()
    names = ("kills", "restarts", "stopped", "silent", "clocks", "backlog")
    faults = Faults(**{name: getattr(given, name) for name in names})
    failures = 0
    for engine in given.engine:
        for seed in given.seeds:
            server = start_server()
            try:
                with deliverer_of(engine) as deliverer:
                    running = storm(
                        server,
                        runs=given.runs,
                        seed=seed,
                        faults=faults,
                        deliverer=deliverer,
                        patience=given.patience,
                    )
                    result = asyncio.run(running)
            finally:
                server.close()
            if faults.silent and result.again is None:
                result.wrong.append(f"the silent worker opened no run within {_AGAIN:g} s")
            # A restart of the database delays what is measured.
            over = result.over(engine) if faults.scheduling and not faults.restarts else []
            failures += bool(result.wrong or over)
            print(*result.wrong[:20], *over, sep="\n", end="\n" if result.wrong or over else "")
            again = "" if result.again is None else f", served again {result.again:.1f} s after it"
            print(
                f"{engine}, storm {seed}: {given.runs} runs, {result.kills} kills, {given.restarts} restarts, leader "
                f"stopped {given.stopped:g} s, connections silent {given.silent:g} s{again}, clocks {given.clocks:g} h, "
                f"backlog {given.backlog}:\n  {len(result.wrong)} wrong, {result.lost} lost, {result.twice} twice, "
                f"{result.repeats} effects repeated, {result.seconds:.0f} s\n"
                f"  scheduled runs started after {_spread(result.delays)}\n"
                f"  takeover after {_spread(result.takeovers)}",
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
