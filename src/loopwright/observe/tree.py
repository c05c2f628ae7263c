"""The paths of a run that have something below them, until their spans are told."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import NOTHING, Usage

__all__ = ["Node", "Tree", "is_number", "stands_for_the_run"]


class Node:
    """A path that has something below it: from when to when, in active seconds, and what it cost.

    `rounds` are the scores of a loop's iterations in this process; `numbered` says that something below it has a
    number for a name, as iterations have.
    """

    __slots__ = (
        "children",
        "end",
        "loop",
        "numbered",
        "path",
        "rounds",
        "spent",
        "start",
    )

    def __init__(self, path: str, start: float) -> None:
        self.path = path
        self.start = self.end = start
        self.spent = NOTHING
        self.children: dict[str, Node] = {}
        self.loop = self.numbered = False
        self.rounds: list[float | None] = []

    def child(self, part: str, at: float) -> Node:
        """Return what is right below it, made if it is new."""
        found = self.children.get(part)
        if found is None:
            found = self.children[part] = Node(f"{self.path}/{part}" if self.path else part, at)
        return found

    @property
    def shown(self) -> bool:
        """Whether it has a span of its own."""
        return self.loop or self.numbered or "/" in self.path


class Tree:
    """The open paths of one run; `root` is the run itself."""

    def __init__(self, start: float) -> None:
        self.root = Node("", start)

    def reach(self, path: str, at: float, usage: Usage = NOTHING) -> Node:
        """Say to all that encloses an effect that it lasted until `at`, and what it cost.

        Returns what the effect is right in.
        """
        node = self.root
        node.end = max(node.end, at)
        parts = path.split("/")
        for place, part in enumerate(parts[:-1]):
            node = node.child(part, at)
            node.end = max(node.end, at)
            node.spent += usage
            node.numbered = node.numbered or is_number(parts[place + 1])
        return node

    def loop(self, path: str, start: float, end: float) -> Node:
        """Return the node of a loop that lasted from `start` or before until `end` at least, and
        say so to all that encloses it."""
        node = self.root
        for part in path.split("/"):
            node = node.child(part, start)
            node.start, node.end = min(node.start, start), max(node.end, end)
        node.loop = True
        return node

    def leave(self, path: str) -> Iterable[Node]:
        """Forget a path; return what was right below it."""
        above, _, last = path.rpartition("/")
        node: Node | None = self.root
        for part in above.split("/") if above else ():
            node = node.children.get(part) if node is not None else None
        left = node.children.pop(last, None) if node is not None else None
        return list(left.children.values()) if left is not None else ()


def is_number(part: str) -> bool:
    """Return whether a part of a path is what is right below a loop."""
    return part.isdigit() or part == "rejudge"


def stands_for_the_run(path: str, below: str) -> bool:
    """Return whether what is `below` a path is right inside the run.

    The run's own step has no span beside the run's, unless it is a loop.
    """
    return "/" not in path and not is_number(below)
