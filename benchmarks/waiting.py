"""Waits: how long a signal takes to the next effect, and what many waiting runs cost. `python -m benchmarks.waiting`.

The rows of waits are written by the look that a run makes; the runs themselves are not started.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loopwright import Context, run, signal
from loopwright.journal import open_journal
from loopwright.journal.events import OpenWait

RUNS = 100_000
TIMES = 20
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


async def many(url: str) -> tuple[float, float]:
    """Return the milliseconds of a query for due waits, and of a signal, among many waiting runs."""
    async with open_journal(url) as journal:
        later = time.time() + 86_400
        for start in range(0, RUNS, 1000):
            rows = [
                OpenWait(f"run-{n:06}", "wait", "go", f"{n}", later)
                for n in range(start, start + 1000)
            ]
            await journal.look_for(rows)
        due, sent = [], []
        for number in range(TIMES):
            began = time.perf_counter()
            await journal.waits(due=time.time())
            due.append(time.perf_counter() - began)
            began = time.perf_counter()
            await signal("go", key=f"{number * 1000}", journal=journal)
            sent.append(time.perf_counter() - began)
        return statistics.median(due) * 1000, statistics.median(sent) * 1000


def main() -> None:
    """Measure on SQLite, and print the figures."""
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:{name}/few.db"
        for elsewhere in (False, True):
            taken = asyncio.run(latency(url, elsewhere=elsewhere))
            where = "another process" if elsewhere else "the same process"
            print(
                f"signal of {where} to effect: median {statistics.median(taken):.2f} s, most {max(taken):.2f} s"
            )
        file = Path(name, "many.db")
        due, sent = asyncio.run(many(f"sqlite:{file}"))
        size = file.stat().st_size / RUNS
        print(
            f"{RUNS:,} waiting runs: due query {due:.2f} ms, signal {sent:.2f} ms, {size:.0f} bytes each"
        )


if __name__ == "__main__":
    main()
