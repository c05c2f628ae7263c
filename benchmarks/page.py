"""The page: a list of 100,000 runs, a run of 1,000 iterations.

python benchmarks/page.py [--journal FILE]     FILE keeps the 100,000 runs for the next time
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measuring import Row
from loopwright import Evaluation, Loop, MaxIterations, ScoreAtLeast, run
from loopwright.journal.open import open_journal

RUNS = 100_000


async def draft(value: Any, ctx: Any) -> str:
    return f"draft {ctx.iteration} of {value}"


async def judge(output: Any, ctx: Any) -> Evaluation:
    return Evaluation(min(1.0, 0.2 * ctx.iteration % 1), ctx.iteration > 3, "it is too long")


async def fill(path: Path) -> None:
    """Make the runs of the list, and the long one."""
    async with open_journal(f"sqlite:{path}?synchronous=normal") as journal:
        flows = [
            Loop(draft, judge, until=ScoreAtLeast(0.6) | MaxIterations(2 + k % 2), name=f"flow_{k}")
            for k in range(20)
        ]
        for start in range(0, RUNS, 500):
            work = (
                run(flows[i % 20], f"input {i}", journal=journal, run_id=f"r{i:06d}")
                for i in range(start, start + 500)
            )
            await asyncio.gather(*work)
        long = Loop(draft, judge, until=MaxIterations(1000), name="thousand")
        await run(long, "x", journal=journal, run_id="thousand")


class Server:
    """`loopwright ui` over a journal."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loopwright", "ui", "--no-open", "--journal", f"sqlite:{path}"],
            cwd=folder, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        base, _, token = self.url.partition("/?token=")
        self.base, self.port = base, int(base.rpartition(":")[2])
        self.headers = {"authorization": f"Bearer {token}"}

    def get(self, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers=self.headers)
        return connection, connection.getresponse()

    def first_byte(self, path: str) -> float:
        start = time.perf_counter()
        connection, answer = self.get(path)
        took = time.perf_counter() - start
        assert answer.status == 200, path
        answer.read()
        connection.close()
        return took * 1000

    @property
    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(path: Path, folder: Path) -> Iterator[Server]:
    server = Server(path, folder)
    try:
        server.first_byte("/")
        yield server
    finally:
        server.process.terminate()
        server.process.wait(20)


def listed(server: Server) -> Iterator[Row]:
    """Time pages of the list."""
    pages = {
        "newest": "/", "the 50,000th": "/?before=50000", "by status": "/?status=exhausted",
        "by a reason that no run has": "/?reason=budget", "by workflow": "/?name=flow_7",
        "by workflow and a status that none has": "/?name=flow_7&status=failed",
        "by text": "/?text=input+999", "by text that is nowhere": "/?text=nowhere",
    }  # fmt: skip
    for name, path in pages.items():
        times = [server.first_byte(path) for _ in range(15)]
        note = f"slowest of 15: {max(times):.0f} ms"
        yield Row(f"first byte of the list, {name}", statistics.median(times), 100, "ms", note)


def opened(server: Server) -> Iterator[Row]:
    """Time the long run, as a program and in a browser."""
    times = [server.first_byte("/runs/thousand") for _ in range(9)]
    yield Row("first byte of a run of 1,000 iterations", statistics.median(times), None, "ms")
    chromium = shutil.which("chromium")
    if chromium is None:
        print("NOT MEASURED: there is no chromium")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        page = browser.new_page()
        page.goto(server.url)
        shown, alive = [], []
        for _ in range(9):
            page.goto(f"{server.base}/runs/thousand", wait_until="load")
            assert page.locator("svg.curve, .uplot").count() > 0
            shown.append(page.evaluate(_LOADED))
            alive.append(page.evaluate(_ALIVE))
        browser.close()
    note = f"slowest of 9: {max(shown):.0f} ms; rows and curves are there, scripts have run"
    what = "a run of 1,000 iterations opens in chromium"
    yield Row(what, statistics.median(shown), 300, "ms", note)
    note = f"slowest of 9: {max(alive):.0f} ms"
    yield Row("its curves answer to the pointer", statistics.median(alive), None, "ms", note)


_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"
_ALIVE = """async () => {
  while (!document.querySelector('.uplot')) await new Promise(requestAnimationFrame);
  return performance.now();
}"""


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--journal", type=Path)
    given = words.parse_args()
    over = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = (given.journal or folder / "runs.db").resolve()
        if not path.exists():
            asyncio.run(fill(path))
        with serving(path, folder) as server:
            rows = [*listed(server), *opened(server)]
        for row in rows:
            print(row, flush=True)
            over += not row.holds
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
