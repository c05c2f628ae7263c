"""A run as spans, events and metric values, from its journal entries alone.

Rules:

1. A span is sent at its end: that of a call with its "finished", those of iterations, loops and the run
   with their own entries, that of a step with inner steps with the end of the enclosing span.
2. Times are the active seconds of the run, added to the clock of this process at the opening of the run.
   So the spans of a resumed run are those of this process, in the trace that the run began.
3. Texts of people and models are sent with `capture` only; errors and reasons are always sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ..journal import Entry, RunInfo
from ..records import Iteration, Status, Stop, Usage, is_judging
from ..records.codec import Json
from . import attributes as names
from .spans import MetricPoint, OpenSpan, Send, Span, SpanEvent, Tree, is_below_run, span_id


def active_seconds(recorded: Sequence[Entry]) -> float:
    """Return the active seconds of a run at the end of its recorded entries."""
    # An iteration is recorded at its end, all other entries at their beginning.
    return max((e.at + (e.seconds * (e.kind != "iteration")) for e in recorded), default=0.0)


class Trace:
    """Turns the entries of one run in one process into signals; `close` ends the open spans.

    Args:
        info: the row of the run at its opening.
        recorded: its entries from before.
        send: called with each span, event and metric value.
        capture: send inputs, outputs and feedback (default: False).
        wall: returns seconds since the epoch.
    """

    def __init__(
        self,
        info: RunInfo,
        recorded: Sequence[Entry],
        send: Send,
        *,
        capture: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.info = info
        self.capture = capture
        self.resumed = bool(recorded)
        self._send = send
        active = active_seconds(recorded)
        self._opened = active
        self._shift = wall() - active
        # The times of this process begin at the active seconds of the earlier ones.
        self._tree = Tree(active)
        self._running: dict[str, Entry] = {}
        self._failures: dict[str, Mapping[str, Json]] = {}
        self._operations: dict[str, int] = {}  # of each "execute" path, its latest reply's span
        self._tool_calls: dict[str, Sequence[Mapping[str, Json]]] = {}
        for entry in recorded:
            if entry.kind == "finished" and names.attempt_of(entry.path):
                self._keep_tool_calls(entry)
        self._received = self._over = False
        self._handlers = {
            "started": self._started, "finished": self._finished, "cut": self._cut,
            "iteration": self._iteration, "ended": self._ended, "suspended": self._suspended,
            "interrupted": self._interrupted,
        }  # fmt: skip

    def __call__(self, entry: Entry) -> None:
        """Receive an entry that has become durable."""
        self._received = True
        handler = self._handlers.get(entry.kind)
        if handler is not None:
            handler(entry)

    def close(self) -> None:
        """Send the open spans of an interrupted run.

        A run without an entry had ended before, and was not executed here.
        """
        if self._received and not self._over:
            # Calls whose end this process has not seen.
            for path, started in list(self._running.items()):
                self._cut(Entry("cut", path, started.at, seconds=self._tree.root.end - started.at))
            self._finish({names.STATUS: "interrupted"}, self._tree.root.end)

    def _started(self, entry: Entry) -> None:
        self._running[entry.path] = entry
        self._tree.reach(entry.path, entry.at)

    def _finished(self, entry: Entry) -> None:
        started = self._running.pop(entry.path, None)
        end = entry.at + entry.seconds
        self._tree.reach(entry.path, end, entry.usage)
        if _is_failure_record(entry.path):
            self._failures[entry.path] = entry.value if isinstance(entry.value, Mapping) else {}
            return
        attributes = self._common_attributes(entry.path, "effect")
        if started is not None and started.seconds:
            attributes[names.WAITED] = round(started.seconds, 6)
        name, client, more = self._described(entry)
        attributes |= more
        error = ""
        if entry.error is not None:
            attributes[names.ERROR_TYPE], error = entry.error.kind, entry.error.message
        self._leave(entry.path)
        self._span(entry.path, name, entry.at, end, attributes, error=error, client=client)
        self._measure(entry, attributes)

    def _described(self, entry: Entry) -> tuple[str, bool, dict[str, Json]]:
        """Return the name of an effect's span, whether it called another system, and its attributes."""
        path, last = entry.path, entry.path.rpartition("/")[2]
        number = names.attempt_of(path)
        facts = self._failures.pop(_failure_path(path, number), None) if number else None
        replied = isinstance(entry.value, Mapping) and "finish" in entry.value
        if number and (replied or facts is not None):
            attributes = names.call_attributes(entry, facts or {}, capture=self.capture)
            attributes |= {names.KIND: "model_call", names.ATTEMPT: number}
            attributes[names.PURPOSE] = "judging" if is_judging(path) else "work"
            if replied:
                self._keep_tool_calls(entry)
                self._keep_reply(path)
            model = attributes.get(names.REQUEST_MODEL)
            return f"{names.CHAT} {model}" if model else names.CHAT, True, attributes
        if (
            call := names.tool_of(path, self._tool_calls.get(path.rpartition("/")[0], ()))
        ) is not None:
            attributes = names.tool_attributes(call, entry.value, capture=self.capture)
            attributes[names.KIND] = "tool_call"
            return f"{names.EXECUTE_TOOL} {call.get('name', last)}", False, attributes
        attributes = names.used(entry.usage)
        if self.capture and entry.error is None:
            attributes[names.OUTPUT] = names.content(_plain(entry.value))
        return last, False, attributes

    def _keep_tool_calls(self, entry: Entry) -> None:
        """Keep the tool calls of a reply: their effects are recorded beside it, by number."""
        if isinstance(entry.value, Mapping) and (calls := entry.value.get("tool_calls")):
            self._tool_calls[entry.path.rpartition("/")[0]] = calls

    def _cut(self, entry: Entry) -> None:
        self._running.pop(entry.path, None)
        end = max(entry.at, entry.at + entry.seconds)
        self._tree.reach(entry.path, end, entry.usage)
        attributes = self._common_attributes(entry.path, "effect") | names.used(entry.usage)
        attributes[names.INTERRUPTED] = True
        self._span(entry.path, entry.path.rpartition("/")[2], entry.at, end, attributes)

    def _measure(self, entry: Entry, attributes: Mapping[str, Json]) -> None:
        """Measure a model call as the conventions define, and the cost of any effect."""
        if entry.usage.usd:
            dimensions = {names.PURPOSE: "judging" if is_judging(entry.path) else "work"}
            dimensions |= _only(attributes, names.PROVIDER, names.REQUEST_MODEL)
            self._send(MetricPoint(names.COST, entry.usage.usd, dimensions))
        if attributes.get(names.KIND) != "model_call":
            return
        dimensions = _only(attributes, *_CALL_ATTRIBUTES)
        self._send(MetricPoint(names.OPERATION_DURATION, entry.seconds, dimensions))
        # The conventions define an error type for durations and none for tokens.
        dimensions.pop(names.ERROR_TYPE, None)
        usage = entry.usage
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens:
                attributes_of = {**dimensions, names.TOKEN_TYPE: kind}
                self._send(MetricPoint(names.TOKEN_USAGE, tokens, attributes_of))

    def _iteration(self, entry: Entry) -> None:
        record: Iteration = entry.value
        path = f"{entry.path}/{record.number}"
        # A resumed iteration began in another process, whose spans were sent there.
        start = max(self._opened, entry.at - record.seconds)
        loop = self._tree.loop(entry.path, max(self._opened, entry.at - entry.seconds), entry.at)
        loop.scores.append(record.score)
        name = entry.path.rpartition("/")[2]
        attributes = self._common_attributes(path, "iteration")
        attributes |= {names.LOOP: name, names.ITERATION: record.number, **names.used(record.usage)}
        attributes |= _without_none({names.SCORE: record.score, names.PASSED: record.passed})
        attributes |= _without_none({names.ACCEPTED: record.accepted})
        attributes |= _without_none({names.INTERRUPTED: record.interrupted or None})
        if self.capture:
            attributes |= {
                names.INPUT: names.content(record.input),
                names.OUTPUT: names.content(record.output),
            }
            attributes |= {names.FEEDBACK: names.content(record.feedback)}
        outcome, error = _outcome(record), ""
        attributes[names.OUTCOME] = outcome
        if record.error is not None and not record.interrupted:
            attributes[names.ERROR_TYPE], error = record.error.kind, record.error.message
        own = span_id(self.info.run_id, self.info.epoch, path)
        # The event refers to the reply that was evaluated, else to the iteration.
        judged = self._operations.pop(f"{path}/execute", own)
        self._leave(path)
        self._span(path, f"iteration {record.number}", start, entry.at, attributes, error=error)
        if record.evaluation is not None:
            for part in names.evaluations(name, record.evaluation, capture=self.capture):
                self._send(SpanEvent(names.EVALUATION_RESULT, self._at(entry.at), judged, part))
        dimensions: dict[str, Json] = {names.LOOP: name, names.OUTCOME: outcome}
        self._send(MetricPoint(names.ITERATION_COUNT, 1, dimensions))
        self._send(MetricPoint(names.ITERATION_DURATION, record.seconds, dimensions))
        if record.score is not None:
            self._send(MetricPoint(names.SCORES, record.score, {names.LOOP: name}))
        for measure in record.measures:
            gauge = names.metric(measure.name)
            self._send(MetricPoint(gauge, measure.value, {names.LOOP: name}, measure.unit or "1"))

    def _keep_reply(self, path: str) -> None:
        """Keep a reply as the latest of every "execute" around it: evaluations refer to it."""
        parts = path.split("/")
        reply_span = span_id(self.info.run_id, self.info.epoch, path)
        for place, part in enumerate(parts):
            if part == "execute":
                self._operations["/".join(parts[: place + 1])] = reply_span

    def _ended(self, entry: Entry) -> None:
        value = entry.value if isinstance(entry.value, Mapping) else {}
        stop = Stop.from_json(value["stop"])
        attributes: dict[str, Json] = {names.STATUS: stop.reason.status.value}
        attributes |= {names.REASON: stop.reason.value, names.DETAIL: stop.detail}
        if self.capture:
            attributes[names.OUTPUT] = names.content(value.get("output"))
        failed = stop.detail or stop.reason.value if stop.reason.status is Status.FAILED else ""
        if failed:
            attributes[names.ERROR_TYPE] = stop.reason.value
        if not entry.path:
            usage = Usage.from_json(value.get("usage"))
            self._finish(attributes | names.used(usage), entry.at, failed)
            return
        node = self._tree.loop(entry.path, entry.at, entry.at)
        scores = [score for score in node.scores if score is not None]
        attributes |= self._common_attributes(entry.path, "loop") | {
            names.LOOP: str(value.get("name", ""))
        }
        attributes |= {names.ITERATIONS: len(node.scores), **names.used(node.spent)}
        attributes |= _without_none({names.BEST_SCORE: max(scores, default=None)})
        self._leave(entry.path)
        name = f"loop {value.get('name', '')}"
        self._span(entry.path, name, node.start, entry.at, attributes, error=failed)

    def _suspended(self, entry: Entry) -> None:
        self._ended(Entry("ended", "", entry.at, value=entry.value))

    def _interrupted(self, entry: Entry) -> None:
        self._tree.root.end = max(self._tree.root.end, entry.at)
        self.close()

    def _finish(self, attributes: dict[str, Json], end: float, error: str = "") -> None:
        """Send the span of the run, and of every open path in it."""
        self._over = True
        self._running.clear()
        for child in list(self._tree.root.children.values()):
            self._group(child)
        name = self.info.name
        attributes |= self._common_attributes("", "run") | {names.OPERATION: names.INVOKE_WORKFLOW}
        attributes |= {names.WORKFLOW: name, names.RUN_RESUMED: self.resumed}
        if self.capture:
            attributes[names.INPUT] = names.content(self.info.input)
        title = f"{names.INVOKE_WORKFLOW} {name}"
        self._span("", title, self._opened, end, attributes, error=error)
        dimensions = {names.WORKFLOW: name, **_only(attributes, names.STATUS, names.REASON)}
        self._send(MetricPoint(names.RUNS, 1, dimensions))
        self._send(MetricPoint(names.RUN_DURATION, end - self._opened, dimensions))

    def _leave(self, path: str) -> None:
        """Send the spans of the steps inside a path, and remove it."""
        for child in self._tree.leave(path):
            self._group(child)

    def _group(self, node: OpenSpan) -> None:
        for child in node.children.values():
            self._group(child)
        # A path without a number is a plain step, whose span is that of its effect.
        if not node.shown:
            return
        attributes = self._common_attributes(
            node.path, "loop" if node.loop else "step"
        ) | names.used(node.spent)
        name = node.path.rpartition("/")[2]
        if node.loop:  # the run or this process ended before the loop
            name, attributes = (
                f"loop {name}",
                {**attributes, names.LOOP: name, names.INTERRUPTED: True},
            )
        self._span(node.path, name, node.start, node.end, attributes)

    def _common_attributes(self, path: str, kind: str) -> dict[str, Json]:
        attributes: dict[str, Json] = {names.KIND: kind, names.RUN_ID: self.info.run_id}
        if path:
            attributes[names.PATH] = path
        return attributes

    def _span(
        self,
        path: str,
        name: str,
        start: float,
        end: float,
        attributes: dict[str, Json],
        *,
        error: str = "",
        client: bool = False,
    ) -> None:
        own, outer = self._ids(path)
        start, end = self._at(start), self._at(max(start, end))
        self._send(
            Span(
                name=name,
                span_id=own,
                parent_id=outer,
                start=start,
                end=end,
                attributes=attributes,
                client=client,
                error=error,
            )
        )

    def _ids(self, path: str) -> tuple[int, int]:
        run_id, epoch = self.info.run_id, self.info.epoch
        own = span_id(run_id, epoch, path)
        above, _, last = path.rpartition("/")
        if is_below_run(above, last):
            above = ""
        return own, span_id(run_id, epoch, above) if path else 0

    def _at(self, active: float) -> float:
        return self._shift + active


def _outcome(record: Iteration) -> str:
    """Return the outcome of an iteration in one of six words."""
    if record.interrupted:
        return "interrupted"
    if record.error is not None:
        return "failed"
    if record.evaluation is None:
        return "done"
    return names.label(record.evaluation) or "scored"


def _plain(value: Json) -> Json:
    return value.to_json() if hasattr(value, "to_json") else value


def _without_none(attributes: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in attributes.items() if value is not None}


_CALL_ATTRIBUTES = (
    names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.RESPONSE_MODEL, names.ERROR_TYPE,
)  # fmt: skip


def _only(attributes: Mapping[str, Json], *selected: str) -> dict[str, Json]:
    return {name: attributes[name] for name in selected if name in attributes}


def _is_failure_record(path: str) -> bool:
    return path.rpartition("/")[2].startswith("fault-")


def _failure_path(path: str, number: int) -> str:
    above, slash, _ = path.rpartition("/")
    return f"{above}{slash}fault-{number}"
