"""Claude Code (`--output-format stream-json`), and Qwen Code, which writes the same events.

The last event is `result`. Its `subtype` may be `success` for a failed call, so `is_error` counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....records import NOTHING, Usage
from ....records.codec import Json
from ..failures import failure_of
from ..manifest import Manifest
from .reader import EventReader, figure, member, text_in

__all__ = ["ClaudeReader", "QwenReader"]

_LIMITS = {"error_max_turns": "max_turns", "error_max_budget_usd": "max_usd"}
_MESSAGES = 10_000  # messages whose usage is added


class ClaudeReader(EventReader):
    """The reader of Claude Code."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self._messages: dict[str, Usage] = {}

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        kind = data.get("type")
        if isinstance(session := data.get("session_id"), str) and not self.session:
            self.session = session
        if kind == "assistant":
            return self._assistant(data["message"])
        if kind == "result":
            return self._result(data)
        if kind == "system" and data.get("subtype") == "api_retry":
            return [f"retry {data.get('attempt')} of {data.get('max_retries')}"]
        return []

    def _assistant(self, message: Mapping[str, Json]) -> list[str]:
        lines = []
        for part in message.get("content") or ():
            if part.get("type") == "text":
                lines.append(self.say(text_in(part.get("text"))))
            elif part.get("type") == "tool_use":
                lines.append(self.tool(str(part.get("name")), part.get("input") or {}))
        # A message arrives in several events with the same ID: the last one has its usage.
        key = str(message.get("id") or len(self._messages))
        if len(self._messages) < _MESSAGES or key in self._messages:
            usage = self._usage(message.get("usage"), None)
            self.usage = self.usage.less(self._messages.get(key, NOTHING)) + usage
            self._messages[key] = usage
            self.turns = len(self._messages)
        return lines

    def _usage(self, usage: Json, usd: Json) -> Usage:
        cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
        tokens = figure(member(usage, "input_tokens"))
        # Only Claude Code counts cached input apart.
        if self.manifest.events == "claude":
            tokens += sum(figure(member(usage, key)) for key in cached)
        return self.counted(tokens, member(usage, "output_tokens"), usd)

    def _result(self, data: Mapping[str, Json]) -> list[str]:
        self.ended = True
        self.turns = figure(data.get("num_turns")) or self.turns
        self.usage = self._usage(data.get("usage"), data.get("total_cost_usd")) or self.usage
        text = text_in(data.get("result"))
        for denial in data.get("permission_denials") or ():
            arguments = member(denial, "tool_input")
            what = self.tool("", arguments if isinstance(arguments, Mapping) else {})
            self.deny(str(member(denial, "tool_name")), what)
        subtype = str(data.get("subtype"))
        if subtype in _LIMITS:
            self.stop = _LIMITS[subtype]
            return []
        if data.get("is_error"):
            errors = data.get("errors")
            message = text or text_in(member(data, "error", "message"))
            if not message and isinstance(errors, list):
                message = "; ".join(str(one) for one in errors)
            self.failure = failure_of(message or subtype, default="unknown_outcome")
        elif text.strip():
            self.text = text.strip()
        return []


class QwenReader(ClaudeReader):
    """The reader of Qwen Code. A failed call may have `is_error: false`: the manifest names its texts."""
