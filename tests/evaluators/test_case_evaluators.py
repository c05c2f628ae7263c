"""Evaluators that a case has in its file, and checks of the time and cost of its task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.support import DyingJournal
from loopwright import Case, Context, EvalResult, Usage, evaluate, run_sync, sequence
from loopwright.errors import OwnershipLost
from loopwright.evaluators import check, checklist
from loopwright.testing import run_virtual


def scored(task: Any, cases: list[Case], evaluators: Any = None, **options: Any) -> EvalResult:
    """Evaluate a task in virtual time."""
    return run_virtual(evaluate(task, cases, evaluators or check(min_chars=0), **options))


def test_a_checklist_of_a_case_has_a_weighted_score_and_a_threshold() -> None:
    """The score is the weighted share, and the list passes from `at_least`, else if all items pass."""
    items = [{"name": "a", "contains": "x"}, {"name": "b", "contains": "y", "weight": 3}]
    cases = [
        Case("x", id="low", evaluators=[{"checklist": items, "at_least": 0.25}]),
        Case("y", id="high", evaluators=[{"checklist": items}]),
        Case("xy", id="all", evaluators=[{"check": {"contains": "xy"}}, {"checklist": items}]),
    ]
    result = scored(lambda text: text, cases, most_errors=0)
    assert {row[0]: row[2] for row in result.rows} == {
        "low": "passed",
        "high": "failed",
        "all": "passed",
    }


@pytest.mark.parametrize(
    ("evaluator", "message"),
    [
        ({"judge": "good"}, "is not an object such as {check: {contains: TEXT}}"),
        ({"check": {"command": "true"}}, "is not an object such as"),
        ({"checklist": [{"python": "a:b"}]}, "is not an object such as"),
        ({"check": {"contains": "x"}, "at_least": 1}, "is not an object such as"),
        ({"checklist": [{"name": "a", "contains": "x"}, {"name": "a", "contains": "y"}]}, "two items of a checklist have one name"),
        ({"checklist": [{"contains": "x"}], "at_least": 2}, "at_least: 2 is out of range"),
        ({"check": {"contain": "x"}}, "did you mean 'contains'?"),
    ],
)  # fmt: skip
def test_a_case_cannot_name_programs_or_models(evaluator: dict[str, Any], message: str) -> None:
    """A file of cases is data: what runs or costs something stands in the document; other mistakes are named too."""
    result = scored(str.upper, [Case("x", evaluators=[evaluator], place="c.jsonl:1")])
    assert result.counts["errored"] == 1
    assert message in result.errors[0]["error"]
    assert result.errors[0]["error"].startswith("evaluators: ")
    assert result.errors[0]["place"] == "c.jsonl:1"


def test_a_checklist_passes_from_a_score() -> None:
    """`at_least` of a checklist decides in place of "all items", also for its fingerprint."""
    items = {"a": {"contains": "x"}, "b": {"contains": "y"}}
    half = run_sync(checklist(items, at_least=0.5), "x").output
    assert (half.score, half.passed) == (0.5, True)
    assert run_sync(checklist(items), "x").output.passed is False
    assert checklist(items).fingerprint != checklist(items, at_least=0.5).fingerprint


def test_time_and_cost_of_a_task_are_checked() -> None:
    """`max_seconds` and `max_usd` judge what the task of the case took, without what evaluators take."""

    async def work(seconds: float, ctx: Context) -> float:
        await ctx.sleep(seconds)
        ctx.spend(Usage(calls=1, usd=seconds / 100))
        return seconds

    async def slow_judge(output: float, ctx: Context) -> bool:
        await ctx.sleep(60)
        return True

    judges = [slow_judge, check(max_seconds=2), check(max_usd=0.01)]
    result = scored(work, [Case(0.5, id="a"), Case(1.5, id="b"), Case(3, id="c")], judges)
    assert [row[2] for row in result.rows] == ["passed", "failed", "failed"]
    feedback = {row["id"]: row["feedback"] for row in result.worst}
    assert "max_usd 0.01: it took 0.015 usd" in feedback["b"]
    assert "max_seconds 2: it took 3 seconds" in feedback["c"]


def test_time_and_cost_need_a_task_of_a_case() -> None:
    """In a loop there is no task of a case, so nothing is decided."""
    error = run_sync(check(max_seconds=1), "x").error
    assert error is not None
    assert "max_seconds and max_usd are for the task of an evaluation on cases" in error.message


def test_the_time_of_a_task_survives_a_kill() -> None:
    """Killed at any write and resumed, the same cases keep within the limit, also where the journal has their task."""

    async def part(seconds: float, ctx: Context) -> float:
        await ctx.sleep(seconds / 2)
        return seconds

    cases = [Case(3, id="slow"), Case(1, id="fast")]

    def live(journal: DyingJournal) -> EvalResult | None:
        work = sequence(part, part)
        try:
            return scored(work, cases, check(max_seconds=2), journal=journal, run_id="r")
        except (asyncio.CancelledError, OwnershipLost):
            return None

    whole = DyingJournal()
    assert live(whole) is not None
    for at in range(1, whole.appended + 1):
        dying = DyingJournal(at)
        assert live(dying) is None
        dying.at = 0
        result = live(dying)
        assert result is not None
        states = {row[0]: row[2] for row in result.rows}
        # A task in progress at the kill begins again, and only that.
        assert states == {"slow": "failed", "fast": "passed"}, f"died at write {at}"
