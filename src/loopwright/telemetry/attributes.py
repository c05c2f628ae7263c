"""The attributes, events and metrics under which runs are traced and measured.

`gen_ai.*` are names of the OpenTelemetry semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai). They are spelled out here, because the
conventions are in development and a library that renames one must not rename ours. `loopwright.*` are our
own, for values without a name in the conventions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..journal import Entry
from ..records import Evaluation, Usage
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

# Our own: metrics.
RUNS: Final = "loopwright.runs"
RUN_DURATION: Final = "loopwright.run.duration"
ITERATION_COUNT: Final = "loopwright.iterations"
ITERATION_DURATION: Final = "loopwright.iteration.duration"
SCORES: Final = "loopwright.score"
COST: Final = "loopwright.cost"
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
    attributes |= _present(
        {
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
    )
    if finish := value.get("finish"):
        attributes[FINISH_REASONS] = [FINISHES.get(finish, finish)]
    if capture and value:
        attributes[OUTPUT_MESSAGES] = _messages(value)
    return attributes


def _present(attributes: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in attributes.items() if value not in (None, "")}


def _messages(reply: Mapping[str, Json]) -> str:
    """Return a reply in the message format of the conventions."""
    parts: list[Json] = []
    if reply.get("text"):
        parts.append({"type": "text", "content": content(reply["text"])})
    parts += [{"type": "tool_call", **call} for call in reply.get("tool_calls", ())]
    finish = reply.get("finish", "stop")
    attributes = {
        "role": "assistant",
        "parts": parts,
        "finish_reason": FINISHES.get(finish, finish),
    }
    return json.dumps([attributes], ensure_ascii=False)


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
    """A metric: a histogram with `boundaries`, a counter without them."""

    name: str
    unit: str
    description: str
    boundaries: tuple[float, ...] = ()


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
)
