"""A model with tools: asked, its calls made, told what they returned, asked again, until it answers.

Rules:

1. Every attempt at the model and every call of a tool is an effect of its own, at
   `name/round-2/attempt-1` and `name/round-2/call-1`, so a resumed run repeats none of them.
2. The calls of one reply run at the same time, and the model is told of them in its own order. One
   that waits for a person does not cut off the others.
3. A tool that is unknown, arguments that do not fit and whatever a tool raises are told to the
   model; they end nothing.
4. The calls of the last permitted reply are not made, and the conversation says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..engine.concurrency import run_all
from ..engine.context import Context
from ..errors import ConfigurationError, nearest
from ..models import Message, Reply, Request, Target, ToolCall, call_model
from ..records import NOTHING, Usage, codec
from ..records.codec import Json
from ..tools.base import Tool, call_tool, error_of, message_of
from ..tools.function import as_tool

__all__ = ["MAX_ROUNDS", "call_with_tools", "tools_of"]

MAX_ROUNDS = 8


async def call_with_tools(
    ctx: Context,
    name: str,
    request: Request,
    tools: Sequence[Any],
    *,
    max_rounds: int = MAX_ROUNDS,
    on_text: Callable[[str], None] | None = None,
    failover: Sequence[Target] = (),
) -> dict[str, Json]:
    """Ask a model that may call tools, until a reply calls none or `max_rounds` replies were had.

    Args:
        ctx: the context of the step that asks.
        name: what the conversation is called in the journal; "" for the step's own path.
        request: the question; its `tools` are filled in.
        tools: functions, tools and sets of tools such as MCP servers.
        max_rounds: how many replies at most; the calls of the last one are not made.
        on_text: called with text as it comes.
        failover: endpoints to go on with, in order.

    Returns the last reply as JSON (see Reply.to_json) with
        `messages`: the whole conversation including this reply, as JSON (see Message.to_json);
        `tool_calls`: every call that was asked for, `{"tool", "arguments", "output"}` or with
            `"error": {"kind", "message"}` in place of `output`;
        `rounds`: how many replies; `attempts`: how many attempts they took;
        `usage`: of all of them; `limit_reached`: whether the last reply still wanted calls.

    Raises:
        ModelError: when nothing is left to try.
        Suspended: while a person has not approved a call, or one was in flight at a crash.
        ConfigurationError: if two tools have one name, or the run has no models.
    """
    codec.whole("max_rounds", max_rounds, least=1)
    known = await tools_of(ctx, tools)
    described = tuple(one.described() for one in known.values())
    talk = _Talk(ctx, f"{name}/" if name else "", known)
    messages, made = list(request.messages), talk.made
    usage, attempts, number = NOTHING, 0, 0
    while True:
        number += 1
        asked = replace(request, messages=tuple(messages), tools=described)
        path = f"{talk.prefix}round-{number}"
        reply = await call_model(ctx, path, asked, failover=failover, on_text=on_text)
        answer = Reply.from_json(reply)
        usage += answer.usage
        attempts += int(reply["attempts"])
        messages.append(answer.message())
        if not answer.tool_calls:
            break
        more = number < max_rounds
        messages += await talk.answer(number, answer.tool_calls, made=more)
        if not more:
            break
    return _told(reply, messages, made=made, number=number, attempts=attempts, usage=usage)


def _told(
    reply: dict[str, Json],
    messages: list[Message],
    made: list[Json],
    number: int,
    attempts: int,
    usage: Usage,
) -> dict[str, Json]:
    return {
        **reply,
        "messages": [message.to_json() for message in messages],
        "limit_reached": bool(reply.get("tool_calls")),
        "tool_calls": made,
        "rounds": number,
        "attempts": attempts,
        "usage": usage.to_json(),
    }


class _Talk:
    """The calls of one conversation: `made` are those that were asked for so far."""

    def __init__(self, ctx: Context, prefix: str, known: dict[str, Tool]) -> None:
        self.ctx = ctx
        self.prefix = prefix
        self.known = known
        self.made: list[Json] = []

    async def answer(self, number: int, calls: Sequence[ToolCall], *, made: bool) -> list[Message]:
        """Make the calls of a reply, or refuse them, and return what the model is told of each."""
        if made:
            told = await run_all(
                [functools.partial(self._call, f"{number}/call-{n}", c) for n, c in _counted(calls)]
            )
        else:
            limit = error_of("limit", f"not made: {number} rounds are all that there are")
            told = [{"tool": c.name, "arguments": c.arguments, **limit} for c in calls]
        self.made += told
        return [
            Message("tool", message_of(one), call_id=call.id, name=call.name)
            for call, one in zip(calls, told, strict=True)
        ]

    async def _call(self, place: str, call: ToolCall) -> dict[str, Json]:
        tool = self.known.get(call.name)
        if tool is None:
            names = ", ".join(self.known) or "none"
            hint = nearest(call.name, self.known)
            why = f"there is no tool {call.name!r}{hint}; there are: {names}"
            return {"tool": call.name, "arguments": call.arguments, **error_of("unknown_tool", why)}
        # A call without arguments comes as null from some endpoints.
        arguments = {} if call.arguments is None else call.arguments
        return await call_tool(self.ctx, f"{self.prefix}round-{place}", tool, arguments)


def _counted(calls: Sequence[ToolCall]) -> list[tuple[int, ToolCall]]:
    return list(enumerate(calls, 1))


async def tools_of(ctx: Context, given: Sequence[Any]) -> dict[str, Tool]:
    """Return tools by the name that a model calls: those of sets are found now.

    Where a tool of a set has the name of another, it is called `set__tool`.

    Raises:
        StepError: if a set's tools cannot be found.
        ConfigurationError: if two tools have one name all the same.
    """
    found: list[tuple[str, Tool]] = []
    for thing in (as_tool(one) for one in given):
        if isinstance(thing, Tool):
            found.append(("", thing))
        else:
            found += [(thing.name, one) for one in await thing.tools(ctx)]
    names = [one.name for _, one in found]
    known: dict[str, Tool] = {}
    for owner, one in found:
        tool = one.renamed(f"{owner}__{one.name}") if owner and names.count(one.name) > 1 else one
        if tool.name in known:
            raise ConfigurationError(
                f"{ctx.path}: tools: two are called {tool.name!r}; give one another name"
            )
        known[tool.name] = tool
    return known
