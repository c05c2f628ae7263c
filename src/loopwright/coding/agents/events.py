"""Readers of the output of coding agents: lines in; facts, live lines and the kind of a failure out.

1. Any line is accepted: what is not JSON, or not an expected event, is text and never an error.
2. Everything that is kept is bounded, because an agent may print what it wants.
3. A later event corrects an earlier one: the reported total replaces the sum of the parts.
4. A failure has its kind by the words and statuses that programs and providers use.

The formats:

- Claude Code (`--output-format stream-json`), and Qwen Code, which writes the same events. The last event is `result`.
  Its `subtype` may be `success` for a failed call, so `is_error` counts.
- Codex (`exec --json`). The last event is `turn.completed` or `turn.failed`; an `error` item is no failure.
- Gemini CLI (`-o stream-json`). Messages arrive in pieces; the last event is `result`.
- OpenCode (`run --format json`). It has no last event: a step that finished with another reason than
  `tool-calls` ends the call, and its usage is the sum of the steps.
- Agents that speak the Agent Client Protocol: the lines of `acp_client.py`. The last event is `end` or `error`.
- Aider and other programs that print text, and programs that print JSON with facts at known places.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...records import NOTHING, Usage
from ...records.codec import Json
from ...records.display import excerpt_line
from .manifest import Manifest

__all__ = [
    "AcpReader",
    "AgentFailure",
    "AiderReader",
    "ClaudeReader",
    "CodexReader",
    "EventReader",
    "FieldsReader",
    "GeminiReader",
    "OpenCodeReader",
    "QwenReader",
    "TextReader",
    "classified",
    "failure_of",
    "figure",
    "member",
    "reader_of",
    "text_in",
]

MESSAGE_CHARS = 500
_READ = 8_000  # characters of a message in which words are searched
MAX_WAIT = 31 * 86_400.0  # seconds: the longest quotas are monthly
_STATUS = re.compile(
    r"(?:\bstatus(?:[ _]?code)?|\bHTTP(?:/\d\.\d)?|\bAPI Error|\bcode|\berror)\W{0,3}([45]\d\d)\b"
    r"|\b([45]\d\d) (?:Bad|Unauth|Forbid|Not Found|Too Many|Internal|Service|Gateway|status|\{)",
    re.IGNORECASE,
)
_WAIT = re.compile(
    r"(?:retry|try again|reset\w*|available)[ \w]{0,20}? in (\d{1,6})(?:\.\d+)? ?(s|sec|m|min|h|hour|d|day)",
    re.IGNORECASE,
)
_WAIT_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# The first row that matches counts: providers report an exhausted quota with the status of a rate limit.
_ROWS: tuple[tuple[str, frozenset[int], re.Pattern[str]], ...] = tuple(
    (kind, frozenset(codes), re.compile(words, re.IGNORECASE))
    for kind, codes, words in (
        (
            "quota", {402},
            (r"insufficient_quota|exceeded your current quota|credit balance|usage[ _]limit|out of credits"
            r"|insufficient balance|quota (?:exceeded|exhausted)|billing|spend limit"),
        ),
        ("throttled", {429}, r"rate[ _-]?limit|too many requests|resource.exhausted|throttl"),
        (
            "permanent", {401, 403, 404},
            (r"invalid api key|incorrect api key|invalid x-api-key|authenticat|unauthori[sz]ed|not logged in|/login"
            r"|log ?in required|please (?:log|sign) in|missing api key|no api key|api key (?:is )?(?:missing|not)"
            r"|environment variable.{0,40}(?:missing|not set|not found)|permission denied by provider"
            r"|(?:model|deployment).{0,60}(?:not found|does not exist|not supported|unknown)|unknown model"
            r"|model_not_found|not_found_error|must specify.{0,20}auth|set an auth method"),
        ),
        ("refused", set(), r"content[ _](?:filter|policy)|safety (?:filter|policy|reasons)|usage polic|\brefus"),
        (
            "transient", {408, 409, 500, 502, 503, 504, 520, 522, 524, 529},
            (r"overloaded|internal server error|service unavailable|bad gateway|gateway time|timed? ?out"
            r"|connection|econnre|enotfound|eai_again|socket hang up|fetch failed|stream (?:disconnected|closed|ended)"
            r"|network|terminated|premature|unable to connect|reconnecting"),
        ),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgentFailure:
    """The failure of one call of an agent.

    Args:
        kind: one of `manifest.FAILURES`, or a kind of StepError.
        message: the cause, on one line.
        retry_after: seconds until the time that the program named, or None.
    """

    kind: str
    message: str
    retry_after: float | None = None

    @property
    def retryable(self) -> bool:
        """Whether another call can help."""
        return self.kind in ("throttled", "transient", "unknown_outcome", "timeout", "empty_output")

    def to_json(self) -> Json:
        return {"kind": self.kind, "message": self.message, "retry_after": self.retry_after}


def classified(message: str, status: int | None = None) -> str:
    """Return the kind of a failure by its HTTP status and its words, or "" if neither says it.

    >>> classified("API Error: 529 Overloaded"), classified("Invalid API key", 401)
    ('transient', 'permanent')
    """
    text = message[:_READ]
    if status is None and (match := _STATUS.search(text)) is not None:
        status = int(match[1] or match[2])
    for kind, codes, words in _ROWS:
        # The words of a quota explain a status 429 or 400; other statuses are clearer than words.
        if status in codes or ((status is None or kind == "quota") and words.search(text)):
            return kind
    if status is not None:
        return "permanent" if status < 500 else "transient"
    return ""


def failure_of(
    message: str, *, status: int | None = None, default: str = "permanent"
) -> AgentFailure:
    """Return the failure that a message of a program means; `default` is its kind if no word says it."""
    kind = classified(message, status) or default
    match = _WAIT.search(message[:_READ])
    wait = None
    if match is not None and kind in ("throttled", "quota", "transient"):
        wait = min(float(match[1]) * _WAIT_UNITS[match[2][0].lower()], MAX_WAIT)
    return AgentFailure(kind, excerpt_line(message, MESSAGE_CHARS) or kind, wait)


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
        version: the version of the program, where an event names it.
        counts: whether tokens are reported.
    """

    counts = True

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
        self.version = ""

    @property
    def session_usage(self) -> Usage:
        """What the program reported for the whole session, for a program that counts per session."""
        return self.usage

    def feed(self, line: str) -> list[str]:
        """Read one line of output and return the live lines that describe it."""
        text = line.strip()
        try:
            data = json.loads(text) if text.startswith("{") else None
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
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


