"""A conversation that is killed: a carried prompt and a judge on scripted models, each call billed.

    conversation.py DB BILL [POSITION K]

POSITION is before, in_txn or after (of the K-th commit of the journal), asked (the K-th call was
billed and its answer never came) or paid (its answer is there and not on record). Prints the result
as JSON; dies by SIGKILL at the point.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, Passed, run
from loopwright.evaluators import judge
from loopwright.journal.sqlite import SqliteJournal
from loopwright.models import Models, Reply, Request, ScriptedModel
from loopwright.prompts import prompt

PRICES = {"worker": {"input": 1.0, "output": 2.0}, "judge": {"input": 3.0, "output": 4.0}}
VOTES = [("no", 20), ("yes", 60), ("no", 40), ("no", 50), ("yes", 80), ("yes", 90), ("yes", 85)]
SCRIPT: list[dict[str, Any]] = [
    {"step": "*/execute", "replies": ["one", "two", {"error": "transient"}, "three", "four"]},
    {
        "step": "*",
        "replies": [{"json": {"verdict": v, "score": s, "reason": f"{v} {s}"}} for v, s in VOTES],
    },
]


class Billed:
    """A scripted model with a bill: one line per call, with a digest of all that was said in it."""

    def __init__(self, bill: Path, position: str, point: int) -> None:
        self.script = ScriptedModel(SCRIPT)
        self.continued = self.script.continued
        self.bill, self.position, self.point = bill, position, point
        self.calls = 0

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        said = hashlib.sha256(json.dumps(request.to_json(), sort_keys=True).encode()).hexdigest()
        with self.bill.open("a", encoding="utf-8") as bill:
            bill.write(f"{request.path} {said[:12]}\n")
            bill.flush()
            os.fsync(bill.fileno())
        self.calls += 1
        self._die("asked")
        await asyncio.sleep(0)
        try:
            return await self.script.complete(request, on_text=on_text)
        finally:
            self._die("paid")

    def _die(self, position: str) -> None:
        if self.position == position and self.calls == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def talk() -> Loop:
    """Return the loop: a conversation of up to five rounds, two yes in the lead end it."""
    return Loop(
        prompt(
            "{% if loop.iteration == 1 %}Write.{% else %}{{ loop.last.feedback }}{% endif %}",
            model="openai:worker", carried=True,
        ),
        judge("It is good.", model="openai:judge", confirm=True, max_votes=3),
        until=Passed() | MaxIterations(5),
        name="talk",
        rejudge=1,
    )  # fmt: skip


async def main(db: str, bill: str, position: str, point: int) -> None:
    """Run or resume the conversation and print its result."""

    def on_point(where: str, count: int) -> None:
        if where == position and count == point:
            os.kill(os.getpid(), signal.SIGKILL)

    journal = SqliteJournal(db, on_point=on_point)
    models = Models(Billed(Path(bill), position, point), prices=PRICES, known_prices=False)
    result = await run(
        talk(), "task", journal=journal, run_id="the-run", resources={"models": models},
        random=lambda: 0.0,
    )  # fmt: skip
    await journal.close()
    shown = result.to_json()
    for loop in [shown, *shown["loops"].values()]:
        for row in [loop, *loop.get("history", [])]:
            row.pop("seconds", None)  # time is what a crash may change
    print(json.dumps(shown, sort_keys=True))


if __name__ == "__main__":
    position, point = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(sys.argv[1], sys.argv[2], position, point))
