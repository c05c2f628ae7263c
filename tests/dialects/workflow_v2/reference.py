"""Placeholders of `workflow/v2.0` by their own rules, to compare the translation with.

1. A placeholder is two braces, at least one character of which none is a closing brace, two braces.
   Its name is trimmed and looked up as one key, dots included: `{{loop.last.output}}`.
2. Everything else is literal: `{% if %}`, an unclosed `{{`, a `{{}}`.
3. One pass: braces inside a value are not read again.
4. An unknown name is an error with its place; `lenient` keeps the placeholder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loopwright.dialects.workflow_v2.fields import placeholders
from loopwright.errors import ConfigurationError, nearest

__all__ = ["UnknownName", "holds", "interpolate", "placeholders"]


FALSE_TEXTS = frozenset({"", "false", "0"})
COMPARISON = re.compile(r"==|!=")


class UnknownName(ConfigurationError):
    """A placeholder names nothing; `offset` counts characters from 0, `line`, `column` from 1."""

    def __init__(self, name: str, text: str, offset: int, known: Mapping[str, Any]) -> None:
        before = text[:offset]
        self.name = name
        self.offset = offset
        self.line = before.count("\n") + 1
        self.column = offset - before.rfind("\n")
        hint = nearest(name, known)
        if any(sign in name for sign in "|()"):
            hint = "; placeholders of this dialect are plain names, without filters or calls"
        shown = name if len(name) <= 60 else name[:57] + "..."
        super().__init__(f"line {self.line}, column {self.column}: {shown!r} is not defined{hint}")


def interpolate(text: str, lookup: Mapping[str, Any], *, lenient: bool = False) -> str:
    """Put values in place of the placeholders, in one pass.

    Text stays as it is; numbers, true, false, lists and mappings are written as JSON, null as
    nothing. `lenient` leaves a placeholder of an unknown name in the text.

    Raises:
        UnknownName: a placeholder names nothing in `lookup`.
    """
    parts, done = [], 0
    for start, end in _spans(text):
        name = text[start + 2 : end - 2].strip()
        parts.append(text[done:start])
        if name in lookup:
            parts.append(_as_text(lookup[name]))
        elif lenient:
            parts.append(text[start:end])
        else:
            raise UnknownName(name, text, start, lookup)
        done = end
    return "".join([*parts, text[done:]])


def holds(condition: str, lookup: Mapping[str, Any]) -> bool:
    """Tell if the `if:` of a step holds.

    `{{name}}` is true unless it gives "", "false" or "0". `${{ name == "YES" }}`, `{{name}} ==
    "YES"` and the same with `!=` compare text, trimmed and without regard to case; a bare word on
    the right is the value of that name, or else the word itself. A condition with an unknown name
    is false.
    """
    bare = condition.strip()
    bare = bare[1:] if bare.startswith("${{") else bare
    spans = list(_spans(bare))
    inner = bare[2:-2] if spans == [(0, len(bare))] else ""
    try:
        if sides := _sides(inner, []):
            right = sides.right if sides.quoted else lookup.get(sides.right, sides.right)
            return sides.compare(interpolate(f"{{{{{sides.left}}}}}", lookup), _as_text(right))
        if sides := _sides(bare, spans):
            return sides.compare(interpolate(sides.left, lookup), interpolate(sides.right, lookup))
        return interpolate(bare, lookup).strip().lower() not in FALSE_TEXTS
    except UnknownName:
        return False


@dataclass(frozen=True, slots=True)
class _Sides:
    left: str
    equal: bool
    right: str
    quoted: bool

    def compare(self, left: str, right: str) -> bool:
        return (left.strip().casefold() == right.strip().casefold()) == self.equal


def _sides(text: str, spans: list[tuple[int, int]]) -> _Sides | None:
    """Split a comparison at its first sign outside the placeholders."""
    for sign in COMPARISON.finditer(text):
        if not any(start < sign.start() < end for start, end in spans):
            left, right = text[: sign.start()].strip(), text[sign.end() :].strip()
            quoted = len(right) > 1 and right[0] == right[-1] and right[0] in "\"'"
            return _Sides(left, sign[0] == "==", right[1:-1] if quoted else right, quoted)
    return None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    return ((start, text.index("}}", start) + 2) for _, start in placeholders(text))
