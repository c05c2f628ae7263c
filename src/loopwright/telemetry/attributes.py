"""What spans say of model calls, of evaluations and of what was spent.

The metrics of runs: what each is called, counted in and sorted into.

The names under which runs are traced and measured.

`gen_ai.*` are those of the OpenTelemetry semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai), spelled out here: they are still in
development, and a library that renames one must not rename ours. `loopwright.*` are our own, for
what the conventions have no word for.
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

__all__ = [
    "ATTEMPT",
    "BEST_SCORE",
    "CALLS",
    "CHAT",
    "COST",
    "DETAIL",
    "ERROR_TYPE",
    "ESTIMATED",
    "EVALUATION_EXPLANATION",
    "EVALUATION_LABEL",
    "EVALUATION_NAME",
    "EVALUATION_RESULT",
    "EVALUATION_SCORE",
    "EXECUTE_TOOL",
    "FEEDBACK",
    "FINISHES",
    "FINISH_REASONS",
    "INPUT",
    "INPUT_TOKENS",
    "INSTRUMENTS",
    "INTERRUPTED",
    "INVOKE_WORKFLOW",
    "ITERATION",
    "ITERATIONS",
    "KIND",
    "LOOP",
    "OPERATION",
    "OPERATION_DURATION",
    "OUTCOME",
    "OUTPUT",
    "OUTPUT_MESSAGES",
    "OUTPUT_TOKENS",
    "PASSED",
    "PATH",
    "PROVIDER",
    "PROVIDERS",
    "PURPOSE",
    "REASON",
    "REQUEST_MAX_TOKENS",
    "REQUEST_MODEL",
    "REQUEST_TEMPERATURE",
    "RESPONSE_MODEL",
    "ROUNDS",
    "ROUND_DURATION",
    "RUNS",
    "RUN_DURATION",
    "RUN_ID",
    "RUN_RESUMED",
    "SCORE",
    "SCORES",
    "STATUS",
    "TOKEN_TYPE",
    "TOKEN_USAGE",
    "TOOL_ARGUMENTS",
    "TOOL_CALL",
    "TOOL_NAME",
    "TOOL_RESULT",
    "UNPRICED",
    "USD",
    "USED_INPUT",
    "USED_OUTPUT",
    "WAITED",
    "WORKFLOW",
    "Instrument",
    "attempt_of",
    "call_attributes",
    "content",
    "evaluations",
    "label",
    "tool_attributes",
    "tool_of",
    "used",
]


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
ROUNDS: Final = "loopwright.iterations"
ROUND_DURATION: Final = "loopwright.iteration.duration"
SCORES: Final = "loopwright.score"
COST: Final = "loopwright.cost"

PROVIDERS: Final[Mapping[str, str]] = {"gemini": "gcp.gemini"}
"""Our names of providers that the conventions call otherwise."""
FINISHES: Final[Mapping[str, str]] = {"refused": "content_filter"}
"""Our words for why a reply ended that the conventions call otherwise."""

CONTENT_CHARS = 20_000
_ATTEMPT = re.compile(r"(?:^|/)attempt-([0-9]+)$")
_TOOL = re.compile(r"/call-([0-9]+)$")


def content(value: Json) -> str:
    """Return a value as the text of an attribute, of at most 20,000 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:CONTENT_CHARS]


def used(usage: Usage) -> dict[str, Json]:
    """Return what was spent, without the figures that are 0.

    Only model calls carry `gen_ai.usage.*`: who sums these over a trace counts nothing twice.
    """
    told: dict[str, Json] = {
        CALLS: usage.calls,
        USED_INPUT: usage.input_tokens,
        USED_OUTPUT: usage.output_tokens,
        USD: usage.usd,
        UNPRICED: usage.unpriced,
        ESTIMATED: usage.estimated,
    }
    return {name: value for name, value in told.items() if value}


def attempt_of(path: str) -> int:
    """Return the number of the attempt of a model call that a path is of, or 0.

    >>> attempt_of("refine/1/execute/attempt-2"), attempt_of("refine/1/execute")
    (2, 0)
    """
    found = _ATTEMPT.search(path)
    return int(found[1]) if found else 0


def tool_of(path: str, calls: Sequence[Mapping[str, Json]]) -> Mapping[str, Json] | None:
    """Return which of the `calls` that a model asked for beside it a path is the making of."""
    found = _TOOL.search(path)
    number = int(found[1]) if found else 0
    return calls[number - 1] if 0 < number <= len(calls) else None


