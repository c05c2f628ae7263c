"""A reply with too many tool calls is refused while it is read: issue 11, section 5."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faulty_server import FaultyServer, delta, streamed, usage
from model_worlds import KEYS, ask, question

from loopwright.models import ModelError, ProviderModel, Reply

pytestmark = pytest.mark.usefixtures("loopback")


def _call(index: int) -> dict[str, Any]:
    function = {"name": "search", "arguments": "{}"}
    return {"index": index, "id": f"c{index}", "type": "function", "function": function}


def _streamed(number: int, *, at_once: bool) -> Any:
    calls = [_call(n) for n in range(number)]
    parts = [delta(tool_calls=calls)] if at_once else [delta(tool_calls=[call]) for call in calls]
    return streamed(*parts, delta(finish="tool_calls"), usage())


async def _asked(number: int, *, at_once: bool, **more: Any) -> tuple[Any, int]:
    """Return what became of a reply with so many calls, and how often the event loop came by."""
    turns = 0

    async def counts() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with (
        FaultyServer(_streamed(number, at_once=at_once)) as server,
        ProviderModel(KEYS) as model,
    ):
        asked = question(server.url, tools=[{"name": "search"}], **more)
        counting = asyncio.create_task(counts())
        found = await ask(model, asked)
        counting.cancel()
    return found, turns


@pytest.mark.parametrize("at_once", [True, False])
async def test_three_thousand_calls_are_refused_after_the_first_128(at_once: bool) -> None:
    """The rest is not read: the fault says so with the number at which it stopped."""
    found, turns = await _asked(3000, at_once=at_once)
    assert isinstance(found, ModelError)
    assert (found.kind, found.reason) == ("malformed", "too_many_tool_calls")
    assert "129" in str(found) and "128 is the limit" in str(found)
    assert turns > 0


async def test_as_many_calls_as_may_be_are_read() -> None:
    """128 by default, and what the request says."""
    found, _ = await _asked(128, at_once=False)
    assert isinstance(found, Reply) and len(found.tool_calls) == 128
    found, _ = await _asked(4, at_once=True, max_tool_calls=3)
    assert isinstance(found, ModelError) and found.reason == "too_many_tool_calls"
