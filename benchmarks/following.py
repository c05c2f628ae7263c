"""The page beside 100 runs that write: how late it tells, and what it costs them.

python benchmarks/following.py [waits|models] …     both by default

`waits` are runs of steps that only wait: the least that a run can use. `models` are runs that ask a
model of a local server over HTTP, one second a reply. What is measured: a window of seconds in which
100 runs write, while three pages are open on one of them and one on the list, and the same with no
page at all, by turns. CPU is read from the clocks of both processes.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import models
from benchmarks.measuring import Row
from benchmarks.page import Server, draft, judge, serving
from loopwright import Loop, MaxIterations, run
from loopwright.journal.open import open_journal
from loopwright.models import Models, ProviderModel
from loopwright.prompts.prompt import prompt

WRITING, PAGES, LISTS, WARM, WINDOW, PAIRS = 100, 3, 1, 2.5, 9.0, 3
PACE = {"waits": 0.25, "models": 1.0}  # seconds of a step, of a reply


def writing(kind: str, path: str, url: str) -> None:
    """Be the process that writes: tell when all have begun, and what was durable when."""
    durable: dict[int, float] = {}

    async def slow(value: Any, ctx: Any) -> str:
        await asyncio.sleep(PACE["waits"])
        return f"{await draft(value, ctx)} " * 20

    asked = prompt(
        "Write {{ value }}, round {{ loop.iteration }}", base_url=url, model=f"{models.NAME}:m"
    )
    step: Any = slow if kind == "waits" else asked
    rounds = int((WARM + WINDOW + 3) / PACE[kind])

    async def whole() -> None:
        async with open_journal(f"sqlite:{path}") as journal, ProviderModel({}) as model:
            resources = {"models": Models(model, known_prices=False)}
            start = partial(run, journal=journal, resources=resources)
            followed = Loop(
                step, judge, until=MaxIterations(rounds), name="followed",
                on_iteration=lambda item: durable.setdefault(item.number, time.time()),
            )  # fmt: skip
            other = Loop(step, judge, until=MaxIterations(rounds), name="other")
            runs = [start(other, n, run_id=f"w{n:03}") for n in range(WRITING - 1)]
            work = asyncio.gather(start(followed, "x", run_id="followed"), *runs)
            await asyncio.sleep(PACE[kind] * 1.5)
            print("begun", flush=True)
            await work

    asyncio.run(whole())
    print(json.dumps(durable))


def used(process: subprocess.Popen[str]) -> float:
    """Return the CPU seconds of a process; its clock has this number on Linux."""
    return time.clock_gettime((~process.pid << 3) | 2)


@dataclass
class Window:
    """What was used in a window by the runs and by the page; when rounds were durable, and heard."""

    runs: float = 0.0
    page: float = 0.0
    durable: dict[int, float] = field(default_factory=dict)
    heard: dict[int, float] = field(default_factory=dict)

    @property
    def delays(self) -> list[float]:
        """Milliseconds from commit to page, of the rounds after the page was open."""
        known = (number for number in self.durable if number in self.heard)
        began = min(self.heard.values()) + WARM / 2
        return sorted(
            (self.heard[n] - self.durable[n]) * 1000 for n in known if self.durable[n] > began
        )


def window(kind: str, url: str, server: Server | None, path: Path) -> Window:
    """Let 100 runs write, with pages open on them if there is a server."""
    found = Window()
    writer = subprocess.Popen(
        [sys.executable, __file__, "--writing", kind, str(path), url],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdout is not None
    assert writer.stdout.readline() == "begun\n"
    paths = ["/runs/followed/events?after=0"] * PAGES + ["/events?before=0&after=0"] * LISTS
    for number, asked in enumerate(paths if server is not None else ()):
        got = found.heard if number == 0 else {}
        threading.Thread(target=_follow, args=(server, asked, got), daemon=True).start()
    time.sleep(WARM)
    before = used(writer), used(server.process) if server else 0.0
    time.sleep(WINDOW)
    found.runs = used(writer) - before[0]
    found.page = used(server.process) - before[1] if server else 0.0
    told = json.loads(writer.communicate()[0].splitlines()[-1])
    found.durable = {int(number): moment for number, moment in told.items()}
    return found


def _follow(server: Server, path: str, got: dict[int, float]) -> None:
    connection, answer = server.get(path)
    assert answer.status == 200, path
    try:
        for raw in answer:
            if raw.startswith(b"data: "):
                now, told = time.time(), json.loads(raw[6:])
                for row in told.get("loops", {}).get("followed", {}).get("rows", []):
                    got.setdefault(row[0], now)
                if told.get("status") == "exhausted":
                    break
    except (OSError, ValueError):  # the server ended
        return
    connection.close()


@contextmanager
def answering(kind: str) -> Iterator[str]:
    """Run the server that the runs ask, if they do; its address."""
    source = models.SERVER.replace("LATENCY", str(PACE["models"]))
    if kind != "models":
        yield ""
        return
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{json.loads(server.stdout.readline())}"
        finally:
            server.kill()


def rows(kinds: tuple[str, ...] = ("waits", "models")) -> Iterator[Row]:
    """Measure and yield the figures."""
    for kind in kinds:
        with tempfile.TemporaryDirectory() as name, answering(kind) as url:
            alone, open_, folder = [], [], Path(name)
            for pair in range(PAIRS):
                alone.append(window(kind, url, None, folder / f"alone{pair}.db"))
                path = folder / f"open{pair}.db"
                with ExitStack() as stack:
                    server = stack.enter_context(serving(path, folder))
                    open_.append(window(kind, url, server, path))
        yield from _rows(kind, alone, open_)


def _rows(kind: str, alone: list[Window], open_: list[Window]) -> Iterator[Row]:
    delays = sorted(delay for one in open_ for delay in one.delays)
    missed = sum(number not in one.heard for one in open_ for number in one.durable)
    note = f"{len(delays)} rounds, {missed} missed, median {statistics.median(delays):.0f} ms"
    late = delays[int(len(delays) * 0.95)]
    yield Row(f"{kind}: 95th percentile from commit to page", late, 200, "ms", note)
    yield Row(f"{kind}: slowest from commit to page", delays[-1], 200, "ms")
    without = statistics.median(one.runs for one in alone)
    spread = (max(one.runs for one in alone) / min(one.runs for one in alone) - 1) * 100
    added = 100 * (statistics.median(one.runs for one in open_) / without - 1)
    note = f"two windows without a page differ by up to {spread:.0f} %"
    yield Row(f"{kind}: CPU that the runs' own process uses more beside pages", added, 3, "%", note)
    page = statistics.median(one.page for one in open_)
    each = 1000 / WINDOW
    note = f"{page * each:.1f} of {without * each:.0f} ms a second, {PAGES} pages of a run, a list"
    share = 100 * page / without
    yield Row(f"{kind}: CPU of the page's process to that of the runs", share, 3, "%", note)


def main() -> int:
    if sys.argv[1:2] == ["--writing"]:
        writing(*sys.argv[2:])
        return 0
    over = 0
    for row in rows(tuple(sys.argv[1:]) or ("waits", "models")):
        print(row, flush=True)
        over += not row.holds
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
