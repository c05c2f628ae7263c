"""What is sent to an endpoint: the body, the headers, the key, the form of structured output."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_server import (
    Answer,
    FaultyServer,
    completion,
    delta,
    error,
    says,
    streamed,
    usage,
    whole,
)
from model_worlds import CANARIES, KEY, KEYS, ask, everything, question

from loopwright.models import Message, ModelError, ProviderModel, Request, ToolCall, ToolDefinition

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
        request = Request(
            talk, "m", "ollama", base_url=server.url, tools=(ToolDefinition("search", "look"),)
        )
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
        assert isinstance(found, ModelError)
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
    assert isinstance(found, ModelError)
    assert (found.kind, found.reason, found.billed) == ("permanent", "address_refused", "no")


async def test_an_endpoint_that_is_not_there_was_not_billed() -> None:
    """A connection that this machine refuses cost nothing, and its server is off."""
    async with FaultyServer(says("x")) as server:
        url = server.url
    async with ProviderModel() as model:
        found = await ask(model, question(url, api_key_env=""))
    assert isinstance(found, ModelError)
    assert (found.kind, found.reason, found.billed) == ("transient", "not_running", "no")


async def test_a_name_that_cannot_be_resolved_was_not_billed() -> None:
    """A name that leads nowhere may pass, and cost nothing."""
    async with ProviderModel() as model:
        found = await ask(model, question(f"http://{'a' * 64}.example", api_key_env=""))
    assert isinstance(found, ModelError)
    assert (found.kind, found.reason, found.billed) == ("transient", "unreachable", "no")


async def test_a_secret_that_is_a_word_of_ours_breaks_nothing() -> None:
    """A key that happens to be a word of the vocabulary changes no kind."""
    keys = {"CANARY_KEY": "throttled", "OTHER": "transient"}
    async with (
        FaultyServer(error(429, "throttled, transient")) as server,
        ProviderModel(keys) as model,
    ):
        found = await ask(model, question(server.url))
    assert isinstance(found, ModelError)
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
        except ModelError as fault:
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
    assert isinstance(found, ModelError)
    assert (found.kind, found.reason, str(found)) == ("permanent", "configuration", message)
