"""What every model does: the script and a real endpoint answer the same questions the same way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from faults_case import VERDICT
from faulty_server import Answer, FaultyServer, delta, error, says, streamed, usage
from model_worlds import KEYS, question

from loopwright.models import (
    Model,
    ModelError,
    ProviderModel,
    Reply,
    Request,
    ScriptedModel,
)


@dataclass(frozen=True)
class Deed:
    """One behaviour of a model, as a script and as a server has it."""

    name: str
    scripted: Any
    served: Answer
    ask: dict[str, Any] = field(default_factory=dict)


def _call(name: str, arguments: str) -> Answer:
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return streamed(delta(tool_calls=[call]), delta(finish="tool_calls"), usage())


TOOLS = {"tools": [{"name": "search", "description": "look", "schema": {"type": "object"}}]}
JSON = {"schema": VERDICT}
YES = '{"verdict": "yes", "score": 3}'
DEEDS = [
    Deed("a text", "some text", says("some text")),
    Deed("unicode", "grün 💚 \n line", says("grün 💚 \n line")),
    Deed("a value", YES, says(YES), JSON),
    Deed("a fenced value", f"```json\n{YES}\n```", says(f"```json\n{YES}\n```"), JSON),
    Deed("prose", "I think yes", says("I think yes"), JSON),
    Deed("a wrong value", '{"verdict": 1, "score": 3}', says('{"verdict": 1, "score": 3}'), JSON),
    Deed("cut", {"text": "half", "finish": "length"}, says("half", "length")),
    Deed("cut JSON", {"text": '{"ver', "finish": "length"}, says('{"ver', "length"), JSON),
    Deed(
        "cut, allowed",
        {"text": "half", "finish": "length"},
        says("half", "length"),
        {"on_cutoff": "accept"},
    ),
    Deed("filtered", {"text": "I", "finish": "content_filter"}, says("I", "content_filter")),
    Deed("empty", "", says("")),
    Deed("blank", " \n ", says(" \n ")),
    Deed(
        "a tool call",
        {"tool_calls": [{"id": "c1", "name": "search", "arguments": {"q": "x"}}]},
        _call("search", '{"q": "x"}'),
        TOOLS,
    ),
    Deed(
        "throttled", {"error": "throttled", "retry_after": 3}, error(429, "slow", retry_after="3")
    ),
    Deed("quota", {"error": "quota"}, error(429, "no", "insufficient_quota")),
    Deed("transient", {"error": "transient", "reason": "status_503"}, error(503, "busy")),
    Deed("permanent", {"error": "permanent", "reason": "rejected"}, error(400, "bad")),
    Deed("too long", {"error": "context_too_long"}, error(400, "x", "context_length_exceeded")),
    Deed(
        "incomplete",
        {"error": "stream_incomplete", "text": "half"},
        streamed(delta("half"), done=False),
    ),
]


class Served:
    """A model whose every answer comes from a server with one behaviour."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        async with FaultyServer(self.answer) as server, ProviderModel(KEYS) as model:
            placed = question(
                server.url, **{k: getattr(request, k) for k in ("schema", "on_cutoff")}
            )
            placed = Request(
                placed.messages, "m", "openai_compatible", base_url=server.url, schema=request.schema,
                tools=request.tools, on_cutoff=request.on_cutoff, path=request.path,
            )  # fmt: skip
            return await model.complete(placed, on_text=on_text)


def models(deed: Deed) -> list[Model]:
    return [ScriptedModel([{"replies": [deed.scripted]}]), Served(deed.served)]


async def seen(model: Model, deed: Deed) -> dict[str, Any]:
    """Return what a caller can tell of one answer."""
    heard: list[str] = []
    request = question("", **deed.ask)
    try:
        reply = await model.complete(request, on_text=heard.append)
    except ModelError as fault:
        told = {
            n: getattr(fault, n)
            for n in ("kind", "reason", "retryable", "billed", "retry_after", "partial")
        }
        return {**told, "problem": fault.problem, "counted": bool(fault.usage)}
    assert reply.usage.calls == 1
    assert reply.usage.input_tokens > 0
    assert Reply.from_json(reply.to_json()) == reply
    facts = {n: getattr(reply, n) for n in ("text", "data", "finish", "tool_calls")}
    return {**facts, "heard": "".join(heard)}


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("deed", DEEDS, ids=[deed.name for deed in DEEDS])
async def test_a_script_is_a_faithful_stand_in(deed: Deed) -> None:
    """For each behaviour, the scripted model and a real endpoint give the same reply or fault."""
    scripted, served = [await seen(model, deed) for model in models(deed)]
    assert scripted == served


@pytest.mark.usefixtures("loopback")
async def test_a_model_answers_calls_at_the_same_time() -> None:
    """Calls in flight do not disturb each other."""
    import asyncio

    async with FaultyServer(says("yes")) as server, ProviderModel(KEYS) as real:
        for model in (ScriptedModel([{"replies": ["yes"]}]), real):
            work = [model.complete(question(server.url)) for _ in range(20)]
            replies = await asyncio.gather(*work)
            assert {reply.text for reply in replies} == {"yes"}
        assert len(server.requests) == 20
