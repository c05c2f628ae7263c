"""A run as spans, events and metric values with the names of their attributes, from its journal entries alone.

1. A span is sent at its end: that of a call with its "finished", those of iterations, loops and the run
   with their own entries, that of a step with inner steps with the end of the enclosing span.
2. Times are the active seconds of the run, added to the clock of this process at the opening of the run.
   So the spans of a resumed run are those of this process, in the trace that the run began.
3. The IDs of traces and spans are derived from the run, so that a resumed run continues its trace.
4. Texts of people and models are sent with `capture` only; errors and reasons are always sent.

`gen_ai.*` are names of the OpenTelemetry semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai). They are spelled out here, because the
conventions are in development and a library that renames one must not rename ours. `loopwright.*` are our
own, for values without a name in the conventions.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..journal import Entry, RunInfo
from ..records import NOTHING, Evaluation, Iteration, Status, Stop, Usage, is_judging
from ..records.codec import Json

# Of the conventions: attributes.
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
WORKFLOW: Final = "gen_ai.workflow.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"
ERROR_TYPE: Final = "error.type"

# Of the conventions: operations, events and metrics.
CHAT: Final = "chat"
INVOKE_WORKFLOW: Final = "invoke_workflow"
EXECUTE_TOOL: Final = "execute_tool"
EVALUATION_RESULT: Final = "gen_ai.evaluation.result"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - the name of a metric
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"

# Our own: attributes.
KIND: Final = "loopwright.kind"
RUN_ID: Final = "loopwright.run.id"
RUN_RESUMED: Final = "loopwright.run.resumed"
PATH: Final = "loopwright.path"
LOOP: Final = "loopwright.loop.name"
ITERATIONS: Final = "loopwright.loop.iterations"
BEST_SCORE: Final = "loopwright.loop.best_score"
ITERATION: Final = "loopwright.iteration.number"
SCORE: Final = "loopwright.iteration.score"
PASSED: Final = "loopwright.iteration.passed"
ACCEPTED: Final = "loopwright.iteration.accepted"
OUTCOME: Final = "loopwright.iteration.outcome"
STATUS: Final = "loopwright.status"
REASON: Final = "loopwright.reason"
DETAIL: Final = "loopwright.detail"
ATTEMPT: Final = "loopwright.attempt"
INTERRUPTED: Final = "loopwright.interrupted"
WAITED: Final = "loopwright.waited_seconds"
CALLS: Final = "loopwright.usage.calls"
USED_INPUT: Final = "loopwright.usage.input_tokens"
USED_OUTPUT: Final = "loopwright.usage.output_tokens"
USD: Final = "loopwright.usage.usd"
UNPRICED: Final = "loopwright.usage.unpriced_calls"
ESTIMATED: Final = "loopwright.usage.estimated_calls"
PURPOSE: Final = "loopwright.purpose"
INPUT: Final = "loopwright.input"
OUTPUT: Final = "loopwright.output"
FEEDBACK: Final = "loopwright.feedback"
QUEUE: Final = "loopwright.queue.name"

# Our own: metrics.
RUNS: Final = "loopwright.runs"
RUN_DURATION: Final = "loopwright.run.duration"
ITERATION_COUNT: Final = "loopwright.iterations"
ITERATION_DURATION: Final = "loopwright.iteration.duration"
SCORES: Final = "loopwright.score"
COST: Final = "loopwright.cost"
SWEEP_LAG: Final = "loopwright.sweep.lag"
WAITING: Final = "loopwright.queue.waiting"
OLDEST: Final = "loopwright.queue.oldest"
TAKEOVERS: Final = "loopwright.takeovers"
METRIC: Final = "loopwright.metric"  # with the name of a declared metric after a dot: a gauge

# Only differences are listed: another name of a provider is sent unchanged.
PROVIDERS: Final[Mapping[str, str]] = {"gemini": "gcp.gemini"}
"""Our names of providers, to those of the conventions, if they differ."""
FINISHES: Final[Mapping[str, str]] = {"refused": "content_filter"}
"""Our reasons for the end of a reply, to those of the conventions, if they differ."""

# Many collectors cut long attributes, and charge by size.
CONTENT_CHARS = 20_000
_ATTEMPT = re.compile(r"(?:^|/)attempt-([0-9]+)$")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_./-]")
_TOOL = re.compile(r"/call-([0-9]+)$")


def metric(name: str) -> str:
    """Return the name of the gauge of a metric, in the characters that names of instruments have.

    >>> metric("val loss")
    'loopwright.metric.val_loss'
    """
    # https://opentelemetry.io/docs/specs/otel/metrics/api/#instrument-name-syntax
    return f"{METRIC}.{_NOT_IN_NAMES.sub('_', name)}"[:255]


def content(value: Json) -> str:
    """Return a value as the text of an attribute, at most 20,000 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:CONTENT_CHARS]


