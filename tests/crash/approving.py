"""The program that is killed while people are asked: a loop that asks between its rounds and at its limit,
with a payment that needs approval and may not be made twice.

    approving.py DB FOLDER [POSITION K]

POSITION is before, in_txn or after (of the K-th commit of the journal), or paid (the K-th payment, once it is
made and before its outcome is on record). Runs, answers what is asked, and resumes, until the run has ended;
prints its output. FOLDER holds the bill, and which questions it has answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loopwright import Context, Loop, MaxIterations, Status, parallel, run, step
from loopwright.journal.questions import Question, answer, pending
from loopwright.journal.sqlite import SqliteJournal


class World:
    """What no crash takes back: payments made and questions answered, a line each."""

    def __init__(self, folder: Path, position: str, point: int) -> None:
        self.folder = folder
        self.position = position
        self.point = point
        self.payments = 0

    def note(self, file: str, line: str) -> None:
        """Append a line that survives the loss of the process."""
        with (self.folder / file).open("a", encoding="utf-8") as notes:
            notes.write(f"{line}\n")
            notes.flush()
            os.fsync(notes.fileno())

    def noted(self, file: str) -> list[str]:
        """Return the lines of a file, none if it is not there."""
        path = self.folder / file
        return path.read_text(encoding="utf-8").split() if path.exists() else []


def program(world: World) -> Loop:
    """Return the loop: two branches that need approval, one of which pays."""

    async def send(value: Any, ctx: Context) -> str:
        world.note("bill", ctx.path)
        world.payments += 1
        if world.position == "paid" and world.payments == world.point:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {ctx.path}"

    async def pay(value: Any, ctx: Context) -> Any:
        said = ctx.ask("sure", {"kind": "tool", "tool": "pay", "arguments": {}}, "pay?")
        return await ctx.call("send", step(send, idempotent=False), said["arguments"])

    async def name(value: Any, ctx: Context) -> Any:
        return ctx.ask("name", {}, "what is it called?")

    both = parallel(step(pay), step(name), name="both")
    return Loop(
        both, adapt=lambda last: last.output, name="refine", until=MaxIterations(2),
        approve=("iteration", "limit"),
    )  # fmt: skip


def reply(question: Question, world: World) -> Any:
    """Return what a person answers: yes with an edit; a payment in doubt is looked up in the bill."""
    if question.kind == "doubt":
        made = question.path in world.noted("bill")
        return {"output": f"paid {question.path}"} if made else "rerun"
    if question.kind == "tool":
        return {"approve": True, "arguments": {"sum": 3}}
    if question.kind == "iteration":
        return {"approve": True, "output": f"edited after {question.path}"}
    if question.kind == "limit":
        return {"approve": not question.path.startswith("refine/3"), "reason": "enough"} | (
            {"more": 1} if not question.path.startswith("refine/3") else {}
        )
    return f"answer to {question.path}"


async def main(db: str, folder: str, position: str, point: int) -> None:
    """Run, answer and resume until the run has ended."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            os.kill(os.getpid(), signal.SIGKILL)

    journal = SqliteJournal(db, on_point=on_point)
    world = World(Path(folder), position, point)
    while True:
        result = await run(program(world), "task", journal=journal, run_id="the-run")
        if result.status is not Status.SUSPENDED:
            break
        for question in await pending(journal, "the-run"):
            given = reply(question, world)
            if question.kind == "limit" and given["approve"]:
                given.pop("reason")
            await answer(journal, "the-run", question.path, given)
            world.note("answers", f"{question.kind}:{question.path}")
    await journal.close()
    print(json.dumps([result.reason, result.output, [item.output for item in result.history]]))


if __name__ == "__main__":
    position, point = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(sys.argv[1], sys.argv[2], position, point))
