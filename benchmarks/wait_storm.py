"""Runs that wait while processes are killed and the database restarts: `python -m benchmarks.wait_storm [--runs 1000]`.

Each run has three waits with an effect before each and after the last. Its events come early, late and twice; a part of the waits
is for the first of an event and a time. On PostgreSQL two workers have the runs; one that was killed five times in a row without a
result needs a person, which is `submit --again` here. With `--store sqlite` they are in a file, and
processes of `loopwright resume --due --watch` have them; a run whose process was killed after a wait, and that waits for nothing, needs
a person, which is `loopwright resume RUN` here. A run is lost if it does not end, and double if it took an event twice or
decided a wait twice. Kills and restarts come at even shares of the decisions, at random moments.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from loopwright import Context, run, signal, step
from loopwright.cluster import Submission, Worker, submit_all
from loopwright.cluster.submit import requeue
from loopwright.documents import load
from loopwright.errors import JournalError, LoopwrightError
from loopwright.journal import Journal, open_journal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from postgres_server import PostgresServer

WAITS = 3
WORKERS = 2
SLOTS = 50
LATE = 20.0  # seconds in which late events come
PATIENCE = 600.0  # seconds until a storm has failed
_DOCUMENT = """
schema: loopwright/1
name: storm
steps:
  - {name: before_0, set: "{{ input }}"}
  - name: wait_0
    wait: {event: go, timeout: 1h}
  - {name: before_1, set: "{{ wait_0.value }}"}
  - name: wait_1
    wait: {first_of: {late: {for: 1h}, go: {event: go}}}
  - {name: before_2, set: "{{ wait_1.value }}"}
  - name: wait_2
    wait: {event: go, timeout: 1h}
  - {name: after, set: ["{{ wait_0.value }}", "{{ wait_1.value }}", "{{ wait_2.value }}"]}
