"""Loops over strategies: the next is tried until one is satisfied."""

from __future__ import annotations

from typing import Any

import pytest
from recipe_steps import plus, share

from loopwright import Evaluation, Reason, Result, Status, run_sync, step
from loopwright.engine.adapters import feedback
from loopwright.errors import ConfigurationError
from loopwright.recipes import strategy_loop


def trying(*scores: float, **options: Any) -> Result:
    """Run strategies a, b, c … with these scores; passing is a score of 1."""
    names = "abcdef"[: len(scores)]
    strategies = {n: step(lambda task, n=n: f"{task} by {n}", inline=True) for n in names}
    points = {f"t by {n}": s for n, s in zip(names, scores, strict=True)}
    judge = step(lambda out: Evaluation(points[out], points[out] == 1), inline=True, name="judge")
    return run_sync(strategy_loop(strategies, judge, name="s", **options), "t")


@pytest.mark.parametrize(
    ("scores", "output", "rounds", "reason"),
    [
        ((1.0, 0.0), "t by a", 1, Reason.CONDITION_MET),
        ((0.2, 0.9, 1.0), "t by c", 3, Reason.CONDITION_MET),
        ((0.2, 0.9, 0.3), "t by b", 3, Reason.MAX_ITERATIONS),
    ],
)
def test_strategies_are_tried_in_order_until_one_is_satisfied(
    scores: tuple[float, ...], output: str, rounds: int, reason: Reason
) -> None:
    """The first is index 0, none is skipped, and without success the best is kept."""
    result = trying(*scores)
    assert (result.output, result.iterations, result.reason) == (output, rounds, reason)


def test_the_record_names_every_strategy() -> None:
    """Each round's evaluation has its strategy as a vote, and its effects have it in their path."""
    result = trying(0.2, 0.9, 0.3)
    votes = [item.evaluation.votes for item in result.history if item.evaluation]
    assert votes == [({"strategy": name},) for name in "abc"]
    assert result.best is not None
    assert result.best.number == 2


def test_a_threshold_is_enough_for_scores() -> None:
    """With a threshold the score decides; more rounds begin again with the first strategy."""
    assert trying(0.2, 0.9, 1.0, threshold=0.8).output == "t by b"
    assert trying(0.2, 0.1, threshold=0.8, max_iterations=5).iterations == 5


def test_a_strategy_that_fails_is_followed_by_the_next() -> None:
    """An error is that round's record, and names its strategy by its path."""

    def broken(task: Any) -> Any:
        raise ValueError("cannot parse")

    strategies = {"exact": broken, "rough": lambda task: "found"}
    result = run_sync(strategy_loop(strategies, lambda output: True), "t")
    assert (result.satisfied, result.output) == (True, "found")
    failure = result.history[0].error
    assert failure is not None
    assert (failure.message, failure.path) == (
        "ValueError: cannot parse",
        "strategies/1/execute/exact",
    )


def test_strategies_that_all_fail_are_a_failure() -> None:
    """Nothing was produced, so nothing ran out: it failed."""

    def broken(task: Any) -> Any:
        raise ValueError("no")

    result = run_sync(strategy_loop({"a": broken, "b": broken}, lambda output: True), "t")
    assert (result.status, result.reason) == (Status.FAILED, Reason.ALL_FAILED)


def test_a_strategy_may_be_told_what_the_last_one_missed() -> None:
    """With an adapter each strategy after the first gets what it makes."""
    seen: list[Any] = []
    strategies = {name: step(lambda task: seen.append(task) or "out", inline=True) for name in "ab"}
    judge = step(lambda output: Evaluation(0.1, False, "too short"), inline=True)
    run_sync(strategy_loop(strategies, judge, feedback), "t")
    assert seen[0] == "t"
    assert seen[1]["feedback"] == "too short"


@pytest.mark.parametrize(
    ("strategies", "message"),
    [
        ({}, "strategies: {} has no steps. Use an object of steps."),
        (
            {"": plus(1)},
            (
                "strategies: '' is not a valid name. Names are parts of paths: "
                "use a text without a slash."
            ),
        ),
    ],
)
def test_strategies_need_names(strategies: Any, message: str) -> None:
    """The names of strategies are parts of paths."""
    with pytest.raises(ConfigurationError) as raised:
        strategy_loop(strategies, share)
    assert str(raised.value) == message
