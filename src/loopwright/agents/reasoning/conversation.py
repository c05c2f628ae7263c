"""A conversation over the rounds of a loop: what was said is part of each round's record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...engine.context import Context
from ...models import Message
from ...prompts.prompt import PromptSettings, warn_of
from ...prompts.tool_prompt import answered
from ...records.codec import Json
from ..phased.prompting import Tools

__all__ = ["Conversation"]


@dataclass(frozen=True)
class Conversation:
    """How a model is talked to: how it is asked, and with which tools."""

    asking: PromptSettings
    kit: Tools

    async def plain(self, system: str, said: str, ctx: Context) -> str:
        """Return the answer to one question.

        Raises:
            ModelError: when nothing is left to try.
        """
        answered = await self._ask([*_system(system), Message("user", said)], ctx)
        return answered[-1].content

    async def carried(self, system: str, said: str, ctx: Context) -> tuple[str, list[Json]]:
        """Return the answer to what a round says, and the messages that it added to the talk.

        Raises:
            ModelError: when nothing is left to try.
        """
        before = [Message.from_json(one) for item in ctx.history for one in _kept(item.steps)]
        asked = [*_system(system), *before, Message("user", said)]
        answered = await self._ask(asked, ctx)
        return answered[-1].content, [one.to_json() for one in answered[len(asked) - 1 :]]

    async def _ask(self, messages: Sequence[Message], ctx: Context) -> list[Message]:
        """Return the conversation with the answer at its end."""
        if not self.kit.given:
            reply = await self.asking.ask(messages, ctx)
            return [*messages, reply.message()]
        reply, talk = await answered(self.asking, messages, self.kit.given, self.kit.rounds, ctx)
        warn_of(reply, ctx)
        return talk


def _system(text: str) -> list[Message]:
    return [Message("system", text)] if text else []


def _kept(steps: Json) -> list[Json]:
    found = (steps or {}).get("messages")
    return found if isinstance(found, list) else []
