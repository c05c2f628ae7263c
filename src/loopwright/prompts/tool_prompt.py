"""Steps that use tools: a prompt whose model may call tools until it answers, and a single tool call.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from ..engine.composites import run_all
from ..engine.context import Context
from ..engine.run_record import OnText
from ..engine.step import CompositeStep, digest_of, fingerprinted
from ..errors import ConfigurationError, StepError, nearest
from ..models import Message, Reply, Request, Target, ToolCall, call_model
from ..models.protocol import MAX_TOOL_CALLS, File, ModelSettings
from ..records import NOTHING, Reason, Result, Status, codec
from ..records.codec import Json
from ..templates.variables import TemplatedValue, fill, rendered
from ..tools.base import Tool, as_tool, call_tool, error_of, message_of
from .prompt import Files, Prompt, Text, filled_in
from .settings import PromptSettings, settings_of, warn_of

__all__ = [
    "MAX_ROUNDS",
    "OnResults",
    "Selected",
    "ToolPrompt",
    "ToolStep",
    "answered",
    "call_with_tools",
    "tool_prompt",
    "tool_step",
    "tools_of",
]

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
                [
                    functools.partial(self._call, f"{number}/call-{n}", call)
                    for n, call in enumerate(calls, 1)
                ]
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


# Part of recorded requests; a new wording would repeat the call.
NO_MORE = "No more tools can be called. Answer now, from what you have."


class Selected:
    """Some tools of a set, by name.

    Args:
        tools: The set, such as an MCP server.
        names: The names of the tools.

    Raises:
        ConfigurationError: At run time, for a name that the set does not have.
    """

    def __init__(self, tools: Any, names: Sequence[str]) -> None:
        self.tools_of = tools
        self.name = tools.name
        self.names = tuple(names)

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the set and the names."""
        return digest_of("selected", self.tools_of.fingerprint, *self.names)

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        """Return the tools with these names.

        Raises:
            ConfigurationError: For a name that the set does not have.
        """
        by_name = {tool.name: tool for tool in await self.tools_of.tools(ctx)}
        for name in self.names:
            if name not in by_name:
                hint = nearest(name, by_name) or f"; it has: {', '.join(by_name)}"
                raise ConfigurationError(f"{ctx.path}: {self.name} has no tool {name!r}{hint}")
        return [by_name[name] for name in self.names]


