"""Structured output: which form an endpoint understands is found out and remembered."""

from __future__ import annotations

from typing import Any

import pytest
from faults_case import VERDICT
from faulty_server import (
    Answer,
    FaultyServer,
    Turn,
    delta,
    error,
    says,
    streamed,
    usage,
)
from model_worlds import KEYS, ask, question

from loopwright.models import ModelError, ProviderModel, Reply

pytestmark = pytest.mark.usefixtures("loopback")
YES = '{"verdict": "yes", "score": 3}'


async def sent(request_options: dict[str, Any] | None = None, **more: Any) -> Any:
    """Return the body that a request is sent with."""
    async with FaultyServer(says("ok")) as server, ProviderModel(KEYS) as model:
        request = question(server.url, **(request_options or {}), **more)
        await ask(model, request)
        return server.requests[0].json


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
    kinds = [f.reason if isinstance(f, ModelError) else f.data for f in found]
    value = {"verdict": "yes", "score": 3}
    assert kinds == ["format_unsupported"] * (tries - 1) + [value] * 3


async def test_an_endpoint_that_knows_no_form_is_a_permanent_fault() -> None:
    """When even plain words are refused, the refusal stands."""
    async with (
        FaultyServer(error(400, "response_format is bad")) as server,
        ProviderModel(KEYS) as model,
    ):
        found = [await ask(model, question(server.url, schema=VERDICT)) for _ in range(5)]
    kinds = [f.kind for f in found if isinstance(f, ModelError)]
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
