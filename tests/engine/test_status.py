"""The status of a whole: the worst of its parts, without what they accept."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from loopwright import (
    Evaluation,
    History,
    Loop,
    MaxIterations,
    NoImprovement,
    Passed,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Stop,
    Workflow,
    fallback,
    parallel,
    retry,
    run_sync,
    step,
)
from loopwright.conditions import Condition
from loopwright.errors import ConfigurationError, LoopwrightWarning
from loopwright.evaluators import score
from loopwright.recipes import improvement_loop, strategy_loop


class Hopeless(Condition):
    """Ends a loop as impossible, as judges will."""

    goal = False

    def check(self, history: Any) -> Stop:
        return Stop(Reason.IMPOSSIBLE, "the judges say that it cannot be done")

    def to_json(self) -> Any:
        return {"hopeless": {}}


@step(inline=True)
def same(value: Any) -> Any:
    """Return the value."""
    return value


def exhausted(name: str, **options: Any) -> Loop:
    """Return a loop that ends at its limit."""
    return Loop(
        same, step(lambda _: False, inline=True), name=name, until=MaxIterations(1), **options
    )


def impossible(name: str, **options: Any) -> Loop:
    """Return a loop of which judges say that it cannot be satisfied."""
    return Loop(same, name=name, until=Hopeless(), **options)


def failed(name: str, **options: Any) -> Loop:
    """Return a loop of which the first round fails."""

    def broken(value: Any) -> Any:
        raise ValueError("broken")

    return Loop(step(broken, inline=True), name=name, **options)


def satisfied(name: str) -> Loop:
    """Return a loop that is satisfied at once."""
    return Loop(same, step(lambda _: True, inline=True), name=name)


def flow(*loops: Any, **options: Any) -> Result:
    """Run steps one after the other."""
    return run_sync(Workflow("w", {each.name: each for each in loops}, **options), "x")


@pytest.mark.parametrize(
    ("loops", "status", "detail"),
    [
        ([satisfied("a"), exhausted("b")], "exhausted", "b: 1 of 1 iterations used"),
        ([exhausted("a"), impossible("b"), satisfied("c")], "impossible", "b: the judges say"),
        ([impossible("a"), exhausted("b")], "impossible", "a: the judges say"),
        ([exhausted("a"), exhausted("b")], "exhausted", "a: 1 of 1"),
    ],
)
def test_the_worst_loop_is_the_status_of_a_workflow(
    loops: Sequence[Loop], status: str, detail: str
) -> None:
    """Ruling 1.1: the worst wins, of equal ones the first, and the detail names the loop."""
    result = flow(*loops)
    assert result.status == status
    assert result.detail.startswith(detail)
    assert len(result.steps) == len(loops)  # it went on after each of them


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("exhausted", 3), ("impossible", 5)])
def test_a_status_has_its_exit_code(status: str, code: int) -> None:
    """Contract section 4: exit codes follow from the status."""
    assert Status(status).exit_code == code


def test_what_is_around_a_loop_absorbs_it() -> None:
    """Ruling 1.1: of a fallback the best counts, of a retry the last try, of a loop the outer one."""
    assert flow(fallback(exhausted("a"), satisfied("b"), name="f")).satisfied
    assert flow(fallback(failed("a"), satisfied("b"), name="f")).satisfied
    assert flow(fallback(failed("a"), exhausted("b"), name="f")).status == "exhausted"
    assert flow(retry(exhausted("a"))).status == "exhausted"
    assert flow(parallel(satisfied("a"), exhausted("b"), name="p")).detail.startswith("p: b: ")
    outer = Loop(exhausted("inner"), step(lambda _: True, inline=True), name="outer")
    assert flow(outer).satisfied


@pytest.mark.parametrize(("make", "word"), [(exhausted, "exhausted"), (impossible, "impossible")])
def test_an_accepted_status_does_not_count(make: Any, word: str) -> None:
    """Ruling 1.2: accept changes the status of the run, and the loop's own stays as it is."""
    result = flow(make("a", accept=[word]), satisfied("b"))
    assert result.satisfied
    assert result.loops["a"].status == word
    assert result.outcomes["a"].status == word
    assert f"accepted: a {word}" in result.detail
    other = "exhausted" if word == "impossible" else "impossible"
    assert flow(make("a", accept=other), satisfied("b")).status == word


def test_accept_never_makes_a_workflow_go_on() -> None:
    """Ruling 1.2: a loop that failed ends the workflow, whatever it accepts."""
    result = flow(failed("a", accept=["failed"]), satisfied("b"))
    assert (result.status, list(result.steps)) == ("failed", [])


