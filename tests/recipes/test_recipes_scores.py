"""Loops by confidence and by improvement: when they end, what they return, and what tells recipes apart."""

from __future__ import annotations

import pytest
from recipe_steps import plus, share

from loopwright import Loop, Reason, ScoreAtLeast, Status, Timeout, run_sync, step
from loopwright.engine.adapters import use_output
from loopwright.evaluators import score
from loopwright.recipes import (
    checklist_loop,
    confidence_loop,
    improvement_loop,
    strategy_loop,
)


def test_a_confidence_loop_ends_at_its_threshold() -> None:
    """The first output whose score reaches the threshold is the result."""
    result = run_sync(confidence_loop(plus(3), share, use_output, threshold=0.8), 0)
    assert (result.status, result.output, result.iterations) == (Status.SATISFIED, 9, 3)


def test_a_confidence_loop_that_runs_out_has_its_best() -> None:
    """After max_iterations the best output is there, and the result is exhausted."""
    result = run_sync(confidence_loop(plus(0), share, max_iterations=3), 5)
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.MAX_ITERATIONS)
    assert (result.output, result.iterations) == (5, 3)


def test_the_options_of_a_recipe_are_those_of_a_loop() -> None:
    """Guards, names, hooks and further conditions go where they belong."""
    seen: list[int] = []
    loop = confidence_loop(
        plus(1), share, use_output, threshold=1.0, name="n", guards=Timeout(60),
        until=ScoreAtLeast(0.2), on_iteration=lambda item: seen.append(item.number),
    )  # fmt: skip
    result = run_sync(loop, 0)
    assert (result.name, result.output, result.satisfied, seen) == ("n", 2, True, [1, 2])
    assert isinstance(loop, Loop)


def test_an_improvement_loop_returns_the_best_of_a_plateau() -> None:
    """It goes on while it gets better, and hands back the top and not the end."""
    peak = step(lambda number: 1 - abs(number - 3) / 10, inline=True)
    result = run_sync(improvement_loop(plus(1), peak, use_output), 0)
    assert (result.reason, result.output, result.iterations) == (Reason.IMPROVED, 3, 5)


@pytest.mark.parametrize(("patience", "rounds"), [(1, 2), (3, 4)])
def test_patience_is_the_number_of_rounds_without_a_better_score(
    patience: int, rounds: int
) -> None:
    """The first score is an improvement; then patience counts."""
    result = run_sync(improvement_loop(plus(0), share, patience=patience), 5)
    assert (result.iterations, result.reason) == (rounds, Reason.NO_IMPROVEMENT)


def test_a_fingerprint_follows_the_parts_of_a_recipe() -> None:
    """Another maker, check, strategy, judge or threshold is another loop."""
    one = {"a": plus(1)}
    made = [
        confidence_loop(plus(1), share), confidence_loop(plus(1), share, threshold=0.5),
        improvement_loop(plus(1), share), improvement_loop(plus(1), share, patience=3),
        checklist_loop(one, {"a": share}), checklist_loop(one, {"a": score()}),
        checklist_loop(one, {"a": share}, share), checklist_loop({"a": share}, {"a": share}),
        strategy_loop(one, share), strategy_loop({"b": plus(1)}, share),
        strategy_loop(one, plus(1)),
    ]  # fmt: skip
    assert len({loop.fingerprint for loop in made}) == len(made)
