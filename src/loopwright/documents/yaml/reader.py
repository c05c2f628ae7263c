"""The text of a document as a tree of plain values, each with its position and its text.

1. This module depends on no dialect, default or field.
2. It follows the parser's events with a separate stack. So no depth can overflow the C stack, limits
   hold before anything is built, and a wrong part does not hide the next one.
3. Each node keeps its source text, because `version: 1.0` is a text if its field is a text.
4. JSON is YAML in flow style and is read in the same way.
5. In the tree of nodes an alias shares the node of its anchor. The plain values share nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple, NoReturn, cast

import yaml

from ...errors import DocumentError, Problem, nearest
from ...records.codec import Json
from . import bounds
from .bounds import CORE, Place, Scalar, resolve, short_tag, shorten

__all__ = [
    "Child",
    "Location",
    "Node",
    "Source",
    "SourceMap",
    "Stage",
    "place_of_character",
    "plain",
    "read",
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
            children = child.node.children
            if isinstance(children, dict) and str(part) in children:
                child = children[str(part)]
            elif isinstance(children, list) and isinstance(part, int) and 0 <= part < len(children):
                child = children[part]
            else:
                return child, False
        return child, True


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


def read(
    text: str | bytes, file: str, *, repeatable: frozenset[str] = frozenset(), larger: int = 1
) -> Source:
    """Read one YAML or JSON document, at most 1 MiB, 64 levels and 100,000 values.

    `file` is the name in messages. A key of `repeatable` may occur more than once at the top level: its
    lists are joined in document order, with a note, and `Source.stages` keeps the blocks. `larger` multiplies the
    limits, for files of data.

    Raises:
        DocumentError: With every problem up to the one that ends the reading.
    """
    return _Reader(file, bounds.decode(text, file, larger), repeatable, larger).read()


class _Key(NamedTuple):
    text: str | None
    place: Place


@dataclass(eq=False, slots=True)
class _Frame:
    """A list or mapping that is still open, the totals before it, and the key that waits for its value."""

    node: Node
    place: Place
    size: int
    characters: int
    key: _Key | None = None


class _Reader:
    """Builds the nodes of one document from the events of its parser."""

    def __init__(self, file: str, text: str, repeatable: frozenset[str], larger: int) -> None:
        self.file = file
        self.max_size = bounds.MAX_NODES * larger
        self.max_characters = bounds.MAX_CHARACTERS * larger
        self.text = text
        self.repeatable = repeatable
        self.lines = bounds.split_lines(text)
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        self.stages: list[Stage] = []
        self.frames: list[_Frame] = []
        self.anchors: dict[str, Node] = {}
        self.joined: set[str] = set()
        self.root: Child | None = None
        self.size = self.characters = 0

    def read(self) -> Source:
        take: dict[type, Callable[[Json, Place], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
            yaml.SequenceStartEvent: self._open,
            yaml.MappingStartEvent: self._open,
            yaml.SequenceEndEvent: self._close,
            yaml.MappingEndEvent: self._close,
            yaml.DocumentStartEvent: self._document,
        }
        try:
            for event in bounds.events(self.text, self.lines):
                if handler := take.get(type(event)):
                    handler(event, bounds.place_of(event.start_mark))
        except bounds.UnreadableError as error:
            # The parser often stops at a position that already has a clearer message.
            if not any((one.line, one.column) == error.place for one in self.problems):
                self._report(error.place, str(error))
            raise DocumentError(self.problems) from error
        if self.problems:
            raise DocumentError(self.problems)
        value = plain(self.root.node) if self.root else None
        if self.root is None or value is None:
            self._stop((1, 1), "the document is empty; write at least one 'key: value'")
        return Source(
            self.file,
            value=value,
            notes=tuple(self.notes),
            stages=tuple(self.stages),
            root=self.root,
            lines=tuple(self.lines),
        )

    def _report(self, place: Place, message: str, path: Location | None = None) -> None:
        display = written(self._path() if path is None else path)
        self.problems.append(Problem(self.file, *place, display, message))
        if len(self.problems) == bounds.MAX_PROBLEMS:
            # A binary file could otherwise have a problem in every line.
            message = f"reading stops after {bounds.MAX_PROBLEMS} problems"
            self.problems.append(Problem(self.file, *place, "", message))
            raise DocumentError(self.problems)

    def _stop(self, place: Place, message: str) -> NoReturn:
        self._report(place, message)
        raise DocumentError(self.problems)

    def _path(self) -> Location:
        parts: list[str | int] = []
        for frame in self.frames:
            if isinstance(frame.node.children, list):
                parts.append(len(frame.node.children))
            elif frame.key and frame.key.text is not None:
                parts.append(frame.key.text)
        return tuple(parts)

    def _document(self, _event: yaml.DocumentStartEvent, place: Place) -> None:
        if self.root is not None:
            message = "a second document begins here, but a file holds one; remove the '---'"
            self._stop(place, f"{message}, or move the rest to another file")

    def _scalar(self, event: yaml.ScalarEvent, place: Place) -> None:
        value: Scalar = event.value
        bare = event.tag is None and event.implicit[0]
        try:
            value = resolve(event.value, tag=event.tag, quoted=not bare)
        except ValueError as error:
            top = self.frames[-1] if self.frames else None
            is_key = top is not None and top.key is None and isinstance(top.node.children, dict)
            # A key is always text, so `.inf: 1` is valid.
            if not (bare and is_key):
                self._report(place, str(error))
        node = Node(value, event.value, not bare, characters=len(event.value))
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self._add(node, place)

    def _open(self, event: yaml.CollectionStartEvent, place: Place) -> None:
        self._check_depth(1, place)
        sequence = isinstance(event, yaml.SequenceStartEvent)
        if event.tag not in (None, "!", CORE + ("seq" if sequence else "map")):
            self._report(place, f"tag {short_tag(event.tag)} is not allowed here; remove it")
        node = Node(children=[] if sequence else {})
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self.frames.append(_Frame(node, place, self.size, self.characters))

    def _close(self, _event: yaml.CollectionEndEvent, _place: Place) -> None:
        node = (frame := self.frames.pop()).node
        # The height of a node is needed for its aliases, which nest as deep.
        node.height += 1
        node.size = self.size - frame.size + 1
        node.characters = self.characters - frame.characters
        self._add(node, frame.place)

    def _alias(self, event: yaml.AliasEvent, place: Place) -> None:
        name = event.anchor or ""
        node = self.anchors.get(name)
        if node is None:
            # A search among many long names would take minutes.
            names = nearest(name[:60], [other[:60] for other in islice(self.anchors, 20)])
            message = f"alias *{shorten(name)} has no anchor before it{names}"
            self._report(place, f"{message}; put quotes around the value if it is text")
        # Plain values cannot contain themselves.
        elif any(frame.node is node for frame in self.frames):
            self._report(place, f"alias *{shorten(name)} contains itself; write the value out")
            node = None
        node = node or Node()
        self._check_depth(node.height, place)
        self._add(node, place, expanded=True)

    def _check_depth(self, levels: int, place: Place) -> None:
        if len(self.frames) + levels > bounds.MAX_DEPTH:
            self._stop(
                place,
                f"the document is nested more than {bounds.MAX_DEPTH} levels deep; flatten it",
            )

    def _add(self, node: Node, place: Place, *, expanded: bool = False) -> None:
        """Add a complete node: as the root, an item, a key, or the value of the last key."""
        # An alias counts with all that it expands to ("billion laughs").
        self.size += node.size if expanded else 1
        self.characters += node.characters if expanded else len(node.text or "")
        if self.size > self.max_size or self.characters > self.max_characters:
            self._stop(
                place,
                f"the document has more than {self.max_size:,} values or {self.max_characters >> 20} MiB of "
                "text after its aliases are expanded; split it, or use fewer aliases",
            )
        if not self.frames:
            self.root = Child(node, place, place)
            return
        frame = self.frames[-1]
        # Heights are passed up here, so that no later pass over the tree is needed.
        if node.height > frame.node.height:
            frame.node.height = node.height
        if isinstance(frame.node.children, list):
            frame.node.children.append(Child(node, place, place))
        elif frame.key is None:
            frame.key = self._key(node, place, frame)
        else:
            key, frame.key = frame.key, None
            if key.text is not None:
                self._insert(key.text, Child(node, place, key.place), frame.node)

    def _key(self, node: Node, place: Place, frame: _Frame) -> _Key:
        if node.children is not None:
            row, column = frame.place
            if place == (row, column + 1) and self.lines[row - 1][column - 1 :].startswith("{{"):
                self._report(frame.place, bounds.template_complaint(self.lines[row - 1], column))
            else:
                self._report(place, "a key must be a text, not a list or a mapping")
        elif not node.quoted and node.text == "<<":
            self._report(place, "merge keys (<<) are not supported; write the fields out")
        elif not node.quoted and node.text == "":
            self._report(place, "a key is missing before this ':'")
        return _Key(node.text, place)

    def _insert(self, key: str, child: Child, parent: Node) -> None:
        children = cast("dict[str, Child]", parent.children)
        before, repeatable = children.get(key), len(self.frames) == 1 and key in self.repeatable
        if before is None:
            children[key] = child
            if repeatable and isinstance(child.node.children, list):
                self.stages.append(Stage(key, 0, len(child.node.children)))
        elif repeatable:
            children[key] = self._join(key, before, child)
        else:
            first, again = before.key_place[0], child.key_place[0]
            message = f"key {shorten(key)!r} on line {again} is already set on line {first}"
            self._report(child.key_place, f"{message}; remove one", (*self._path(), key))

    def _join(self, key: str, before: Child, child: Child) -> Child:
        items, more = _items(before.node), _items(child.node)
        first, again = before.key_place[0], child.key_place[0]
        if items is None or more is None:
            message = f"key {key!r} on line {again} is already set on line {first}, and only lists"
            self._report(child.key_place, f"{message} can be joined; remove one", (key,))
            return before
        if key not in self.joined:
            # The first block may have an anchor, whose aliases must not contain the joined items.
            self.joined.add(key)
            items = list(items)
            before = before._replace(node=Node(children=items))
        self.stages.append(Stage(key, len(items), len(items) + len(more)))
        message = f"key {key!r} on line {again} adds items to the list on line {first}"
        self.notes.append(Problem(self.file, *child.key_place, key, message, code="keys_joined"))
        items.extend(more)
        return before


def _items(node: Node) -> list[Child] | None:
    """Return the children of a list. A missing value is an empty list; other values return None."""
    if isinstance(node.children, list):
        return node.children
    return [] if node.value is None and node.children is None else None
