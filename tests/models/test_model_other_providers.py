"""Anthropic and Gemini in their own words, where their libraries are installed."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest
from faults_case import VERDICT
from faulty_server import Answer, FaultyServer, Turn, whole
from model_worlds import KEYS, ask, question

from loopwright.models import Message, ModelError, ProviderModel, Reply

pytestmark = pytest.mark.usefixtures("loopback")
anthropic = pytest.mark.skipif(
    importlib.util.find_spec("anthropic") is None, reason="the extra 'anthropic' is not installed"
)
gemini = pytest.mark.skipif(
    importlib.util.find_spec("google") is None or importlib.util.find_spec("google.genai") is None,
    reason="the extra 'google' is not installed",
)
YES = '{"verdict": "yes", "score": 3}'


def events(*given: dict[str, Any], cut: bool = False, named: bool = True) -> Answer:
    """A stream of events; `cut` closes the connection in the middle."""

    async def answer(turn: Turn) -> None:
        await turn.head()
        for event in given:
            name = f"event: {event['type']}\n" if named else ""
            await turn.chunk(f"{name}data: {json.dumps(event)}\n\n")
        if cut:
            turn.writer.close()
        else:
            await turn.end()

    return answer


def claude(text: str, reason: str | None = "end_turn", **more: Any) -> Answer:
    """A stream as Anthropic sends it; without a reason it ends early."""
    message = {
        "id": "m1", "type": "message", "role": "assistant", "model": "claude-x", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 1},
    }  # fmt: skip
    piece = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }
    begin = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"}, piece,
    ]  # fmt: skip
    why = {"stop_reason": reason, "stop_sequence": None}
    end = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": why, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return events(*begin, *(end if reason else []), **more)


def claude_error(status: int, kind: str, message: str, **headers: str) -> Answer:
    return whole({"type": "error", "error": {"type": kind, "message": message}}, status, **headers)


def _outcome(found: Reply | ModelError) -> str:
    if isinstance(found, Reply):
        return found.text
    return f"{found.kind}/{found.reason}" if found.reason else found.kind


CLAUDE = [
    (claude("fine"), "fine"),
    (claude("half", "max_tokens"), "truncated"),
    (claude("no", "refusal"), "refused/content_filter"),
    (claude("half", None), "transient/stream_incomplete"),
    (claude("half", None, cut=True), "transient/stream_incomplete"),
    (claude(" "), "empty_output"),
    (claude_error(429, "rate_limit_error", "slow", retry_after="7"), "throttled"),
    (claude_error(529, "overloaded_error", "busy"), "transient/status_529"),
    (claude_error(500, "api_error", "oops"), "transient/status_500"),
    (claude_error(401, "authentication_error", "who"), "permanent/unauthorised"),
    (claude_error(400, "invalid_request_error", "prompt is too long: 9 > 8 maximum"), "permanent/context_too_long"),
    (claude_error(400, "invalid_request_error", "Your credit balance is too low"), "quota"),
    (claude_error(404, "not_found_error", "model: claude-x"), "permanent/not_found"),
    (events({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}), "transient/status_529"),
]  # fmt: skip


@anthropic
@pytest.mark.parametrize(("answer", "expected"), CLAUDE)
async def test_anthropic_in_its_own_words(answer: Answer, expected: str) -> None:
    """Anthropic's streams and errors have the same kinds; one request each, with the named key."""
    async with FaultyServer(answer) as server, ProviderModel(KEYS) as model:
        request = question(
            server.url, provider="anthropic", model="claude-haiku-5-5", max_tokens=20
        )
        found = await ask(model, request)
        assert _outcome(found) == expected
        assert len(server.requests) == 1
        seen = server.requests[0]
    assert seen.headers["x-api-key"] == KEYS["CANARY_KEY"]
    assert "authorization" not in seen.headers
    assert (seen.json["max_tokens"], seen.json["stream"]) == (20, True)
    if isinstance(found, ModelError) and found.kind == "throttled":
        assert found.retry_after == 7.0


