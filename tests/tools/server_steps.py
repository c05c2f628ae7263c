"""Servers of the tests, and a step that calls their tools."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loopwright import Context, MemoryJournal, Result, run
from loopwright.engine.step import CompositeStep
from loopwright.journal import Entry, RunInfo
from loopwright.prompts.tool_prompt import tools_of
from loopwright.records import Reason, Status
from loopwright.records.codec import Json
from loopwright.tools import McpServer, call_tool, mcp_server

HERE = Path(__file__).parent
NPM = HERE.parent / "npm" / "node_modules" / ".bin"


def misbehaving(*options: str, **more: Any) -> McpServer:
    """Declare the misbehaving server with these options."""
    command = [sys.executable, "-I", str(HERE / "misbehaving.py"), *options]
    return mcp_server("odd", command, **{"start_timeout": 10.0, **more})


class Calls(CompositeStep):
    """A step that calls tools one after the other and returns how each call ended."""

    name = "calls"
    fingerprint = "calls"

    def __init__(self, server: Any, calls: Sequence[tuple[str, Any]]) -> None:
        self.server = server
        self.calls = calls

    async def run(self, value: Json, ctx: Context) -> Result:
        known = await tools_of(ctx, [self.server])
        told = [
            await call_tool(ctx, f"call-{number}", known[name], given)
            for number, (name, given) in enumerate(self.calls, 1)
        ]
        return Result(Status.SATISFIED, Reason.COMPLETED, "called", told, name=self.name)


def call(server: Any, *calls: tuple[str, Any], journal: Any = None, **options: Any) -> Result:
    """Run calls of a server's tools."""
    store = journal or MemoryJournal()
    return asyncio.run(run(Calls(server, calls), journal=store, run_id="r", **options))


def answer(journal: Any, path: str, value: Json) -> None:
    """Put a person's answer on record, as `loopwright approve` does."""

    async def put() -> None:
        log = await journal.open(RunInfo("r", "calls"), resume=True)
        log.append(Entry("answered", path, 0.0, value=value))
        await log.close(log.info)

    asyncio.run(put())


def lives(pid: int) -> bool:
    """Whether a process is there, other than as one that nobody waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
