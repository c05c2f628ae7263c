"""A step that lets a scripted model call tools, and what a run of it left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from loopwright import Context, MemoryJournal, Result, run
from loopwright.agents import call_with_tools
from loopwright.engine.step import CompositeStep
from loopwright.journal import Entry, RunInfo
from loopwright.models import Message, Models, Request, ScriptedModel
from loopwright.records import Reason, Status
from loopwright.records.codec import Json


class Conversation(CompositeStep):
    """A step that asks a question with tools and returns all that it was told."""

    name = "talk"
    fingerprint = "talk"

    def __init__(self, tools: Sequence[Any], **options: Any) -> None:
        self.tools = tools
        self.options = options

    async def run(self, value: Json, ctx: Context) -> Result:
        request = Request((Message("user", str(value)),), model="gpt-4o", provider="openai")
        told = await call_with_tools(ctx, "agent", request, self.tools, **self.options)
        return Result(Status.SATISFIED, Reason.COMPLETED, "talked", told, name=self.name)


def wants(*calls: tuple[str, Any]) -> dict[str, Any]:
    """Return a scripted reply that asks for these calls."""
    return {"tool_calls": [{"name": name, "arguments": given} for name, given in calls]}


def talk(
    tools: Sequence[Any],
    replies: Sequence[Any],
    journal: Any = None,
    value: Json = "go",
    resources: dict[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Run a conversation in a fresh process, as far as anything in memory goes."""
    models = Models(ScriptedModel([{"replies": list(replies)}]))
    step = Conversation(tools, **options)
    given = {"models": models, **(resources or {})}
    return asyncio.run(
        run(step, value, journal=journal or MemoryJournal(), run_id="r", resources=given)
    )


def answer(journal: Any, path: str, value: Json) -> None:
    """Put a person's answer on record, as `loopwright approve` does."""

    async def put() -> None:
        log = await journal.open(RunInfo("r", "talk"), resume=True)
        log.append(Entry("answered", path, 0.0, value=value))
        await log.close(log.info)

    asyncio.run(put())


def entries(journal: Any, kind: str = "finished") -> list[str]:
    """Return the paths of entries of a kind, in order."""

    async def read() -> list[Entry]:
        log = await journal.open(RunInfo("r", "talk"), resume=True)
        found = list(log.recorded)
        await log.close(log.info)
        return found

    return [entry.path for entry in asyncio.run(read()) if entry.kind == kind]