class GeminiReader(EventReader):
    """The reader of Gemini CLI."""

    _continues = False  # whether the last event was a piece of the same message
    _tools: dict[str, str]

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        kind = data.get("type")
        if kind == "message" and data.get("role") == "assistant":
            piece = text_in(data.get("content"))
            if data.get("delta") and self._continues:
                self.text = (self.text + piece)[:TEXT_CHARS]
                return []
            self.turns += 1
            self._continues = True
            self.text = piece[:TEXT_CHARS]
            return [piece]
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
            message = text_in(member(data, "error", "message")) or text_in(data.get("output"))
            if "denied" in message.lower() or "not allowed" in message.lower():
                name = getattr(self, "_tools", {}).get(str(data.get("tool_id")), "tool")
                self.deny(name, message)
        elif kind == "error":
            return [text_in(data.get("message"))]
        elif kind == "result":
            self._result(data)
        return []

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
            state = member(part, "state")
            arguments, name = member(state, "input"), str(member(part, "tool"))
            line = self.tool(name, arguments if isinstance(arguments, Mapping) else {})
            rejected = "reject" in text_in(member(state, "error")).lower()
            if member(state, "status") == "error" and rejected:
                self.deny(name, line)
            return [line]
        elif kind == "step_finish":
            tokens = member(part, "tokens")
            read = figure(member(tokens, "input")) + figure(member(tokens, "cache", "read"))
            written = figure(member(tokens, "cache", "write"))
            output = figure(member(tokens, "output")) + figure(member(tokens, "reasoning"))
            self.usage += self.counted(read + written, output, member(part, "cost"))
            self.turns += 1
            self.ended = member(part, "reason") != "tool-calls"
            # The program repeats a failed request itself; a step that finished later replaces the error.
            self.failure = None
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


