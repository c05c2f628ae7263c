"""An agent that is killed: phases with tools, one of a server, one that a person must approve.

    agent.py DB BILL [POSITION K]

POSITION is before, in_txn or after (of the K-th commit of the journal), called (the K-th call of a
tool begins to act) or done (it has acted, and that is not on record). A question is answered as a
careful person would: a call is approved, and of a call in doubt the bill says what it returned.
Prints the result as JSON; dies by SIGKILL at the point.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loopwright import PhasedAgent, run
from loopwright.journal.questions import answer, pending
from loopwright.journal.sqlite import SqliteJournal
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import prompt
from loopwright.records import Status
from loopwright.tools import mcp_server, tool

SERVER = Path(__file__).parents[1] / "tools" / "misbehaving.py"
SCRIPT: list[dict[str, Any]] = [
    {"step": "*planning*", "replies": ["the plan"]},
    {
        "step": "*execution*",
        "replies": [
            {"tool_calls": [{"name": "look", "arguments": {"n": 1}}, {"name": "send", "arguments": {"n": 2}}]},
            {"tool_calls": [{"name": "echo", "arguments": {"text": "three"}}]},
            "first result",
            {"tool_calls": [{"name": "pay", "arguments": {"n": 4}}, {"name": "look", "arguments": {"n": 5}}]},
            "second result",
        ],
    },
    {"step": "*refinement*", "replies": ["the answer"]},
]  # fmt: skip


class Bill:
    """What was done to the world: one line per call of a tool, which no crash takes back."""

    def __init__(self, file: Path, position: str, point: int) -> None:
        self.file, self.position, self.point = file, position, point
        self.calls = 0

    def act(self, name: str, number: int) -> str:
        self.calls += 1
        self._die("called")
        with self.file.open("a", encoding="utf-8") as lines:
            lines.write(f"{name} {number}\n")
            lines.flush()
            os.fsync(lines.fileno())
        self._die("done")
        return f"{name} did {number}"

    def said(self, name: str, arguments: Any) -> Any:
        """Return how a person answers for a call in doubt: by what it did, if it did it."""
        if name == "echo":
            served = Path(f"{self.file}.served")
            seen = served.exists() and "call echo" in served.read_text()
            return {"output": {"output": "three"}} if seen else "rerun"
        number = arguments["n"]
        done = self.file.exists() and f"{name} {number}" in self.file.read_text().splitlines()
        return {"output": {"output": f"{name} did {number}"}} if done else "rerun"

    def _die(self, position: str) -> None:
        if self.position == position and self.calls == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def agent(bill: Bill) -> PhasedAgent:
    """Return the agent: a plan, two iterations of execution with tools, an answer."""

    @tool(idempotent=True)
    async def look(n: int) -> str:
        return bill.act("look", n)

    @tool
    async def send(n: int) -> str:
        return bill.act("send", n)

    @tool(approve=True)
    async def pay(n: int) -> str:
        return bill.act("pay", n)

    command = [
        sys.executable,
        "-I",
        str(SERVER),
        "--tools",
        "echo",
        "--count",
        f"{bill.file}.served",
    ]
    return PhasedAgent(
        prompt("Plan {{ task }}.", model="openai:m"),
        prompt("Do {{ plan }}.", model="openai:m"),
        prompt("Answer {{ results }}.", model="openai:m"),
        max_planning_iterations=1, max_execution_iterations=2, max_refinement_iterations=1,
        tools=[look, send, pay, mcp_server("desk", command)],
    )  # fmt: skip


CALLS = {
    "round-1/call-2": ("send", {"n": 2}),
    "round-2/call-1": ("echo", {}),
    "pay": ("pay", {"n": 4}),
}


async def main(db: str, bill: Bill) -> None:
    """Run or resume the agent, answering what it asks, and print its result."""

    def on_point(where: str, count: int) -> None:
        if where == bill.position and count == bill.point:
            os.kill(os.getpid(), signal.SIGKILL)

    journal = SqliteJournal(db, on_point=on_point)
    models = Models(ScriptedModel(SCRIPT), known_prices=False)
    while True:
        result = await run(
            agent(bill), "task", journal=journal, run_id="the-run", resources={"models": models}
        )
        if result.status is not Status.SUSPENDED:
            break
        for question in await pending(journal, "the-run"):
            given: Any = {"approve": True}
            if question.kind == "doubt":
                known = [v for k, v in CALLS.items() if question.path.endswith(k)] or [CALLS["pay"]]
                given = bill.said(*known[0])
            await answer(journal, "the-run", question.path, given)
    await journal.close()
    shown = result.to_json()
    for loop in [shown, *shown["loops"].values()]:
        for row in [loop, *loop.get("history", [])]:
            row.pop("seconds", None)  # time is what a crash may change
    print(json.dumps(shown, sort_keys=True))


if __name__ == "__main__":
    place, point = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(sys.argv[1], Bill(Path(sys.argv[2]), place, point)))
