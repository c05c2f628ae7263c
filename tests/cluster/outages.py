"""Outages of the database while runs go on: `python tests/cluster/outages.py --engine pgqueuer --seconds 20 80 200`.

Two workers have runs in progress when the server stops, or when its disk is full. After it, all runs must end once with the
results of an undisturbed run, and no worker is started again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))

from cluster.process import EFFECTS, Process, repeated, sums  # noqa: E402
from loopwright.cluster import Submission, submit_all  # noqa: E402
from loopwright.errors import JournalError  # noqa: E402
from loopwright.journal import Journal, open_journal  # noqa: E402
from loopwright.journal.postgres.database import PATIENCE  # noqa: E402
from postgres_server import PostgresServer, ServerMissing  # noqa: E402
from rabbitmq_server import start_broker  # noqa: E402
from temporal_server import TemporalServer  # noqa: E402

ENGINES = ("pgqueuer", "dbos", "celery", "temporal")
RECOVERY = 300.0  # seconds after an outage until it has failed
_DISK = 48  # MB of the disk that another file fills


@dataclass
class Outcome:
    """What an outage left.

    Attributes:
        wrong: sentences about runs that did not end once with their result, and workers that ended.
        repeats: how many effects were done more than once, over all runs.
        seconds: from the end of the outage to the end of the last run.
    """

    wrong: list[str] = field(default_factory=list)
    repeats: int = 0
    seconds: float = 0.0


@contextlib.contextmanager
def deliverer_of(engine: str) -> Iterator[str]:
    """Start the server of an engine, if it has one, and yield the deliverer."""
    if engine == "celery":
        server = start_broker()
        name = f"celery:{server.url}"
    elif engine == "temporal":
        server = TemporalServer()
        name = f"temporal:{server.address}"
    else:
        yield engine
        return
    try:
        yield name
    finally:
        server.close()


@contextlib.contextmanager
def small_disk(server: PostgresServer) -> Iterator[tuple[str, Path]]:
    """Yield the URL of a database on a disk of its own, and the folder of that disk.

    Raises:
        ServerMissing: if this user may not mount one.
    """
    with tempfile.TemporaryDirectory(prefix="lw-disk-") as folder:
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}m", "tmpfs", folder]
        if (
            not server.account
            or subprocess.run(mounting, check=False, capture_output=True).returncode
        ):
            raise ServerMissing("this user may not mount a file system")
        try:
            Path(folder).parent.chmod(Path(folder).parent.stat().st_mode)
            os.chown(folder, *server.account)
            with server.connect() as db:
                db.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
                db.execute("CREATE DATABASE on_small TABLESPACE small")
            yield server.url_of("on_small"), Path(folder)
            with server.connect() as db:
                db.execute("DROP DATABASE on_small WITH (FORCE)")
                db.execute("DROP TABLESPACE small")
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.asynccontextmanager
async def away(server: PostgresServer) -> AsyncIterator[None]:
    """Stop the server for a while, as a crash does."""
    await asyncio.to_thread(server.stop, immediate=True)
    yield
    await asyncio.to_thread(server.start)


@contextlib.asynccontextmanager
async def full(folder: Path) -> AsyncIterator[None]:
    """Fill a disk for a while."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    yield
    filler.unlink()


async def outage(
    url: str,
    deliverer: str,
    during: Callable[[], contextlib.AbstractAsyncContextManager[None]],
    *,
    seconds: float,
    runs: int = 120,
    wait: float = 0.5,
    slots: int = 20,
    patience: float = PATIENCE,
) -> Outcome:
    """Submit runs, let the outage happen while the first ones are in progress, and wait until all ended."""
    result = Outcome()
    ledger = Path(tempfile.mkdtemp(prefix="lw-outage-")) / "ledger"
    journal = open_journal(url)
    inputs = [({"number": n, "wait": wait}, "") for n in range(runs)]
    ids = await submit_all(Submission(sums), inputs, journal=journal, deliverer=deliverer)
    workers = [Process(url, deliverer, ledger, slots, patience=patience) for _ in range(2)]
    try:
        while not ledger.exists() or ledger.read_bytes().count(b"\n") < 2 * slots:
            await asyncio.sleep(0.05)
        async with during():
            await asyncio.sleep(seconds)
        began = time.monotonic()
        while time.monotonic() < began + RECOVERY and not await _over(journal, runs):
            await asyncio.sleep(0.1)
        result.seconds = time.monotonic() - began
        result.wrong = [f"worker {one.pid} ended" for one in workers if one.ended]
        for number, run_id in enumerate(ids):
            result.wrong += [text async for text in _wrong(journal, run_id, EFFECTS * number)]
    finally:
        for worker in workers:
            worker.kill()
        await journal.close()
    result.repeats = sum(repeated(ledger).values())
    return result


async def _over(journal: Journal, runs: int) -> bool:
    with contextlib.suppress(JournalError):
        return len(await journal.runs(limit=runs, status="exhausted")) == runs
    return False


async def _wrong(journal: Journal, run_id: str, total: int) -> AsyncIterator[str]:
    """Yield what is wrong with a run."""
    row = await journal.find(run_id)
    if row.status != "exhausted":
        yield f"{run_id} is {row.status} {row.owner} {row.detail}"
        return
    entries = await journal.entries(run_id)
    ends = [entry for entry in entries if entry.kind == "ended" and not entry.path]
    if len(ends) != 1 or ends[0].value["output"]["sum"] != total or entries[-1] is not ends[0]:
        yield f"{run_id} ended with {[end.value for end in ends]}"


async def _measured(engine: str, kind: str, seconds: float, given: argparse.Namespace) -> Outcome:
    options = {"seconds": seconds, "runs": given.runs, "patience": given.patience}
    server = PostgresServer()
    try:
        with deliverer_of(engine) as deliverer:
            if kind == "full":
                with small_disk(server) as (url, folder):
                    return await outage(url, deliverer, lambda: full(folder), **options)
            url = server.url_of(server.create_database())
            return await outage(url, deliverer, lambda: away(server), **options)
    finally:
        server.close()


def main() -> int:
    """Measure each outage of the command line, and print a line for each."""
    parser = argparse.ArgumentParser(
        description="Stop the database, or fill its disk, while runs go on."
    )
    parser.add_argument("--engine", nargs="*", choices=ENGINES, default=ENGINES)
    parser.add_argument(
        "--seconds", nargs="*", type=float, default=[20, 80, 200], help="the database is away"
    )
    parser.add_argument(
        "--full", nargs="*", type=float, default=[70], help="seconds for which its disk is full"
    )
    parser.add_argument("--runs", type=int, default=120)
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="of the workers' journals, in seconds"
    )
    given = parser.parse_args()
    failures = 0
    for engine in given.engine:
        outages = [("away", one) for one in given.seconds] + [("full", one) for one in given.full]
        for kind, seconds in outages:
            result = asyncio.run(_measured(engine, kind, seconds, given))
            failures += bool(result.wrong)
            print(*result.wrong, sep="\n", end="\n" if result.wrong else "")
            print(
                f"{engine}: {kind} for {seconds:g} s: {given.runs} runs, {len(result.wrong)} wrong, "
                f"{result.repeats} effects repeated, all ended {result.seconds:.0f} s after it",
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