_TOKENS = re.compile(
    r"Tokens: ([\d.,]{1,12})([kM]?) sent,.*?([\d.,]{1,12})([kM]?) received\.?"
    r"(?: Cost: \$([\d.]{1,12}) message, \$([\d.]{1,12}) session)?"
)
_UNITS = {"": 1, "k": 1000, "M": 1_000_000}
_EDIT = re.compile(r"Applied edit to (\S.{0,500})")
_ERROR = re.compile(r"litellm\.(?:\w+\.)*(\w+Error)\b.{0,400}|(?:^|\s)(\w+Error): .{0,400}")


class TextReader(EventReader):
    """The reader of a program that prints text: its output is its message."""

    counts = False

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._lines: list[str] = []
        self._size = 0

    def feed(self, line: str) -> list[str]:
        """Read one line of output and return it as a live line."""
        self._lines.append(line)
        self._size += len(line) + 1
        # The end of a long output is kept: the result is usually there.
        while self._size > TEXT_CHARS and len(self._lines) > 1:
            self._size -= len(self._lines.pop(0)) + 1
        return [line] if line.strip() else []

    def finish(self) -> None:
        """Complete the facts after the last line."""
        self.text = "\n".join(self._lines)[-TEXT_CHARS:].strip()
        self.turns = 1


class AiderReader(TextReader):
    """The reader of Aider, which prints its tokens and its edits as text."""

    counts = True

    def feed(self, line: str) -> list[str]:
        """Read one line of output and return it as a live line."""
        short = line[:2000]
        if (match := _TOKENS.search(short)) is not None:
            tokens = [_amount(match[1], match[2]), _amount(match[3], match[4])]
            usd = float(match[5]) if match[5] and match[5].count(".") <= 1 else 0.0
            self.usage += Usage(calls=0, input_tokens=tokens[0], output_tokens=tokens[1], usd=usd)
            self.turns += 1
            self.failure = None
            return [line]
        if (match := _EDIT.search(short)) is not None:
            self.wrote(match[1].strip())
        elif (match := _ERROR.search(short)) is not None:
            self.failure = failure_of(match[0], default="unknown_outcome")
        return super().feed(line)

    def finish(self) -> None:
        """Complete the facts after the last line."""
        turns = self.turns
        super().finish()
        self.turns = turns
        self.ended = turns > 0


def _amount(number: str, unit: str) -> int:
    try:
        return min(int(float(number.replace(",", "")) * _UNITS[unit]), 1 << 50)
    except ValueError:
        return 0


class FieldsReader(EventReader):
    """The reader of JSON lines with facts at the places that the manifest names. The last value of a fact counts."""

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        values = {name: _at(data, pointer) for name, pointer in self.manifest.fields.items()}
        if isinstance(session := values.get("session"), str) and session:
            self.session = session
        counted = {name: values.get(name) for name in ("input_tokens", "output_tokens", "usd")}
        if any(value is not None for value in counted.values()):
            self.usage = self.usage.most(self.counted(**counted))
        self.turns = max(self.turns, figure(values.get("turns")))
        if message := text_in(values.get("error")):
            self.failure = failure_of(message, default="unknown_outcome")
        lines = [text_in(values.get("tool"))]
        if text := text_in(values.get("text")):
            lines.append(self.say(text))
            self.ended = True
        return lines

    def plain(self, line: str) -> list[str]:
        """Keep a line that is no event as a note."""
        super().plain(line)
        return [line] if line.strip() else []


_UNANSWERED = {
    "refusal": AgentFailure("refused", "the agent refused the request"),
    "cancelled": AgentFailure("unknown_outcome", "the agent cancelled its turn"),
}


