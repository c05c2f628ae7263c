"""A run as spans, events and measurements, made from nothing but its journal entries.

Rules:

1. A span is told when it has ended: a call with its "finished", an iteration, a loop and the run
   with theirs, a step made of steps with what encloses it.
2. Times are the run's active seconds, laid on the clock of this process when it opened the run. So
   the spans of a resumed run are what this process did, in the trace that the run began.
3. What people and models wrote is told only with `capture`; errors and reasons always are.

Ids of traces and spans, derived from the run: a resumed run goes on in the trace it began.

What is told of a run, before any library sends it: spans, events and measurements.

The paths of a run that have something below them, until their spans are told.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..journal import Entry, RunInfo
from ..records import NOTHING, Iteration, Status, Stop, Usage, is_judging
from ..records.codec import Json
from . import attributes as names
from . import attributes as say

__all__ = [
    "Measurement",
    "OpenSpan",
    "Signal",
    "Span",
    "SpanEvent",
    "Tell",
    "Trace",
    "Tree",
    "is_number",
    "span_id",
    "stands_for_the_run",
    "trace_id",
]


def trace_id(run_id: str) -> int:
    """Return the trace id of a run, 128 bits that are not 0: the same in every process.

    >>> f"{trace_id('20261121-001406-db2c64'):032x}"
    '8cdbbaff25c4abcc9b7bf9aac0be7a66'
    """
    return _number(f"loopwright trace {run_id}", 16)


def span_id(run_id: str, epoch: int, path: str) -> int:
    """Return the id of a span, 64 bits that are not 0.

    `epoch` counts the processes that have driven the run, each of which has spans of its own for
    the same loops; "" is the path of the run itself.
    """
    return _number(f"loopwright span {run_id} {epoch} {path}", 8)


def _number(text: str, size: int) -> int:
    found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(found, "big") or 1


Attributes = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time; `start` and `end` are seconds since the epoch.

    `parent_id` is 0 for the run itself, `client` says that another system was called, `error` is
    the sentence of a failure, empty if there was none.
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
    """Something that happened inside the span `span_id`, at a second since the epoch."""

    name: str
    at: float
    span_id: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of the metric `name`."""

    name: str
    value: float
    attributes: Attributes = field(default_factory=dict)


Signal = Span | SpanEvent | Measurement
Tell = Callable[[Signal], None]


class OpenSpan:
    """A path that has something below it: from when to when, in active seconds, and what it cost.

    `rounds` are the scores of a loop's iterations in this process; `numbered` says that something below it has a
    number for a name, as iterations have.
    """

    __slots__ = ("children", "end", "loop", "numbered", "path", "rounds", "spent", "start")

    def __init__(self, path: str, start: float) -> None:
        self.path = path
        self.start = self.end = start
        self.spent = NOTHING
        self.children: dict[str, OpenSpan] = {}
        self.loop = self.numbered = False
        self.rounds: list[float | None] = []

    def child(self, part: str, at: float) -> OpenSpan:
        """Return what is right below it, made if it is new."""
        found = self.children.get(part)
        if found is None:
            found = self.children[part] = OpenSpan(f"{self.path}/{part}" if self.path else part, at)
        return found

    @property
    def shown(self) -> bool:
        """Whether it has a span of its own."""
        return self.loop or self.numbered or "/" in self.path


class Tree:
    """The open paths of one run; `root` is the run itself."""

    def __init__(self, start: float) -> None:
        self.root = OpenSpan("", start)

    def reach(self, path: str, at: float, usage: Usage = NOTHING) -> OpenSpan:
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

    def loop(self, path: str, start: float, end: float) -> OpenSpan:
        """Return the node of a loop that lasted from `start` or before until `end` at least, and
        say so to all that encloses it."""
        node = self.root
        for part in path.split("/"):
            node = node.child(part, start)
            node.start, node.end = min(node.start, start), max(node.end, end)
        node.loop = True
        return node

    def leave(self, path: str) -> Iterable[OpenSpan]:
        """Forget a path; return what was right below it."""
        above, _, last = path.rpartition("/")
        node: OpenSpan | None = self.root
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


