"""Excerpts of long texts: the beginning and the end, around a marker with the number of omitted bytes."""

from __future__ import annotations

from . import codec
from .codec import Json

PROMPT_CHARS = 32_000  # of the result of a tool call, in a prompt
VALUE_CHARS = 500_000  # of one value in a prompt template, unless the run sets another limit


def shown(output: Json, limit: int = PROMPT_CHARS) -> str:
    """Return an output as text for a prompt, cut to `limit` characters; other values become JSON."""
    text = codec.text_of(output)
    if len(text) <= limit:
        return text
    room = max(0, limit - 60)
    # Three quarters from the beginning: the errors of programs are usually at the end.
    head, tail = text[: room - room // 4], text[len(text) - room // 4 :] if room // 4 else ""
    omitted = len(text[len(head) : len(text) - len(tail)].encode())
    return f"{head}\n{marker(omitted)}\n{tail}"


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text with a sign where it was cut.

    Redaction removes parts of secrets before such a sign.
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}\u2026"


def excerpt_line(text: str, limit: int) -> str:
    """Return the beginning of a text on one line, with a sign where it was cut."""
    return cut(" ".join(text.split()), limit)


def shortened(value: Json, limit: int) -> Json:
    """Return a value whose texts are excerpts of at most `limit` characters.

    A value without long texts is returned unchanged.
    """
    if isinstance(value, str):
        return shown(value, limit) if len(value) > limit else value
    if type(value) is list:
        items = [shortened(item, limit) for item in value]
        # The same object if nothing is cut, so that a declared type and identity survive.
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if type(value) is dict:
        parts = {key: shortened(item, limit) for key, item in value.items()}
        return value if all(parts[key] is value[key] for key in parts) else parts
    return value


def marker(count: int) -> str:
    """Return the marker for omitted bytes."""
    return f"[... {count} bytes omitted ...]"
