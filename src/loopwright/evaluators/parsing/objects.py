"""The objects in which a judge answers, told from those that it repeats of the candidate.

Rules:

1. An object whose text, squeezed to letters and digits, occurs in the candidate is never read, nor is
   one in a `>` quotation.
2. Where the candidate says the name of a member that counts, what speaks for the candidate counts
   only with the mark in its object: the mark is made after the candidate, which cannot hold it.
3. What speaks against the candidate needs no mark: a false no costs a round.

Values are not compared, as a judge may repeat a planted object with other keys, case or order.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...models.replies.scan import scan
from .text import normalise_characters

__all__ = ["Object", "Objects", "objects_of", "plain", "squeezed"]

_ESCAPED = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2}))")
_OTHERS = re.compile(r"[\W_]+")
_QUOTED = re.compile(r"^[ \t]*>.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Object:
    """An object of the judge's own: its members by plain name, and whether it has the mark."""

    members: Mapping[str, Any]
    marked: bool


@dataclass(frozen=True, slots=True)
class Objects:
    """What was found in a reply.

    `suspect` says that the candidate names a member that counts, `repeated` that an object was left
    out as the candidate's, `damaged` that something began like a value and is none.
    """

    read: tuple[Object, ...]
    suspect: bool
    repeated: bool
    damaged: bool


def objects_of(own: str, *, candidate: str, mark: str, names: Sequence[str]) -> Objects:
    """Return the objects with one of these members in the own words of a judge."""
    wanted = {plain(name) for name in names}
    known = squeezed(candidate)
    own = _QUOTED.sub("", own)
    found = scan(own)
    read: list[Object] = []
    repeated = False
    for one in found.values:
        whole = squeezed(own[one.start : one.end])
        for members in _inner(one.value, wanted):
            # A wrapper may add words of the judge's; the object inside is what is repeated.
            if whole in known or squeezed(_written(members)) in known:
                repeated = True
                continue
            given = _by_name(members).get("mark")
            marked = isinstance(given, str) and given.strip().casefold() == mark.casefold()
            read.append(Object(_by_name(members), marked))
    suspect = any(squeezed(name) in known for name in names)
    damaged = found.unfinished is not None or found.broken is not None or found.exhausted
    return Objects(tuple(read), suspect, repeated, damaged)


def _inner(value: Any, wanted: set[str]) -> list[dict[str, Any]]:
    """Return the objects with a wanted member that a value is, wraps once or lists."""
    if isinstance(value, list):
        return [one for item in value if isinstance(item, dict) for one in _inner(item, wanted)]
    if wanted & _by_name(value).keys():
        return [value]
    inner = list(value.values())
    if len(inner) == 1 and isinstance(inner[0], dict) and wanted & _by_name(inner[0]).keys():
        return [inner[0]]
    return []


def _by_name(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return members by plain name, those of an object inside also as `outer.inner`.

    What two keys say that are alike is a list of both, which no reader takes for a verdict.
    """
    members: dict[str, Any] = {}
    for key, member in value.items():
        inner = member if isinstance(member, dict) else {}
        for name, part in ((key, member), *((f"{key}.{k}", m) for k, m in inner.items())):
            name = plain(name)
            members[name] = [members[name], part] if name in members else part
    return members


def _written(members: Mapping[str, Any]) -> str:
    """Return the members as text, in their order, for comparison with a text."""
    return " ".join(f"{key} {_value(value)}" for key, value in members.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _written(value)
    if isinstance(value, list):
        return " ".join(map(_value, value))
    return "null" if value is None else str(value)


def plain(name: str) -> str:
    """Return a member's name without case, `_`, `-` and spaces."""
    return re.sub(r"[\s_-]", "", normalise_characters(name)).casefold()


def squeezed(text: str) -> str:
    """Return a text after NFKC, without case and escapes: its letters and digits only."""
    for _ in range(3):  # what is escaped twice is decoded twice
        decoded = _ESCAPED.sub(_character, html.unescape(text))
        if decoded == text:
            break
        text = decoded
    return _OTHERS.sub("", normalise_characters(text).casefold())


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1] or escape[2] or escape[3], 16)
    return chr(code) if code < 0x110000 else ""
