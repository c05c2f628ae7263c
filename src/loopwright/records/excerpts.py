"""Excerpts: the beginning and the end of what is too long, around a marker that says what is missing."""

from __future__ import annotations

from typing import Any

from . import codec
from .codec import Json

__all__ = ["PROMPT_CHARS", "VALUE_CHARS", "cut", "marker", "shortened", "shown"]

PROMPT_CHARS = 32_000  # of the result of a tool that a model called
VALUE_CHARS = 500_000  # of one value in a template of a prompt, unless the run says otherwise


def shown(output: Json, limit: int = PROMPT_CHARS) -> str:
    """Return an output as a model is shown it: text as it is, anything else as JSON, cut to
    `limit` characters."""
    text = codec.text_of(output)
    if len(text) <= limit:
        return text
    room = max(0, limit - 60)
    head, tail = text[: room - room // 4], text[len(text) - room // 4 :] if room // 4 else ""
    omitted = len(text[len(head) : len(text) - len(tail)].encode())
    return f"{head}\n{marker(omitted)}\n{tail}"


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text, with a sign where it was cut: what stands before one is cleaned
    of parts of secrets."""
    return text if len(text) <= limit else f"{text[: limit - 1]}\u2026"


def shortened(value: Any, limit: int) -> Any:
    """Return a value whose texts have at most `limit` characters: the beginning and the end of each.

    A value in which nothing is too long is returned as it is.
    """
    if isinstance(value, str):
        return shown(value, limit) if len(value) > limit else value
    if type(value) is list:
        items = [shortened(item, limit) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if type(value) is dict:
        parts = {key: shortened(item, limit) for key, item in value.items()}
        return value if all(parts[key] is value[key] for key in parts) else parts
    return value


def marker(count: int) -> str:
    """Return what stands where bytes were left out."""
    return f"[... {count} bytes omitted ...]"
