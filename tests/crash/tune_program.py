"""The program that is killed: a loop whose limits a person changes while it runs, and the request itself.

    tune_program.py FOLDER [POSITION:K …]

Of a run that is killed, the limits are raised in iteration 2 and lowered in iteration 4. Of a request that is
killed, the run is resumed afterwards. POSITION is `before`, `in_txn` or `after` the K-th commit of a process,
and with the prefix `request-` that of the process which requests. Without points, all are tried.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from loopwright import Budget, Context, Loop, MaxIterations, Usage, change_limits, run, step
from loopwright.journal.sqlite import SqliteJournal

POSITIONS = ("before", "in_txn", "after")
REQUEST = "request-"
_PRICE = Usage(calls=1)


def journal_of(folder: Path, position: str = "", point: int = 0) -> SqliteJournal:
    """Return the journal of a folder, which kills its process at a point."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return SqliteJournal(str(folder / "runs.db"), on_point=on_point)


async def once(folder: Path, position: str = "", point: int = 0, *, alone: bool = False) -> None:
    """Run or resume the loop and write how it ended; `alone` changes no limits in the run."""
    journal = journal_of(folder, position, point)

    async def request(ctx: Context, **limits: int) -> None:
        # A resumed step finds its request among the limits in force, as a person would.
        known = set(ctx.run.tuned.ids) if ctx.run.tuned else set()
        await change_limits("r", journal=journal, who="Ann", **limits)
        while ctx.run.tuned is None or ctx.run.tuned.ids <= known:
            await asyncio.sleep(0.005)

    async def work(value: int, ctx: Context) -> int:
        if alone and not (folder / "go").exists():
            ctx.ask("sure", {"kind": "free"}, "it waits while the limits are requested")
        elif value == 2 and not alone:
            await request(ctx, max_iterations=9, max_calls=8)
        elif value == 4 and not alone:
            await request(ctx, max_iterations=5)
        with (folder / "bill").open("a") as bill:
            bill.write(f"{ctx.path}\n")
        ctx.spend(_PRICE)
        return value + 1

    loop = Loop(
        step(work, reserve=lambda _: _PRICE),
        adapt=lambda last: last.output,
        until=MaxIterations(3),
        name="paced",
    )
    budget = Budget(calls=20 if alone else 3)
    result = await run(loop, 1, journal=journal, run_id="r", budget=budget, in_doubt="rerun")
    shown = await change_limits("r", journal=journal)
    await journal.close()
    limits = {row.key: row.limit for row in shown.limits}
    rows = [(item.number, item.output) for item in result.history]
    calls = result.usage.calls
    (folder / "result.json").write_text(json.dumps([result.reason.value, rows, limits, calls]))


async def asked(folder: Path, position: str = "", point: int = 0) -> None:
    """Request two limits of the suspended run in one request."""
    journal = journal_of(folder, position, point)
    await change_limits("r", journal=journal, max_iterations=2, max_calls=9, who="Ann")
    await journal.close()


def in_child(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Do work in a child, which has our imports already; return its exit status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(work())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_run(folder: Path, position: str, point: int) -> str | None:
    """Kill the tuned run at a point and resume it; return "" or what is wrong, None without such a point."""
    code = in_child(lambda: once(folder, position, point))
    if code == 0 and position:
        return None
    if position and (code != -signal.SIGKILL or in_child(lambda: once(folder)) != 0):
        return "it did not end as expected"
    reason, rows, limits, calls = json.loads((folder / "result.json").read_text())
    bill = (folder / "bill").read_text().split()
    if (reason, rows) != ("max_iterations", [[n, n + 1] for n in range(1, 6)]):
        return f"it ended by {reason} after {rows}"
    if limits != {"max_iterations": 5, "max_calls": 8}:
        return f"the limits are {limits}"
    # The call in flight at the kill may be paid again, and is counted then.
    if not 5 <= len(bill) <= calls <= 6 or len(set(bill)) != 5:
        return f"{calls} calls are counted, and paid were {bill}"
    return ""


def killed_request(folder: Path, position: str, point: int) -> str | None:
    """Kill the process that requests; then the run has all limits of the request, or none."""
    assert in_child(lambda: once(folder, alone=True)) == 0
    code = in_child(lambda: asked(folder, position, point))
    if code == 0:
        return None
    (folder / "go").touch()
    if code != -signal.SIGKILL or in_child(lambda: once(folder, alone=True)) != 0:
        return "it did not end as expected"
    _, rows, limits, calls = json.loads((folder / "result.json").read_text())
    if limits not in (
        {"max_iterations": 3, "max_calls": 20},
        {"max_iterations": 2, "max_calls": 9},
    ):
        return f"the limits are {limits}"
    if position == "after" and limits["max_calls"] != 9:
        return "the request is lost"
    if len(rows) != limits["max_iterations"] or calls != len(rows):
        return f"{len(rows)} iterations and {calls} calls with the limits {limits}"
    return ""


def main(root: Path, points: list[tuple[str, int]]) -> int:
    """Try the points, by default all; print a line for each that fails."""
    undisturbed = root / "undisturbed"
    undisturbed.mkdir(parents=True)
    assert killed_run(undisturbed, "", 0) == ""
    every = [prefix + name for prefix in ("", REQUEST) for name in POSITIONS]
    failures, ended, tried = [], set(), 0
    for name, point in points or [(name, k) for name in every for k in range(1, 200)]:
        if name in ended:
            continue
        folder = root / f"{name}-{point}"
        folder.mkdir()
        killed = killed_request if name.startswith(REQUEST) else killed_run
        wrong = killed(folder, name.removeprefix(REQUEST), point)
        if wrong is None:
            ended.add(name)
        else:
            tried += 1
            failures += [f"{name} {point}: {wrong}"] if wrong else []
    print("\n".join([f"{tried} points", *failures]))
    return bool(failures)


if __name__ == "__main__":
    pairs = [text.split(":") for text in sys.argv[2:]]
    sys.exit(main(Path(sys.argv[1]), [(name, int(k)) for name, k in pairs]))
