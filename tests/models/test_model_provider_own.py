"""Providers at their own origin: OpenAI's Responses, DeepSeek, and servers that cannot stream."""

from __future__ import annotations

from typing import Any

import pytest
from faults_case import VERDICT
from faulty_server import (
    Answer,
    FaultyServer,
    Turn,
    completion,
    says,
)
from model_worlds import KEY, KEYS, question

from loopwright.models import Endpoint, Message, ModelError, ProviderModel, Request

pytestmark = pytest.mark.usefixtures("loopback")
YES = '{"verdict": "yes", "score": 3}'


def responses(*events: dict[str, Any]) -> Answer:
    """A stream of OpenAI's Responses API."""

    async def answer(turn: Turn) -> None:
        import json

        await turn.head()
        for number, event in enumerate(events):
            data = json.dumps({**event, "sequence_number": number})
            await turn.chunk(f"event: {event['type']}\ndata: {data}\n\n")
        await turn.end()

    return answer


def _response(status: str, **more: Any) -> dict[str, Any]:
    figures = {
        "input_tokens": 9, "output_tokens": 4, "total_tokens": 13,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-4o", "status": status,
        "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": figures,
        **more,
    }  # fmt: skip


_ITEM = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "in_progress",
    "content": [],
}
_PART = {"type": "output_text", "text": "", "annotations": []}
_PLACE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
BEGIN = [
    {"type": "response.created", "response": _response("in_progress", usage=None)},
    {"type": "response.output_item.added", "output_index": 0, "item": _ITEM},
    {"type": "response.content_part.added", **_PLACE, "part": _PART},
    {"type": "response.output_text.delta", **_PLACE, "delta": "fi", "logprobs": []},
    {"type": "response.output_text.delta", **_PLACE, "delta": "ne", "logprobs": []},
]
DONE = {"type": "response.completed", "response": _response("completed")}
CUT = {
    "type": "response.incomplete",
    "response": _response("incomplete", incomplete_details={"reason": "max_output_tokens"}),
}
FAILED = {
    "type": "response.failed",
    "response": _response("failed", error={"code": "server_error", "message": "oh"}),
}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([*BEGIN, DONE], "fine"),
        ([*BEGIN, CUT], "truncated"),
        ([*BEGIN, FAILED], "transient"),
        (BEGIN, "transient/stream_incomplete"),
    ],
)
async def test_openai_itself_is_asked_by_its_own_api(
    events: list[dict[str, Any]], expected: str
) -> None:
    """OpenAI's own origin speaks the Responses API; nothing is stored there, and a cut is a cut."""
    async with FaultyServer(responses(*events)) as server, ProviderModel(KEYS) as model:
        endpoint = Endpoint("openai", "responses", f"{server.url}/v1", own=True, key=KEY)
        request = Request(
            (Message("user", "hello"),), "gpt-4o", "openai", max_tokens=9, temperature=0.5
        )
        requests = await model._prepared(endpoint, "any")
        try:
            found = (await requests.ask(endpoint, request)).text
        except ModelError as fault:
            found = fault.kind + (f"/{fault.reason}" if fault.reason == "stream_incomplete" else "")
        body = server.requests[0].json
        assert server.requests[0].line.startswith("POST /v1/responses ")
    assert found == expected
    assert (body["store"], body["stream"], body["max_output_tokens"], body["temperature"]) == (
        False,
        True,
        9,
        0.5,
    )
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def at(endpoint: Endpoint, request: Request) -> Any:
    """Return what comes of a request to an endpoint as if it were its provider's own."""
    async with ProviderModel(KEYS) as model:
        requests = await model._prepared(endpoint, "any")
        try:
            return await requests.ask(endpoint, request)
        except ModelError as fault:
            return fault


async def test_deepseek_itself_is_asked_as_it_wants() -> None:
    """DeepSeek takes max_tokens and JSON objects, and no schema."""
    async with FaultyServer(says(YES)) as server:
        endpoint = Endpoint("deepseek", "chat", server.url, own=True, key=KEY)
        request = Request(
            (Message("user", "x"),), "deepseek-chat", "deepseek", max_tokens=9, schema=VERDICT
        )
        found = await at(endpoint, request)
        body = server.requests[0].json
    assert found.data == {"verdict": "yes", "score": 3}
    assert (body["max_tokens"], body["response_format"]) == (9, {"type": "json_object"})
    assert server.requests[0].line.startswith("POST /chat/completions ")


async def test_a_setting_that_a_model_does_not_take_is_left_out() -> None:
    """A reasoning model gets no temperature, and the reply says so."""
    async with FaultyServer(responses(*BEGIN, DONE)) as server:
        endpoint = Endpoint("openai", "responses", f"{server.url}/v1", own=True, key=KEY)
        request = Request((Message("user", "x"),), "o3", "openai", temperature=0.5)
        found = await at(endpoint, request)
        assert "temperature" not in server.requests[0].json
    assert found.warnings == ("setting_ignored: temperature was left out: o3 does not take it",)


async def test_a_whole_answer_may_call_tools() -> None:
    """A server that cannot stream may call tools all the same, in as many pieces as it likes."""
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}
    body = completion({"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls")
    import json

    data = json.dumps(body, indent=1).encode()

    async def answer(turn: Turn) -> None:
        await turn.head(kind="application/json")
        for begin in range(0, len(data), 50):
            await turn.chunk(data[begin : begin + 50])
        await turn.end()

    async with FaultyServer(answer) as server, ProviderModel(KEYS) as model:
        reply = await model.complete(question(server.url, tools=[{"name": "search"}]))
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("search", {"q": 1})]
    assert (reply.finish, reply.usage.input_tokens) == ("tool_calls", 7)


async def test_detailed_usage_is_kept_as_far_as_it_counts() -> None:
    """Odd details of a usage do no harm to its figures."""
    figures = {
        "prompt_tokens": 70, "completion_tokens": 50, "total_tokens": "many",
        "prompt_tokens_details": {"cached_tokens": "x"}, "completion_tokens_details": {"reasoning_tokens": 3},
    }  # fmt: skip
    async with FaultyServer(says("fine", figures=figures)) as server, ProviderModel(KEYS) as model:
        reply = await model.complete(question(server.url))
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (70, 50)


def test_a_model_does_not_show_its_keys() -> None:
    """The repr of a model names its keys and shows none."""
    assert repr(ProviderModel(KEYS)) == "ProviderModel(keys=['CANARY_KEY', 'OPENAI_API_KEY'])"
