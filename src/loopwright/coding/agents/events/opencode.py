"""OpenCode (`run --format json`). It has no last event: a step that finished with another reason than
`tool-calls` ends the call, and its usage is the sum of the steps."""

from __future__ import annotations

from collections.abc import Mapping

from ....records.codec import Json
from ..failures import failure_of
from .reader import EventReader, figure, member, text_in

__all__ = ["OpenCodeReader"]


class OpenCodeReader(EventReader):
    """The reader of OpenCode."""

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        kind, part = data.get("type"), data.get("part")
        if isinstance(session := data.get("sessionID"), str):
            self.session = session
        if kind == "step_start":
            self.ended = False
        elif kind == "text":
            return [self.say(text_in(member(part, "text")))]
        elif kind == "tool_use":
            return self._tool(part)
        elif kind == "step_finish":
            self._step(part)
        elif kind == "error":
            message = text_in(member(data, "error", "data", "message")) or str(
                member(data, "error", "name")
            )
            status = member(data, "error", "data", "statusCode")
            self.failure = failure_of(
                message,
                status=status if isinstance(status, int) else None,
                default="unknown_outcome",
            )
            return [message]
        return []

    def _tool(self, part: Json) -> list[str]:
        state = member(part, "state")
        arguments = member(state, "input")
        line = self.tool(
            str(member(part, "tool")), arguments if isinstance(arguments, Mapping) else {}
        )
        if (
            member(state, "status") == "error"
            and "reject" in text_in(member(state, "error")).lower()
        ):
            self.deny(str(member(part, "tool")), line)
        return [line]

    def _step(self, part: Json) -> None:
        tokens = member(part, "tokens")
        read = figure(member(tokens, "input")) + figure(member(tokens, "cache", "read"))
        written = figure(member(tokens, "cache", "write"))
        output = figure(member(tokens, "output")) + figure(member(tokens, "reasoning"))
        self.usage += self.counted(read + written, output, member(part, "cost"))
        self.turns += 1
        self.ended = member(part, "reason") != "tool-calls"
        # The program repeats a failed request itself; a step that finished later replaces the error.
        self.failure = None
