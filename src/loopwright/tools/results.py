"""What a tool returned, bounded: what goes on of it and what a model is shown.

Rules:

1. At most 1 MiB goes on to whoever called; of more, its beginning and its end, with a marker between
   them. The journal keeps the whole, once, as a file named by its digest.
2. What re-enters a prompt has at most 32,000 characters, with the same marker.
3. More than 64 MiB is an error, never a value.
"""

from __future__ import annotations

import hashlib

from .. import codec
from ..codec import Json
from ..errors import StepError

__all__ = ["HARD_LIMIT", "INLINE_BYTES", "PROMPT_CHARS", "kept", "shown", "too_large"]

INLINE_BYTES = 1024 * 1024  # of a result that goes on whole
PROMPT_CHARS = 32_000  # of a result in a prompt
HARD_LIMIT = 64 * 1024 * 1024  # bytes of a result that are read at all
_BYTES_OF_CHARACTER = 4  # at most, in UTF-8


def kept(output: Json, limit: int = HARD_LIMIT) -> tuple[Json, dict[str, Json]]:
    """Return an output as it goes on, and what was left out of it.

    A value above 1 MiB becomes a text: its beginning and its end around a marker. The second value
    is empty, or `{"bytes": of the whole, "sha256": of the whole}`.

    Raises:
        StepError: `output_too_large` above `limit` bytes.
    """
    if isinstance(output, int | float | bool | None):
        return output, {}
    if isinstance(output, str) and len(output) * _BYTES_OF_CHARACTER <= INLINE_BYTES:
        return output, {}
    text = output if isinstance(output, str) else codec.encode(output)
    data = text.encode()
    if len(data) > limit:
        raise too_large(len(data), limit)
    if len(data) <= INLINE_BYTES:
        return output, {}
    cut = _cut(data, INLINE_BYTES - 100)
    return cut, {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def shown(output: Json, limit: int = PROMPT_CHARS) -> str:
    """Return an output as a model is shown it: text as it is, anything else as JSON, cut to
    `limit` characters."""
    text = codec.text_of(output)
    if len(text) <= limit:
        return text
    room = max(0, limit - 60)
    head, tail = text[: room - room // 4], text[len(text) - room // 4 :] if room // 4 else ""
    omitted = len(text[len(head) : len(text) - len(tail)].encode())
    return f"{head}\n{_marker(omitted)}\n{tail}"


def too_large(size: int, limit: int) -> StepError:
    """Return the error of a result that is not read to its end."""
    return StepError(
        f"its output has {size:,} bytes or more, at most {limit:,} are read; ask for less of it",
        kind="output_too_large",
        retryable=False,
    )


def _cut(data: bytes, room: int) -> str:
    half = room // 2
    head = data[:half].decode(errors="ignore")
    tail = data[-half:].decode(errors="ignore")
    omitted = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n{_marker(omitted)}\n{tail}"


def _marker(count: int) -> str:
    return f"[... {count} bytes omitted ...]"
