"""Where a character of a text stands in its file, in whatever style the text is written.

YAML changes only the white space of a text: it removes indentation and joins lines. So a character is
found by how many characters that are no white space come before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .limits import Place

__all__ = ["place_of_character"]

_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")  # an anchor and a tag before a value
_HEADER = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?$")
_LONG_ESCAPES = {"x": 2, "u": 4, "U": 8}  # letter -> digits after it
_WHITE_ESCAPES = "tnrvfNLP_ \t"


def place_of_character(lines: Sequence[str], place: Place, text: str, offset: int) -> Place | None:
    """Return line and column, from 1, of `text[offset]`, of a text that is written at `place`."""
    if not 0 < place[0] <= len(lines):
        return None
    before = sum(not char.isspace() for char in text[:offset])
    row, column = place
    column += _PROPERTIES.match(lines[row - 1], column - 1).end() - (column - 1)  # type: ignore[union-attr]
    head = lines[row - 1][column - 1 :]
    if head.startswith("*"):
        return None  # an alias: the text stands at its anchor
    if _HEADER.match(head):
        characters = _plain(lines, row + 1, 1)
    elif head[:1] in ("'", '"'):
        characters = _quoted(lines, row, column + 1, head[0])
    else:
        characters = _plain(lines, row, column)
    for found in characters:
        if before == 0:
            return found
        before -= 1
    return None


def _plain(lines: Sequence[str], row: int, column: int) -> Iterator[Place]:
    """Iterate over the places of characters that are no white space."""
    for number in range(row, len(lines) + 1):
        line = lines[number - 1]
        for at in range(column - 1 if number == row else 0, len(line)):
            if not line[at].isspace():
                yield number, at + 1


def _quoted(lines: Sequence[str], row: int, column: int, quote: str) -> Iterator[Place]:
    """Iterate over the places of characters that are no white space, with escapes counted as one."""
    for number in range(row, len(lines) + 1):
        line = lines[number - 1]
        at = column - 1 if number == row else 0
        while at < len(line):
            length = _length_of_escape(line, at, quote)
            if length == 1 and line[at] == quote:
                return
            white = line[at].isspace() if length == 1 else _is_white_escape(line, at, length)
            if not white:
                yield number, at + 1
            at += length


def _length_of_escape(line: str, at: int, quote: str) -> int:
    """Return how many characters of a line make one of the text."""
    if quote == "'":
        return 2 if line[at : at + 2] == "''" else 1
    if line[at] != "\\":
        return 1
    return 2 + _LONG_ESCAPES.get(line[at + 1 : at + 2], 0)


def _is_white_escape(line: str, at: int, length: int) -> bool:
    if length > 2:
        digits = line[at + 2 : at + length]
        return chr(int(digits, 16)).isspace()
    following = line[at + 1 : at + 2]
    return line[at] == "\\" and (not following or following in _WHITE_ESCAPES)