def used(usage: Usage) -> dict[str, Json]:
    """Return the attributes of a usage, without figures that are 0.

    Only model calls have `gen_ai.usage.*`, so that a sum over a trace counts each call once.
    """
    figures: dict[str, Json] = {
        CALLS: usage.calls,
        USED_INPUT: usage.input_tokens,
        USED_OUTPUT: usage.output_tokens,
        USD: usage.usd,
        UNPRICED: usage.unpriced,
        ESTIMATED: usage.estimated,
    }
    return {name: value for name, value in figures.items() if value}


def attempt_of(path: str) -> int:
    """Return the number of the attempt of a model call at a path, or 0.

    >>> attempt_of("refine/1/execute/attempt-2"), attempt_of("refine/1/execute")
    (2, 0)
    """
    match = _ATTEMPT.search(path)
    return int(match[1]) if match else 0


def tool_of(path: str, calls: Sequence[Mapping[str, Json]]) -> Mapping[str, Json] | None:
    """Return the tool call at a path, from the `calls` of the model's reply; None for other paths."""
    match = _TOOL.search(path)
    number = int(match[1]) if match else 0
    return calls[number - 1] if 0 < number <= len(calls) else None


def tool_attributes(call: Mapping[str, Json], value: Json, *, capture: bool) -> dict[str, Json]:
    """Return the attributes of a tool call; `capture` adds its arguments and result."""
    attributes: dict[str, Json] = {
        OPERATION: EXECUTE_TOOL,
        TOOL_NAME: call.get("name", ""),
        TOOL_CALL: call.get("id", ""),
    }
    if capture:
        attributes[TOOL_ARGUMENTS] = content(call.get("arguments"))
        attributes[TOOL_RESULT] = content(value)
    # A failed tool call is a value for the model, so its entry has no error.
    error = value.get("error") if isinstance(value, Mapping) else None
    if isinstance(error, Mapping):
        attributes[ERROR_TYPE] = str(error.get("kind", "error"))
    return attributes


def call_attributes(entry: Entry, facts: Mapping[str, Json], *, capture: bool) -> dict[str, Json]:
    """Return the attributes of a request to a model.

    `facts` describe its failure, if it failed; `capture` adds the reply.
    """
    value = entry.value if isinstance(entry.value, Mapping) else {}
    request = value.get("request") or facts.get("request") or {}
    provider = value.get("provider") or request.get("provider", "")
    attributes: dict[str, Json] = {OPERATION: CHAT}
    known = {
        PROVIDER: PROVIDERS.get(provider, provider),
        REQUEST_MODEL: request.get("model") or value.get("model"),
        REQUEST_TEMPERATURE: request.get("temperature"),
        REQUEST_MAX_TOKENS: request.get("max_tokens"),
        RESPONSE_MODEL: value.get("model"),
        # 0 means unknown here; an attribute of 0 would lower averages.
        INPUT_TOKENS: entry.usage.input_tokens or None,
        OUTPUT_TOKENS: entry.usage.output_tokens or None,
        USD: entry.usage.usd or None,
    }
    attributes |= {name: fact for name, fact in known.items() if fact not in (None, "")}
    if finish := value.get("finish"):
        attributes[FINISH_REASONS] = [FINISHES.get(finish, finish)]
    if capture and value:
        # A reply in the message format of the conventions.
        parts: list[Json] = []
        if value.get("text"):
            parts.append({"type": "text", "content": content(value["text"])})
        parts += [{"type": "tool_call", **call} for call in value.get("tool_calls", ())]
        reason = value.get("finish", "stop")
        message = {
            "role": "assistant",
            "parts": parts,
            "finish_reason": FINISHES.get(reason, reason),
        }
        attributes[OUTPUT_MESSAGES] = json.dumps([message], ensure_ascii=False)
    return attributes


