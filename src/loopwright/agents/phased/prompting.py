"""The prompt of a phase, with the tools of the agent and the hooks of its capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...engine.context import Context
from ...models import Message
from ...prompts.prompt import Prompt, filled_in
from ...prompts.tool_prompt import answered, tools_of
from ...records.codec import Json
from ...tools.base import Tool
from .capabilities import AgentState, Hooks

__all__ = ["Tools", "ask_with_hooks"]


@dataclass(frozen=True)
class Tools:
    """The tools of an agent, and the maximum of replies with tool calls in one iteration."""

    tools: tuple[object, ...] = ()
    max_rounds: int = 8

    @property
    def named(self) -> list[str]:
        """The tools by their fingerprints."""
        return [
            str(getattr(one, "fingerprint", getattr(one, "__qualname__", one)))
            for one in self.tools
        ]


async def ask_with_hooks(
    prompt: Prompt, value: Json, ctx: Context, *, tools: Tools, hooks: Hooks, state: AgentState
) -> Json:
    """Return the reply of a model to a prompt, after the hooks.

    Raises:
        ModelError: If no model and no attempt is left.
    """
    text = await hooks.change(ctx, "process_prompt", state, filled_in(prompt.text, value, ctx))
    system = filled_in(prompt.system, value, ctx)
    messages = [*([Message("system", system)] if system else []), Message("user", str(text))]
    # The path of a step that is not a prompt, so that both kinds have the same journal paths.
    inner = ctx.child(ctx.below("work"))
    offered: list[object] = [*getattr(prompt, "tools", ()), *tools.tools]
    if offered:
        kit = tools if tools.tools else prompt
        max_rounds = getattr(kit, "max_rounds", tools.max_rounds)
        if hooks:
            # Only with capabilities: without them the paths and requests of recorded runs stay the same.
            offered = [_HookedTools(tuple(offered), hooks, state)]
        reply, _ = await answered(prompt.model_settings, messages, offered, max_rounds, inner)
    else:
        reply = await prompt.model_settings.ask(messages, inner)
    for warning in reply.warnings:
        ctx.run.warn(warning)
    return await hooks.change(ctx, "process_response", state, prompt.read(reply))


@dataclass(frozen=True)
class _HookedTools:
    """Tools whose calls pass through the capabilities."""

    given: tuple[object, ...]
    hooks: Hooks
    state: AgentState
    name: str = field(default="watched", init=False)
    fingerprint: str = field(default="", init=False)  # each tool has its own fingerprint

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        tools = await tools_of(ctx, self.given)
        return [_HookedTool(tool, self.hooks, self.state) for tool in tools.values()]


class _HookedTool(Tool):
    """A tool whose arguments and output the capabilities can change."""

    def __init__(self, inner: Tool, hooks: Hooks, state: AgentState) -> None:
        super().__init__(
            inner.name, description=inner.description, schema=inner.schema,
            idempotent=inner.idempotent, approve=inner.approve, timeout=inner.timeout,
            limit=inner.limit,
        )  # fmt: skip
        self.inner, self.hooks, self.state = inner, hooks, state

    def meaning(self) -> str:
        return self.inner.meaning()

    def problem_with(self, arguments: Json) -> str:
        return self.inner.problem_with(arguments)

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Json:
        action: Json = {"name": self.name, "arguments": arguments}
        action = await self.hooks.change(ctx, "process_action", self.state, action)
        changed = action.get("arguments", arguments)
        # The arguments of the model were checked before; a capability may have made them invalid.
        if problem := self.inner.problem_with(changed):
            raise ValueError(f"a capability changed the arguments: {problem}")
        output = await self.inner.invoke(changed, ctx)
        return await self.hooks.change(ctx, "process_result", self.state, output, of=["", action])
