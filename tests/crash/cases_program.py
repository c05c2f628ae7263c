"""The program that is killed while it evaluates: 300 cases, 16 at a time, each with a task and an evaluator that bill.

    cases_program.py DB FOLDER [POSITION K]

POSITION is before, in_txn or after (of the K-th commit of the journal). Prints the scores; FOLDER holds the bill.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loopwright import Context, Usage
from loopwright.datasets import Case, Dataset
from loopwright.evaluators import evaluate
from loopwright.journal.sqlite import SqliteJournal

CASES = 300
AT_ONCE = 16


async def main(db: str, folder: str, position: str, point: int) -> None:
    """Evaluate, and print the scores and what the journal has of the spending."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            os.kill(os.getpid(), signal.SIGKILL)

    bill = os.open(Path(folder) / "bill", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def task(number: int, ctx: Context) -> int:
        os.write(bill, f"{ctx.path}\n".encode())
        ctx.spend(Usage(calls=1))
        return number * number

    async def is_right(output: int, ctx: Context) -> dict[str, Any]:
        os.write(bill, f"{ctx.path}\n".encode())
        return {
            "score": 0.1 if output != ctx.case.expected else 1.0,
            "metrics": {"size": output / 7},
        }

    cases = Dataset(Case(n, n * n if n % 9 else 0, id=f"c{n}") for n in range(1, CASES + 1))
    journal = SqliteJournal(db, on_point=on_point, synchronous="normal")
    result = await evaluate(
        task, cases, is_right, at_once=AT_ONCE, journal=journal, run_id="the-run"
    )
    await journal.close()
    data = result.to_json()
    print(json.dumps([data.pop("usage")["calls"], data]))


if __name__ == "__main__":
    position, point = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(sys.argv[1], sys.argv[2], position, point))
