"""A conversation with a model that calls tools, until it answers.

Rules:

1. Every attempt and every tool call is a separate effect, at
   `name/round-2/attempt-1` and `name/round-2/call-1`, so a resumed run repeats none of them.
2. The calls of one reply run at the same time; the model gets the results in the order of its calls. A
   call that waits for approval does not stop the others.
3. Unknown tools, invalid arguments and errors of a tool are results for the model; they do not end the
   conversation.
4. The calls of the last permitted reply are not made, and the conversation says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..engine.concurrency import run_all
from ..engine.context import Context
from ..engine.text_listeners import OnText
from ..errors import ConfigurationError, nearest
from ..models import Message, Reply, Request, Target, ToolCall, call_model
from ..records import NOTHING, codec
from ..records.codec import Json
from ..tools.base import Tool, call_tool, error_of, message_of
from ..tools.function import as_tool

__all__ = ["MAX_ROUNDS", "OnResults", "call_with_tools", "tools_of"]

MAX_ROUNDS = 8
OnResults = Callable[[Sequence[Message]], object]


async def call_with_tools(
    ctx: Context,
    name: str,
    request: Request,
    tools: Sequence[Any],
    *,
    max_rounds: int = MAX_ROUNDS,
    on_text: OnText | None = None,
    failover: Sequence[Target] = (),
    judge: bool = False,
    on_results: OnResults | None = None,
) -> dict[str, Json]:
    """Call a model with tools until a reply calls none, or for at most `max_rounds` replies.

    Args:
        ctx: the context of the calling step.
        name: the name of the conversation in the journal; "" for the path of the step.
        request: the request; its `tools` are filled in.
        tools: functions, tools and sets of tools such as MCP servers.
        max_rounds: the highest number of replies; the calls of the last one are not made. Default 8.
        on_text: receives text as it arrives; default none.
        failover: other endpoints to try, in order; default none.
        judge: whether the model is a judge; see `call_model`. Default False.
        on_results: receives the results of calls before the model does; default none.

    Returns:
        The last reply as JSON (see Reply.to_json) with
        `messages`: the conversation including this reply, as JSON (see Message.to_json);
        `tool_calls`: every requested call, `{"tool", "arguments", "output"}` or with
            `"error": {"kind", "message"}` in place of `output`;
        `rounds`: the number of replies; `attempts`: the number of attempts;
        `usage`: the total; `limit_reached`: whether the last reply still requests calls.

    Raises:
        ModelError: when nothing is left to try.
        Suspended: while a call waits for approval, or was in progress during a crash.
        ConfigurationError: if two tools have the same name, or the run has no models.
    """
    codec.integer("max_rounds", max_rounds, minimum=1)
    known = await tools_of(ctx, tools)
    described = tuple(one.described() for one in known.values())
    conversation = _ToolConversation(ctx, f"{name}/" if name else "", known)
    messages, made = list(request.messages), conversation.made
    usage, attempts, number = NOTHING, 0, 0
    while True:
        number += 1
        asked = replace(request, messages=tuple(messages), tools=described)
        path = f"{conversation.prefix}round-{number}"
        reply = await call_model(ctx, path, asked, failover=failover, on_text=on_text, judge=judge)
        answer = Reply.from_json(reply)
        usage += answer.usage
        attempts += int(reply["attempts"])
        messages.append(answer.message())
        if not answer.tool_calls:
            break
        more = number < max_rounds
        results = await conversation.answer(number, answer.tool_calls, made=more)
        if on_results is not None:
            on_results(results)
        messages += results
        if not more:
            break
    return {
        **reply,
        "messages": [message.to_json() for message in messages],
        "limit_reached": bool(reply.get("tool_calls")),
        "tool_calls": made,
        "rounds": number,
        "attempts": attempts,
        "usage": usage.to_json(),
    }


class _ToolConversation:
    """The tool calls of one conversation; `made` are the requested calls and their results."""

    def __init__(self, ctx: Context, prefix: str, known: dict[str, Tool]) -> None:
        self.ctx = ctx
        self.prefix = prefix
        self.known = known
        self.made: list[Json] = []

    async def answer(self, number: int, calls: Sequence[ToolCall], *, made: bool) -> list[Message]:
        """Make or refuse the calls of a reply, and return a message for each result."""
        if made:
            told = await run_all(
                [functools.partial(self._call, f"{number}/call-{n}", c) for n, c in _counted(calls)]
            )
        else:
            # A resumed run compares this text with the recorded request, so it must not change.
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
        # Some endpoints send null for a call without arguments.
        arguments = {} if call.arguments is None else call.arguments
        return await call_tool(self.ctx, f"{self.prefix}round-{place}", tool, arguments)


def _counted(calls: Sequence[ToolCall]) -> list[tuple[int, ToolCall]]:
    return list(enumerate(calls, 1))


async def tools_of(ctx: Context, given: Sequence[Any]) -> dict[str, Tool]:
    """Return tools by name, including the current tools of each set.

    If two tools have the same name, those of a set are renamed to `set__tool`.

    Raises:
        StepError: if the tools of a set cannot be listed.
        ConfigurationError: if two tools still have the same name.
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
