"""What becomes of a connection, and what a stream can be, byte by byte."""

from __future__ import annotations

from faults_case import BEGIN, CUT, IDLE, WHOLE, Case
from faulty_answers import (
    closes_before_an_answer,
    closes_in_a_chunk,
    closes_without_the_last_chunk,
    compressed,
    endless,
    endless_line,
    keep_alives_after_text,
    large_line,
    no_http,
    only_keep_alives,
    resets_before_an_answer,
    resets_in_the_text,
    stalls_after_headers,
    stalls_after_text,
    stalls_before_headers,
    trickles,
)
from faulty_server import delta, says, sse, streamed, whole

_UNREAD = ("transient", "bad_response", "maybe")
_SMALL = {"max_bytes": 100_000}

CONNECTIONS: list[Case] = [
    Case(
        "reset before an answer",
        resets_before_an_answer,
        "unknown_outcome",
        "connection_lost",
        "maybe",
    ),
    Case(
        "closed before an answer",
        closes_before_an_answer,
        "unknown_outcome",
        "connection_lost",
        "maybe",
    ),
    Case("not HTTP", no_http, "unknown_outcome", "connection_lost", "maybe"),
    Case("reset in the text", resets_in_the_text, *CUT),
    Case("closed in a chunk", closes_in_a_chunk, *CUT),
    Case("closed without the last chunk", closes_without_the_last_chunk, *CUT),
    Case(
        "stall before headers",
        stalls_before_headers,
        "unknown_outcome",
        "first_byte_timeout",
        "maybe",
        ask=BEGIN,
    ),
    Case(
        "stall after headers",
        stalls_after_headers,
        "unknown_outcome",
        "first_byte_timeout",
        "maybe",
        ask=BEGIN,
    ),
    Case(
        "keep-alives only",
        only_keep_alives,
        "unknown_outcome",
        "first_byte_timeout",
        "maybe",
        ask=BEGIN,
    ),
    Case(
        "stall in the text", stalls_after_text, "unknown_outcome", "idle_timeout", "maybe", ask=IDLE
    ),
    Case(
        "keep-alives in the text",
        keep_alives_after_text,
        "unknown_outcome",
        "idle_timeout",
        "maybe",
        ask=IDLE,
    ),
    Case("trickle", trickles, "unknown_outcome", "call_timeout", "maybe", ask=WHOLE),
]

STREAMS: list[Case] = [
    Case("no finish marker", streamed(delta("half of"), done=False), *CUT),
    Case("no finish marker, but [DONE]", streamed(delta("half of")), *CUT),
    Case("an empty body", streamed(done=False), *CUT),
    Case("only [DONE]", streamed(), *CUT),
    Case("finish_reason error", says("half of it", "error"), *CUT),
    Case("finish_reason abort", says("half of it", "abort"), *CUT),
    Case(
        "a cut JSON event",
        streamed(delta("a"), b'data: {"choices": [{"del\n\n', done=False),
        *_UNREAD,
    ),
    Case("an event that is no JSON", streamed(b"data: oops\n\n"), *_UNREAD),
    Case("an event that is a number", streamed(sse(7)), *_UNREAD),
    Case("an event that is null", streamed(sse(None)), *_UNREAD),
    Case("a deep event", streamed(b"data: " + b"[" * 100_000 + b"\n\n"), *_UNREAD),
    Case("choices of the wrong type", streamed({**delta(), "choices": "x"}), *_UNREAD),
    Case("choices [null]", streamed({**delta(), "choices": [None]}), *_UNREAD),
    Case(
        "a tool call of the wrong type",
        streamed(delta(tool_calls="x"), delta(finish="stop")),
        *_UNREAD,
    ),
    Case(
        "an error in the stream",
        streamed(delta("a"), {"error": {"message": "down", "code": 500}}),
        "transient",
        "status_500",
        "maybe",
    ),
    Case(
        "a throttle in the stream",
        streamed({"error": {"message": "slow", "code": "rate_limit_exceeded"}}),
        "throttled",
        "",
        "maybe",
    ),
    Case(
        "an unknown error in the stream",
        streamed({"error": {"message": "odd"}}),
        "transient",
        "in_stream",
        "maybe",
    ),
    Case(
        "an error in a whole answer",
        whole({"error": {"message": "odd"}}),
        "transient",
        "in_stream",
        "maybe",
    ),
    Case(
        "a web page",
        whole(b"<!doctype html><title>Log in", 200, "text/html"),
        "permanent",
        "bad_response",
        "maybe",
    ),
    *(
        Case(
            f"compressed with {encoding}",
            compressed(encoding),
            "permanent",
            "bad_response",
            "maybe",
        )
        for encoding in ("gzip", "gzip, gzip", "br", "zstd", "gzip;q=1, br", "identity, gzip")
    ),
    Case("an event of 10 MB", large_line, "permanent", "output_too_large", "maybe"),
    Case(
        "a whole answer of 10 MB",
        whole(b'{"choices": [' + b"{}," * 3_400_000),
        "permanent",
        "output_too_large",
        "maybe",
    ),
    Case("too much", endless, "permanent", "output_too_large", "maybe", ask=_SMALL),
    Case("a line without end", endless_line, "permanent", "output_too_large", "maybe", ask=_SMALL),
    Case("a cut whole answer", whole(b'{"choices": [{"mess'), *_UNREAD),
    Case("a whole answer of another kind", whole({"object": "list", "data": []}), *_UNREAD),
    Case("a whole answer that is a list", whole([1, 2]), *_UNREAD),
]