def google(text: str, reason: str | None = "STOP") -> Answer:
    """A stream as Gemini sends it."""
    candidate: dict[str, Any] = {
        "index": 0,
        "content": {"role": "model", "parts": [{"text": text}]},
    }
    if reason:
        candidate["finishReason"] = reason
    figures = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}
    chunk = {"candidates": [candidate], "usageMetadata": figures, "modelVersion": "gemini-x"}
    return events(chunk, named=False)


def google_error(status: int, word: str, message: str, *details: Any) -> Answer:
    body = {"error": {"code": status, "status": word, "message": message, "details": list(details)}}
    return whole(body, status)


_RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "14s"}
_DAILY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}
_OVER = "You exceeded your current quota, please check your plan and billing details."
GEMINI = [
    (google("fine"), "fine"),
    (google("half", "MAX_TOKENS"), "truncated"),
    (google("no", "SAFETY"), "refused/content_filter"),
    (google("half", None), "transient/stream_incomplete"),
    (google_error(429, "RESOURCE_EXHAUSTED", _OVER, _RETRY), "throttled"),
    (google_error(429, "RESOURCE_EXHAUSTED", _OVER, _DAILY), "quota"),
    (google_error(503, "UNAVAILABLE", "overloaded"), "transient/status_503"),
    (google_error(400, "INVALID_ARGUMENT", "The input token count (9) exceeds it"), "permanent/context_too_long"),
    (google_error(403, "PERMISSION_DENIED", "no"), "permanent/forbidden"),
]  # fmt: skip


@gemini
@pytest.mark.parametrize(("answer", "expected"), GEMINI)
async def test_gemini_in_its_own_words(answer: Answer, expected: str) -> None:
    """Gemini's streams and errors have the same kinds; the key is a header and never in the URL."""
    async with FaultyServer(answer) as server, ProviderModel(KEYS) as model:
        request = question(server.url, provider="gemini", model="gemini-2.5-flash", max_tokens=20)
        found = await ask(model, request)
        assert _outcome(found) == expected
        assert len(server.requests) == 1
        seen = server.requests[0]
    assert seen.headers["x-goog-api-key"] == KEYS["CANARY_KEY"]
    assert "key=" not in seen.line
    assert seen.json["generationConfig"]["maxOutputTokens"] == 20
    if isinstance(found, ModelError) and found.kind == "throttled":
        assert found.retry_after == 14.0


@pytest.mark.parametrize(
    ("provider", "model_name", "answer"),
    [
        pytest.param("anthropic", "claude-haiku-5-5", claude(YES), marks=anthropic),
        pytest.param("gemini", "gemini-2.5-flash", google(YES), marks=gemini),
    ],
)
async def test_structured_output_and_a_conversation(
    provider: str, model_name: str, answer: Answer
) -> None:
    """A schema is sent in the provider's own form, and a conversation goes on."""
    async with FaultyServer(answer) as server, ProviderModel(KEYS) as model:
        request = question(
            server.url, provider=provider, model=model_name, schema=VERDICT, max_tokens=50
        )
        found = await ask(model, request)
        assert isinstance(found, Reply)
        assert found.data == {"verdict": "yes", "score": 3}
        talk = (
            Message("system", "be brief"),
            *request.messages,
            found.message(),
            Message("user", "more"),
        )
        from dataclasses import replace

        again = await ask(model, replace(request, messages=talk))
        assert isinstance(again, Reply)
        assert len(server.requests) == 2


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
async def test_a_library_that_is_missing_is_named(provider: str) -> None:
    """Without the extra the message says which one to install; with it a request is made."""
    name = {"anthropic": "anthropic", "gemini": "google.genai"}[provider]
    extra = {"anthropic": "anthropic", "gemini": "google"}[provider]
    try:
        installed = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        installed = False
    async with FaultyServer(whole({}, 500)) as server, ProviderModel(KEYS) as model:
        found = await ask(model, question(server.url, provider=provider))
    assert isinstance(found, ModelError)
    if installed:
        assert found.kind == "transient"
    else:
        assert (found.kind, found.reason) == ("permanent", "configuration")
        assert f"pip install 'loopwright[{extra}]'" in str(found)
