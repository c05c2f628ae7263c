"""The program that is killed: some 30 effects with a loop in a loop and parallel branches, each paid for in a ledger.

    program.py DB LEDGER [POSITION K]

DB is a file, or the URL of a PostgreSQL database. POSITION is before, in_txn or after (of the K-th commit of the journal), or paid (the K-th effect, after it was charged
and before its outcome is on record). Prints the result as JSON; dies by SIGKILL at the point.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    ScoreAtLeast,
    Usage,
    Workflow,
    parallel,
    run,
    step,
)
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.sqlite import SqliteJournal

PRICE = Usage(calls=1, usd=0.01)


class Ledger:
    """A provider's bill: one line per charged call, which no crash takes back."""

    def __init__(self, path: Path, position: str, point: int) -> None:
        self.path = path
        self.position = position
        self.point = point
        self.charged = 0

    def charge(self, ctx: Context) -> None:
        """Bill one call, and die after it if this is the one."""
        with self.path.open("a", encoding="utf-8") as bill:
            bill.write(f"{ctx.path}\n")
            bill.flush()
            os.fsync(bill.fileno())
        ctx.spend(PRICE)
        self.charged += 1
        if self.position == "paid" and self.charged == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def program(ledger: Ledger) -> Workflow:
    """Return the workflow: prepare, an outer loop of a parallel step and an inner loop, report."""

    def effect(name: str, make: Any) -> Any:
        async def act(value: Any, ctx: Context) -> Any:
            await asyncio.sleep(0)
            ledger.charge(ctx)
            return make(value, ctx)

        return step(act, name=name, reserve=PRICE)

    inner = Loop(
        effect("draft", lambda value, ctx: f"{value}.{ctx.iteration}"),
        effect("mark", lambda value, ctx: min(1.0, 0.4 * int(value[-1]))),
        effect("revise", lambda last, ctx: last.output),
        ScoreAtLeast(0.8) | MaxIterations(3),
        name="inner",
    )
    branches = parallel(
        effect("left", lambda value, ctx: f"L{ctx.iteration}"),
        effect("right", lambda value, ctx: f"R{ctx.iteration}"),
        name="branches",
    )
    body = Workflow("body", {"branches": branches, "inner": inner}, needs={})
    outer = Loop(
        body,
        effect("judge", lambda value, ctx: 0.3 * ctx.iteration),
        effect("adapt", lambda last, ctx: f"{last.input}+"),
        ScoreAtLeast(0.9) | MaxIterations(3),
        name="outer",
    )
    return Workflow(
        "program",
        {
            "prepare": effect("prepare", lambda value, ctx: f"<{value}>"),
            "outer": outer,
            "report": effect("report", lambda value, ctx: f"report on {value}"),
        },
        needs={"outer": ["prepare"], "report": ["outer"]},
    )


async def main(db: str, bill: str, position: str, point: int) -> None:
    """Run or resume the program and print its result."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            os.kill(os.getpid(), signal.SIGKILL)

    shared = db.startswith("postgres")
    journal = (PostgresJournal if shared else SqliteJournal)(db, on_point=on_point)
    ledger = Ledger(Path(bill), position, point)
    result = await run(program(ledger), "task", journal=journal, run_id="the-run")
    await journal.close()
    shown = result.to_json()
    for loop in [shown, *shown["loops"].values()]:
        for row in [loop, *loop.get("history", [])]:
            row.pop("seconds", None)  # time is what a crash may change
    for outcome in shown["outcomes"].values():
        outcome.pop("seconds")
    print(json.dumps(shown, sort_keys=True))


if __name__ == "__main__":
    position, point = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(sys.argv[1], sys.argv[2], position, point))