@pytest.mark.parametrize("make", [exhausted, impossible])
def test_a_required_loop_ends_the_workflow_with_its_status(make: Any) -> None:
    """Ruling 1.2: with required the workflow stops there, with what the loop has."""
    result = flow(make("a", required=True), satisfied("b"))
    assert (result.status, result.output, list(result.loops)) == (make.__name__, "x", ["a"])
    assert (result.outcomes["a"].status, result.outcomes["b"].status) == (make.__name__, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"accept": ["exhausted"], "required": True},
            "required and accept: exhausted contradict each other",
        ),
        (
            {"accept": ["exausted"]},
            "'exausted' is none of failed, exhausted, impossible; did you mean",
        ),
        ({"max_failures": 0}, "max_failures: 0 is too small; give at least 1"),
    ],
)
def test_what_accept_and_max_failures_cannot_mean(options: Any, message: str) -> None:
    """Ruling 1.2: required and accept of the same status, unknown words and no failures are refused."""
    with pytest.raises(ConfigurationError, match=message):
        exhausted("a", **options)


def test_a_loop_that_is_judged_ends_when_it_passes() -> None:
    """Ruling 1.4: without a condition of success, also where there are limits, Passed is one."""
    verdicts = iter([False, True, False])
    judge = step(lambda _: next(verdicts), inline=True)
    result = run_sync(Loop(same, judge, until=MaxIterations(3) | NoImprovement(2)), "x")
    assert (result.status, result.iterations) == ("satisfied", 2)
    assert Passed() not in Loop(same, judge, until=ScoreAtLeast(0.5) & MaxIterations(3)).members
    assert Passed() not in Loop(same, until=MaxIterations(3)).members


def test_scores_without_a_goal_are_warned_of() -> None:
    """Ruling 1.4: no_goal is warned where the evaluator can never pass, and only there."""
    with pytest.warns(LoopwrightWarning, match="no_goal") as caught:
        loop = Loop(same, score(), name="rate")
    assert caught[0].filename == __file__
    assert run_sync(loop, "score: 0.5").warnings == (
        "no_goal: rate: its evaluator gives scores only, and no condition says which score is "
        "enough, so it cannot be satisfied; add a score_at_least",
    )
    function = run_sync(Loop(same, step(lambda _: 0.5, inline=True), name="f"), 1)
    assert function.warnings[0].startswith("no_goal: f: ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loop(same, score(), until=ScoreAtLeast(0.9))
        improvement_loop(same, score())


def test_every_strategy_is_tried() -> None:
    """A strategy that raises has failed, and the next is tried, however many there are."""

    def down(task: Any) -> Any:
        raise ConnectionError("down")

    strategies = {"e1": down, "e2": down, "e3": down, "e4": lambda task: "ok"}
    result = run_sync(strategy_loop(strategies, lambda output: True), "t")
    assert (result.status, result.output, result.iterations) == ("satisfied", "ok", 4)
    none = run_sync(
        strategy_loop(dict.fromkeys(("a", "b", "c", "d"), down), lambda output: True), "t"
    )
    assert (none.status, none.iterations) == ("failed", 4)


@pytest.mark.parametrize(
    ("given", "rounds"), [({}, 3), ({"max_failures": 2}, 2), ({"max_failures": 5}, 5)]
)
def test_so_many_failures_in_a_row_end_a_loop(given: Any, rounds: int) -> None:
    """max_failures is a field of Loop, 3 by default."""
    result = run_sync(failed("a", on_failure="continue", **given), "x")
    assert (result.reason, result.iterations) == (Reason.REPEATED_FAILURE, rounds)


def improving(*scores: float, **options: Any) -> Result:
    """Run an improvement loop whose rounds have these scores."""
    given = iter(scores)
    work = step(lambda _: len(scores), inline=True)
    judge = step(lambda _: Evaluation(next(given)), inline=True)
    return run_sync(improvement_loop(work, judge, max_iterations=len(scores), **options), 0)


@pytest.mark.parametrize(
    ("scores", "options", "reason"),
    [
        ((0.2, 0.6, 0.5, 0.4), {}, "improved"),
        ((0.2, 0.6), {}, "improved"),
        ((0.6, 0.5, 0.4), {}, "no_improvement"),
        ((0.6,), {}, "max_iterations"),
        ((0.60, 0.65, 0.60), {"min_delta": 0.1}, "no_improvement"),
    ],
)
def test_an_improvement_is_the_success_of_an_improvement_loop(
    scores: Sequence[float], options: Any, reason: str
) -> None:
    """Ruling 1.5: above its first score and then stopped is satisfied, with the best output."""
    result = improving(*scores, **options)
    assert result.reason == reason
    assert result.satisfied is (reason == "improved")
    if result.satisfied:
        assert result.also
        assert result.best is not None
        assert result.output == result.best.output
        assert not result.warnings


def test_an_evaluator_that_returns_nothing_is_named() -> None:
    """A function without `return` gives no score, so a score that is enough is not what is missing."""
    result = run_sync(Loop(lambda value: value, lambda output: None, max_iterations=2), "x")
    (warning,) = result.warnings
    assert warning.startswith("condition_not_applicable: ")
    assert "returned neither a score nor a verdict" in warning


def test_a_condition_that_is_not_frozen_is_refused() -> None:
    """A dataclass that can change has no hash; the error names the decorator."""

    @dataclass
    class Loose(Condition):
        limit: int = 1

        def check(self, history: History) -> None: ...

    with pytest.raises(ConfigurationError, match="frozen=True"):
        Loop(lambda value: value, until=Loose())
