"""Tools: many agents at once with tools each, beside plain code that makes the same calls."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopwright import run
from loopwright.agents import call_with_tools
from loopwright.engine.step import CompositeStep
from loopwright.journal.sqlite import SqliteJournal
from loopwright.models import Message, Models, Reply, Request, ToolCall
from loopwright.records import Reason, Result, Status, Usage
from loopwright.tools import tool

from .measuring import Row, by_turns, wall

AGENTS, LATENCY, TOOL = 100, 0.3, 0.05  # seconds of a reply of a fast model, and of a tool
ASKED = tuple(ToolCall(f"c{n}", name, {"n": n}) for n, name in enumerate(("one", "two", "three")))


class Client:
    """A model that first wants its three tools and then answers, each after its latency."""

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        await asyncio.sleep(LATENCY)
        told = any(message.role == "tool" for message in request.messages)
        calls = () if told else ASKED
        text = "done" if told else ""
        return Reply(text, usage=Usage(1, 5, 5), tool_calls=calls, model="m", provider="openai")


def _tool(name: str) -> Any:
    async def wait(n: int) -> int:
        await asyncio.sleep(TOOL)
        return n

    wait.__name__ = name
    return wait


FUNCTIONS = {name: _tool(name) for name in ("one", "two", "three")}
REQUEST = Request((Message("user", "go"),), "m", "openai")


class Fan(CompositeStep):
    """A step of all agents at once."""

    required, name, fingerprint = False, "fan", "fan"

    def __init__(self) -> None:
        self.tools = [tool(function) for function in FUNCTIONS.values()]

    async def run(self, value: Any, ctx: Any) -> Result:
        del value
        await asyncio.gather(
            *(call_with_tools(ctx, f"agent-{n}", REQUEST, self.tools) for n in range(AGENTS))
        )
        return Result(Status.SATISFIED, Reason.COMPLETED, "", None, name=self.name)


async def _ours(journal: Any = None) -> None:
    models = Models(Client(), known_prices=False)
    await run(Fan(), resources={"models": models}, journal=journal)


async def _kept(file: Path) -> None:
    journal = SqliteJournal(file)
    try:
        await _ours(journal)
    finally:
        await journal.close()


async def _bare() -> None:
    """Make the same calls with the same client and nothing else."""
    client = Client()

    async def agent() -> None:
        messages = list(REQUEST.messages)
        first = await client.complete(REQUEST)
        told = await asyncio.gather(*(FUNCTIONS[c.name](**c.arguments) for c in first.tool_calls))
        messages += [first.message()]
        for call, one in zip(first.tool_calls, told, strict=True):
            messages.append(Message("tool", str(one), call_id=call.id, name=call.name))
        await client.complete(Request(tuple(messages), "m", "openai"))

    await asyncio.gather(*(agent() for _ in range(AGENTS)))


def rows() -> Iterator[Row]:
    """Give the figures."""
    for what, work, bound in (("", _ours, 1.2), (", with a journal in SQLite", None, None)):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", ".")) as scratch:
            files = (Path(scratch) / f"{number}.db" for number in itertools.count())
            bare, ours, ratio = by_turns(
                lambda: asyncio.run(_bare()),
                lambda work=work, files=files: asyncio.run(work() if work else _kept(next(files))),
                rounds=5,
                clock=wall,
            )
        note = f"{bare * 1000:.0f} ms bare, {ours * 1000:.0f} ms ours; {LATENCY:g} s a reply"
        yield Row(f"{AGENTS} agents with 3 tools each{what}", ratio, bound, note=note)


if __name__ == "__main__":
    for row in rows():
        print(row)
