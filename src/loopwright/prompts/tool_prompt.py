"""Steps that use tools: a prompt whose model may call tools, and a single tool call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from ..engine.context import Context
from ..engine.step import CompositeStep, digest_of
from ..engine.text_listeners import OnText
from ..errors import ConfigurationError, StepError, nearest
from ..models import Message, Reply, call_model
from ..models.files import File
from ..models.protocol import MAX_TOOL_CALLS
from ..models.settings import ModelSettings
from ..records import Reason, Result, Status, codec
from ..records.codec import Json
from ..templates.variables import TemplatedValue, fill, rendered
from ..tools.base import Tool, call_tool
from ..tools.function import as_tool
from .files import Files
from .prompt import Prompt, PromptSettings, Text, asking_of, filled_in, warn_of
from .tool_calls import MAX_ROUNDS, OnResults, call_with_tools, tools_of

__all__ = ["Selected", "ToolPrompt", "ToolStep", "answered", "tool_prompt", "tool_step"]

NO_MORE = "No more tools can be called. Answer now, from what you have."


class Selected:
    """Some tools of a set, by name.

    Args:
        tools: the set, such as an MCP server.
        names: the names of the tools.

    Raises:
        ConfigurationError: when the run lists the tools, for a name that the set does not have.
    """

    def __init__(self, tools: Any, names: Sequence[str]) -> None:
        self.tools_of = tools
        self.name = tools.name
        self.names = tuple(names)
        self.fingerprint = digest_of("selected", tools.fingerprint, *self.names)

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        """Return the tools with these names.

        Raises:
            ConfigurationError: for a name that the set lacks.
        """
        found = {tool.name: tool for tool in await self.tools_of.tools(ctx)}
        for name in self.names:
            if name not in found:
                hint = nearest(name, found) or f"; it has: {', '.join(found)}"
                raise ConfigurationError(f"{ctx.path}: {self.name} has no tool {name!r}{hint}")
        return [found[name] for name in self.names]


class ToolPrompt(Prompt):
    """A prompt whose model may call tools; see `tool_prompt`."""

    def __init__(
        self,
        text: Text,
        tools: Sequence[Any],
        *,
        max_rounds: int = MAX_ROUNDS,
        name: str = "prompt",
        system: Text = "",
        asking: PromptSettings,
        read: Callable[[Reply], Json] | None = None,
        on_text: OnText | None = None,
        files: Files | Sequence[File | TemplatedValue] = (),
        files_root: Path | None = None,
    ) -> None:
        super().__init__(
            text,
            name=name,
            system=system,
            asking=asking,
            read=read,
            on_text=on_text,
            files=files,
            files_root=files_root,
        )
        self.tools = [as_tool(tool) for tool in tools]
        self.max_rounds = codec.integer(f"{name}: max_tool_rounds", max_rounds, minimum=1)
        prints = (one.fingerprint for one in self.tools)
        self.fingerprint = digest_of("tools", str(max_rounds), self.fingerprint, *prints)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Render the prompt, call the model and its tools, and read the last reply.

        After the last permitted reply the model is asked once more, to answer without tools.

        Raises:
            StepError: of kind `tool_rounds` if it still calls tools.
        """
        system = filled_in(self.system, value, ctx)
        question, contents = await self.question(value, ctx)
        head = [Message("system", system)] if system else []
        reply, _ = await answered(
            self.asking,
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
    asking: PromptSettings,
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
    """Call a model with tools; return its answer and the conversation.

    After the last permitted reply the model is asked once more, to answer without tools.

    Raises:
        StepError: of kind `tool_rounds` if it still calls tools.
    """
    request, targets = asking.request(messages, ctx)
    if contents:
        request = replace(request, contents=contents)
    told = await call_with_tools(
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
    reply = Reply.from_json({**told, "tool_calls": ()})
    talk = [Message.from_json(one) for one in told["messages"]]
    if told["limit_reached"]:
        talk.append(Message("user", NO_MORE))
        known = await tools_of(ctx, tools)
        described = tuple(tool.described() for tool in known.values())
        last = replace(request, messages=tuple(talk), tools=described)
        reply = Reply.from_json(
            await call_model(ctx, "answer", last, failover=targets, judge=judge, on_text=on_text)
        )
        talk.append(reply.message())
    if reply.tool_calls:
        raise StepError(
            f"the model still wants to call tools after {max_rounds} rounds of them; "
            "raise max_tool_rounds, or ask for less",
            path=ctx.path,
            kind="tool_rounds",
        )
    return reply, talk


class ToolStep(CompositeStep):
    """One call of a tool as a step; see `tool_step`."""

    fingerprint: str

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
                f"{name or self.tool.name}: {self.tool.name} is a server; choose a tool of it by "
                "Selected(server, [name])"
            )
        self.name = name or self.tool.name
        given = arguments if isinstance(arguments, TemplatedValue | None) else fill(dict(arguments))
        self.arguments = given
        said = "" if given is None else codec.canonical(given.source)
        self.fingerprint = digest_of("tool step", self.tool.fingerprint, said)

    @property
    def reports(self) -> bool:
        """Whether the tool reports its cost; MCP tools and commands do not."""
        return bool(getattr(self.tool, "reports", False))

    async def run(self, value: Json, ctx: Context) -> Result:
        """Call the tool and return its output.

        Raises:
            StepError: of the kind of the call's error.
        """
        (tool,) = (await tools_of(ctx, [self.tool])).values()
        arguments = value
        if self.arguments is not None:
            arguments = codec.normalise(rendered(self.arguments, ctx, value), what="arguments")
        told = await call_tool(ctx, "call", tool, {} if arguments is None else arguments)
        if "error" in told:
            error = told["error"]
            raise StepError(
                f"{tool.name}: {error['message']}", path=ctx.path, kind=str(error["kind"])
            )
        detail = f"{ctx.path} called {tool.name}"
        return Result(Status.SATISFIED, Reason.COMPLETED, detail, told["output"], name=self.name)


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
        text, model, name, system, schema, on_text, files, files_root, settings: as for `prompt`.
        tools: functions, tools and MCP servers.
        max_rounds: the highest number of replies that may call tools; default 8.
        max_tool_calls_per_reply: the highest number of calls in one reply; default 128. A reply with
            more is refused and requested again.

    Raises:
        TemplateError: for an invalid template, with its line and column.
        ConfigurationError: for an object that is not a tool.
    """
    asking = replace(
        asking_of(model, settings, schema=schema), max_tool_calls_per_reply=max_tool_calls_per_reply
    )
    return ToolPrompt(
        text,
        tools,
        max_rounds=max_rounds,
        name=name,
        system=system,
        asking=asking,
        on_text=on_text,
        files=files,
        files_root=None if files_root is None else Path(files_root),
    )


def tool_step(
    tool: Any, *, name: str = "", arguments: Mapping[str, Json] | None = None
) -> ToolStep:
    """Make a step that calls a tool; a failed call fails the step with the kind of its error.

    Args:
        tool: a function, a tool, or one selected tool of an MCP server.
        name: the name of the step; default: the name of the tool.
        arguments: the arguments, which may contain templates; default: the input of the step.

    Raises:
        ConfigurationError: for an object that is not a tool.
    """
    return ToolStep(tool, name=name, arguments=arguments)
