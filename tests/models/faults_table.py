"""Every way in which an endpoint can fail, what it does, and which fault that must be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from faulty_answers import (
    closes_before_an_answer,
    closes_in_a_chunk,
    closes_without_the_last_chunk,
    compressed,
    endless,
    endless_error,
    endless_line,
    keep_alives_after_text,
    no_content_type,
    no_http,
    only_keep_alives,
    resets_before_an_answer,
    resets_in_the_text,
    split_bytes,
    stalls_after_headers,
    stalls_after_text,
    stalls_before_headers,
    stalls_in_an_error,
    trickles,
)
from faulty_server import (
    Answer,
    completion,
    delta,
    error,
    says,
    sse,
    streamed,
    usage,
    whole,
)

VERDICT = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}, "score": {"type": "integer"}},
    "required": ["verdict", "score"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Case:
    """One behaviour of an endpoint. `kind` "" means that it is a good reply with this `text`."""

    name: str
    answer: Answer
    kind: str = ""
    reason: str = ""
    billed: str = "no"
    text: str = ""
    ask: dict[str, Any] = field(default_factory=dict)
    told: float | None = None


def _not_utf8() -> Answer:
    broken = json.dumps(delta("caf@")).encode().replace(b"@", b"\xe9")
    return streamed(broken and sse(broken), delta(finish="stop"), usage())


def _redirect(status: int) -> Answer:
    return whole({}, status, location="http://localhost:9/v1/chat/completions?key=1")


def _call(arguments: str, name: str = "search") -> dict[str, Any]:
    call = {
        "index": 0,
        "id": "t1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return delta(tool_calls=[call])


_TOOL = {"tools": [{"name": "search", "schema": {"type": "object", "properties": {}}}]}
_JSON = {"schema": VERDICT}
# One timer is short and the others are long: which one runs out does not depend on the machine.
_BEGIN = {"timers": (1.0, 9.0, 9.0)}
_IDLE = {"timers": (9.0, 0.5, 9.0)}
_WHOLE = {"timers": (9.0, 9.0, 1.0)}
_SMALL = {"max_bytes": 100_000}
_DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
_LATER = "Wed, 21 Oct 2026 07:28:40 GMT"


def statuses() -> Iterator[Case]:
    """What HTTP statuses mean."""
    for code in (500, 502, 503, 504, 529, 408, 409):
        yield Case(f"status {code}", error(code, "try later"), "transient", f"status_{code}")
    yield Case("500 without a body", whole(b"", 500, None), "transient", "status_500")
    yield Case(
        "500 with a web page",
        whole(b"<html><h1>Bad</h1>", 500, "text/html"),
        "transient",
        "status_500",
    )
    yield Case(
        "503 with a wait", error(503, "busy", retry_after="4"), "transient", "status_503", told=4.0
    )
    yield Case("an endless error", endless_error, "transient", "status_500")
    yield Case(
        "429", error(429, "Rate limit reached, add a payment method at /billing"), "throttled"
    )
    waits = [("3", 3.0), ("0", 0.0), ("1.5", 1.5), ("-1", None), ("NaN", None), ("inf", None),
             ("1e3", None), ("99999999999", None), ("soon", None), ("", None), (_LATER, 40.0)]  # fmt: skip
    for text, told in waits:
        answer = error(429, "slow down", retry_after=text, date=_DATE)
        yield Case(f"429 with Retry-After {text!r}", answer, "throttled", told=told)
    answer = error(429, "slow", **{"retry-after-ms": "1250", "retry-after": "9"})
    yield Case("429 with retry-after-ms", answer, "throttled", told=1.25)
    yield Case("an error that stalls", stalls_in_an_error, "throttled", told=2.0, ask=_BEGIN)
    yield Case(
        "429 insufficient_quota",
        error(429, "You exceeded your current quota", "insufficient_quota"),
        "quota",
    )
    yield Case(
        "429 that words a quota",
        error(429, "You exceeded your current quota, check your plan"),
        "quota",
    )
    yield Case("402", error(402, "Insufficient Balance"), "quota")
    yield Case("400 credit balance", error(400, "Your credit balance is too low"), "quota")
    permanent = [
        (400, "rejected"),
        (401, "unauthorised"),
        (403, "forbidden"),
        (404, "not_found"),
        (422, "rejected"),
    ]
    for code, reason in permanent:
        yield Case(f"status {code}", error(code, "no"), "permanent", reason)
    yield Case("418", error(418, "teapot"), "permanent", "rejected")
    for message, code in (
        ("This model's maximum context length is 8192 tokens", ""),
        ("too long", "context_length_exceeded"),
        ("prompt is too long: 210000 tokens > 200000 maximum", ""),
    ):
        yield Case(
            f"400 {code or message[:20]}",
            error(400, message, code),
            "permanent",
            "context_too_long",
        )
    yield Case("413", error(413, "payload too large"), "permanent", "context_too_long")
    yield Case(
        "400 content_filter", error(400, "filtered", "content_filter"), "refused", "content_filter"
    )
    yield Case(
        "400 in a list", whole([{"error": {"message": "bad"}}], 400), "permanent", "rejected"
    )
    yield Case(
        "400 as a text",
        whole({"error": "context window exceeded"}, 400),
        "permanent",
        "context_too_long",
    )
    yield Case(
        "400 as detail",
        whole({"detail": [{"msg": "field required"}]}, 422),
        "permanent",
        "rejected",
    )
    for code in (301, 302, 307, 308):
        yield Case(f"redirect {code}", _redirect(code), "permanent", "redirect")


def connections() -> Iterator[Case]:
    """What becomes of a connection."""
    yield Case(
        "reset before an answer",
        resets_before_an_answer,
        "unknown_outcome",
        "connection_lost",
        "maybe",
    )
    yield Case(
        "closed before an answer",
        closes_before_an_answer,
        "unknown_outcome",
        "connection_lost",
        "maybe",
    )
    yield Case("not HTTP", no_http, "unknown_outcome", "connection_lost", "maybe")
    cut = ("transient", "stream_incomplete", "maybe")
    yield Case("reset in the text", resets_in_the_text, *cut)
    yield Case("closed in a chunk", closes_in_a_chunk, *cut)
    yield Case("closed without the last chunk", closes_without_the_last_chunk, *cut)
    late = "unknown_outcome"
    yield Case(
        "stall before headers",
        stalls_before_headers,
        late,
        "first_byte_timeout",
        "maybe",
        ask=_BEGIN,
    )
    yield Case(
        "stall after headers", stalls_after_headers, late, "first_byte_timeout", "maybe", ask=_BEGIN
    )
    yield Case(
        "keep-alives only", only_keep_alives, late, "first_byte_timeout", "maybe", ask=_BEGIN
    )
    yield Case("stall in the text", stalls_after_text, late, "idle_timeout", "maybe", ask=_IDLE)
    yield Case(
        "keep-alives in the text", keep_alives_after_text, late, "idle_timeout", "maybe", ask=_IDLE
    )
    yield Case("trickle", trickles, late, "call_timeout", "maybe", ask=_WHOLE)


def streams() -> Iterator[Case]:
    """What a stream can be, byte by byte."""
    cut = ("transient", "stream_incomplete", "maybe")
    unread = ("transient", "bad_response", "maybe")
    yield Case("no finish marker", streamed(delta("half of"), done=False), *cut)
    yield Case("no finish marker, but [DONE]", streamed(delta("half of")), *cut)
    yield Case("an empty body", streamed(done=False), *cut)
    yield Case("only [DONE]", streamed(), *cut)
    yield Case("finish_reason error", says("half of it", "error"), *cut)
    yield Case("finish_reason abort", says("half of it", "abort"), *cut)
    yield Case(
        "a cut JSON event",
        streamed(delta("a"), b'data: {"choices": [{"del\n\n', done=False),
        *unread,
    )
    yield Case("an event that is no JSON", streamed(b"data: oops\n\n"), *unread)
    yield Case("an event that is a number", streamed(sse(7)), *unread)
    yield Case("an event that is null", streamed(sse(None)), *unread)
    yield Case("a deep event", streamed(b"data: " + b"[" * 100_000 + b"\n\n"), *unread)
    yield Case("choices of the wrong type", streamed({**delta(), "choices": "x"}), *unread)
    yield Case("choices [null]", streamed({**delta(), "choices": [None]}), *unread)
    yield Case(
        "a tool call of the wrong type",
        streamed(delta(tool_calls="x"), delta(finish="stop")),
        *unread,
    )
    yield Case("an error in the stream", streamed(delta("a"), {"error": {"message": "down", "code": 500}}),
               "transient", "status_500", "maybe")  # fmt: skip
    yield Case("a throttle in the stream", streamed({"error": {"message": "slow", "code": "rate_limit_exceeded"}}),
               "throttled", "", "maybe")  # fmt: skip
    yield Case(
        "an unknown error in the stream",
        streamed({"error": {"message": "odd"}}),
        "transient",
        "in_stream",
        "maybe",
    )
    yield Case(
        "an error in a whole answer",
        whole({"error": {"message": "odd"}}),
        "transient",
        "in_stream",
        "maybe",
    )
    yield Case("a web page", whole(b"<!doctype html><title>Log in", 200, "text/html"),
               "permanent", "bad_response", "maybe")  # fmt: skip
    yield Case("compressed", compressed, "permanent", "bad_response", "maybe")
    yield Case("too much", endless, "permanent", "output_too_large", "maybe", ask=_SMALL)
    yield Case(
        "a line without end", endless_line, "permanent", "output_too_large", "maybe", ask=_SMALL
    )
    yield Case("a cut whole answer", whole(b'{"choices": [{"mess'), *unread)
    yield Case("a whole answer of another kind", whole({"object": "list", "data": []}), *unread)
    yield Case("a whole answer that is a list", whole([1, 2]), *unread)


def contents() -> Iterator[Case]:
    """What a whole reply can say, or not."""
    yield Case("cut off at the limit", says("half of the", "length"), "truncated", "", "yes")
    yield Case(
        "cut JSON at the limit",
        says('{"verdict": "yes", "sc', "length"),
        "truncated",
        "",
        "yes",
        ask=_JSON,
    )
    yield Case(
        "content_filter", says("I can", "content_filter"), "refused", "content_filter", "yes"
    )
    yield Case("a refusal", streamed(delta(refusal="I will not"), delta(finish="stop"), usage()),
               "refused", "content_filter", "yes")  # fmt: skip
    yield Case("no text", streamed(delta(finish="stop"), usage()), "empty_output", "", "yes")
    yield Case("blank text", says(" \n\t "), "empty_output", "", "yes")
    yield Case("only thinking", streamed(delta(reasoning_content="hm"), delta(finish="stop"), usage()),
               "empty_output", "", "yes")  # fmt: skip
    yield Case(
        "choices []",
        whole(completion({}) | {"choices": []}),
        "transient",
        "stream_incomplete",
        "maybe",
    )
    yield Case("message null", whole(completion(None)), "empty_output", "", "yes")
    yield Case(
        "content null",
        whole(completion({"role": "assistant", "content": None})),
        "empty_output",
        "",
        "yes",
    )
    for name, text in (
        ("prose for JSON", "The verdict is yes."),
        ("cut JSON", '{"verdict": "yes", "sc'),
        ("a wrong type", '{"verdict": "yes", "score": "7"}'),
        ("a missing field", '{"verdict": "yes"}'),
        ("a key too much", '{"verdict": "yes", "score": 1, "x": 2}'),
        ("a key twice", '{"verdict": "no", "verdict": "yes", "score": 1}'),
        ("NaN", '{"verdict": "yes", "score": NaN}'),
        ("two values", '{"verdict": "yes", "score": 1} {"verdict": "no", "score": 0}'),
        ("deep JSON", "[" * 80 + "]" * 80),
    ):
        yield Case(name, says(text), "malformed", "", "yes", ask=_JSON)
    yield Case("tool arguments cut", streamed(_call('{"q": "a'), delta(finish="tool_calls"), usage()),
               "malformed", "", "yes", ask=_TOOL)  # fmt: skip
    yield Case("tool arguments no object", streamed(_call("[1]"), delta(finish="tool_calls"), usage()),
               "malformed", "", "yes", ask=_TOOL)  # fmt: skip
    yield Case("an unknown format", error(400, "response_format json_schema is not supported"),
               "transient", "format_unsupported", ask=_JSON)  # fmt: skip


def good() -> Iterator[Case]:
    """What is odd, and a good reply all the same."""
    yield Case("a stream", says("fine"), text="fine")
    yield Case(
        "a whole answer", whole(completion({"role": "assistant", "content": "fine"})), text="fine"
    )
    yield Case(
        "a whole answer called text",
        whole(completion({"content": "fine"}), kind="text/plain"),
        text="fine",
    )
    yield Case("no content type", no_content_type, text="fine")
    yield Case("one byte at a time", split_bytes, text="grün 💚")
    yield Case("bytes that are no UTF-8", _not_utf8(), text="caf\ufffd")
    half = b'{"choices": [{"index": 0, "delta": {"content": "a\\ud800"}, "finish_reason": "stop"}]}'
    yield Case("a lone surrogate", streamed(sse(half)), text="a\ufffd")
    yield Case("no usage", says("fine", figures=None), text="fine")
    yield Case(
        "keep-alives between",
        streamed(b": hi\n\n", delta("fi"), b": hi\n\n", delta("ne"), delta(finish="stop")),
        text="fine",
    )
    yield Case("an unknown finish reason", says("fine", "eos_token"), text="fine")
    yield Case(
        "text parts",
        streamed(delta([{"type": "text", "text": "fine"}]), delta(finish="stop")),
        text="fine",
    )  # type: ignore[arg-type]
    fenced = '```json\n{"verdict": "yes", "score": 3}\n```'
    yield Case("fenced JSON", says(fenced), text=fenced, ask=_JSON)
    yield Case(
        "the end without [DONE]",
        streamed(delta("fine"), delta(finish="stop"), done=False),
        text="fine",
    )
    for odd in (
        "x",
        [],
        {},
        {"prompt_tokens": -3, "completion_tokens": 1},
        {"prompt_tokens": "7", "completion_tokens": 5},
    ):
        yield Case(
            f"usage {json.dumps(odd)}",
            streamed(delta("fine"), delta(finish="stop"), usage(odd)),
            text="fine",
        )  # type: ignore[arg-type]


def cases() -> list[Case]:
    """Every case, in order."""
    return [*statuses(), *connections(), *streams(), *contents(), *good()]
