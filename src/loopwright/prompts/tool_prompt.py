"""Steps that use tools: a prompt whose model may call tools, and a single tool call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from ..engine.context import Context
from ..engine.run_record import OnText
from ..engine.step import CompositeStep, digest_of, fingerprinted
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
from .prompt import Prompt, Text, filled_in
from .settings import PromptSettings, settings_of, warn_of
from .tool_calls import MAX_ROUNDS, OnResults, call_with_tools, tools_of

__all__ = ["Selected", "ToolPrompt", "ToolStep", "answered", "tool_prompt", "tool_step"]

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
        source = "" if template is None else codec.canonical(template.source)
        self._source = source

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
