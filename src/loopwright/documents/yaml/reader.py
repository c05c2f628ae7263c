"""The text of a document as plain values, each with its position.

1. This module depends on no dialect, default or field.
2. It follows the parser's events with a separate stack. So no depth can overflow the C stack, limits
   hold before anything is built, and a wrong part does not hide the next one.
3. Each node keeps its source text, because `version: 1.0` is a text if its field is a text.
4. JSON is YAML in flow style and is read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, NoReturn, cast

import yaml

from loopwright.errors import DocumentError, Problem, nearest

from ...records.codec import Json
from . import limits
from .limits import Place
from .scalars import CORE, Scalar, resolve, short_tag, shorten
from .source import Child, Location, Node, Source, Stage, plain, written

__all__ = ["Location", "Source", "Stage", "read"]


def read(text: str | bytes, file: str, *, repeatable: frozenset[str] = frozenset()) -> Source:
    """Read one YAML or JSON document, at most 1 MiB, 64 levels and 100,000 values.

    `file` is the name in messages. A key of `repeatable` may occur more than once at the top level: its
    lists are joined in document order, with a note, and `Source.stages` keeps the blocks.

    Raises:
        DocumentError: With every problem up to the one that ends the reading.
    """
    return _Reader(file, limits.decode(text, file), repeatable).read()


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

    def __init__(self, file: str, text: str, repeatable: frozenset[str]) -> None:
        self.file = file
        self.text = text
        self.repeatable = repeatable
        self.lines = limits.split_lines(text)
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
            for event in limits.events(self.text, self.lines):
                if handler := take.get(type(event)):
                    handler(event, limits.place_of(event.start_mark))
        except limits.UnreadableError as error:
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
        if len(self.problems) == limits.MAX_PROBLEMS:
            # A binary file could otherwise have a problem in every line.
            message = f"reading stops after {limits.MAX_PROBLEMS} problems"
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
            # A key is always text, so `.inf: 1` is valid.
            if not (bare and self._expects_key()):
                self._report(place, str(error))
        node = Node(value, event.value, not bare, characters=len(event.value))
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        self._add(node, place)

    def _expects_key(self) -> bool:
        top = self.frames[-1] if self.frames else None
        return top is not None and top.key is None and isinstance(top.node.children, dict)

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
        if len(self.frames) + levels > limits.MAX_DEPTH:
            self._stop(
                place,
                f"the document is nested more than {limits.MAX_DEPTH} levels deep; flatten it",
            )

    def _add(self, node: Node, place: Place, *, expanded: bool = False) -> None:
        """Add a complete node: as the root, an item, a key, or the value of the last key."""
        # An alias counts with all that it expands to ("billion laughs").
        self.size += node.size if expanded else 1
        self.characters += node.characters if expanded else len(node.text or "")
        if self.size > limits.MAX_NODES or self.characters > limits.MAX_CHARACTERS:
            self._stop(place, limits.TOO_LARGE)
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
                self._report(frame.place, limits.template_complaint(self.lines[row - 1], column))
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
