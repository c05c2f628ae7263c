"""Templates that only fill in names: what they need is plain to see, so Jinja reads them when they first run.

Most prompts of a document are text with `{{ input }}` and `{{ loop.last.feedback }}` in it. Reading one in full takes
longer than all else that is done with its step before anything runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .limits import TOKENS

__all__ = ["Paths", "paths_in", "paths_of"]

# Shorter than what Jinja's depth and ours refuse; longer ones are read in full.
_PATH = re.compile(r"\s*([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*){0,6})\s*", re.ASCII)
# Words with a meaning of their own where a name may stand, and names that are refused or have a value here.
_WORDS = frozenset({
    "and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None",
    "recursive", "self", "super", "caller", "varargs", "kwargs", "range",
})  # fmt: skip
_MOST = TOKENS // 32  # expressions, each of at most 17 parts with the text after it


@dataclass(frozen=True, slots=True)
class Paths:
    """The names that a template fills in, and the members of each that it needs."""

    names: frozenset[str]
    members: dict[str, frozenset[str]]


def paths_in(source: str) -> Paths | None:
    """Return what a template needs if it is text with names in it, dotted or not; else None."""
    if "{%" in source or "{#" in source:
        return None
    pieces = source.split("{{")[1:]
    found = []
    for piece in pieces if len(pieces) <= _MOST else ():
        path = _PATH.match(piece)
        if path is None or path[1] in _WORDS or not piece.startswith("}}", path.end()):
            return None
        found.append(path)
    return _joined(found) if len(found) == len(pieces) else None


def paths_of(source: str) -> Paths | None:
    """Return what an expression needs if it is a name, dotted or not; else None."""
    path = _PATH.fullmatch(source)
    return None if path is None or path[1] in _WORDS else _joined([path])


def _joined(found: list[re.Match[str]]) -> Paths:
    members: dict[str, set[str]] = {}
    for path in found:
        first = path[2][1:].partition(".")[0]
        if first:
            members.setdefault(path[1], set()).add(first)
    names = frozenset(path[1] for path in found)
    return Paths(names, {name: frozenset(of) for name, of in members.items()})
