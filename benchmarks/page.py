"""The page: a list of 100,000 runs, a run of 1,000 iterations, news beside 100 runs that write.

python benchmarks/page.py [--journal FILE]     FILE keeps the 100,000 runs for the next time
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measuring import Row
from loopwright import Evaluation, Loop, MaxIterations, ScoreAtLeast, run
from loopwright.stores import open_journal

RUNS, WRITING, SECONDS, PACE = 100_000, 100, 12.0, 0.25


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


def writing(path: str) -> None:
    """Be the process that writes: many runs at the pace of quick models; tell when what was durable."""
    durable: dict[int, float] = {}

    async def slow(value: Any, ctx: Any) -> str:
        await asyncio.sleep(PACE)
        return f"draft {ctx.iteration} " * 40

    async def whole() -> None:
        rounds = int(SECONDS / PACE)
        async with open_journal(f"sqlite:{path}") as journal:
            followed = Loop(
                slow, judge, until=MaxIterations(rounds), name="followed",
                on_iteration=lambda item: durable.setdefault(item.number, time.time()),
            )  # fmt: skip
            other = Loop(slow, judge, until=MaxIterations(rounds), name="other")
            work = [run(other, n, journal=journal, run_id=f"w{n:03}") for n in range(WRITING - 1)]
            await asyncio.gather(run(followed, "x", journal=journal, run_id="followed"), *work)

    asyncio.run(whole())
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"durable": durable, "cpu": used.ru_utime + used.ru_stime}))


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

    drawn = "[document.querySelectorAll('.uplot').length, performance.now()]"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        page = browser.new_page()
        page.goto(server.url)
        times = []
        for _ in range(9):
            page.goto(f"{server.base}/runs/thousand", wait_until="load")
            count, now = page.evaluate(drawn)
            assert count > 0
            times.append(
                min(
                    now, page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
                )
            )
        browser.close()
    note = f"slowest of 9: {max(times):.0f} ms; curves drawn, rows there"
    yield Row(
        "a run of 1,000 iterations opens in chromium", statistics.median(times), 300, "ms", note
    )


def heard(path: Path, folder: Path) -> Iterator[Row]:
    """Follow one of a hundred runs that write; measure delay and CPU."""
    command = [sys.executable, __file__, "--writing"]
    alone = subprocess.run(
        [*command, str(path.with_name("alone.db"))], capture_output=True, check=True
    )
    without = json.loads(alone.stdout)["cpu"]
    with serving(path, folder) as server:
        writer = subprocess.Popen([*command, str(path)], stdout=subprocess.PIPE, text=True)
        got: dict[int, float] = {}
        threads = [
            threading.Thread(target=_follow, args=(server, got if n == 0 else {}), daemon=True)
            for n in range(3)
        ]
        before = server.cpu
        for thread in threads:
            thread.start()
        told = json.loads(writer.communicate()[0])
        for thread in threads:
            thread.join(20)
        spent = server.cpu - before
    durable = {int(number): moment for number, moment in told["durable"].items()}
    delays = sorted((got[n] - moment) * 1000 for n, moment in durable.items() if n in got)
    missed = len(durable) - len(delays)
    note = f"{len(delays)} rounds, {missed} missed, median {statistics.median(delays):.0f} ms"
    yield Row(
        "95th percentile from commit to page", delays[int(len(delays) * 0.95)], 200, "ms", note
    )
    yield Row("slowest from commit to page", delays[-1], None, "ms")
    note = f"{spent:.2f} s of the page with 3 followers, {told['cpu']:.2f} s of {WRITING} runs"
    added = 100 * (told["cpu"] / without - 1)
    yield Row("CPU that the runs' own process uses more while it is watched", added, 3, "%")
    yield Row(
        "CPU of the page's process to that of the runs", 100 * spent / told["cpu"], None, "%", note
    )


def _follow(server: Server, got: dict[int, float]) -> None:
    while True:
        try:
            connection, answer = server.get("/runs/followed/events?after=0")
        except OSError:
            return
        if answer.status == 200:
            break
        connection.close()
        time.sleep(0.05)
    for raw in answer:
        if raw.startswith(b"data: "):
            now, told = time.time(), json.loads(raw[6:])
            for row in told.get("loops", {}).get("followed", {}).get("rows", []):
                got.setdefault(row[0], now)
            if told["status"] == "exhausted":
                break
    connection.close()


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--journal", type=Path)
    words.add_argument("--writing")
    given = words.parse_args()
    if given.writing:
        writing(given.writing)
        return 0
    over = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = (given.journal or folder / "runs.db").resolve()
        if not path.exists():
            asyncio.run(fill(path))
        with serving(path, folder) as server:
            rows = [*listed(server), *opened(server)]
        for row in [*rows, *heard(folder / "busy.db", folder)]:
            print(row, flush=True)
            over += not row.holds
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
