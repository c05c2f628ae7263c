"""Every budget can bind: issue 11, section 4."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import Budget, Context, Loop, MaxIterations, Usage, run, run_sync, step
from loopwright.errors import LoopwrightWarning
from loopwright.models import Models, Reply, Request
from loopwright.prompts import prompt
from loopwright.records import History, Reason
from loopwright.tools import shell


def double(value: Any) -> Any:
    return value


async def spends(value: Any, ctx: Context) -> Any:
    ctx.spend(Usage(calls=1, usd=0.1))
    return value


class Silent:
    """A model that reports nothing of what it costs."""

    def __init__(self, usage: Usage | None = None) -> None:
        self.usage = usage

    async def complete(self, request: Request, **_: Any) -> Reply:
        return Reply("an answer", usage=self.usage or Usage())


def asked(model: Any, budget: Budget, **prices: Any) -> Any:
    loop = Loop(prompt("Go.", model="openai:m"), until=MaxIterations(20), name="l")
    models = Models(model, **prices)
    return run_sync(loop, "in", budget=budget, resources={"models": models})


def test_a_model_that_reports_no_usage_counts_one_call_each() -> None:
    """`Budget(calls=3)` ends a loop over a custom model without usage after three calls."""
    result = asked(Silent(), Budget(calls=3))
    assert (result.reason, result.iterations, result.usage.calls) == (Reason.BUDGET, 3, 3)
    assert any(w.startswith("unreported_usage: ") for w in result.warnings)


def test_tokens_that_are_not_reported_count_at_the_most_they_can_be() -> None:
    """A token budget binds over a model that reports none, and the figures are marked as estimated."""
    result = asked(Silent(), Budget(tokens=4_600))
    assert result.reason is Reason.BUDGET
    assert 0 < result.usage.estimated == result.usage.calls
    assert 0 < result.usage.tokens <= 4_600


def test_dollars_over_a_model_without_usage_bind() -> None:
    """With a price, unreported calls cost the most that they can have cost."""
    prices = {"m": {"input": 100.0, "output": 100.0}}
    result = asked(Silent(), Budget(usd=0.45), prices=prices, known_prices=False)
    assert result.reason is Reason.BUDGET
    assert 0 < result.usage.usd <= 0.45


def test_tokens_reported_without_calls_are_a_call_all_the_same() -> None:
    """A model that reports tokens and forgets the call counts one."""
    result = asked(Silent(Usage(0, 5, 5)), Budget(calls=2))
    assert (result.reason, result.usage.calls, result.usage.estimated) == (Reason.BUDGET, 2, 0)


@pytest.mark.parametrize("budget", [Budget(calls=3), Budget(tokens=9), Budget(usd=1.0)])
def test_a_budget_over_plain_functions_warns_at_construction_and_in_the_result(
    budget: Budget,
) -> None:
    """`budget_cannot_bind`: nothing in the loop reports what it costs."""
    with pytest.warns(LoopwrightWarning) as caught:
        loop = Loop(double, lambda value: 0.1, until=MaxIterations(2) | budget, name="l")
    assert [w.message.code for w in caught] == ["budget_cannot_bind"]  # type: ignore[union-attr]
    result = run_sync(loop, 1)
    assert any(w.startswith("budget_cannot_bind: loop 'l'") for w in result.warnings)


def test_a_budget_of_the_run_over_plain_functions_is_a_warning_of_the_result() -> None:
    """`run(…, budget=…)` says so too."""
    result = run_sync(Loop(double, until=MaxIterations(2)), 1, budget=Budget(calls=3))
    assert any(w.startswith("budget_cannot_bind: run") for w in result.warnings)


@pytest.mark.parametrize(
    "execute",
    [
        spends,
        step(double, reserve=Usage(calls=1)),
        shell(["true"], usage="file"),
        prompt("Go.", model="openai:m"),
        Loop(spends, until=MaxIterations(1)),
    ],
)
def test_a_step_that_can_report_is_no_reason_to_warn(execute: Any) -> None:
    """A context, a reserve, a declared usage or a model call can use a budget up."""
    assert Loop(execute, until=Budget(calls=3) | MaxIterations(2)).unbound == ""


def test_dollars_over_a_command_that_reports_nothing_warn() -> None:
    """A command without `usage` is no step that reports."""
    with pytest.warns(LoopwrightWarning, match="usage="):
        Loop(shell(["true"]), until=Budget(usd=1.0) | MaxIterations(2))


def test_a_budget_of_effects_binds_over_anything() -> None:
    """`Budget(effects=5)`: the sixth effect is not begun."""
    made: list[int] = []

    def counts(value: Any) -> Any:
        made.append(1)
        return value

    loop = Loop(counts, lambda value: 0.1, until=MaxIterations(20) | Budget(effects=5), name="l")
    result = run_sync(loop, 1)
    assert (result.reason, len(made)) == (Reason.BUDGET, 3)
    assert "5 of 5 effects" in result.detail
    result = run_sync(Loop(counts, until=MaxIterations(20)), 1, budget=Budget(effects=4))
    assert (result.reason, result.iterations) == (Reason.BUDGET, 4)


def test_effects_on_record_count_when_a_run_is_resumed(tmp_path: Path) -> None:
    """The limit holds over any sequence of crashes: what is on record is counted, and not twice."""
    url = f"sqlite:{tmp_path}/runs.db"
    dies = [True]

    async def once(value: Any) -> Any:
        if len(seen) == 2 and dies:
            dies.clear()
            raise asyncio.CancelledError
        seen.append(1)
        return value

    seen: list[int] = []
    loop = Loop(once, until=MaxIterations(20) | Budget(effects=6), name="l")
    first = run_sync(loop, 1, journal=url, run_id="r")
    assert first.iterations <= 6
    whole = Loop(double, until=MaxIterations(20) | Budget(effects=6), name="w")
    result = run_sync(whole, 1, journal=url, run_id="w")
    again = run_sync(whole, 1, journal=url, run_id="w")
    assert (result.iterations, again.iterations) == (6, 6)


def test_a_call_that_was_cut_is_marked_as_estimated(tmp_path: Path) -> None:
    """A cancelled call settles at its reservation, which is an upper bound: `estimated` says so."""

    async def hangs(value: Any, ctx: Context) -> Any:
        await asyncio.sleep(3600)

    async def work() -> Any:
        from loopwright import Timeout

        costly = step(hangs, reserve=Usage(calls=1, usd=2.49))
        loop = Loop(costly, until=MaxIterations(3), guards=Timeout(0.05), name="l")
        return await run(loop, 1, budget=Budget(usd=3.0), journal=f"sqlite:{tmp_path}/r.db")

    result = asyncio.run(work())
    assert (result.usage.usd, result.usage.estimated) == (2.49, 1)
    assert result.to_json()["usage"]["estimated"] == 1
    assert result.history[0].usage.estimated == 1


def test_an_overshoot_says_why() -> None:
    """A function without `reserve` is counted after it ran: the detail says how to keep the cap."""
    loop = Loop(spends, until=MaxIterations(9), name="l")
    result = run_sync(loop, 1, budget=Budget(usd=0.25))
    assert result.usage.usd == pytest.approx(0.3)
    assert "0.3 of 0.25 usd spent" in result.detail and "reserve" in result.detail
    kept = Loop(step(spends, reserve=Usage(calls=1, usd=0.1)), until=MaxIterations(9), name="l")
    assert run_sync(kept, 1, budget=Budget(usd=0.25)).usage.usd == pytest.approx(0.2)


def test_an_overshoot_is_a_warning_with_its_code() -> None:
    """`overshoot`: which call spent more than was left, of which budget, and why nothing refused it."""
    result = run_sync(Loop(spends, until=MaxIterations(9), name="l"), 1, budget=Budget(usd=0.25))
    (told,) = result.warnings
    assert told.startswith("overshoot: l/3/execute: 0.3 of 0.25 usd of the run's budget spent")
    assert "reserve" in told
    inside = Loop(spends, until=MaxIterations(9) | Budget(usd=0.25), name="l")
    (told,) = run_sync(inside, 1).warnings
    assert "of the budget of l spent" in told
    assert "reserve" in run_sync(inside, 1).detail
    exact = run_sync(Loop(spends, until=MaxIterations(9), name="l"), 1, budget=Budget(usd=0.2))
    assert exact.warnings == ()


def test_a_command_that_overshoots_is_warned_of() -> None:
    """A command that reports what it cost can only be counted after it ran."""
    script = """printf '{"calls": 3, "usd": 0.3}' > "$LOOPWRIGHT_USAGE" """
    result = run_sync(shell(script, name="work", usage="file"), 1, budget=Budget(usd=0.25))
    assert any(told.startswith("overshoot: work: 0.3 of 0.25 usd") for told in result.warnings)


def test_a_condition_sees_the_effects() -> None:
    """`Budget.check(history)` counts effects as it counts calls, tokens and dollars."""
    budget = Budget(effects=4)
    assert budget.check(History(effects=3)) is None
    stop = budget.check(History(effects=4))
    assert stop is not None and stop.reason is Reason.BUDGET
    assert stop.detail == "4 of 4 effects used"
    loop = Loop(double, lambda value: 0.1, until=MaxIterations(20) | Budget(effects=4), name="l")
    result = run_sync(loop, 1)
    assert (result.reason, result.iterations) == (Reason.BUDGET, 2)
