"""A conversation with a model that calls tools, until it answers.

Rules:

1. Every attempt and every tool call is a separate effect, at
   `name/round-2/attempt-1` and `name/round-2/call-1`, so a resumed run repeats none of them.
2. The calls of one reply run at the same time. The model receives the results in the order of its calls. A
   call that waits for approval does not stop the others.
3. Unknown tools, invalid arguments and errors of a tool are results for the model. They do not end the
   conversation.
4. The calls of the last permitted reply are not executed. Their results say so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..engine.composites import run_all
from ..engine.context import Context
from ..engine.run_record import OnText
from ..errors import ConfigurationError, nearest
from ..models import Message, Reply, Request, Target, ToolCall, call_model
from ..records import NOTHING, codec
from ..records.codec import Json
from ..tools.base import Tool, call_tool, error_of, message_of
from ..tools.function import as_tool

__all__ = ["MAX_ROUNDS", "OnResults", "call_with_tools", "tools_of"]

MAX_ROUNDS = 8  # enough for usual tasks; it bounds the cost of a model that never answers
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
        ctx: The context of the calling step.
        name: The name of the conversation in the journal. "" stands for the path of the step.
        request: The request, whose `tools` are set here.
        tools: Functions, tools and sets of tools such as MCP servers.
        max_rounds: The maximum of replies. The calls of the last one are not executed. Default: 8.
        on_text: Receives text as it arrives. Default: none.
        failover: Other endpoints to try, in order. Default: none.
        judge: Whether the model is a judge, see `call_model`. Default: False.
        on_results: Receives the results of calls before the model does. Default: none.

    Returns:
        The last reply as JSON (see Reply.to_json) with
        `messages`: the conversation including this reply, as JSON (see Message.to_json);
        `tool_calls`: every requested call, with `tool`, `arguments`, and `output` or `error`;
        `rounds`: the number of replies; `attempts`: the number of attempts;
        `usage`: the total; `limit_reached`: whether the last reply still requests calls.

    Raises:
        ModelError: If no model and no attempt is left.
        Suspended: While a call waits for approval, or was in progress during a crash.
        ConfigurationError: If two tools have the same name, or the run has no models.
    """
    codec.integer("max_rounds", max_rounds, minimum=1)
    available = await tools_of(ctx, tools)
    described = tuple(one.described() for one in available.values())
    conversation = _ToolConversation(ctx, f"{name}/" if name else "", available)
    messages, calls = list(request.messages), conversation.calls
    usage, attempts, number = NOTHING, 0, 0
    while True:
        number += 1
        round_request = replace(request, messages=tuple(messages), tools=described)
        path = f"{conversation.prefix}round-{number}"
        reply = await call_model(
            ctx, path, round_request, failover=failover, on_text=on_text, judge=judge
        )
        answer = Reply.from_json(reply)
        usage += answer.usage
        attempts += int(reply["attempts"])
        messages.append(answer.message())
        if not answer.tool_calls:
            break
        # The last reply gets results too: providers refuse a request with unanswered calls.
        more = number < max_rounds
        results = await conversation.answer(number, answer.tool_calls, execute=more)
        # Before the model sees the results, so that the caller can record them even if the next call fails.
        if on_results is not None:
            on_results(results)
        messages += results
        if not more:
            break
    return {
        **reply,
        "messages": [message.to_json() for message in messages],
        "limit_reached": bool(reply.get("tool_calls")),
        "tool_calls": calls,
        "rounds": number,
        "attempts": attempts,
        "usage": usage.to_json(),
    }


class _ToolConversation:
    """The tool calls of one conversation. `calls` are the requested calls with their results."""

    def __init__(self, ctx: Context, prefix: str, tools: dict[str, Tool]) -> None:
        self.ctx = ctx
        self.prefix = prefix
        self.tools = tools
        self.calls: list[Json] = []

    async def answer(
        self, number: int, calls: Sequence[ToolCall], *, execute: bool
    ) -> list[Message]:
        """Execute or refuse the calls of a reply, and return a message for each result."""
        if execute:
            results = await run_all(
                [functools.partial(self._call, f"{number}/call-{n}", c) for n, c in _counted(calls)]
            )
        else:
            # This text is part of the next request, which a resumed run compares with the record.
            limit = error_of("limit", f"not made: {number} rounds are all that there are")
            results = [{"tool": c.name, "arguments": c.arguments, **limit} for c in calls]
        self.calls += results
        return [
            Message("tool", message_of(one), call_id=call.id, name=call.name)
            for call, one in zip(calls, results, strict=True)
        ]

    async def _call(self, place: str, call: ToolCall) -> dict[str, Json]:
        tool = self.tools.get(call.name)
        if tool is None:
            names = ", ".join(self.tools) or "none"
            hint = nearest(call.name, self.tools)
            why = f"there is no tool {call.name!r}{hint}; there are: {names}"
            return {"tool": call.name, "arguments": call.arguments, **error_of("unknown_tool", why)}
        # Some endpoints send null for a call without arguments.
        arguments = {} if call.arguments is None else call.arguments
        return await call_tool(self.ctx, f"{self.prefix}round-{place}", tool, arguments)


def _counted(calls: Sequence[ToolCall]) -> list[tuple[int, ToolCall]]:
    return list(enumerate(calls, 1))


async def tools_of(ctx: Context, tools: Sequence[Any]) -> dict[str, Tool]:
    """Return tools by name, including the current tools of each set.

    If two tools have the same name, those of a set are renamed to `set__tool`.

    Raises:
        StepError: If the tools of a set cannot be listed.
        ConfigurationError: If two tools still have the same name.
    """
    owned: list[tuple[str, Tool]] = []
    for tool_or_set in (as_tool(one) for one in tools):
        if isinstance(tool_or_set, Tool):
            owned.append(("", tool_or_set))
        else:
            owned += [(tool_or_set.name, one) for one in await tool_or_set.tools(ctx)]
    # Two servers often have a tool of the same name, such as `search`.
    names = [one.name for _, one in owned]
    available: dict[str, Tool] = {}
    for owner, one in owned:
        tool = one.renamed(f"{owner}__{one.name}") if owner and names.count(one.name) > 1 else one
        if tool.name in available:
            raise ConfigurationError(
                f"{ctx.path}: tools: two are called {tool.name!r}. Rename one of them."
            )
        available[tool.name] = tool
    return available