class AcpReader(EventReader):
    """The reader of agents that speak the Agent Client Protocol.

    Tokens are those of the call, a cost is that of the session; an agent need report neither.
    """

    counts = False
    _message: Json = None  # the ID of a message whose pieces arrive
    _open = False  # whether pieces of a message arrive
    _metered = 0  # replies with tokens of their own

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.usage = Usage(unpriced=1)
        self._tools: dict[Json, Mapping[str, Json]] = {}  # with a line that is not written yet

    @property
    def session_usage(self) -> Usage:
        """The cost of the session so far."""
        return Usage(usd=self.usage.usd)

    def event(self, data: Mapping[str, Json]) -> list[str]:
        """Read one event and return its live lines."""
        kind = data.get("type")
        if kind == "update":
            return [] if data.get("earlier") else self._update(data["update"])
        if kind == "session":
            self.session = text_in(data.get("session"))
            self.version = text_in(data.get("agent"))
        elif kind == "denied":
            self.deny(text_in(data.get("kind")), text_in(data.get("tool")))
            return [f"denied {text_in(data.get('tool'))}"]
        elif kind == "wrote":
            self.wrote(text_in(data.get("path")))
            return [f"edit {text_in(data.get('path'))}"]
        elif kind == "error":
            self.ended = True
            self.failure = failure_of(text_in(data.get("message")), default="unknown_outcome")
        elif kind == "end":
            return self._end(data)
        return []

    def _update(self, update: Mapping[str, Json]) -> list[str]:
        kind = update.get("sessionUpdate")
        if kind == "agent_message_chunk":
            return self._piece(update)
        said, self._open = ([self.text] if self._open else []), False
        if kind in ("tool_call", "tool_call_update"):
            return said + self._tool(update)
        cost = update.get("cost")
        if kind == "usage_update" and member(cost, "currency") == "USD":
            usd = self.counted(0, 0, member(cost, "amount")).usd
            self.usage = replace(self.usage, usd=usd, unpriced=0)
        return said

    def _piece(self, update: Mapping[str, Json]) -> list[str]:
        """Read a piece of a message; some agents report the tokens of a reply with an empty one."""
        usage = member(update, "_meta", "usage")
        if isinstance(usage, Mapping):
            self._metered += 1
            self.turns = max(self.turns, self._metered)
            self._count(usage, ("inputTokens", "outputTokens", "thoughtTokens", "totalTokens"))
        piece, lines = text_in(member(update, "content", "text")), list[str]()
        if piece:
            if not self._open or update.get("messageId") != self._message:
                lines = [self.text] if self._open else []
                self.text, self._open, self._message = "", True, update.get("messageId")
                self.turns += not self._metered
            self.text = (self.text + piece)[:TEXT_CHARS]
        return lines

    def _tool(self, update: Mapping[str, Json]) -> list[str]:
        key, status = update.get("toolCallId"), update.get("status")
        if "title" in update and update.get("sessionUpdate") == "tool_call":
            self._tools[key] = {}
        call = self._tools.get(key)
        if call is None:
            return []  # its line is written
        self._tools[key] = call = {**call, **update}
        if status not in ("in_progress", "completed", "failed"):
            return []
        del self._tools[key]
        name, given = text_in(call.get("kind")) or "tool", call.get("rawInput")
        line = self.tool(name, given if isinstance(given, Mapping) else {})
        return [line if line != name else f"{name} {text_in(call.get('title'))}"]

    def _count(self, usage: Mapping[str, Json], names: tuple[str, str, str, str]) -> None:
        """Add tokens; those of a cache and of thoughts may be counted apart."""
        given, received, thought, total = (figure(usage.get(name)) for name in names)
        apart = max(0, total - given - received)
        thought = min(thought, apart)
        self.counts = True
        self.usage += self.counted(given + apart - thought, received + thought)

    def _end(self, data: Mapping[str, Json]) -> list[str]:
        self.ended = True
        usage, stop = data.get("usage"), data.get("stop")
        if isinstance(usage, Mapping):
            self.usage = replace(self.usage, input_tokens=0, output_tokens=0)
            self._count(usage, ("input_tokens", "output_tokens", "thought_tokens", "total_tokens"))
        self.failure = _UNANSWERED.get(str(stop))
        if stop == "max_turn_requests":
            self.stop = "max_turns"
        return [self.text] if self._open else []


def _at(data: Json, pointer: str) -> Json:
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, list):
            data = data[int(key)] if key.isdigit() and int(key) < len(data) else None
        else:
            data = member(data, key)
    return data


_READERS: dict[str, type[EventReader]] = {
    "claude": ClaudeReader,
    "codex": CodexReader,
    "gemini": GeminiReader,
    "qwen": QwenReader,
    "opencode": OpenCodeReader,
    "aider": AiderReader,
    "acp": AcpReader,
    "text": TextReader,
    "fields": FieldsReader,
}


def reader_of(manifest: Manifest) -> EventReader:
    """Return a new reader for one call of the agent of a manifest."""
    return _READERS[manifest.events](manifest)
