"""What is made of a reply: usage, remarks, listeners, and event loops that come and go."""

from __future__ import annotations

import asyncio
import gc

import pytest
from faults_case import VERDICT
from faulty_server import (
    FaultyServer,
    says,
    streamed,
)
from model_worlds import KEYS, question

from loopwright.models import ProviderModel

pytestmark = pytest.mark.usefixtures("loopback")
YES = '{"verdict": "yes", "score": 3}'


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
    assert "listener_failed: a listener to the text failed: no" in reply.warnings


async def test_broken_bytes_are_a_remark() -> None:
    """Bytes that are invalid UTF-8 become U+FFFD, and the reply says so."""
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "caf\xe9"}, "finish_reason": "stop"}]}\n\n'
    async with FaultyServer(streamed(event)) as server, ProviderModel(KEYS) as model:
        reply = await model.complete(question(server.url))
    assert reply.text == "caf\ufffd"
    assert any("invalid UTF-8" in remark for remark in reply.warnings)


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
        assert remarks == ()
        assert server.requests == []
