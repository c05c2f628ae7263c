"""What spans say of model calls, of evaluations and of what was spent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from ..codec import Json
from ..journal import Entry
from ..records import Evaluation, Usage
from . import names

__all__ = [
    "attempt_of", "call_attributes", "content", "evaluations", "label", "tool_attributes", "tool_of",
    "used",
]  # fmt: skip

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
        names.CALLS: usage.calls,
        names.USED_INPUT: usage.input_tokens,
        names.USED_OUTPUT: usage.output_tokens,
        names.USD: usage.usd,
        names.UNPRICED: usage.unpriced,
        names.ESTIMATED: usage.estimated,
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
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: call.get("name", ""),
        names.TOOL_CALL: call.get("id", ""),
    }
    if capture:
        told[names.TOOL_ARGUMENTS] = content(call.get("arguments"))
        told[names.TOOL_RESULT] = content(value)
    error = value.get("error") if isinstance(value, Mapping) else None
    if isinstance(error, Mapping):
        told[names.ERROR_TYPE] = str(error.get("kind", "error"))
    return told


def call_attributes(entry: Entry, facts: Mapping[str, Json], *, capture: bool) -> dict[str, Json]:
    """Return what is known of one request to a model.

    `facts` are those of its fault, where it failed; `capture` adds what it answered.
    """
    value = entry.value if isinstance(entry.value, Mapping) else {}
    request = value.get("request") or facts.get("request") or {}
    provider = value.get("provider") or request.get("provider", "")
    told: dict[str, Json] = {names.OPERATION: names.CHAT}
    told |= _said(
        {
            names.PROVIDER: names.PROVIDERS.get(provider, provider),
            names.REQUEST_MODEL: request.get("model") or value.get("model"),
            names.REQUEST_TEMPERATURE: request.get("temperature"),
            names.REQUEST_MAX_TOKENS: request.get("max_tokens"),
            names.RESPONSE_MODEL: value.get("model"),
            names.INPUT_TOKENS: entry.usage.input_tokens or None,
            names.OUTPUT_TOKENS: entry.usage.output_tokens or None,
            names.USD: entry.usage.usd or None,
        }
    )
    if finish := value.get("finish"):
        told[names.FINISH_REASONS] = [names.FINISHES.get(finish, finish)]
    if capture and value:
        told[names.OUTPUT_MESSAGES] = _messages(value)
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
    told = {
        "role": "assistant",
        "parts": parts,
        "finish_reason": names.FINISHES.get(finish, finish),
    }
    return json.dumps([told], ensure_ascii=False)


def evaluations(name: str, evaluation: Evaluation, *, capture: bool) -> Iterator[dict[str, Json]]:
    """Return the attributes of an event for an evaluation as a whole, and for each criterion."""
    told: dict[str, Json] = {names.EVALUATION_NAME: name}
    if evaluation.score is not None:
        told[names.EVALUATION_SCORE] = evaluation.score
    if (verdict := label(evaluation)) is not None:
        told[names.EVALUATION_LABEL] = verdict
    if capture and evaluation.feedback:
        told[names.EVALUATION_EXPLANATION] = content(evaluation.feedback)
    yield told
    for item in evaluation.criteria:
        part: dict[str, Json] = {
            names.EVALUATION_NAME: f"{name}/{item.name}",
            names.EVALUATION_LABEL: "pass" if item.passed else "fail",
        }
        if capture and item.gap:
            part[names.EVALUATION_EXPLANATION] = content(item.gap)
        yield part


def label(evaluation: Evaluation) -> str | None:
    """Return the verdict in a word: pass, fail or undecided; None if there is none."""
    if evaluation.undecided:
        return "undecided"
    if evaluation.passed is None:
        return None
    return "pass" if evaluation.passed else "fail"
