"""A prompt asked by an agent: with tools, and with what its capabilities make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...engine.context import Context
from ...models import Message
from ...prompts.prompt import Prompt, filled_in
from ...prompts.tool_calls import tools_of
from ...prompts.tool_prompt import answered
from ...records.codec import Json
from ...tools.base import Tool
from .capabilities import AgentState, Hooks

__all__ = ["Tools", "spoken"]


@dataclass(frozen=True)
class Tools:
    """The tools of an agent, and how many replies of one iteration may call some."""

    given: tuple[Any, ...] = ()
    rounds: int = 8

    @property
    def named(self) -> list[str]:
        """The tools as a fingerprint names them."""
        return [
            str(getattr(one, "fingerprint", getattr(one, "__qualname__", one)))
            for one in self.given
        ]


async def spoken(
    prompt: Prompt,
    value: Json,
    ctx: Context,
    *,
    tools: Tools,
    hooks: Hooks,
    state: AgentState,
) -> Json:
    """Return what a model answers to a prompt.

    Raises:
        ModelError: when nothing is left to try.
    """
    text = await hooks.changed(ctx, "process_prompt", state, filled_in(prompt.text, value, ctx))
    system = filled_in(prompt.system, value, ctx)
    messages = [*([Message("system", system)] if system else []), Message("user", str(text))]
    inner = ctx.child(ctx.below("work"))
    given = [*getattr(prompt, "tools", ()), *tools.given]
    if given:
        rounds = tools.rounds if tools.given else getattr(prompt, "max_rounds", tools.rounds)
        used: list[Any] = [_Watched(tuple(given), hooks, state)] if hooks else given
        reply, _ = await answered(prompt.asking, messages, used, rounds, inner)
    else:
        reply = await prompt.asking.ask(messages, inner)
    for warning in reply.warnings:
        ctx.warn(warning)
    return await hooks.changed(ctx, "process_response", state, prompt.read(reply))


@dataclass(frozen=True)
class _Watched:
    """Tools whose calls go through the capabilities."""

    given: tuple[Any, ...]
    hooks: Hooks
    state: AgentState
    name: str = field(default="watched", init=False)

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        known = await tools_of(ctx, self.given)
        return [_WatchedTool(tool, self.hooks, self.state) for tool in known.values()]


class _WatchedTool(Tool):
    """A tool of which the capabilities see, and may change, arguments and output."""

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

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Any:
        action: Json = {"name": self.name, "arguments": arguments}
        action = await self.hooks.changed(ctx, "process_action", self.state, action)
        given = action.get("arguments", arguments)
        if problem := self.inner.problem_with(given):
            raise ValueError(f"a capability changed the arguments: {problem}")
        found = await self.inner.invoke(given, ctx)
        return await self.hooks.changed(ctx, "process_result", self.state, found, of=["", action])
