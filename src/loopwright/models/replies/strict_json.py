"""Strict JSON in the reply of a model, for every caller that expects one value and no other text.

Rules:

1. One code fence around the reply is removed, and nothing else is repaired. `values` reads replies
   tolerantly.
2. Any text gives a value or a problem with a sentence, never an exception. The time is linear.
3. A value can be stored: no NUL, no lone surrogate, finite numbers, each key once, limited size and depth.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Literal

from ...records.codec import Json
from .text import clean_text, strip_fence

__all__ = [
    "DECODER",
    "JSON_BYTES",
    "JSON_DEPTH",
    "JsonProblem",
    "JsonReading",
    "cleaned",
    "read_json",
]

JSON_BYTES = 5_000_000  # a reply of a million tokens is smaller
JSON_DEPTH = 64  # as in `records.codec`, so that every value that is read can be stored

JsonProblem = Literal["empty", "too_large", "too_deep", "duplicate_key", "not_finite", "malformed"]

# A fence that closes on the last line of the value.
_TIGHT = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\r?\n(.*?)[ \t]*```", re.DOTALL)
_STRUCTURE = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonReading:
    """The value of a JSON reply, or the `problem` with it and a sentence."""

    value: Json = None
    problem: JsonProblem | None = None
    detail: str = ""


class _JsonError(ValueError):
    def __init__(self, problem: JsonProblem, detail: str) -> None:
        super().__init__(detail)
        self.problem: JsonProblem = problem


def read_json(text: str) -> JsonReading:
    """Read one JSON value (RFC 8259), alone or in one code fence.

    Each of these has its own problem: text before or after the value, NaN and infinities (also 1e400),
    a repeated key, more than 64 levels, more than 5,000,000 bytes of UTF-8. `clean_text` is applied to
    strings and keys.
    """
    source = strip_fence(clean_text(text))
    if source.startswith("```") and (tight := _TIGHT.fullmatch(source)) is not None:
        source = tight[1]
    try:
        # The decoder recurses, so the depth is checked before it runs.
        _check_size(source)
        value = DECODER.decode(source)
    except _JsonError as refusal:
        return JsonReading(problem=refusal.problem, detail=str(refusal))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        return JsonReading(
            problem="malformed",
            detail=f"the reply is not JSON at {place}; expected one JSON value and nothing else",
        )
    except ValueError:
        return JsonReading(
            problem="malformed",
            detail="the reply holds a number too long to read; expected one plain JSON value",
        )
    return JsonReading(value=cleaned(value))


def _check_size(source: str) -> None:
    if not source.strip():
        raise _JsonError("empty", "the reply is empty; expected one JSON value")
    # The number of characters is the cheap lower bound.
    if len(source) > JSON_BYTES or len(source.encode()) > JSON_BYTES:
        limit = f"{JSON_BYTES:,} bytes"
        raise _JsonError("too_large", f"the reply is too large; expected at most {limit} of JSON")
    depth, quoted = 0, False
    for token in _STRUCTURE.finditer(source):
        mark = token[0]
        if mark == '"':
            quoted = not quoted
        elif not quoted and mark in "[{":
            depth += 1
        elif not quoted and mark in "]}":
            depth -= 1
        if depth > JSON_DEPTH:
            limit = f"{JSON_DEPTH} levels"
            raise _JsonError("too_deep", f"the reply nests too deep; expected at most {limit}")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # Keys are cleaned before they are compared, so that two keys cannot become one later.
    members = {clean_text(key): value for key, value in pairs}
    if len(members) < len(pairs):
        raise _JsonError(
            "duplicate_key", "the reply repeats a key of an object; expected each key once"
        )
    return members


def _refuse_constant(name: str) -> float:
    raise _JsonError("not_finite", f"the reply holds {name}; expected finite numbers only")


def _finite(literal: str) -> float:
    number = float(literal)
    return number if math.isfinite(number) else _refuse_constant("a number beyond any float")


# By default Python accepts NaN and 1e400, and keeps the last of repeated keys.
DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
)


def cleaned(value: Json) -> Json:
    """Return a value whose strings are cleaned by `clean_text`."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [cleaned(member) for member in value]
    if isinstance(value, dict):
        return {key: cleaned(member) for key, member in value.items()}
    return value
