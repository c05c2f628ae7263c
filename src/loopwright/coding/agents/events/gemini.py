"""Gemini CLI (`-o stream-json`). Messages arrive in pieces; the last event is `result`."""

from __future__ import annotations

from collections.abc import Mapping

from ....records.codec import Json
from ..failures import failure_of
from .reader import TEXT_CHARS, EventReader, member, text_in

__all__ = ["GeminiReader"]


class GeminiReader(EventReader):
    """The reader of Gemini CLI."""

    _continues = False  # whether the last event was a piece of the same message
    _tools: dict[str, str]

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        kind = data.get("type")
        if kind == "message" and data.get("role") == "assistant":
            return self._message(text_in(data.get("content")), delta=bool(data.get("delta")))
        self._continues = False
        if kind == "init":
            self.session = str(data.get("session_id") or "")
        elif kind == "tool_use":
            self._tools = {
                **getattr(self, "_tools", {}),
                str(data.get("tool_id")): str(data.get("tool_name")),
            }
            return [self.tool(str(data.get("tool_name")), data.get("parameters") or {})]
        elif kind == "tool_result" and data.get("status") == "error":
            self._tool_failed(data)
        elif kind == "error":
            return [text_in(data.get("message"))]
        elif kind == "result":
            self._result(data)
        return []

    def _message(self, piece: str, *, delta: bool) -> list[str]:
        if delta and self._continues:
            self.text = (self.text + piece)[:TEXT_CHARS]
            return []
        self.turns += 1
        self._continues = True
        self.text = piece[:TEXT_CHARS]
        return [piece]

    def _tool_failed(self, data: Mapping[str, Json]) -> None:
        message = text_in(member(data, "error", "message")) or text_in(data.get("output"))
        if "denied" in message.lower() or "not allowed" in message.lower():
            name = getattr(self, "_tools", {}).get(str(data.get("tool_id")), "tool")
            self.deny(name, message)

    def _result(self, data: Mapping[str, Json]) -> None:
        self.ended = True
        stats = data.get("stats")
        self.usage = self.counted(member(stats, "input_tokens"), member(stats, "output_tokens"))
        if data.get("status") == "error":
            kind, message = (text_in(member(data, "error", key)) for key in ("type", "message"))
            if "turn" in kind.lower() and "limit" in (kind + message).lower():
                self.stop = "max_turns"
            else:
                self.failure = failure_of(f"{message or kind}", default="unknown_outcome")
