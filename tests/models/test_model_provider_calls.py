"""Runs that call an endpoint: what the server saw is what the journal has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from faulty_answers import (
    only_keep_alives,
    resets_before_an_answer,
    stalls_after_text,
    stalls_before_headers,
    trickles,
)
from faulty_server import Answer, FaultyServer, delta, error, says, streamed
from model_steps import Ask, DurableJournal
from model_worlds import CANARIES, KEYS

from loopwright import Budget, Result, Status, run, with_timeout
from loopwright.journal import Entry
from loopwright.models import Models, ProviderModel

pytestmark = pytest.mark.usefixtures("loopback")


async def go(
    *answers: Answer, step: Any = None, journal: Any = None, **options: Any
) -> tuple[Result, FaultyServer, list[Entry], list[Any]]:
    """Run a step against a server with these answers; no back-off is waited for."""
    journal = journal or DurableJournal()
    records: list[Any] = []
    server = FaultyServer(*answers)
    async with server, ProviderModel(KEYS) as model:
        request = {
            "provider": "openai_compatible", "base_url": server.url, "api_key_env": "CANARY_KEY",
            "max_tokens": 50,
        }  # fmt: skip
        asking = Ask(request)
        result = await run(
            step(asking) if step else asking, "hello", journal=journal, run_id="r",
            random=lambda: 0.0, resources={"models": Models(model, transcript=records.append)},
            **options,
        )  # fmt: skip
    return result, server, await journal.entries("r"), records


def attempts(entries: list[Entry]) -> list[Entry]:
    return [e for e in entries if e.kind in ("finished", "cut") and "/attempt-" in e.path]


@pytest.mark.parametrize(
    ("answers", "requests", "status"),
    [
        ([error(429, "slow")], 5, "failed"),
        ([error(500, "down")], 5, "failed"),
        ([error(503, "down", retry_after="0")], 5, "failed"),
        ([resets_before_an_answer], 5, "failed"),
        ([streamed(delta("half"), done=False)], 5, "failed"),
        ([error(400, "bad")], 1, "failed"),
        ([error(401, "who")], 1, "failed"),
        ([error(400, "x", "context_length_exceeded")], 1, "failed"),
        ([error(429, "x", "insufficient_quota")], 1, "suspended"),
        ([error(429, "x", retry_after="600")], 1, "suspended"),
        ([says("half", "length")], 1, "failed"),
        ([says("")], 2, "failed"),
        ([says("no", "content_filter")], 1, "failed"),
        ([says("fine")], 1, "satisfied"),
        ([error(500), error(429), streamed(delta("x"), done=False), says("fine")], 4, "satisfied"),
    ],
)
async def test_every_request_is_an_attempt_in_the_journal(
    answers: list[Answer], requests: int, status: str
) -> None:
    """Requests that the server counted = attempts in the journal = records of the transcript."""
    result, server, entries, records = await go(*answers)
    assert (len(server.requests), result.status.value) == (requests, status)
    assert len(attempts(entries)) == len(records) == requests


@pytest.mark.parametrize(
    "answer", [stalls_before_headers, stalls_after_text, only_keep_alives, trickles]
)
async def test_a_deadline_cuts_a_call_in_flight(answer: Answer) -> None:
    """A stream that stalls or trickles is closed at the deadline; the attempt is cut and settled."""
    result, server, entries, _ = await go(answer, step=lambda asking: with_timeout(asking, 1.0))
    assert result.status is Status.FAILED
    assert "took longer than its 1 s" in result.detail
    cut = attempts(entries)
    assert ([e.kind for e in cut], len(server.requests)) == (["cut"], 1)
    assert cut[0].usage.output_tokens == 50
    assert result.usage.output_tokens == 50


async def test_what_may_have_been_billed_is_settled_in_full() -> None:
    """A cut stream costs its reservation, a refused request nothing, a whole one what it reports."""
    result, _, entries, _ = await go(streamed(delta("half"), done=False), error(500), says("fine"))
    usages = [entry.usage for entry in attempts(entries)]
    assert (usages[0].calls, usages[0].output_tokens) == (1, 50)
    assert not usages[1]
    assert (usages[2].calls, usages[2].input_tokens, usages[2].output_tokens) == (1, 7, 5)
    assert result.usage.calls == 2


async def test_a_budget_stops_calls_to_an_endpoint() -> None:
    """A cap on tokens refuses the attempt that might exceed it; the server never sees it."""
    answer = streamed(delta("half"), done=False)
    result, server, _, _ = await go(answer, budget=Budget(tokens=200))
    assert result.reason.value == "budget"
    assert len(server.requests) == 2
    assert result.usage.tokens <= 200


async def test_no_sink_holds_a_key() -> None:
    """Neither the journal nor the transcript nor the result has a key, whatever the endpoint says."""
    leak = "the key is " + " ".join(CANARIES)
    result, _, entries, records = await go(error(500, leak), says(leak, "length"), says(leak))
    everything = repr(result) + json.dumps(result.to_json()) + json.dumps(records)
    everything += "".join(json.dumps(entry.to_json()) for entry in entries)
    assert "[redacted]" in everything
    assert not any(canary in everything for canary in CANARIES)
