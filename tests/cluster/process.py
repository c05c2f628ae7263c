"""A worker in a process of its own, which tests kill: `python -m cluster.process URL DELIVERER`.

Each effect appends a line to the ledger, the only record of what was done; the beginning and the end of each delivery
append one to a file beside it. A run of `poison` kills its process. The variables LEDGER, SLOTS, CAP, PATIENCE and CLOCK
are its ledger, its slots, a cap on `add`, the seconds that its journal waits for the database, and those by which its
clock is wrong. LEASE and SILENCE are the seconds of its lease, and those without an answer after which a connection
counts as lost; DRAIN is how many seconds its runs may continue after SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, step
from loopwright.cluster import Cap, Deliverer, Handle, Worker
from loopwright.cluster.delivery import open_deliverer
from loopwright.journal.postgres import connection
from loopwright.journal.postgres.database import PATIENCE
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.postgres.ownership import LEASE
from warm_python import warm_python

EFFECTS = 5
WAIT = 0.02  # seconds of an effect


@step(fingerprint="test.add/1", idempotent=True)
async def add(value: dict, ctx: object) -> dict:
    """Append a line to the ledger and wait."""
    ledger, number = os.environ.get("LEDGER", os.devnull), value["number"]
    with Path(ledger).open("a") as file:
        file.write(f"{ctx.run_id} {ctx.path}\n")  # type: ignore[attr-defined]
    await asyncio.sleep(value.get("wait", WAIT))
    return {**value, "sum": value.get("sum", 0) + number}


@step(fingerprint="test.block/1", idempotent=True)
async def block(seconds: int, ctx: object) -> int:
    """Append a line to the ledger, then block the event loop for longer than a session may be silent."""
    with Path(os.environ.get("LEDGER", os.devnull)).open("a") as file:
        file.write(f"{ctx.run_id} {ctx.path}\n")  # type: ignore[attr-defined]
    time.sleep(seconds)
    return seconds


@step(fingerprint="test.poison/1", idempotent=True)
def poison(value: int) -> int:
    """Kill the process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return value


@step(fingerprint="test.ask/1", idempotent=True)
async def ask(value: str, ctx: object) -> object:
    """Ask a person, and append the answer to the ledger."""
    answer = ctx.ask("publish", {}, "Publish it?")  # type: ignore[attr-defined]
    with Path(os.environ.get("LEDGER", os.devnull)).open("a") as file:
        file.write(f"{ctx.run_id} {answer}\n")  # type: ignore[attr-defined]
    return answer


def following(last: object) -> dict:
    """The next input is the last output."""
    return last.output  # type: ignore[attr-defined]


sums = Loop(add, adapt=following, until=MaxIterations(EFFECTS), name="sums")


class Process:
    """A worker in a process of its own."""

    def __init__(
        self,
        url: str,
        deliverer: str,
        ledger: Path,
        slots: int = 20,
        *,
        clock: float = 0.0,
        patience: float = PATIENCE,
        lease: float = LEASE,
        silence: float = connection.SILENCE,
        drain: float = 30.0,
    ) -> None:
        environment = {**os.environ, "LEDGER": str(ledger), "SLOTS": str(slots)}
        environment |= {"CLOCK": str(clock), "PATIENCE": str(patience), "LEASE": str(lease)}
        environment |= {"SILENCE": str(silence), "DRAIN": str(drain)}
        self._deliveries = _deliveries(ledger)
        self._log = ledger.with_suffix(".log").open("ab")
        self._process = warm_python().start(
            ["-m", "cluster.process", url, deliverer],
            cwd=Path(__file__).parents[1],
            env=environment,
            stdout=self._log,
            stderr=self._log,
        )
        self.pid = self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.code is not None

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def delivered(self) -> set[str]:
        """The runs that its engine delivered to it and that it has not given back."""
        if not self._deliveries.exists():
            return set()
        held: Counter[str] = Counter()
        for line in self._deliveries.read_text().splitlines():
            run_id, pid, count = line.split()
            held[run_id] += int(count) if pid == str(self.pid) else 0
        return {run_id for run_id, count in held.items() if count}

    def kill(self) -> None:
        """Kill the process as a crash does."""
        self._process.kill()
        self._process.wait(timeout=60)
        self._log.close()


def _deliveries(ledger: Path) -> Path:
    return ledger.with_suffix(".delivered")


class _Noting:
    """A deliverer that notes what it delivers to this process."""

    def __init__(self, deliverer: Deliverer, file: Path) -> None:
        self._deliverer = deliverer
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._deliverer, name)

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs until cancelled."""

        async def noted(run_id: str) -> bool:
            self._note(run_id, 1)
            ended = await handle(run_id)
            self._note(run_id, -1)
            return ended

        await self._deliverer.serve(noted, queues=queues)

    def _note(self, run_id: str, count: int) -> None:
        with self._file.open("a") as file:
            file.write(f"{run_id} {os.getpid()} {count}\n")


def repeated(ledger: Path) -> dict[str, int]:
    """Return how many effects of each run were done more than once."""
    lines = Counter(ledger.read_text().splitlines())
    repeats: Counter[str] = Counter()
    for line, times in lines.items():
        if times > 1:
            repeats[line.split()[0]] += times - 1
    return dict(repeats)


async def _serve(url: str, deliverer: str) -> None:
    connection.SILENCE = float(os.environ.get("SILENCE", connection.SILENCE))
    journal = PostgresJournal(
        url,
        patience=float(os.environ.get("PATIENCE", PATIENCE)),
        lease=float(os.environ.get("LEASE", LEASE)),
    )
    opened = open_deliverer(deliverer, url)
    noting: Any = _Noting(opened, _deliveries(Path(os.environ["LEDGER"])))
    worker = Worker(
        journal=journal,
        steps=[sums, poison, add, block, ask],
        queues={"default": int(os.environ.get("SLOTS", "20"))},
        deliverer=noting,
        limits={"add": Cap(int(cap))} if (cap := os.environ.get("CAP")) else None,
        drain=float(os.environ.get("DRAIN", "30")),
    )
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(journal)
        stack.push_async_callback(opened.close)
        await stack.enter_async_context(worker)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.serve()


def _set_clock(seconds: float) -> None:
    """Let the wall clock of this process be wrong."""
    right = time.time
    time.time = lambda: right() + seconds


if __name__ == "__main__":
    # A group of processes of which one is stopped receives it when the shell ends that started a storm in the background.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _set_clock(float(os.environ.get("CLOCK", "0")))
    asyncio.run(_serve(*sys.argv[1:3]))
