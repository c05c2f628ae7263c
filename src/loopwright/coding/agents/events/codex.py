"""Codex (`exec --json`). The last event is `turn.completed` or `turn.failed`; an `error` item is no failure."""

from __future__ import annotations

from collections.abc import Mapping

from ....records.codec import Json
from ..failures import failure_of
from .reader import EventReader, member, text_in

__all__ = ["CodexReader"]


class CodexReader(EventReader):
    """The reader of Codex."""

    _problem = ""

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        kind = data.get("type")
        if kind == "thread.started":
            self.session = str(data.get("thread_id") or "")
        elif kind in ("item.started", "item.completed"):
            return self._item(data["item"], started=kind == "item.started")
        elif kind == "turn.completed":
            self.ended, self.failure = True, None
            usage = data.get("usage")
            # Cached input is a part of the input tokens.
            self.usage = self.counted(member(usage, "input_tokens"), member(usage, "output_tokens"))
            self.turns = max(1, self.turns)
        elif kind == "turn.failed":
            self.ended = True
            message = text_in(member(data, "error", "message")) or self._problem
            self.failure = failure_of(message or "the turn failed", default="unknown_outcome")
        elif kind == "error":
            # Also written for each attempt to connect again, so it is a failure only without a later end.
            self._problem = text_in(data.get("message"))
            return [self._problem]
        return []

    def _item(self, item: Mapping[str, Json], *, started: bool) -> list[str]:
        kind = item.get("type")
        if kind == "agent_message" and not started:
            self.turns += 1
            return [self.say(text_in(item.get("text")))]
        if kind == "command_execution":
            command = str(item.get("command") or "")
            if not started and item.get("status") == "declined":
                self.deny("command", command)
            return [f"command {command}"] if started else []
        if kind == "file_change" and not started:
            paths = [str(member(change, "path")) for change in item.get("changes") or ()]
            for path in paths:
                self.wrote(path)
            return [f"edit {path}" for path in paths[:20]]
        if kind == "mcp_tool_call" and started:
            return [f"tool {item.get('server')}.{item.get('tool')}"]
        return []

    def finish(self) -> None:
        """Keep the last problem of a call that ended without an event."""
        if not self.ended and self._problem:
            self.failure = failure_of(self._problem, default="unknown_outcome")
