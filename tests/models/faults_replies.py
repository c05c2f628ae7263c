"""What a whole reply can say or not, and what is odd and a good reply all the same."""

from __future__ import annotations

import json
from typing import Any

from faults_case import VERDICT, Case
from faulty_answers import no_content_type, split_bytes
from faulty_server import Answer, completion, delta, error, says, sse, streamed, usage, whole

_TOOL = {"tools": [{"name": "search", "schema": {"type": "object", "properties": {}}}]}
_JSON = {"schema": VERDICT}
_HALF = b'{"choices": [{"index": 0, "delta": {"content": "a\\ud800"}, "finish_reason": "stop"}]}'
_FENCED = '```json\n{"verdict": "yes", "score": 3}\n```'


def _not_utf8() -> Answer:
    broken = json.dumps(delta("caf@")).encode().replace(b"@", b"\xe9")
    return streamed(broken and sse(broken), delta(finish="stop"), usage())


def _call(arguments: str, name: str = "search") -> dict[str, Any]:
    call = {
        "index": 0,
        "id": "t1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return delta(tool_calls=[call])


CONTENTS: list[Case] = [
    Case("cut off at the limit", says("half of the", "length"), "truncated", "", "yes"),
    Case(
        "cut JSON at the limit",
        says('{"verdict": "yes", "sc', "length"),
        "truncated",
        "",
        "yes",
        ask=_JSON,
    ),
    Case("content_filter", says("I can", "content_filter"), "refused", "content_filter", "yes"),
    Case(
        "a refusal",
        streamed(delta(refusal="I will not"), delta(finish="stop"), usage()),
        "refused",
        "content_filter",
        "yes",
    ),
    Case("no text", streamed(delta(finish="stop"), usage()), "empty_output", "", "yes"),
    Case("blank text", says(" \n\t "), "empty_output", "", "yes"),
    Case(
        "only thinking",
        streamed(delta(reasoning_content="hm"), delta(finish="stop"), usage()),
        "empty_output",
        "",
        "yes",
    ),
    Case(
        "choices []",
        whole(completion({}) | {"choices": []}),
        "transient",
        "stream_incomplete",
        "maybe",
    ),
    Case("message null", whole(completion(None)), "empty_output", "", "yes"),
    Case(
        "content null",
        whole(completion({"role": "assistant", "content": None})),
        "empty_output",
        "",
        "yes",
    ),
    *(
        Case(name, says(text), "malformed", "", "yes", ask=_JSON)
        for name, text in (
            ("prose for JSON", "The verdict is yes."),
            ("cut JSON", '{"verdict": "yes", "sc'),
            ("a wrong type", '{"verdict": "yes", "score": "seven"}'),
            ("a missing field", '{"verdict": "yes"}'),
            ("a key too much, twice", '{"verdict": "yes", "score": 1, "x": 2, "x": 3}'),
            ("a key twice", '{"verdict": "no", "verdict": "yes", "score": 1}'),
            ("NaN", '{"verdict": "yes", "score": NaN}'),
            ("two values", '{"verdict": "yes", "score": 1} {"verdict": "no", "score": 0}'),
            ("deep JSON", "[" * 80 + "]" * 80),
        )
    ),
    Case(
        "tool arguments cut",
        streamed(_call('{"q": "a'), delta(finish="tool_calls"), usage()),
        "malformed",
        "",
        "yes",
        ask=_TOOL,
    ),
    Case(
        "tool arguments no object",
        streamed(_call("[1]"), delta(finish="tool_calls"), usage()),
        "malformed",
        "",
        "yes",
        ask=_TOOL,
    ),
    Case(
        "an unknown format",
        error(400, "response_format json_schema is not supported"),
        "transient",
        "format_unsupported",
        ask=_JSON,
    ),
]

GOOD: list[Case] = [
    Case("a stream", says("fine"), text="fine"),
    Case(
        "a whole answer", whole(completion({"role": "assistant", "content": "fine"})), text="fine"
    ),
    Case(
        "a whole answer called text",
        whole(completion({"content": "fine"}), kind="text/plain"),
        text="fine",
    ),
    Case("no content type", no_content_type, text="fine"),
    Case("one byte at a time", split_bytes, text="grün 💚"),
    Case("bytes that are no UTF-8", _not_utf8(), text="caf\ufffd"),
    Case("a lone surrogate", streamed(sse(_HALF)), text="a\ufffd"),
    Case("no usage", says("fine", figures=None), text="fine"),
    Case(
        "keep-alives between",
        streamed(b": hi\n\n", delta("fi"), b": hi\n\n", delta("ne"), delta(finish="stop")),
        text="fine",
    ),
    Case("an unknown finish reason", says("fine", "eos_token"), text="fine"),
    Case(
        "text parts",
        streamed(delta([{"type": "text", "text": "fine"}]), delta(finish="stop")),
        text="fine",
    ),
    Case("fenced JSON", says(_FENCED), text=_FENCED, ask=_JSON),
    Case(
        "the end without [DONE]",
        streamed(delta("fine"), delta(finish="stop"), done=False),
        text="fine",
    ),
    *(
        Case(
            f"usage {json.dumps(odd)}",
            streamed(delta("fine"), delta(finish="stop"), usage(odd)),  # type: ignore[arg-type]
            text="fine",
        )
        for odd in (
            "x",
            [],
            {},
            {"prompt_tokens": -3, "completion_tokens": 1},
            {"prompt_tokens": "7", "completion_tokens": 5},
        )
    ),
]
