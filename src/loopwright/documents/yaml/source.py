"""The values of a document as a tree, each with its position and its text.

In the tree of nodes an alias shares the node of its anchor. The plain values share nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...errors import Problem
from ...records.codec import Json
from .limits import Place
from .scalars import Scalar, shorten

__all__ = [
    "Child",
    "Location",
    "Node",
    "Source",
    "SourceMap",
    "Stage",
    "place_of_character",
    "plain",
    "translated",
    "written",
]


_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_NAME = re.compile(r"[^\W\d][\w$-]*|\$\w+")

MAX_MESSAGE = 600  # characters of a message, which may quote any text of a document

Location = tuple[str | int, ...]


class Stage(NamedTuple):
    """One block of a repeatable key: its items are `value[key][start:end]`."""

    key: str
    start: int
    end: int


@dataclass(eq=False, slots=True)
class Node:
    """A value with its text in the document, its children, and the size of the tree below it."""

    value: Scalar = None
    text: str | None = None
    quoted: bool = False
    children: list[Child] | dict[str, Child] | None = None
    size: int = 1
    characters: int = 0
    height: int = 0


class Child(NamedTuple):
    """A node at a position of the document."""

    node: Node
    place: Place
    key_place: Place


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """The text of a document: its plain values, and the position and text of each.

    `value` contains only dict, list, str, int, float, bool and None; keys are text. `notes` are
    remarks, such as joined keys. `stages` are the blocks of the repeatable keys, in document order.
    Paths are tuples of keys and indices: `("loops", 0, "until")`.
    """

    file: str
    value: Json
    notes: tuple[Problem, ...]
    stages: tuple[Stage, ...]
    root: Child = field(repr=False)
    lines: tuple[str, ...] = field(repr=False)

    def position(self, path: Location, *, key: bool = False) -> Place:
        """Return line and column, from 1, of a value, or of its key.

        A path that does not exist has the position of its last existing part.
        """
        child = self._find(path)[0]
        return child.key_place if key else child.place

    def problem_at_word(self, path: Location, message: str, word: str) -> Problem:
        """Return a problem at the first occurrence of a word in the templates of a value, else at the value."""
        for leaf, text in self._texts(path):
            # A name can occur in several texts of a value; the first one is reported.
            offset = _offset_of(word, text)
            if offset is not None:
                return self.problem_inside(leaf, message, offset)
        return self.problem(path, message)

    def problem_inside(self, path: Location, message: str, offset: int) -> Problem:
        """Return a problem at a character of a text, counted from 0 in the text as YAML reads it."""
        result = self.problem(path, message)
        place = self.place_inside(path, offset)
        return result if place is None else replace(result, line=place[0], column=place[1])

    def place_inside(self, path: Location, offset: int) -> Place | None:
        """Return the position in the file of a character of a text; None for an alias or without a text."""
        child, result = self._find(path)
        if not result or child.node.text is None:
            return None
        return place_of_character(self.lines, child.place, child.node.text, offset)

    def _texts(self, path: Location) -> Iterator[tuple[Location, str]]:
        """Iterate over the texts at and below a path, each with its own path."""
        child, result = self._find(path)
        waiting = [(path, child.node)] if result else []
        while waiting:
            at, node = waiting.pop()
            if isinstance(node.children, dict):
                below = [((*at, key), one.node) for key, one in node.children.items()]
            elif isinstance(node.children, list):
                below = [((*at, i), one.node) for i, one in enumerate(node.children)]
            else:
                below = []
                if node.text is not None:
                    yield at, node.text
            waiting += reversed(below)

    def problem(
        self, path: Location, message: str, *, key: bool = False, code: str = ""
    ) -> Problem:
        """Return a problem at a value, or at its key, with the path in its usual form."""
        place = self.position(path, key=key)
        return Problem(self.file, *place, written(path), shorten(message, MAX_MESSAGE), code)

    def text(self, path: Location) -> str | None:
        """Return a scalar's text as written, without quotes: `1.10`, `yes`, `2026-01-07`, `012`.

        The text of a null is as written, or empty if the value is missing. A list, a mapping and a path that
        does not exist have none.
        """
        child, result = self._find(path)
        return child.node.text if result else None

    def _find(self, path: Location) -> tuple[Child, bool]:
        child = self.root
        for part in path:
            below = _below(child.node, part)
            if below is None:
                return child, False
            child = below
        return child, True


def _below(node: Node, part: str | int) -> Child | None:
    if isinstance(node.children, dict):
        return node.children.get(str(part))
    if isinstance(node.children, list) and isinstance(part, int) and 0 <= part < len(node.children):
        return node.children[part]
    return None


def _offset_of(word: str, text: str) -> int | None:
    """Return the position of a name in the tags of a text, or in the complete text if it has no tags."""
    name = re.compile(rf"(?<![\w.])(?:given\.)?{re.escape(word)}(?!\w)")
    if "{{" not in text and "{%" not in text:
        result = name.search(text)
        return None if result is None else result.start()
    for tag in _TAG.finditer(text):
        if (result := name.search(text, tag.start(), tag.end())) is not None:
            return result.start()
    return None


def written(path: Location) -> str:
    """Return `loops[0].until` for `("loops", 0, "until")`; a key that is not a name is quoted."""
    parts = ""
    for part in path:
        display = part if isinstance(part, int) else shorten(part)
        named = isinstance(part, str) and _NAME.fullmatch(part)
        parts += f".{display}" if named else f"[{display!r}]"
    return parts.removeprefix(".")


def plain(node: Node) -> Json:
    """Return the plain values of a node, which share nothing."""
    children = node.children
    if children is None:
        return node.value
    if isinstance(children, list):
        return [plain(child.node) for child in children]
    return {key: plain(child.node) for key, child in children.items()}


_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")  # an anchor and a tag before a value
_HEADER = re.compile(r"[|>][-+0-9]*[ \t]*(?:#.*)?$")
_LONG_ESCAPES = {"x": 2, "u": 4, "U": 8}  # letter -> number of digits after it
_WHITE_ESCAPES = "tnrvfNLP_ \t"


def place_of_character(lines: Sequence[str], place: Place, text: str, offset: int) -> Place | None:
    """Return line and column, from 1, of `text[offset]`, of a text that is written at `place`."""
    if not 0 < place[0] <= len(lines):
        return None
    # YAML folds and indents lines, which changes white space only. So the other characters are counted.
    before = sum(not char.isspace() for char in text[:offset])
    row, column = place
    column += _PROPERTIES.match(lines[row - 1], column - 1).end() - (column - 1)  # type: ignore[union-attr]
    head = lines[row - 1][column - 1 :]
    if head.startswith("*"):
        return None  # an alias: the text is at its anchor
    if _HEADER.match(head):
        characters = _plain(lines, row + 1, 1)
    elif head[:1] in ("'", '"'):
        characters = _quoted(lines, row, column + 1, head[0])
    else:
        characters = _plain(lines, row, column)
    for result in characters:
        if before == 0:
            return result
        before -= 1
    return None


def _plain(lines: Sequence[str], row: int, column: int) -> Iterator[Place]:
    """Iterate over the positions of characters that are not white space."""
    for number in range(row, len(lines) + 1):
        line = lines[number - 1]
        for at in range(column - 1 if number == row else 0, len(line)):
            if not line[at].isspace():
                yield number, at + 1


def _quoted(lines: Sequence[str], row: int, column: int, quote: str) -> Iterator[Place]:
    """Iterate over the positions of characters that are not white space. An escape is one character."""
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
    """Return the number of characters in a line that form one character of the text."""
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


@dataclass(frozen=True, eq=False, slots=True)
class SourceMap(Source):
    """A source that takes the paths of the native document, the translation of the original.

    `places` maps native paths to paths in the `original`. A path below a mapped path is searched there under
    the same names. If it does not exist, it has the position of the mapped path.
    """

    original: Source
    places: Mapping[Location, Location]

    def position(self, path: Location, *, key: bool = False) -> Place:
        return self.original.position(self._original_path(path), key=key)

    def problem(
        self, path: Location, message: str, *, key: bool = False, code: str = ""
    ) -> Problem:
        result = self._original_path(path)
        return self.original.problem(result, message, key=key and len(result) > 0, code=code)

    def problem_at_word(self, path: Location, message: str, word: str) -> Problem:
        return self.original.problem_at_word(self._original_path(path), message, word)

    def place_inside(self, path: Location, offset: int) -> Place | None:
        return self.original.place_inside(self._original_path(path), offset)

    def text(self, path: Location) -> str | None:
        return self.original.text(self._original_path(path))

    def _original_path(self, path: Location) -> Location:
        """Return the path in the original, without the parts that do not exist there."""
        for end in range(len(path), 0, -1):
            start = self.places.get(path[:end])
            if start is not None:
                return self._existing((*start, *path[end:]))
        return self._existing(path)

    def _existing(self, path: Location) -> Location:
        value = self.original.value
        for length, part in enumerate(path):
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return path[:length]
        return path


def translated(source: Source, places: Mapping[Location, Location]) -> SourceMap:
    """Return a source that takes native paths."""
    return SourceMap(
        source.file,
        value=source.value,
        notes=source.notes,
        stages=source.stages,
        root=source.root,
        lines=source.lines,
        original=source,
        places=dict(places),
    )
