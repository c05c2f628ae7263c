"""The spans, events and metric values that a trace sends, and the tree of the paths that are open.

The IDs of traces and spans are derived from the run, so that a resumed run continues its trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..records import NOTHING, Usage
from ..records.codec import Json


def trace_id(run_id: str) -> int:
    """Return the trace id of a run: 128 bits, not 0, the same in every process.

    Args:
        run_id: the id of the run.

    >>> f"{trace_id('20261121-001406-db2c64'):032x}"
    'c0f63c4a510d6ecae3f16128bd6d4553'
    """
    return _number(f"loopwright trace {run_id}", 16)


def span_id(run_id: str, epoch: int, path: str) -> int:
    """Return the id of a span: 64 bits, not 0.

    `epoch` counts the openings of the run, each of which has its own spans; the path of the run is "".
    """
    return _number(f"loopwright span {run_id} {epoch} {path}", 8)


def _number(text: str, size: int) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    # OpenTelemetry treats an ID of 0 as invalid.
    return int.from_bytes(digest, "big") or 1


Attributes = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Span:
    """A span, from `start` to `end` in seconds since the epoch.

    `parent_id` is 0 for the run, `client` marks a call of another system, `error` is the message of a
    failure.
    """

    name: str
    span_id: int
    parent_id: int
    start: float
    end: float
    attributes: Attributes = field(default_factory=dict)
    client: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event inside the span `span_id`, at a second since the epoch."""

    name: str
    at: float
    span_id: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """A value of the metric `name`."""

    name: str
    value: float
    attributes: Attributes = field(default_factory=dict)
    unit: str = ""  # of a gauge; the other instruments have constant units


Signal = Span | SpanEvent | MetricPoint
Send = Callable[[Signal], None]


class OpenSpan:
    """A path with effects below it: its start and end in active seconds, and its cost.

    `scores` has an item for each iteration of a loop in this process. `numbered` means that a path below it
    has a number as its name, as iterations have.
    """

    __slots__ = ("children", "end", "loop", "numbered", "path", "scores", "spent", "start")

    def __init__(self, path: str, start: float) -> None:
        self.path = path
        self.start = self.end = start
        self.spent = NOTHING
        self.children: dict[str, OpenSpan] = {}
        self.loop = self.numbered = False
        self.scores: list[float | None] = []

    def child(self, part: str, at: float) -> OpenSpan:
        """Return the inner path of a name; it is created if it is new."""
        if part not in self.children:
            path = f"{self.path}/{part}" if self.path else part
            self.children[part] = OpenSpan(path, at)
        return self.children[part]

    @property
    def shown(self) -> bool:
        """Whether it has a span."""
        return self.loop or self.numbered or "/" in self.path


class Tree:
    """The open paths of one run; `root` is the run."""

    def __init__(self, start: float) -> None:
        self.root = OpenSpan("", start)

    def reach(self, path: str, at: float, usage: Usage = NOTHING) -> OpenSpan:
        """Extend all paths around an effect to `at`, and add its usage; return the innermost one."""
        node = self.root
        node.end = max(node.end, at)
        parts = path.split("/")
        for place, part in enumerate(parts[:-1]):
            node = node.child(part, at)
            node.end = max(node.end, at)
            node.spent += usage
            node.numbered = node.numbered or is_number(parts[place + 1])
        return node

    def loop(self, path: str, start: float, end: float) -> OpenSpan:
        """Return the path of a loop, extended with all paths around it to [start, end]."""
        node = self.root
        for part in path.split("/"):
            node = node.child(part, start)
            node.start, node.end = min(node.start, start), max(node.end, end)
        node.loop = True
        return node

    def leave(self, path: str) -> Iterable[OpenSpan]:
        """Remove a path; return its inner paths."""
        above, _, last = path.rpartition("/")
        node: OpenSpan | None = self.root
        for part in above.split("/") if above else ():
            node = node.children.get(part) if node is not None else None
        left = node.children.pop(last, None) if node is not None else None
        return list(left.children.values()) if left is not None else ()


def is_number(part: str) -> bool:
    """Return whether a part of a path is directly below a loop."""
    # A repeated evaluation stands where an iteration would, and has no number.
    return part.isdigit() or part == "rejudge"


def is_below_run(path: str, below: str) -> bool:
    """Return whether the parent of `below` at a path is the run itself.

    The root step has no span besides the span of the run, unless it is a loop.
    """
    return "/" not in path and not is_number(below)
