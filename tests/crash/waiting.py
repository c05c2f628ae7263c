"""The program that is killed while it waits: a loop whose iterations each wait for an event, with a call before and after.

    waiting.py DB FOLDER [POSITION K]

POSITION is before, in_txn or after (of the K-th commit of the journal). It runs and leaves at each wait, sends the event
(twice, with one ID), and resumes, until the run has ended; prints its output. FOLDER holds the bill of the calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loopwright import Context, Loop, MaxIterations, Status, run
from loopwright import signal as send
from loopwright.journal.sqlite import SqliteJournal


def program(bill: Path) -> Loop:
    """Return the loop. The wait of its second iteration is for the first of two events."""

    def pay(value: Any, ctx: Context) -> str:
        with bill.open("a", encoding="utf-8") as notes:
            notes.write(f"{ctx.path}\n")
            notes.flush()
            os.fsync(notes.fileno())
        return f"paid {ctx.path}"

    async def execute(value: Any, ctx: Context) -> Any:
        before = await ctx.call("before", pay)
        both = {"other": {"event": "other"}, "go": {"event": "go", "key": "all"}}
        options: dict[str, Any] = (
            {"first_of": both} if ctx.iteration == 2 else {"event": "go", "key": "all"}
        )
        woken = await ctx.wait("wait", timeout="1h", **options)
        return [before, woken["which"], woken["value"], await ctx.call("after", pay)]

    return Loop(execute, name="waits", until=MaxIterations(3))


async def main(db: str, folder: str, position: str, point: int) -> None:
    """Run, send and resume until the run has ended."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            os.kill(os.getpid(), signal.SIGKILL)

    journal = SqliteJournal(db, on_point=on_point)
    loop = program(Path(folder) / "bill")
    while True:
        result = await run(loop, "task", journal=journal, run_id="the-run", on_wait="leave")
        if result.status is not Status.SUSPENDED:
            break
        number = sum(entry.kind == "waiting" for entry in await journal.entries("the-run"))
        for _ in range(2):
            await send("go", number, key="all", id=f"go-{number}", journal=journal)
    left = len(await journal.waits())
    await journal.close()
    print(json.dumps([result.reason, left, [item.output for item in result.history]]))


if __name__ == "__main__":
    position, point = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(sys.argv[1], sys.argv[2], position, point))