def evaluations(name: str, evaluation: Evaluation, *, capture: bool) -> Iterator[dict[str, Json]]:
    """Return the attributes of the events of an evaluation: the total, then each criterion."""
    attributes: dict[str, Json] = {EVALUATION_NAME: name}
    if evaluation.score is not None:
        attributes[EVALUATION_SCORE] = evaluation.score
    if (verdict := label(evaluation)) is not None:
        attributes[EVALUATION_LABEL] = verdict
    if capture and evaluation.feedback:
        attributes[EVALUATION_EXPLANATION] = content(evaluation.feedback)
    yield attributes
    for item in evaluation.criteria:
        part: dict[str, Json] = {
            EVALUATION_NAME: f"{name}/{item.name}",
            EVALUATION_LABEL: "pass" if item.passed else "fail",
        }
        if capture and item.gap:
            part[EVALUATION_EXPLANATION] = content(item.gap)
        yield part


def label(evaluation: Evaluation) -> str | None:
    """Return the verdict as a word: pass, fail or undecided; None without a verdict."""
    if evaluation.undecided:
        return "undecided"
    if evaluation.passed is None:
        return None
    return "pass" if evaluation.passed else "fail"


# The boundaries of the conventions: tokens in powers of 4, seconds in powers of 2.
_TOKENS = tuple(float(4**power) for power in range(14))
_SECONDS = tuple(0.01 * 2**power for power in range(14))
_LONG = tuple(0.1 * 4**power for power in range(10))
_TENTHS = tuple(tenth / 10 for tenth in range(11))


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric: a histogram with `boundaries`, a gauge, or else a counter."""

    name: str
    unit: str
    description: str
    boundaries: tuple[float, ...] = ()
    gauge: bool = False


# Without explicit boundaries, the SDK would use those for milliseconds.
INSTRUMENTS = (
    Instrument(TOKEN_USAGE, "{token}", "Tokens of one model call.", _TOKENS),
    Instrument(OPERATION_DURATION, "s", "How long a model call took.", _SECONDS),
    Instrument(RUNS, "{run}", "Runs that ended or stopped in this process, by status and reason."),
    Instrument(RUN_DURATION, "s", "How long this process executed a run.", _LONG),
    Instrument(ITERATION_COUNT, "{iteration}", "Iterations, by loop and outcome."),
    Instrument(ITERATION_DURATION, "s", "How long an iteration took.", _LONG),
    Instrument(SCORES, "1", "Scores of iterations, from 0 to 1.", _TENTHS),
    Instrument(COST, "{USD}", "Cost of calls with a known price."),
    Instrument(SWEEP_LAG, "s", "Time since the sweep before the latest one.", gauge=True),
    Instrument(WAITING, "{run}", "Runs that wait for a worker, by queue.", gauge=True),
    Instrument(OLDEST, "s", "Age of the run that waits longest, by queue.", gauge=True),
    Instrument(TAKEOVERS, "{run}", "Runs of lost workers that this one continued."),
)


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
            self.children[part] = OpenSpan(f"{self.path}/{part}" if self.path else part, at)
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
            if entry.kind == "finished" and attempt_of(entry.path):
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
            self._finish({STATUS: "interrupted"}, self._tree.root.end)

    def _started(self, entry: Entry) -> None:
        self._running[entry.path] = entry
        self._tree.reach(entry.path, entry.at)

    def _finished(self, entry: Entry) -> None:
        started = self._running.pop(entry.path, None)
        end = entry.at + entry.seconds
        self._tree.reach(entry.path, end, entry.usage)
        if entry.path.rpartition("/")[2].startswith("fault-"):
            self._failures[entry.path] = entry.value if isinstance(entry.value, Mapping) else {}
            return
        attributes = self._common_attributes(entry.path, "effect")
        if started is not None and started.seconds:
            attributes[WAITED] = round(started.seconds, 6)
        name, client, more = self._described(entry)
        attributes |= more
        error = ""
        if entry.error is not None:
            attributes[ERROR_TYPE], error = entry.error.kind, entry.error.message
        self._leave(entry.path)
        self._span(entry.path, name, entry.at, end, attributes, error=error, client=client)
        self._measure(entry, attributes)

    def _described(self, entry: Entry) -> tuple[str, bool, dict[str, Json]]:
        """Return the name of an effect's span, whether it called another system, and its attributes."""
        path = entry.path
        above, slash, last = path.rpartition("/")
        number = attempt_of(path)
        facts = self._failures.pop(f"{above}{slash}fault-{number}", None) if number else None
        replied = isinstance(entry.value, Mapping) and "finish" in entry.value
        if number and (replied or facts is not None):
            attributes = call_attributes(entry, facts or {}, capture=self.capture)
            attributes |= {KIND: "model_call", ATTEMPT: number}
            attributes[PURPOSE] = "judging" if is_judging(path) else "work"
            if replied:
                self._keep_tool_calls(entry)
                # The latest reply of every "execute" around it: evaluations refer to it.
                parts, reply_span = (
                    path.split("/"),
                    span_id(self.info.run_id, self.info.epoch, path),
                )
                for place, part in enumerate(parts):
                    if part == "execute":
                        self._operations["/".join(parts[: place + 1])] = reply_span
            model = attributes.get(REQUEST_MODEL)
            return f"{CHAT} {model}" if model else CHAT, True, attributes
        if (call := tool_of(path, self._tool_calls.get(above, ()))) is not None:
            attributes = tool_attributes(call, entry.value, capture=self.capture)
            attributes[KIND] = "tool_call"
            return f"{EXECUTE_TOOL} {call.get('name', last)}", False, attributes
        attributes = used(entry.usage)
        if self.capture and entry.error is None:
            value = entry.value
            attributes[OUTPUT] = content(value.to_json() if hasattr(value, "to_json") else value)
        return last, False, attributes

    def _keep_tool_calls(self, entry: Entry) -> None:
        """Keep the tool calls of a reply: their effects are recorded beside it, by number."""
        if isinstance(entry.value, Mapping) and (calls := entry.value.get("tool_calls")):
            self._tool_calls[entry.path.rpartition("/")[0]] = calls

    def _cut(self, entry: Entry) -> None:
        self._running.pop(entry.path, None)
        end = max(entry.at, entry.at + entry.seconds)
        self._tree.reach(entry.path, end, entry.usage)
        attributes = self._common_attributes(entry.path, "effect") | used(entry.usage)
        attributes[INTERRUPTED] = True
        self._span(entry.path, entry.path.rpartition("/")[2], entry.at, end, attributes)

    def _measure(self, entry: Entry, attributes: Mapping[str, Json]) -> None:
        """Measure a model call as the conventions define, and the cost of any effect."""
        if entry.usage.usd:
            dimensions = {PURPOSE: "judging" if is_judging(entry.path) else "work"}
            dimensions |= _only(attributes, PROVIDER, REQUEST_MODEL)
            self._send(MetricPoint(COST, entry.usage.usd, dimensions))
        if attributes.get(KIND) != "model_call":
            return
        dimensions = _only(attributes, *_CALL_ATTRIBUTES)
        self._send(MetricPoint(OPERATION_DURATION, entry.seconds, dimensions))
        # The conventions define an error type for durations and none for tokens.
        dimensions.pop(ERROR_TYPE, None)
        usage = entry.usage
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens:
                self._send(MetricPoint(TOKEN_USAGE, tokens, {**dimensions, TOKEN_TYPE: kind}))

    def _iteration(self, entry: Entry) -> None:
        record: Iteration = entry.value
        path = f"{entry.path}/{record.number}"
        # A resumed iteration began in another process, whose spans were sent there.
        start = max(self._opened, entry.at - record.seconds)
        loop = self._tree.loop(entry.path, max(self._opened, entry.at - entry.seconds), entry.at)
        loop.scores.append(record.score)
        name = entry.path.rpartition("/")[2]
        attributes = self._common_attributes(path, "iteration")
        attributes |= {LOOP: name, ITERATION: record.number, **used(record.usage)}
        attributes |= _without_none({SCORE: record.score, PASSED: record.passed})
        attributes |= _without_none({ACCEPTED: record.accepted})
        attributes |= _without_none({INTERRUPTED: record.interrupted or None})
        if self.capture:
            attributes |= {
                INPUT: content(record.input),
                OUTPUT: content(record.output),
            }
            attributes |= {FEEDBACK: content(record.feedback)}
        outcome, error = _outcome(record), ""
        attributes[OUTCOME] = outcome
        if record.error is not None and not record.interrupted:
            attributes[ERROR_TYPE], error = record.error.kind, record.error.message
        own = span_id(self.info.run_id, self.info.epoch, path)
        # The event refers to the reply that was evaluated, else to the iteration.
        judged = self._operations.pop(f"{path}/execute", own)
        self._leave(path)
        self._span(path, f"iteration {record.number}", start, entry.at, attributes, error=error)
        if record.evaluation is not None:
            for part in evaluations(name, record.evaluation, capture=self.capture):
                self._send(SpanEvent(EVALUATION_RESULT, self._at(entry.at), judged, part))
        dimensions: dict[str, Json] = {LOOP: name, OUTCOME: outcome}
        self._send(MetricPoint(ITERATION_COUNT, 1, dimensions))
        self._send(MetricPoint(ITERATION_DURATION, record.seconds, dimensions))
        if record.score is not None:
            self._send(MetricPoint(SCORES, record.score, {LOOP: name}))
        for measure in record.measures:
            gauge = metric(measure.name)
            self._send(MetricPoint(gauge, measure.value, {LOOP: name}, measure.unit or "1"))

    def _ended(self, entry: Entry) -> None:
        value = entry.value if isinstance(entry.value, Mapping) else {}
        stop = Stop.from_json(value["stop"])
        attributes: dict[str, Json] = {STATUS: stop.reason.status.value}
        attributes |= {REASON: stop.reason.value, DETAIL: stop.detail}
        if self.capture:
            attributes[OUTPUT] = content(value.get("output"))
        failed = stop.detail or stop.reason.value if stop.reason.status is Status.FAILED else ""
        if failed:
            attributes[ERROR_TYPE] = stop.reason.value
        if not entry.path:
            usage = Usage.from_json(value.get("usage"))
            self._finish(attributes | used(usage), entry.at, failed)
            return
        node = self._tree.loop(entry.path, entry.at, entry.at)
        scores = [score for score in node.scores if score is not None]
        attributes |= self._common_attributes(entry.path, "loop") | {
            LOOP: str(value.get("name", ""))
        }
        attributes |= {ITERATIONS: len(node.scores), **used(node.spent)}
        attributes |= _without_none({BEST_SCORE: max(scores, default=None)})
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
        attributes |= self._common_attributes("", "run") | {OPERATION: INVOKE_WORKFLOW}
        attributes |= {WORKFLOW: name, RUN_RESUMED: self.resumed}
        if self.capture:
            attributes[INPUT] = content(self.info.input)
        self._span("", f"{INVOKE_WORKFLOW} {name}", self._opened, end, attributes, error=error)
        dimensions = {WORKFLOW: name, **_only(attributes, STATUS, REASON)}
        self._send(MetricPoint(RUNS, 1, dimensions))
        self._send(MetricPoint(RUN_DURATION, end - self._opened, dimensions))

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
        attributes = self._common_attributes(node.path, "loop" if node.loop else "step") | used(
            node.spent
        )
        name = node.path.rpartition("/")[2]
        if node.loop:  # the run or this process ended before the loop
            name, attributes = (
                f"loop {name}",
                {**attributes, LOOP: name, INTERRUPTED: True},
            )
        self._span(node.path, name, node.start, node.end, attributes)

    def _common_attributes(self, path: str, kind: str) -> dict[str, Json]:
        attributes: dict[str, Json] = {KIND: kind, RUN_ID: self.info.run_id}
        if path:
            attributes[PATH] = path
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
        run_id, epoch = self.info.run_id, self.info.epoch
        above, _, last = path.rpartition("/")
        if is_below_run(above, last):
            above = ""
        start, end = self._at(start), self._at(max(start, end))
        self._send(
            Span(
                name=name,
                span_id=span_id(run_id, epoch, path),
                parent_id=span_id(run_id, epoch, above) if path else 0,
                start=start,
                end=end,
                attributes=attributes,
                client=client,
                error=error,
            )
        )

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
    return label(record.evaluation) or "scored"


def _without_none(attributes: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in attributes.items() if value is not None}


_CALL_ATTRIBUTES = (
    OPERATION, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, ERROR_TYPE,
)  # fmt: skip


def _only(attributes: Mapping[str, Json], *selected: str) -> dict[str, Json]:
    return {name: attributes[name] for name in selected if name in attributes}
