"""Tools of a judge: it may call them before it answers, and their results count as candidate.

A result can hold a planted verdict just as the candidate can, and the judge may repeat it. The results are
therefore part of the text that an answer is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...engine.context import Context
from ...models import Message, Reply
from ...models.protocol import MAX_TOOL_CALLS
from ...prompts.settings import PromptSettings, warn_of
from ...prompts.tool_prompt import MAX_ROUNDS, answered
from ...records import codec
from ...tools.base import Tool, ToolSet, as_tool

__all__ = ["Examination", "JudgeTools"]


@dataclass(frozen=True, slots=True)
class JudgeTools:
    """The tools of a judge.

    Args:
        tools: The tools and sets of tools.
        max_rounds: The maximum of replies that call tools. Default: 8.
        max_calls: The maximum of calls in one reply. Default: 128.

    Raises:
        ConfigurationError: For a number below 1.
    """

    tools: tuple[Tool | ToolSet, ...] = ()
    max_rounds: int = MAX_ROUNDS
    max_calls: int = MAX_TOOL_CALLS

    def __post_init__(self) -> None:
        codec.integer("judge: max_tool_rounds", self.max_rounds, minimum=1)
        codec.integer("judge: max_tool_calls_per_reply", self.max_calls, minimum=1)

    @classmethod
    def of(cls, tools: Sequence[object], max_rounds: int, max_calls: int) -> JudgeTools:
        """Return the tools of a judge from functions, tools and sets of tools.

        Raises:
            ConfigurationError: For an object that is not a tool, or a number below 1.
        """
        return cls(tuple(as_tool(one) for one in tools), max_rounds, max_calls)

    @property
    def source(self) -> tuple[str, ...]:
        """The texts that identify the tools in a fingerprint; none without tools."""
        # A judge without tools keeps the fingerprint of recorded runs.
        if not self.tools:
            return ()
        return ("tools", str(self.max_rounds), *(one.fingerprint for one in self.tools))


class Examination:
    """One vote of a judge: the candidate, and the results of tools that the judge has seen."""

    def __init__(self, settings: PromptSettings, tools: JudgeTools, text: str) -> None:
        self.settings = settings
        self.tools = tools
        self.text = text

    async def send(self, messages: Sequence[Message], ctx: Context) -> Reply:
        """Return the answer of the judge, after its calls of tools."""
        settings = replace(self.settings, max_tool_calls_per_reply=self.tools.max_calls)
        reply, _ = await answered(
            settings,
            messages,
            self.tools.tools,
            self.tools.max_rounds,
            ctx,
            judge=True,
            on_results=self._note,
        )
        warn_of(reply, ctx)
        return reply

    def _note(self, results: Sequence[Message]) -> None:
        # Recorded before the next call, because a reply that ends it with an error is read too.
        self.text = "\n".join([self.text, *(result.content for result in results)])
