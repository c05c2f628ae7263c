"""What is sent to an endpoint: the body, the headers, the key, the form of structured output."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from faults_table import VERDICT
from faulty_server import (
    Answer,
    FaultyServer,
    Turn,
    completion,
    delta,
    error,
    says,
    streamed,
    usage,
    whole,
)
from model_worlds import CANARIES, KEY, KEYS, ask, everything, question

from loopwright.models import Message, ModelFault, ProviderModel, Reply, Request, Tool, ToolCall
from loopwright.models.endpoints import Endpoint
from loopwright.models.exchange import Exchange

pytestmark = pytest.mark.usefixtures("loopback")
YES = '{"verdict": "yes", "score": 3}'


async def sent(request_options: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return the body that a request is sent with."""
    async with FaultyServer(says("ok")) as server, ProviderModel(KEYS) as model:
        request = question(server.url, **(request_options or {}), **more)
        await ask(model, request)
        return server.requests[0].json


@pytest.mark.parametrize("provider", ["openai", "openai_compatible", "lm_studio", "ollama"])
async def test_settings_reach_the_server(provider: str) -> None:
    """Local servers get max_tokens under its old name, and every setting as it was given."""
    body = await sent(
        provider=provider, temperature=0.25, max_tokens=77,
        extra={"top_p": 0.5, "seed": 7, "stop": ["END"], "num_ctx": 4096},
    )  # fmt: skip
    wanted = {
        "model": "m", "temperature": 0.25, "max_tokens": 77, "top_p": 0.5, "seed": 7,
        "stop": ["END"], "num_ctx": 4096, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert {key: body.get(key) for key in wanted} == wanted
    assert "max_completion_tokens" not in body


async def test_what_is_not_set_is_not_sent() -> None:
    """A plain question has model, messages and the stream, and nothing else."""
    assert await sent() == {
        "model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip


async def test_a_conversation_is_sent_as_it_was() -> None:
    """Roles, tool calls and tool results keep their order, text and ids."""
    talk = (
        Message("system", "be brief"), Message("user", "find x"),
        Message("assistant", "looking", (ToolCall("t1", "search", {"q": "x"}),)),
        Message("tool", "found", call_id="t1", name="search"), Message("user", "and?"),
    )  # fmt: skip
    async with FaultyServer(says("ok")) as server, ProviderModel() as model:
        request = Request(talk, "m", "ollama", base_url=server.url, tools=(Tool("search", "look"),))
        await model.complete(request)
        body = server.requests[0].json
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert body["messages"][2]["tool_calls"][0]["function"] == {
        "name": "search",
        "arguments": '{"q":"x"}',
    }
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "t1", "content": "found"}
    assert body["tools"][0]["function"]["name"] == "search"


async def test_a_reply_with_reasoning_is_sent_back_whole() -> None:
    """What text does not say (reasoning) is kept with the reply and goes back with the conversation."""
    first = streamed(delta(reasoning_content="because"), delta("so"), delta(finish="stop"), usage())
    async with FaultyServer(first, says("ok")) as server, ProviderModel() as model:
        reply = await model.complete(question(server.url, api_key_env=""))
        assert reply.parts["library"] == "pydantic-ai"
        talk = (
            Message("user", "a"),
            Message.from_json(reply.message().to_json()),
            Message("user", "b"),
        )
        await model.complete(Request(talk, "m", "openai_compatible", base_url=server.url))
        back = server.requests[1].json["messages"][1]
    assert back == {"role": "assistant", "content": "so", "reasoning_content": "because"}


@pytest.mark.parametrize(
    "parts",
    [
        {"library": "other"},
        {"library": "pydantic-ai", "version": 1},
        {"library": "pydantic-ai", "version": 2, "messages": [{"kind": "request", "parts": []}]},
        {"library": "pydantic-ai", "version": 2, "messages": [{"kind": "nonsense"}]},
        "x",
    ],
)
async def test_parts_of_another_library_are_not_used(parts: Any) -> None:
    """Where the kept form cannot be read, the text and the calls stand for it."""
    talk = (Message("user", "a"), Message("assistant", "text", parts=parts), Message("user", "b"))
    async with FaultyServer(says("ok")) as server, ProviderModel() as model:
        await model.complete(Request(talk, "m", "ollama", base_url=server.url))
        assert server.requests[0].json["messages"][1] == {"role": "assistant", "content": "text"}


async def test_only_the_key_that_was_named_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment reaches an endpoint: no key, no organisation, no header."""
    for name in (
        "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OLLAMA_API_KEY",
    ):  # fmt: skip
        monkeypatch.setenv(name, f"environment-canary-{name}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: environment-canary")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://evil.example/v1")
    monkeypatch.setenv("OLLAMA_BASE_URL", "https://evil.example/v1")
    for provider in ("openai", "openai_compatible", "ollama", "lm_studio"):
        for key, header in (("CANARY_KEY", f"Bearer {KEY}"), ("", None)):
            async with FaultyServer(says("ok")) as server, ProviderModel(KEYS) as model:
                await model.complete(question(server.url, provider=provider, api_key_env=key))
                seen = server.requests[0]
            assert seen.headers.get("authorization") == header
            assert "canary-OPENAI" not in str(seen)
            assert "environment-canary" not in str(seen)
            assert set(seen.headers) <= {
                "host", "connection", "accept", "content-type", "user-agent", "content-length",
                "accept-encoding", "authorization",
            }  # fmt: skip


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """No redirect is followed, so no key goes where it did not belong."""
    async with FaultyServer(says("stolen")) as thief:
        moved = whole({}, status, location=f"{thief.url}/v1/chat/completions")
        async with FaultyServer(moved) as server, ProviderModel(KEYS) as model:
            found = await ask(model, question(server.url))
        assert isinstance(found, ModelFault)
        assert (found.kind, found.reason) == ("permanent", "redirect")
        assert thief.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data", "http://10.0.0.1:1", "http://192.168.1.1/v1",
        "http://[fe80::1]/v1", "http://[::ffff:169.254.169.254]/v1", "http://0.0.0.0:1", "http://100.100.100.200",
    ],
)  # fmt: skip
async def test_an_address_inside_is_not_called(url: str) -> None:
    """A model_url that leads inside a network is refused before anything is sent."""
    async with ProviderModel() as model:
        found = await ask(model, question(url, api_key_env="", timers=(3, 3, 3)))
    assert isinstance(found, ModelFault)
    assert (found.kind, found.reason, found.billed) == ("permanent", "address_refused", "no")


async def test_an_endpoint_that_is_not_there_was_not_billed() -> None:
    """A refused connection may pass, and cost nothing."""
    async with FaultyServer(says("x")) as server:
        url = server.url
    async with ProviderModel() as model:
        found = await ask(model, question(url, api_key_env=""))
    assert isinstance(found, ModelFault)
    assert (found.kind, found.reason, found.billed) == ("transient", "unreachable", "no")


async def test_a_name_that_cannot_be_resolved_was_not_billed() -> None:
    """A name that leads nowhere may pass, and cost nothing."""
    async with ProviderModel() as model:
        found = await ask(model, question(f"http://{'a' * 64}.example", api_key_env=""))
    assert isinstance(found, ModelFault)
    assert (found.kind, found.reason, found.billed) == ("transient", "unreachable", "no")


async def test_a_secret_that_is_a_word_of_ours_breaks_nothing() -> None:
    """A key that happens to be a word of the vocabulary changes no kind."""
    keys = {"CANARY_KEY": "throttled", "OTHER": "transient"}
    async with (
        FaultyServer(error(429, "throttled, transient")) as server,
        ProviderModel(keys) as model,
    ):
        found = await ask(model, question(server.url))
    assert isinstance(found, ModelFault)
    assert (found.kind, str(found)) == (
        "throttled",
        "openai_compatible/m answered status 429: [redacted], [redacted]",
    )


@pytest.mark.parametrize(
    "answer",
    [
        error(401, f"Incorrect API key provided: {KEY}"),
        error(500, f"debug: authorization=Bearer {KEY}"),
        says(f"your key is {KEY}"),
        says(f"your key is {KEY}", "length"),
        streamed(delta(f"key {KEY}"), done=False),
        streamed(delta("a"), {"error": {"message": f"bad {KEY}"}}),
        whole(completion({"content": f"key {KEY}", "reasoning_content": KEY})),
        whole(f"<html>{KEY}</html>".encode(), kind=f"text/html; {KEY}"),
    ],
)
async def test_a_key_that_an_endpoint_repeats_goes_nowhere(answer: Answer) -> None:
    """Text, errors and parts of a reply are cleaned of every key, whoever wrote it there."""
    heard: list[str] = []
    async with FaultyServer(answer) as server, ProviderModel(KEYS) as model:
        try:
            found: Any = await model.complete(question(server.url), on_text=heard.append)
        except ModelFault as fault:
            found = fault
    shown = everything(found) + "".join(heard)
    assert not any(canary in shown for canary in CANARIES)


@pytest.mark.parametrize(
    ("request_options", "message"),
    [
        ({"provider": "openai", "base_url": "", "api_key_env": "NOPE"},
         "openai: there is no key; set NOPE in the environment"),
        ({"provider": "opnai"}, "provider: 'opnai' is unknown; did you mean 'openai'?"),
    ],
)  # fmt: skip
async def test_a_mistake_of_configuration_is_a_permanent_fault(
    request_options: dict[str, Any], message: str
) -> None:
    """What `check` would refuse is one permanent fault when it is asked all the same."""
    url = request_options.pop("base_url", "http://localhost:1")
    async with ProviderModel(KEYS) as model:
        found = await ask(model, question(url, **request_options))
    assert isinstance(found, ModelFault)
    assert (found.kind, found.reason, str(found)) == ("permanent", "configuration", message)


# Structured output.


def speaks(*known: str) -> Answer:
    """A server that knows some forms of structured output and refuses the others."""

    async def answer(turn: Turn) -> None:
        body = turn.seen.json
        form = body.get("response_format", {}).get("type")
        form = form or ("tool" if body.get("tools") else "prompted")
        if form not in known:
            await error(400, f"response_format {form} or tools are not supported")(turn)
        elif form == "tool":
            call = {
                "index": 0,
                "id": "c",
                "type": "function",
                "function": {"name": "reply", "arguments": YES},
            }
            await streamed(delta(tool_calls=[call]), delta(finish="tool_calls"), usage())(turn)
        else:
            await says(YES)(turn)

    return answer


@pytest.mark.parametrize(
    ("known", "tries"),
    [("json_schema", 1), ("json_object", 2), ("tool", 3), ("prompted", 4)],
)
async def test_the_form_of_structured_output_is_found_and_remembered(
    known: str, tries: int
) -> None:
    """Each refusal is one fault that may be tried again; what works is used from then on."""
    async with FaultyServer(speaks(known)) as server, ProviderModel(KEYS) as model:
        request = question(server.url, schema=VERDICT)
        found = [await ask(model, request) for _ in range(tries + 2)]
        assert len(server.requests) == tries + 2
    kinds = [f.reason if isinstance(f, ModelFault) else f.data for f in found]
    value = {"verdict": "yes", "score": 3}
    assert kinds == ["format_unsupported"] * (tries - 1) + [value] * 3


async def test_an_endpoint_that_knows_no_form_is_a_permanent_fault() -> None:
    """When even plain words are refused, the refusal stands."""
    async with (
        FaultyServer(error(400, "response_format is bad")) as server,
        ProviderModel(KEYS) as model,
    ):
        found = [await ask(model, question(server.url, schema=VERDICT)) for _ in range(5)]
    kinds = [f.kind for f in found if isinstance(f, ModelFault)]
    assert kinds == ["transient"] * 3 + ["permanent"] * 2


async def test_prose_from_a_form_that_is_not_proven_leads_to_the_next() -> None:
    """A server that ignores the form is asked in another; one that once obeyed is not."""
    prose = says("I say yes")
    async with (
        FaultyServer(prose, says(YES), prose, says(YES)) as server,
        ProviderModel(KEYS) as model,
    ):
        for _ in range(4):
            await ask(model, question(server.url, schema=VERDICT))
        forms = [seen.json["response_format"]["type"] for seen in server.requests]
    assert forms == ["json_schema", "json_object", "json_object", "json_object"]


async def test_forms_are_remembered_by_endpoint_and_model() -> None:
    """What one model of a server understands says nothing of another."""
    async with FaultyServer(speaks("json_object")) as server, ProviderModel(KEYS) as model:
        for name in ("m", "m", "other"):
            await ask(model, question(server.url, schema=VERDICT, model=name))
        forms = [seen.json["response_format"]["type"] for seen in server.requests]
    assert forms == ["json_schema", "json_object", "json_schema"]


async def test_a_server_of_ones_own_gets_the_schema_in_words_too() -> None:
    """Where nobody knows whether a form is obeyed, the prompt says it as well."""
    body = await sent(schema=VERDICT)
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["verdict", "score"]
    assert '"verdict"' in body["messages"][0]["content"]


async def test_tools_and_a_schema_go_together() -> None:
    """A call of a tool is a call, and not taken for the answer."""
    call = {
        "index": 0,
        "id": "c",
        "type": "function",
        "function": {"name": "search", "arguments": "{}"},
    }
    answer = streamed(delta(tool_calls=[call]), delta(finish="tool_calls"), usage())
    async with FaultyServer(answer) as server, ProviderModel(KEYS) as model:
        found = await ask(model, question(server.url, schema=VERDICT, tools=[{"name": "search"}]))
    assert isinstance(found, Reply)
    assert (found.finish, found.data, [c.name for c in found.tool_calls]) == (
        "tool_calls",
        None,
        ["search"],
    )


# Usage, remarks, listeners, event loops.


async def test_missing_usage_is_estimated_from_above() -> None:
    """Without usage, tokens are counted here as their upper bound and marked as estimated."""
    async with (
        FaultyServer(says("fine text", figures=None)) as server,
        ProviderModel(KEYS) as model,
    ):
        reply = await model.complete(question(server.url))
    assert reply.usage.estimated == 1
    assert reply.usage.output_tokens >= len("fine text")
    assert reply.usage.input_tokens >= len("hello")


async def test_reported_usage_stands() -> None:
    """What the endpoint reports is what is counted."""
    figures = {"prompt_tokens": 70, "completion_tokens": 50, "total_tokens": 120}
    async with FaultyServer(says("fine", figures=figures)) as server, ProviderModel(KEYS) as model:
        usage_ = (await model.complete(question(server.url))).usage
    assert (usage_.calls, usage_.input_tokens, usage_.output_tokens, usage_.estimated) == (
        1,
        70,
        50,
        0,
    )


async def test_a_listener_that_fails_is_a_remark() -> None:
    """What watches never steers."""

    def broken(piece: str) -> None:
        raise RuntimeError("no")

    async with FaultyServer(says("fine")) as server, ProviderModel(KEYS) as model:
        reply = await model.complete(question(server.url), on_text=broken)
    assert reply.text == "fine"
    assert "a listener to the text failed: no" in reply.warnings


async def test_broken_bytes_are_a_remark() -> None:
    """Bytes that are no UTF-8 become U+FFFD, and the reply says so."""
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "caf\xe9"}, "finish_reason": "stop"}]}\n\n'
    async with FaultyServer(streamed(event)) as server, ProviderModel(KEYS) as model:
        reply = await model.complete(question(server.url))
    assert reply.text == "caf\ufffd"
    assert any("no UTF-8" in remark for remark in reply.warnings)


def test_one_model_serves_several_event_loops() -> None:
    """A model made once can be used from one event loop after another."""
    model = ProviderModel(KEYS)

    async def once() -> str:
        async with FaultyServer(says("fine")) as server, model:
            return (await model.complete(question(server.url))).text

    assert [asyncio.run(once()) for _ in range(3)] == ["fine"] * 3
    gc.collect()


async def test_check_goes_nowhere() -> None:
    """What can be refused before a run is, without a request."""
    async with FaultyServer(says("x")) as server, ProviderModel(KEYS) as model:
        remarks = model.check(question(server.url, schema=VERDICT))
        assert remarks == (f"model_url {server.url} is used as {server.url}/v1",)
        assert server.requests == []


# OpenAI itself.


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
        await model._prepare(endpoint)
        try:
            found = (await model._ask(endpoint, request, Exchange(), None)).text
        except ModelFault as fault:
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


# What only some endpoints do.


async def at(endpoint: Endpoint, request: Request) -> Any:
    """Return what comes of a request to an endpoint as if it were its provider's own."""
    async with ProviderModel(KEYS) as model:
        await model._prepare(endpoint)
        try:
            return await model._ask(endpoint, request, Exchange(), None)
        except ModelFault as fault:
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
    assert found.warnings == ("temperature was left out: o3 does not take it",)


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
