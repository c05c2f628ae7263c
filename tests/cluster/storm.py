"""Many runs on two workers, which are killed and started again, while the database restarts: `make torture`.

All runs must end with the results of an undisturbed run, and a run repeats at most one effect for each kill.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))

from cluster.process import EFFECTS, Process, repeated, sums  # noqa: E402
from loopwright.cluster import Submission, submit_all  # noqa: E402
from loopwright.journal import open_journal  # noqa: E402
from postgres_server import PostgresServer, start_server  # noqa: E402

PATIENCE = 600.0  # seconds until a storm has failed


class Storm:
    """The result of a storm.

    Attributes:
        wrong: sentences about runs that did not end as they should.
        repeats: how many effects were done more than once, over all runs.
        kills: how many workers were killed.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.repeats = 0
        self.kills = 0
        self.seconds = 0.0


async def storm(
    server: PostgresServer,
    *,
    runs: int,
    kills: int,
    restarts: int,
    seed: int,
    deliverer: str = "",
    workers: int = 2,
) -> Storm:
    """Submit runs, and kill workers and the database at random moments until all runs ended."""
    chance, result, began = random.Random(seed), Storm(), time.monotonic()
    database = server.create_database()
    url = server.url_of(database)
    ledger = Path(tempfile.mkdtemp(prefix="lw-storm-")) / "ledger"
    journal = open_journal(url)
    inputs = [({"number": n}, f"storm {n}") for n in range(runs)]
    ids = await submit_all(Submission(sums), inputs, journal=journal, deliverer=deliverer)
    processes = [Process(url, deliverer, ledger) for _ in range(workers)]
    # Faults at even shares of the work, so that a quick machine has as many as a slow one.
    total = runs * EFFECTS
    faults = sorted(
        [(chance.uniform(0.02, 0.9) * total, "kill") for _ in range(kills)]
        + [(chance.uniform(0.1, 0.8) * total, "restart") for _ in range(restarts)]
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                done = _lines(ledger)
                while faults and done >= faults[0][0]:
                    _, fault = faults.pop(0)
                    if fault == "restart":
                        await asyncio.to_thread(server.restart, immediate=True)
                        continue
                    number = chance.randrange(workers)
                    processes[number].kill()
                    result.kills += 1
                    processes[number] = Process(url, deliverer, ledger)
                # A worker that starts while the database restarts ends with an error; an operator starts it again.
                for number, process in enumerate(processes):
                    if process.ended:
                        process.kill()  # closes its log
                        processes[number] = Process(url, deliverer, ledger)
                if not faults and await _over(journal, runs):
                    break
                await asyncio.sleep(0.1)
        for number, run_id in enumerate(ids):
            last = (await journal.entries(run_id))[-1]
            if last.kind != "ended" or last.value["output"]["sum"] != EFFECTS * number:
                result.wrong.append(f"{run_id}: {last}")
    except TimeoutError:
        rows = [row for row in await journal.runs(limit=runs) if row.status != "exhausted"]
        result.wrong += [f"{row.run_id}: {row.status} {row.detail}" for row in rows]
    finally:
        for process in processes:
            process.kill()
        await journal.close()
    repeats = repeated(ledger)
    result.repeats = sum(repeats.values())
    result.wrong += [
        f"{run_id} repeated {times} effects after {result.kills} kills"
        for run_id, times in repeats.items()
        if times > result.kills
    ]
    result.seconds = time.monotonic() - began
    server.drop_database(database)
    return result


def _lines(ledger: Path) -> int:
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


async def _over(journal: object, runs: int) -> bool:
    rows = await journal.runs(limit=runs, status="exhausted")  # type: ignore[attr-defined]
    return len(rows) == runs


def main() -> int:
    """Run a storm for each seed of the command line."""
    parser = argparse.ArgumentParser(description="Kill workers and the database while runs go on.")
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--restarts", type=int, default=5)
    given = parser.parse_args()
    faults = {"runs": given.runs, "kills": given.kills, "restarts": given.restarts}
    server, failures = start_server(), 0
    try:
        for seed in given.seeds:
            result = asyncio.run(storm(server, seed=seed, **faults))
            failures += bool(result.wrong)
            print(*result.wrong, sep="\n", end="\n" if result.wrong else "")
            print(
                f"storm {seed}: {given.runs} runs, {result.kills} kills, {given.restarts} restarts, "
                f"{result.repeats} effects repeated, {len(result.wrong)} wrong, {result.seconds:.0f} s",
                flush=True,
            )
    finally:
        server.close()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