"""


@step(fingerprint="bench.waits/1", idempotent=True)
async def waits(ledger: str, ctx: Context) -> list[Any]:
    """Wait for three events; each effect is a line of the ledger."""

    def note(_: Any, ctx: Context) -> None:
        with Path(ledger).open("a") as file:
            file.write(f"{ctx.run_id} {ctx.path}\n")

    values = []
    for number in range(WAITS):
        await ctx.call(f"before-{number}", note)
        form: dict[str, Any] = {"event": "go", "timeout": "1h"}
        if number == 1:
            form = {"first_of": {"late": {"for": "1h"}, "go": {"event": "go"}}}
        values.append((await ctx.wait(f"wait-{number}", **form))["value"])
    await ctx.call("after", note)
    return values


async def serve(url: str) -> None:
    """Be a worker until killed."""
    async with Worker(journal=url, steps=[waits], queues={"default": SLOTS}) as worker:
        await worker.serve()


async def send(journal: Journal, ids: Sequence[str], chance: random.Random) -> int:
    """Send three events to each run, a third of them at once, and a third twice; return how many were repeated."""
    repeated = 0

    async def sent(run_id: str, delays: Sequence[float], twice: Sequence[bool]) -> None:
        nonlocal repeated
        # The order of the events of a run is that of its waits.
        for number, (delay, again) in enumerate(zip(delays, twice, strict=True)):
            await asyncio.sleep(delay)
            for _ in range(1 + again):
                while True:
                    try:
                        told = await signal(
                            "go", number, key=run_id, id=str(number), journal=journal
                        )
                        break
                    except (
                        JournalError
                    ):  # sent again with its ID, as a sender without an answer does
                        await asyncio.sleep(0.2)
                repeated += told.repeated

    def delay() -> float:
        return chance.choice([0.0, chance.uniform(0, LATE), chance.uniform(0, LATE / 4)])

    await asyncio.gather(
        *(
            sent(run_id, [delay() for _ in range(WAITS)], [chance.random() < 1 / 3 for _ in range(WAITS)])
            for run_id in ids
        )
    )  # fmt: skip
    return repeated


class Processes:
    """Processes that are started again when they were killed."""

    def __init__(self, words: Sequence[str], count: int, folder: Path) -> None:
        self._words, self._log = words, (folder / "log").open("ab")
        self.running = [self._started() for _ in range(count)]
        self.kills = 0

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", *self._words], stdout=self._log, stderr=self._log
        )

    def kill(self, number: int) -> None:
        """Kill one and start another."""
        self.running[number].kill()
        self.running[number].wait()
        self.kills += 1
        self.running[number] = self._started()

    def repair(self) -> None:
        """Start those again that ended by themselves, as a service manager does."""
        for number, process in enumerate(self.running):
            if process.poll() is not None:
                self.running[number] = self._started()

    def close(self) -> None:
        """End all."""
        for process in self.running:
            process.kill()
            process.wait()
        self._log.close()


async def disturb(
    processes: Processes,
    decided: Callable[[], int],
    ended: Callable[[], int],
    *,
    runs: int,
    kills: int,
    restarts: int,
    restart: Callable[[], object],
    chance: random.Random,
) -> bool:
    """Kill and restart until all runs have ended; return whether they did in time."""
    total, until = runs * WAITS, time.monotonic() + PATIENCE
    faults = sorted(
        [(chance.uniform(0.02, 0.95) * total, "kill") for _ in range(kills)]
        + [(chance.uniform(0.1, 0.9) * total, "restart") for _ in range(restarts)]
    )
    shown = 0.0
    while await asyncio.to_thread(ended) < runs:
        count = await asyncio.to_thread(decided)
        if time.monotonic() > shown + 30:
            shown = time.monotonic()
            print(f"  {count} of {total} waits are over", file=sys.stderr, flush=True)
        if faults and count >= faults[0][0]:
            if faults.pop(0)[1] == "kill":
                await asyncio.to_thread(processes.kill, chance.randrange(len(processes.running)))
            else:
                await asyncio.to_thread(restart)
        processes.repair()
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.1)
    return True


async def judge(journal: Journal, ids: Sequence[str]) -> Counter[str]:
    """Count the runs that are lost, that took or decided something twice, and that have another result."""
    found: Counter[str] = Counter(lost=0, double=0, different=0, rows_left=0)
    for run_id in ids:
        entries = await journal.entries(run_id)
        ends = [entry for entry in entries if entry.kind == "ended" and not entry.path]
        if len(ends) != 1:
            found["lost" if not ends else "double"] += 1
            row = await journal.find(run_id)
            print(f"  {run_id}: {row.status} {row.reason} {row.detail}", file=sys.stderr)
            continue
        kinds = Counter((entry.kind, entry.path) for entry in entries)
        woken = [count for (kind, _), count in kinds.items() if kind == "woken"]
        taken = [entry.value["number"] for entry in entries if entry.kind == "taken"]
        if woken != [1] * WAITS or taken != sorted(set(taken)):
            found["double"] += 1
        if ends[0].value["output"] != list(range(WAITS)):
            found["different"] += 1
    found["rows_left"] = len(await journal.waits())
    return found


async def on_postgres(runs: int, kills: int, restarts: int, chance: random.Random) -> bool:
    """Let workers have the runs, and print what came of them."""
    with tempfile.TemporaryDirectory() as name, contextlib.closing(PostgresServer()) as server:
        url = server.url_of(server.create_database())
        ledger = Path(name, "ledger")
        ledger.touch()
        async with open_journal(url) as journal:
            began = time.monotonic()
            ids = await submit_all(
                Submission(waits), [(str(ledger), "") for _ in range(runs)], journal=journal
            )
            processes = Processes(["benchmarks.wait_storm", "--serve", url], WORKERS, Path(name))

            def count(query: str) -> int:
                while True:
                    try:
                        with psycopg.connect(url, autocommit=True) as db:
                            [(found,)] = db.execute(query.encode()).fetchall()
                            return int(found)
                    except psycopg.OperationalError:
                        time.sleep(0.2)

            def decided() -> int:
                return max(0, ledger.read_bytes().count(b"\n") - runs)

            by_hand: set[str] = set()

            async def requeued(run_id: str) -> None:
                async with open_journal(url) as store:
                    await requeue(run_id, journal=store)

            def ended() -> int:
                with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url) as db:
                    for (run_id,) in db.execute(
                        "SELECT run_id FROM loopwright.runs WHERE status = 'suspended' AND reason = 'needs_attention'"
                    ).fetchall():
                        with contextlib.suppress(LoopwrightError):  # it began meanwhile
                            asyncio.run(requeued(run_id))
                        by_hand.add(run_id)
                return count(done)

            try:
                sending = asyncio.create_task(send(journal, ids, chance))
                done = "SELECT count(*) FROM loopwright.runs WHERE status NOT IN ('queued','running','suspended','interrupted')"
                intime = await disturb(
                    processes, decided, ended, runs=runs, kills=kills, restarts=restarts,
                    restart=lambda: server.restart(immediate=True), chance=chance,
                )  # fmt: skip
                repeated = await sending if intime else 0
            finally:
                processes.close()
            seconds = time.monotonic() - began
            lines = Counter(ledger.read_text().splitlines())
            again = sum(lines.values()) - len(lines)
            where = f"PostgreSQL, {WORKERS} workers, {len(by_hand)} resumed by hand"
            return report(where, runs, processes.kills, restarts, repeated,
                          await judge(journal, ids), f"{again} of {len(lines)}", seconds)  # fmt: skip


async def on_sqlite(runs: int, kills: int, count: int, chance: random.Random) -> bool:
    """Let processes of `resume --due --watch` have the runs, and print what came of them."""
    with tempfile.TemporaryDirectory() as name:
        document, file = Path(name, "storm.yaml"), Path(name, "runs.db")
        document.write_text(_DOCUMENT)
        url, loaded = f"sqlite:{file}", load(document)
        ids = [f"storm-{number}" for number in range(runs)]
        async with open_journal(url) as journal:
            began = time.monotonic()
            for run_id in ids:
                await run(loaded, journal=journal, run_id=run_id, on_wait="leave")
            words = ["loopwright", "resume", "--due", "--watch", "--journal", url]
            processes = Processes(words, count, Path(name))
            by_hand: set[str] = set()
            over: set[str] = set()

            def counted(query: str) -> int:
                with contextlib.closing(sqlite3.connect(file, timeout=30)) as db:
                    return int(db.execute(query).fetchone()[0])

            try:
                sending = asyncio.create_task(send(journal, ids, chance))
                taken = "SELECT count(*) FROM events WHERE taken=1"
                done = "SELECT count(*) FROM runs WHERE status NOT IN ('running','suspended','interrupted')"
                left = (
                    "SELECT run_id, epoch FROM runs WHERE status IN ('running','interrupted') "
                    "AND run_id NOT IN (SELECT run FROM waits)"
                )
                seen: dict[tuple[str, int], float] = {}

                def ended() -> int:
                    with contextlib.closing(sqlite3.connect(file, timeout=30)) as db:
                        found = db.execute(left).fetchall()
                    for run_id, epoch in found:
                        if run_id in over:
                            continue
                        # A process that lives takes milliseconds for what it does without a wait.
                        if (
                            seen.setdefault((run_id, epoch), time.monotonic())
                            < time.monotonic() - 10
                        ):
                            again = ["resume", run_id, "--on-wait", "leave", "--journal", url]
                            told = subprocess.run(
                                [sys.executable, "-m", "loopwright", *again],
                                check=False,
                                capture_output=True,
                            )
                            by_hand.add(run_id)
                            # Killed between its last entry and its row: it has ended, and lists show it as interrupted.
                            if b"has ended" in told.stdout + told.stderr:
                                over.add(run_id)
                    return counted(done) + len(over)

                intime = await disturb(
                    processes, lambda: counted(taken), ended, runs=runs, kills=kills,
                    restarts=0, restart=int, chance=chance,
                )  # fmt: skip
                repeated = await sending if intime else 0
            finally:
                processes.close()
            seconds = time.monotonic() - began
            where = (
                f"SQLite, {count} processes, {len(by_hand)} resumed by hand ({len(over)} had ended)"
            )
            found = await judge(journal, ids)
            return report(where, runs, processes.kills, 0, repeated, found, "not counted", seconds)


def report(
    where: str, runs: int, kills: int, restarts: int, repeated: int, found: Counter[str], again: str, seconds: float
) -> bool:  # fmt: skip
    """Print what came of the runs, and return whether all ended once with their result."""
    print(
        f"{where}: {runs:,} runs x {WAITS} waits, {kills} kills, {restarts} restarts, {repeated} events sent twice"
    )
    print(f"  {found['lost']} lost, {found['double']} double, {found['different']} with another result, "
          f"{found['rows_left']} rows left, effects repeated: {again}, {seconds:.0f} s")  # fmt: skip
    return not found.total()


def main() -> int:
    """Run the storm of the command line."""
    parser = argparse.ArgumentParser(description="Let much go wrong while runs wait.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--store", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--processes", type=int, default=3, help="with sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
        return 0
    chance = random.Random(given.seed)
    if given.store == "postgres":
        good = asyncio.run(on_postgres(given.runs, given.kills, given.restarts, chance))
    else:
        good = asyncio.run(on_sqlite(given.runs, given.kills, given.processes, chance))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