def tool_attributes(call: Mapping[str, Json], value: Json, *, capture: bool) -> dict[str, Json]:
    """Return what is known of one call of a tool; `capture` adds what went in and came out."""
    told: dict[str, Json] = {
        OPERATION: EXECUTE_TOOL,
        TOOL_NAME: call.get("name", ""),
        TOOL_CALL: call.get("id", ""),
    }
    if capture:
        told[TOOL_ARGUMENTS] = content(call.get("arguments"))
        told[TOOL_RESULT] = content(value)
    error = value.get("error") if isinstance(value, Mapping) else None
    if isinstance(error, Mapping):
        told[ERROR_TYPE] = str(error.get("kind", "error"))
    return told


def call_attributes(entry: Entry, facts: Mapping[str, Json], *, capture: bool) -> dict[str, Json]:
    """Return what is known of one request to a model.

    `facts` are those of its fault, where it failed; `capture` adds what it answered.
    """
    value = entry.value if isinstance(entry.value, Mapping) else {}
    request = value.get("request") or facts.get("request") or {}
    provider = value.get("provider") or request.get("provider", "")
    told: dict[str, Json] = {OPERATION: CHAT}
    told |= _said(
        {
            PROVIDER: PROVIDERS.get(provider, provider),
            REQUEST_MODEL: request.get("model") or value.get("model"),
            REQUEST_TEMPERATURE: request.get("temperature"),
            REQUEST_MAX_TOKENS: request.get("max_tokens"),
            RESPONSE_MODEL: value.get("model"),
            INPUT_TOKENS: entry.usage.input_tokens or None,
            OUTPUT_TOKENS: entry.usage.output_tokens or None,
            USD: entry.usage.usd or None,
        }
    )
    if finish := value.get("finish"):
        told[FINISH_REASONS] = [FINISHES.get(finish, finish)]
    if capture and value:
        told[OUTPUT_MESSAGES] = _messages(value)
    return told


def _said(told: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in told.items() if value not in (None, "")}


def _messages(reply: Mapping[str, Json]) -> str:
    """Return a reply as the conventions write a conversation."""
    parts: list[Json] = []
    if reply.get("text"):
        parts.append({"type": "text", "content": content(reply["text"])})
    parts += [{"type": "tool_call", **call} for call in reply.get("tool_calls", ())]
    finish = reply.get("finish", "stop")
    told = {"role": "assistant", "parts": parts, "finish_reason": FINISHES.get(finish, finish)}
    return json.dumps([told], ensure_ascii=False)


def evaluations(name: str, evaluation: Evaluation, *, capture: bool) -> Iterator[dict[str, Json]]:
    """Return the attributes of an event for an evaluation as a whole, and for each criterion."""
    told: dict[str, Json] = {EVALUATION_NAME: name}
    if evaluation.score is not None:
        told[EVALUATION_SCORE] = evaluation.score
    if (verdict := label(evaluation)) is not None:
        told[EVALUATION_LABEL] = verdict
    if capture and evaluation.feedback:
        told[EVALUATION_EXPLANATION] = content(evaluation.feedback)
    yield told
    for item in evaluation.criteria:
        part: dict[str, Json] = {
            EVALUATION_NAME: f"{name}/{item.name}",
            EVALUATION_LABEL: "pass" if item.passed else "fail",
        }
        if capture and item.gap:
            part[EVALUATION_EXPLANATION] = content(item.gap)
        yield part


def label(evaluation: Evaluation) -> str | None:
    """Return the verdict in a word: pass, fail or undecided; None if there is none."""
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
    """A metric: a histogram with `boundaries`, a sum that only grows without them."""

    name: str
    unit: str
    description: str
    boundaries: tuple[float, ...] = ()


INSTRUMENTS = (
    Instrument(TOKEN_USAGE, "{token}", "Tokens of one model call.", _TOKENS),
    Instrument(OPERATION_DURATION, "s", "How long a model call took.", _SECONDS),
    Instrument(RUNS, "{run}", "Runs that ended or left off here, by status and reason."),
    Instrument(RUN_DURATION, "s", "How long this process drove a run.", _LONG),
    Instrument(ROUNDS, "{iteration}", "Iterations, by loop and outcome."),
    Instrument(ROUND_DURATION, "s", "How long an iteration took.", _LONG),
    Instrument(SCORES, "1", "Scores of iterations, from 0 to 1.", _TENTHS),
    Instrument(COST, "{USD}", "What calls cost, where the price is known."),
)