class Trace:
    """What is told of one run in one process; it hears entries, and `close` ends what is open.

    Args:
        info: the run's row, as it was opened.
        recorded: what is on record of it from before.
        tell: called with each span, event and measurement.
        capture: whether inputs, outputs and feedback are told too.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        info: RunInfo,
        recorded: Sequence[Entry],
        tell: Tell,
        *,
        capture: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.info = info
        self.capture = capture
        self.resumed = bool(recorded)
        self._tell = tell
        active = max((e.at + (e.seconds * (e.kind != "iteration")) for e in recorded), default=0.0)
        self._opened = active
        self._shift = wall() - active
        self._tree = Tree(active)
        self._flying: dict[str, Entry] = {}
        self._faults: dict[str, Mapping[str, Json]] = {}
        self._operations: dict[str, int] = {}  # of each "execute" path, its latest reply's span
        self._wanted: dict[str, Sequence[Mapping[str, Json]]] = {}
        for entry in recorded:
            if entry.kind == "finished" and say.attempt_of(entry.path):
                self._wants(entry)
        self._heard = self._over = False
        self._hears = {
            "started": self._started, "finished": self._finished, "cut": self._cut,
            "iteration": self._iteration, "ended": self._ended, "suspended": self._suspended,
            "interrupted": self._interrupted,
        }  # fmt: skip

    def __call__(self, entry: Entry) -> None:
        """Take note of an entry that has become durable."""
        self._heard = True
        hear = self._hears.get(entry.kind)
        if hear is not None:
            hear(entry)

    def close(self) -> None:
        """Tell what is open of a run that was interrupted: nothing more will come.

        A run that nothing was heard of was not driven here: it had ended before.
        """
        if self._heard and not self._over:
            for path, started in list(self._flying.items()):
                self._cut(Entry("cut", path, started.at, seconds=self._tree.root.end - started.at))
            self._finish({names.STATUS: "interrupted"}, self._tree.root.end)

    # Effects.

    def _started(self, entry: Entry) -> None:
        self._flying[entry.path] = entry
        self._tree.reach(entry.path, entry.at)

    def _finished(self, entry: Entry) -> None:
        started = self._flying.pop(entry.path, None)
        end = entry.at + entry.seconds
        self._tree.reach(entry.path, end, entry.usage)
        if _is_fault(entry.path):
            self._faults[entry.path] = entry.value if isinstance(entry.value, Mapping) else {}
            return
        told = self._about(entry.path, "effect")
        if started is not None and started.seconds:
            told[names.WAITED] = round(started.seconds, 6)
        name, client, more = self._described(entry)
        told |= more
        error = ""
        if entry.error is not None:
            told[names.ERROR_TYPE], error = entry.error.kind, entry.error.message
        self._leave(entry.path)
        self._span(entry.path, name, entry.at, end, told, error=error, client=client)
        self._measure(entry, told)

    def _described(self, entry: Entry) -> tuple[str, bool, dict[str, Json]]:
        """Return the name of an effect's span, whether another system was called, and what is said."""
        path, last = entry.path, entry.path.rpartition("/")[2]
        number = say.attempt_of(path)
        facts = self._faults.pop(_fault_of(path, number), None) if number else None
        replied = isinstance(entry.value, Mapping) and "finish" in entry.value
        if number and (replied or facts is not None):
            told = say.call_attributes(entry, facts or {}, capture=self.capture)
            told |= {names.KIND: "model_call", names.ATTEMPT: number}
            told[names.PURPOSE] = "judging" if is_judging(path) else "work"
            if replied:
                self._wants(entry)
                self._mark(path)
            model = told.get(names.REQUEST_MODEL)
            return f"{names.CHAT} {model}" if model else names.CHAT, True, told
        if (call := say.tool_of(path, self._wanted.get(path.rpartition("/")[0], ()))) is not None:
            told = say.tool_attributes(call, entry.value, capture=self.capture)
            told[names.KIND] = "tool_call"
            return f"{names.EXECUTE_TOOL} {call.get('name', last)}", False, told
        told = say.used(entry.usage)
        if self.capture and entry.error is None:
            told[names.OUTPUT] = say.content(_plain(entry.value))
        return last, False, told

    def _wants(self, entry: Entry) -> None:
        """Remember which tools a reply asked for: their calls are recorded beside it, by number."""
        if isinstance(entry.value, Mapping) and (calls := entry.value.get("tool_calls")):
            self._wanted[entry.path.rpartition("/")[0]] = calls

    def _cut(self, entry: Entry) -> None:
        self._flying.pop(entry.path, None)
        end = max(entry.at, entry.at + entry.seconds)
        self._tree.reach(entry.path, end, entry.usage)
        told = self._about(entry.path, "effect") | say.used(entry.usage)
        told[names.INTERRUPTED] = True
        self._span(entry.path, entry.path.rpartition("/")[2], entry.at, end, told)

    def _measure(self, entry: Entry, told: Mapping[str, Json]) -> None:
        """Measure a model call as the conventions say, and what anything cost."""
        if entry.usage.usd:
            kept = {names.PURPOSE: "judging" if is_judging(entry.path) else "work"}
            kept |= _only(told, names.PROVIDER, names.REQUEST_MODEL)
            self._tell(Measurement(names.COST, entry.usage.usd, kept))
        if told.get(names.KIND) != "model_call":
            return
        kept = _only(told, *_CALL_ATTRIBUTES)
        self._tell(Measurement(names.OPERATION_DURATION, entry.seconds, kept))
        kept.pop(names.ERROR_TYPE, None)
        usage = entry.usage
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens:
                told_of = {**kept, names.TOKEN_TYPE: kind}
                self._tell(Measurement(names.TOKEN_USAGE, tokens, told_of))

    # Loops and their iterations.

    def _iteration(self, entry: Entry) -> None:
        record: Iteration = entry.value
        path = f"{entry.path}/{record.number}"
        start = max(self._opened, entry.at - record.seconds)
        loop = self._tree.loop(entry.path, max(self._opened, entry.at - entry.seconds), entry.at)
        loop.rounds.append(record.score)
        name = entry.path.rpartition("/")[2]
        told = self._about(path, "iteration")
        told |= {names.LOOP: name, names.ITERATION: record.number, **say.used(record.usage)}
        told |= _known({names.SCORE: record.score, names.PASSED: record.passed})
        told |= _known({names.INTERRUPTED: record.interrupted or None})
        if self.capture:
            told |= {
                names.INPUT: say.content(record.input),
                names.OUTPUT: say.content(record.output),
            }
            told |= {names.FEEDBACK: say.content(record.feedback)}
        outcome, error = _outcome(record), ""
        told[names.OUTCOME] = outcome
        if record.error is not None and not record.interrupted:
            told[names.ERROR_TYPE], error = record.error.kind, record.error.message
        own = span_id(self.info.run_id, self.info.epoch, path)
        judged = self._operations.pop(f"{path}/execute", own)
        self._leave(path)
        self._span(path, f"iteration {record.number}", start, entry.at, told, error=error)
        if record.evaluation is not None:
            for part in say.evaluations(name, record.evaluation, capture=self.capture):
                self._tell(SpanEvent(names.EVALUATION_RESULT, self._at(entry.at), judged, part))
        kept: dict[str, Json] = {names.LOOP: name, names.OUTCOME: outcome}
        self._tell(Measurement(names.ROUNDS, 1, kept))
        self._tell(Measurement(names.ROUND_DURATION, record.seconds, kept))
        if record.score is not None:
            self._tell(Measurement(names.SCORES, record.score, {names.LOOP: name}))

    def _mark(self, path: str) -> None:
        """Remember a reply as the latest of every "execute" that it is in: that is what is judged."""
        parts = path.split("/")
        found = span_id(self.info.run_id, self.info.epoch, path)
        for place, part in enumerate(parts):
            if part == "execute":
                self._operations["/".join(parts[: place + 1])] = found

    def _ended(self, entry: Entry) -> None:
        value = entry.value if isinstance(entry.value, Mapping) else {}
        stop = Stop.from_json(value["stop"])
        told: dict[str, Json] = {names.STATUS: stop.reason.status.value}
        told |= {names.REASON: stop.reason.value, names.DETAIL: stop.detail}
        if self.capture:
            told[names.OUTPUT] = say.content(value.get("output"))
        failed = stop.detail or stop.reason.value if stop.reason.status is Status.FAILED else ""
        if failed:
            told[names.ERROR_TYPE] = stop.reason.value
        if not entry.path:
            usage = Usage.from_json(value.get("usage"))
            self._finish(told | say.used(usage), entry.at, failed)
            return
        node = self._tree.loop(entry.path, entry.at, entry.at)
        scores = [score for score in node.rounds if score is not None]
        told |= self._about(entry.path, "loop") | {names.LOOP: str(value.get("name", ""))}
        told |= {names.ITERATIONS: len(node.rounds), **say.used(node.spent)}
        told |= _known({names.BEST_SCORE: max(scores, default=None)})
        self._leave(entry.path)
        name = f"loop {value.get('name', '')}"
        self._span(entry.path, name, node.start, entry.at, told, error=failed)

    def _suspended(self, entry: Entry) -> None:
        self._ended(Entry("ended", "", entry.at, value=entry.value))

    def _interrupted(self, entry: Entry) -> None:
        self._tree.root.end = max(self._tree.root.end, entry.at)
        self.close()

    def _finish(self, told: dict[str, Json], end: float, error: str = "") -> None:
        """Tell the span of the run, and of everything in it that is still open."""
        self._over = True
        self._flying.clear()
        for child in list(self._tree.root.children.values()):
            self._group(child)
        name = self.info.name
        told |= self._about("", "run") | {names.OPERATION: names.INVOKE_WORKFLOW}
        told |= {names.WORKFLOW: name, names.RUN_RESUMED: self.resumed}
        if self.capture:
            told[names.INPUT] = say.content(self.info.input)
        title = f"{names.INVOKE_WORKFLOW} {name}"
        self._span("", title, self._opened, end, told, error=error)
        kept = {names.WORKFLOW: name, **_only(told, names.STATUS, names.REASON)}
        self._tell(Measurement(names.RUNS, 1, kept))
        self._tell(Measurement(names.RUN_DURATION, end - self._opened, kept))

    def _leave(self, path: str) -> None:
        """Tell the spans of the steps inside a path, and forget it."""
        for child in self._tree.leave(path):
            self._group(child)

    def _group(self, node: OpenSpan) -> None:
        for child in node.children.values():
            self._group(child)
        if not node.shown:
            return
        told = self._about(node.path, "loop" if node.loop else "step") | say.used(node.spent)
        name = node.path.rpartition("/")[2]
        if node.loop:  # it has not ended, but the run has, or this process
            name, told = f"loop {name}", {**told, names.LOOP: name, names.INTERRUPTED: True}
        self._span(node.path, name, node.start, node.end, told)

    # Saying it.

    def _about(self, path: str, kind: str) -> dict[str, Json]:
        told: dict[str, Json] = {names.KIND: kind, names.RUN_ID: self.info.run_id}
        if path:
            told[names.PATH] = path
        return told

    def _span(
        self, path: str, name: str, start: float, end: float, told: dict[str, Json], **more: Any
    ) -> None:
        own, outer = self._ids(path)
        start, end = self._at(start), self._at(max(start, end))
        self._tell(
            Span(
                name=name,
                span_id=own,
                parent_id=outer,
                start=start,
                end=end,
                attributes=told,
                **more,
            )
        )

    def _ids(self, path: str) -> tuple[int, int]:
        run_id, epoch = self.info.run_id, self.info.epoch
        own = span_id(run_id, epoch, path)
        above, _, last = path.rpartition("/")
        if stands_for_the_run(above, last):
            above = ""
        return own, span_id(run_id, epoch, above) if path else 0

    def _at(self, active: float) -> float:
        return self._shift + active


def _outcome(record: Iteration) -> str:
    """Return how an iteration went, in a word of a closed set."""
    if record.interrupted:
        return "interrupted"
    if record.error is not None:
        return "failed"
    if record.evaluation is None:
        return "done"
    return say.label(record.evaluation) or "scored"


def _plain(value: Any) -> Json:
    return value.to_json() if hasattr(value, "to_json") else value


def _known(told: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in told.items() if value is not None}


_CALL_ATTRIBUTES = (
    names.OPERATION,
    names.PROVIDER,
    names.REQUEST_MODEL,
    names.RESPONSE_MODEL,
    names.ERROR_TYPE,
)


def _only(told: Mapping[str, Json], *wanted: str) -> dict[str, Json]:
    return {name: told[name] for name in wanted if name in told}


def _is_fault(path: str) -> bool:
    return path.rpartition("/")[2].startswith("fault-")


def _fault_of(path: str, number: int) -> str:
    above, slash, _ = path.rpartition("/")
    return f"{above}{slash}fault-{number}"
