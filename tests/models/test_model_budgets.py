"""What calls cost, and the budgets that hold it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from model_steps import Ask, World

from loopwright import Budget, Loop, MaxIterations, run, run_sync
from loopwright.errors import ConfigurationError, StepError
from loopwright.journal import Entry, open_journal
from loopwright.models import ModelError, Models, Reply, Request
from loopwright.prompts import prompt
from loopwright.records import Usage


def test_a_call_settles_what_it_cost() -> None:
    """Tokens and dollars are on each attempt and add up in the run; what is not billed costs nothing."""
    usage = {"input_tokens": 1000, "output_tokens": 100}
    replies = [
        {"error": "throttled"},
        {"text": "cut", "finish": "length", "usage": usage},
        {"text": "ok", "usage": usage},
    ]
    world = World([{"replies": replies}])
    result = world.run(Ask())
    assert [e.usage for e in world.attempts] == [
        Usage(),
        Usage(1, 1000, 100, 0.003),
        Usage(1, 1000, 100, 0.003),
    ]
    assert result.usage == Usage(2, 2000, 200, 0.006)


def test_an_unknown_outcome_costs_all_that_was_reserved() -> None:
    """A call that may have been billed is settled at what was promised for it."""
    world = World([{"replies": [{"error": "unknown_outcome"}, "ok"]}])
    world.run(Ask({"max_tokens": 50}))
    started = next(e for e in world.entries if e.kind == "started")
    assert world.attempts[0].usage == started.reserved.at_most()
    assert started.reserved.output_tokens == 50


def test_a_call_that_does_not_fit_the_budget_is_not_made() -> None:
    """The worst case is reserved first; what cannot fit is refused before a token is paid for."""
    world = World([{"replies": ["ok"]}])
    result = world.run(Ask({"max_tokens": 1000}), budget=Budget(usd=0.001))
    assert result.reason.value == "budget"
    assert world.records == []


def test_a_budget_holds_over_every_fault() -> None:
    """With a cap, settled spend never exceeds it, whatever the attempts cost."""
    replies = [
        {"error": "unknown_outcome"},
        {"error": "stream_incomplete"},
        {"text": "", "usage": {"input_tokens": 9}},
    ]
    world = World([{"replies": replies}])
    result = world.run(Ask({"max_tokens": 100}), budget=Budget(usd=0.003))
    assert result.usage.usd <= 0.003
    assert result.reason.value in ("budget", "error")


def test_under_a_cap_every_request_has_a_bound() -> None:
    """A call without max_tokens gets the default cap in a capped run, and none elsewhere."""
    seen: list[int | None] = []

    class Watching:
        async def complete(self, request: Any, *, on_text: Any = None) -> Any:
            seen.append(request.max_tokens)
            raise StepError("enough", kind="permanent")

    World(Watching()).run(Ask(), budget=Budget(usd=5))
    World(Watching()).run(Ask(), budget=Budget(calls=5))
    World(Watching()).run(Ask())
    assert seen == [4096, None, None]


class _Own:
    """A model of one's own, whose price nobody knows."""

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request: Any, **_: Any) -> Reply:
        self.asked += 1
        return Reply("hello", usage=Usage(1, 5, 5))


@pytest.mark.parametrize("whole", [True, False])
def test_a_cap_in_dollars_needs_a_price(whole: bool) -> None:
    """A cap in dollars over a model of unknown price is refused before a call, and says what to state."""
    cap, own = Budget(usd=0.1), _Own()
    loop = Loop(
        prompt("x", model="openai:own-9"), guards=None if whole else cap, until=MaxIterations(2)
    )
    budget = cap if whole else None
    with pytest.raises(ConfigurationError, match="needs the price of openai:own-9"):
        run_sync(loop, 1, budget=budget, resources={"models": Models(own)})
    assert own.asked == 0
    models = Models(own, prices={"own-9": {"input": 1, "output": 1}})
    assert run_sync(loop, 1, budget=budget, resources={"models": models}).usage.usd > 0
    free = Models(own, prices={"own-9": "free"})
    assert run_sync(loop, 1, budget=budget, resources={"models": free}).usage.usd == 0


def test_what_cannot_be_asked_is_no_model() -> None:
    """Models of something without `complete`, and a template that is no text, are refused when made."""
    with pytest.raises(ConfigurationError, match="models: 5 is not a model"):
        Models(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="text: None is not a template"):
        prompt(None)  # type: ignore[arg-type]


class _RefusesAndCancels:
    """A model that refuses a request, as without a key, while another failure cancels its task."""

    async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
        del request, on_text
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        raise ModelError("there is no key", kind="permanent", reason="configuration")


def test_a_request_that_was_never_sent_costs_nothing_after_a_cancel(tmp_path: Path) -> None:
    """A cancel while the failure is recorded does not count the reserved cost."""

    async def cut_entry() -> Entry:
        journal = open_journal(f"sqlite:{tmp_path}/runs.db")
        resources = {"models": Models(_RefusesAndCancels()), "model": "openai:gpt-4o"}
        step = prompt("{{ value }}")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.create_task(
                run(step, "x", journal=journal, run_id="r", resources=resources)
            )
        entries = await journal.entries("r")
        await journal.close()
        [cut] = [e for e in entries if e.kind == "cut" and e.path.endswith("/attempt-1")]
        return cut

    assert not asyncio.run(cut_entry()).usage
