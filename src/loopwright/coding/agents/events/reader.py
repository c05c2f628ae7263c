"""The facts that a reader collects from the events of one call, and the rules that all readers share.

1. Any line is accepted: what is not JSON, or not an expected event, is text and never an error.
2. Everything that is kept is bounded, because an agent may print what it wants.
3. A later event corrects an earlier one: the reported total replaces the sum of the parts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import ClassVar

from ....records import NOTHING, Usage
from ....records.codec import Json
from ....records.display import excerpt_line
from ..failures import AgentFailure
from ..manifest import Manifest

__all__ = ["EventReader", "figure", "member", "text_in"]

TEXT_CHARS = 1024 * 1024  # of the last message
MAX_PATHS = 1000
MAX_DENIALS = 100
_MOST = 1 << 53  # a larger figure is not a number of tokens

# The names of arguments of tools that hold the file, in the tools of all readers.
_FILES = ("file_path", "filePath", "absolute_path", "path", "notebook_path")
_COMMANDS = ("command", "cmd")
_WRITES = frozenset({
    "edit", "write", "multiedit", "notebookedit", "write_file", "replace", "apply_patch", "patch", "create_file",
})  # fmt: skip


class EventReader:
    """The reader of one call. `feed` each line, then read the attributes.

    Attributes:
        session: the ID of the session, "" if unknown.
        text: the last message of the agent.
        turns: the replies of the model.
        usage: what the events reported so far.
        ended: whether the last event arrived.
        stop: `completed`, `max_turns`, `max_usd` or `refused`.
        failure: the failure that an event reported, or None.
        denials: the tool calls that the program refused.
        changed: the files that tools wrote, as the events name them.
        notes: lines that were no events, for messages.
    """

    counts: ClassVar[bool] = True  # whether the format reports tokens

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.session = ""
        self.text = ""
        self.turns = 0
        self.usage: Usage = NOTHING
        self.ended = False
        self.stop = "completed"
        self.failure: AgentFailure | None = None
        self.denials: list[dict[str, Json]] = []
        self.changed: dict[str, None] = {}
        self.notes: list[str] = []

    def feed(self, line: str) -> list[str]:
        """Read one line of output and return the live lines that describe it."""
        data = _event(line)
        if data is None:
            return self.plain(line)
        try:
            return [text for text in self.event(data) if text.strip()]
        # Members of unexpected types must not end a call that is paid for.
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError):
            return []

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        raise NotImplementedError

    def plain(self, line: str) -> list[str]:
        """Read a line that is no event."""
        if line.strip():
            self.notes = [*self.notes[-19:], line.strip()[:2000]]
        return []

    def finish(self) -> None:
        """Complete the facts after the last line."""

    def say(self, text: str) -> str:
        """Keep a message as the latest one and return its live line."""
        if text.strip():
            self.text = text.strip()[:TEXT_CHARS]
        return text

    def tool(self, name: str, arguments: Mapping[str, Json]) -> str:
        """Return the live line of a tool call, and keep the file that it writes."""
        target = ""
        for key in (*_COMMANDS, *_FILES):
            value = arguments.get(key)
            if isinstance(value, list):
                value = " ".join(str(word) for word in value[:20])
            if isinstance(value, str) and value:
                target = value
                if key in _FILES and name.lower() in _WRITES:
                    self.wrote(value)
                break
        return f"{name} {target}".strip()

    def wrote(self, path: str) -> None:
        """Keep the path of a file that was written."""
        if path and len(self.changed) < MAX_PATHS:
            self.changed[path[:1000]] = None

    def deny(self, tool: str, what: str) -> None:
        """Keep a tool call that was refused."""
        if len(self.denials) < MAX_DENIALS:
            self.denials.append({"tool": tool[:200], "what": excerpt_line(what, 300)})

    def counted(self, input_tokens: Json, output_tokens: Json, usd: Json = None) -> Usage:
        """Return figures of an event as usage; an invalid figure counts as 0."""
        dollars = usd if isinstance(usd, int | float) and not isinstance(usd, bool) else 0.0
        valid = math.isfinite(dollars) and 0 <= dollars < _MOST
        return Usage(
            input_tokens=figure(input_tokens),
            output_tokens=figure(output_tokens),
            usd=float(dollars) if valid else 0.0,
        )


def _event(line: str) -> dict[str, Json] | None:
    text = line.strip()
    if not text.startswith("{"):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def figure(value: Json) -> int:
    """Return a number of tokens; anything else is 0."""
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
    return value if valid else 0


def member(data: Json, *keys: str) -> Json:
    """Return the value at keys of nested objects, or None."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def text_in(value: Json) -> str:
    """Return a text, or the texts of a list of content parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text_in(member(part, "text")) for part in value)
    return ""