class ToolPrompt(Prompt):
    """A prompt whose model may call tools. See `tool_prompt`."""

    def __init__(
        self,
        text: Text,
        tools: Sequence[Any],
        *,
        max_rounds: int = MAX_ROUNDS,
        name: str = "prompt",
        system: Text = "",
        model_settings: PromptSettings,
        read: Callable[[Reply], Json] | None = None,
        on_text: OnText | None = None,
        files: Files | Sequence[File | TemplatedValue] = (),
        files_root: Path | None = None,
    ) -> None:
        super().__init__(
            text,
            name=name,
            system=system,
            model_settings=model_settings,
            read=read,
            on_text=on_text,
            files=files,
            files_root=files_root,
        )
        self.tools = [as_tool(tool) for tool in tools]
        self.max_rounds = codec.integer(f"{name}: max_tool_rounds", max_rounds, minimum=1)

    def identity(self) -> str:
        """Return a digest of the prompt and of its tools, which can change the reply."""
        prints = (one.fingerprint for one in self.tools)
        return digest_of("tools", str(self.max_rounds), super().identity(), *prints)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Render the prompt, call the model and its tools, and read the last reply.

        Raises:
            StepError: Of kind `tool_rounds`, if the last reply still calls tools.
        """
        system = filled_in(self.system, value, ctx)
        question, contents = await self.question(value, ctx)
        head = [Message("system", system)] if system else []
        reply, _ = await answered(
            self.model_settings,
            [*head, question],
            self.tools,
            self.max_rounds,
            ctx,
            on_text=self.on_text,
            contents=contents,
        )
        warn_of(reply, ctx)
        output = self.read(reply)
        return Result(
            Status.SATISFIED, Reason.COMPLETED, f"{ctx.path} answered", output, name=self.name
        )


async def answered(
    model_settings: PromptSettings,
    messages: Sequence[Message],
    tools: Sequence[Any],
    max_rounds: int,
    ctx: Context,
    *,
    on_text: OnText | None = None,
    contents: Mapping[str, bytes] | None = None,
    judge: bool = False,
    on_results: OnResults | None = None,
) -> tuple[Reply, list[Message]]:
    """Call a model with tools, and return its answer and the conversation.

    After the last reply that may call tools, the model must answer without tools in one more reply.

    Raises:
        StepError: Of kind `tool_rounds`, if that reply still calls tools.
    """
    request, targets = model_settings.request(messages, ctx)
    if contents:
        request = replace(request, contents=contents)
    result = await call_with_tools(
        ctx,
        "",
        request,
        tools,
        max_rounds=max_rounds,
        failover=targets,
        judge=judge,
        on_text=on_text,
        on_results=on_results,
    )
    reply = Reply.from_json({**result, "tool_calls": ()})
    conversation = [Message.from_json(one) for one in result["messages"]]
    # The calls of the last reply were refused, so the model must answer with what it has.
    if result["limit_reached"]:
        conversation.append(Message("user", NO_MORE))
        available = await tools_of(ctx, tools)
        # Some endpoints refuse messages of tools in a request without tools.
        described = tuple(tool.described() for tool in available.values())
        last = replace(request, messages=tuple(conversation), tools=described)
        reply = Reply.from_json(
            await call_model(ctx, "answer", last, failover=targets, judge=judge, on_text=on_text)
        )
        conversation.append(reply.message())
    # Some models call tools although they were told not to.
    if reply.tool_calls:
        raise StepError(
            f"the model still calls tools after {max_rounds} replies with tool calls. Allow "
            "more (max_tool_rounds of a prompt, tool_rounds of an agent), or reduce the task.",
            path=ctx.path,
            kind="tool_rounds",
        )
    return reply, conversation


class ToolStep(CompositeStep):
    """One call of a tool as a step. See `tool_step`."""

    def __init__(
        self,
        tool: Any,
        *,
        name: str = "",
        arguments: Mapping[str, Json] | TemplatedValue | None = None,
    ) -> None:
        self.tool = as_tool(tool)
        if not isinstance(self.tool, Tool) and len(getattr(tool, "names", ())) != 1:
            raise ConfigurationError(
                f"{name or self.tool.name}: {self.tool.name} is a server. Select one of its tools: "
                "Selected(server, [name])."
            )
        self.name = name or self.tool.name
        template = (
            arguments if isinstance(arguments, TemplatedValue | None) else fill(dict(arguments))
        )
        self.arguments = template
        self._source = "" if template is None else codec.canonical(template.source)

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("tool step", self.tool.fingerprint, self._source)

    @property
    def reports(self) -> bool:
        """Whether the tool reports its cost. MCP tools and commands do not."""
        return bool(getattr(self.tool, "reports", False))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Call the tool and return its output.

        Raises:
            StepError: With the kind of the call's error.
        """
        (tool,) = (await tools_of(ctx, [self.tool])).values()
        arguments = value
        if self.arguments is not None:
            arguments = codec.normalise(rendered(self.arguments, ctx, value), what="arguments")
        result = await call_tool(ctx, "call", tool, {} if arguments is None else arguments)
        if "error" in result:
            error = result["error"]
            raise StepError(
                f"{tool.name}: {error['message']}", path=ctx.path, kind=str(error["kind"])
            )
        detail = f"{ctx.path} called {tool.name}"
        return Result(Status.SATISFIED, Reason.COMPLETED, detail, result["output"], name=self.name)


def tool_prompt(
    text: str,
    tools: Sequence[Any],
    *,
    model: str | Sequence[str] = (),
    max_rounds: int = MAX_ROUNDS,
    name: str = "prompt",
    system: str = "",
    schema: Mapping[str, Json] | None = None,
    max_tool_calls_per_reply: int = MAX_TOOL_CALLS,
    on_text: OnText | None = None,
    files: Files = (),
    files_root: str | Path | None = None,
    **settings: Unpack[ModelSettings],
) -> ToolPrompt:
    """Make a step that sends a template to a model that may call tools.

    Args:
        text, model, name, system, schema, on_text, files, files_root, settings: As for `prompt`.
        tools: Functions, tools and MCP servers.
        max_rounds: The maximum of replies that call tools. Default: 8.
        max_tool_calls_per_reply: The maximum of calls in one reply. Default: 128. A reply with more calls
            is refused and requested again.

    Raises:
        TemplateError: For an invalid template, with its line and column.
        ConfigurationError: For an object that is not a tool.
    """
    model_settings = replace(
        settings_of(model, settings, schema=schema),
        max_tool_calls_per_reply=max_tool_calls_per_reply,
    )
    return ToolPrompt(
        text,
        tools,
        max_rounds=max_rounds,
        name=name,
        system=system,
        model_settings=model_settings,
        on_text=on_text,
        files=files,
        files_root=None if files_root is None else Path(files_root),
    )


def tool_step(
    tool: Any, *, name: str = "", arguments: Mapping[str, Json] | None = None
) -> ToolStep:
    """Make a step that calls a tool. A failed call fails the step with the kind of its error.

    Args:
        tool: A function, a tool, or one selected tool of an MCP server.
        name: The name of the step. Default: the name of the tool.
        arguments: The arguments, which may contain templates. Default: the input of the step.

    Raises:
        ConfigurationError: For an object that is not a tool.
    """
    return ToolStep(tool, name=name, arguments=arguments)
