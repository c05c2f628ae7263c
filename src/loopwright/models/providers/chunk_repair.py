"""Chat Completions of servers that are not quite OpenAI, made into what a client expects."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["ChunkRepair", "RepeatedKey", "as_chunk", "decoded"]


class RepeatedKey(ValueError):
    """An object of an answer has a key twice, so that nobody can tell what it says."""


class ChunkRepair:
    """Reads a stream of events line by line; refuses a key that is there twice.

    Where `active`, it mends the usage: a reply is not lost because its figures are odd. What is no
    pair of token counts is taken out, so that the reply counts as one without usage.
    """

    __slots__ = ("_active", "_pending")

    def __init__(self, *, active: bool) -> None:
        self._active = active
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that are whole now, mended.

        Raises:
            RepeatedKey: for an event with a key twice.
        """
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._pending += chunk
            return b""
        lines = bytes(self._pending) + chunk[:end]
        self._pending = bytearray(chunk[end:])
        return self._mended(lines)

    def rest(self) -> bytes:
        """Return what came after the last line break."""
        lines, self._pending = bytes(self._pending), bytearray()
        return self._mended(lines)

    def _mended(self, lines: bytes) -> bytes:
        return b"".join(self._line(line) for line in lines.splitlines(keepends=True))

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:"):
            return line
        try:
            data = decoded(line[5:])
        except RepeatedKey:
            raise
        except (ValueError, RecursionError):
            return line
        if not self._active or not isinstance(data, dict) or "usage" not in data:
            return line
        figures = _figures(data["usage"])
        if figures == data["usage"]:
            return line
        return b"data: " + json.dumps({**data, "usage": figures}).encode() + b"\n"


def decoded(text: bytes) -> Any:
    """Return the value of JSON text.

    Raises:
        RepeatedKey: for an object with a key twice.
        ValueError: for what is no JSON.
    """
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RepeatedKey("a key is there twice")
    return found


def _figures(usage: Any) -> dict[str, Any] | None:
    """Return what a usage says about tokens, or None if it does not say both counts."""
    if not isinstance(usage, dict):
        return None
    counts: list[Any] = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    if not all(_is_count(count) for count in counts):
        return None
    made: dict[str, Any] = {"prompt_tokens": counts[0], "completion_tokens": counts[1]}
    made["total_tokens"] = counts[0] + counts[1]
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        details = usage.get(name)
        if isinstance(details, dict):
            made[name] = {key: value for key, value in details.items() if _is_count(value)}
    return made


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def as_chunk(data: Any) -> dict[str, Any] | None:
    """Return a whole chat completion as the one chunk of a stream, or None if it is none."""
    if not isinstance(data, dict):
        return None
    if data.get("error"):
        return data
    choices = data.get("choices")
    if not isinstance(choices, list):
        return None
    made = [_choice(choice) for choice in choices if isinstance(choice, dict)]
    kind = {"object": "chat.completion.chunk", "usage": _figures(data.get("usage"))}
    return {**data, **kind, "choices": made}


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.get("message")
    delta = dict(message) if isinstance(message, dict) else {}
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        delta["tool_calls"] = [
            {**call, "index": i} for i, call in enumerate(calls) if isinstance(call, dict)
        ]
    return {
        "index": choice.get("index", 0),
        "delta": delta,
        "finish_reason": choice.get("finish_reason"),
    }
