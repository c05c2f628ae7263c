"""The keyword limits of a loop are conditions."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest

from loopwright import (
    Budget,
    Loop,
    MaxIterations,
    NoImprovement,
    Reason,
    ScoreAtLeast,
    Status,
    Timeout,
    run_sync,
)
from loopwright.errors import ConfigurationError


def grow(number: int) -> int:
    return number + 1


def share(number: int) -> float:
    return number / 10


def test_a_loop_with_a_score_and_a_limit() -> None:
    """`Loop(min_score=…, max_iterations=…)` is satisfied by the score, or ends at the limit."""
    loop = Loop(grow, share, lambda last: last.output, min_score=0.4, max_iterations=20)
    assert run_sync(loop, 1).iterations == 3
    short = run_sync(replace(loop, name="copy", until=MaxIterations(2)), 1)
    assert (short.status, short.iterations) == (Status.EXHAUSTED, 2)


def test_keywords_are_the_conditions_that_they_abbreviate() -> None:
    """The loop of keywords and the loop of conditions have the same fingerprint."""
    budget = Budget(calls=5, tokens=100, usd=1.0)
    until = ScoreAtLeast(0.9) | MaxIterations(3) | NoImprovement(2) | budget | Timeout(60)
    with warnings.catch_warnings(action="ignore"):  # no step reports usage
        written = Loop(grow, share, until=until)
        short = Loop(
            grow, share, min_score=0.9, max_iterations=3, patience=2, max_calls=5,
            max_total_tokens=100, max_usd=1.0, timeout=60,
        )  # fmt: skip
    assert short.until == written.until
    assert short.fingerprint == written.fingerprint


def test_a_loop_with_an_evaluator_and_no_goal_ends_when_it_passes() -> None:
    """Limits alone are no goal: the evaluation that passes satisfies the loop."""
    loop = Loop(grow, lambda number: number >= 3, lambda last: last.output, max_iterations=5)
    result = run_sync(loop, 1)
    assert (result.status, result.reason, result.output) == (
        Status.SATISFIED, Reason.CONDITION_MET, 3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("until", "keywords"),
    [
        (MaxIterations(2), {"max_iterations": 3}),
        (ScoreAtLeast(0.5) & MaxIterations(2), {"max_iterations": 3}),
        (ScoreAtLeast(0.5) | Timeout(2), {"timeout": 3}),
        (ScoreAtLeast(0.5), {"min_score": 0.9}),
        (NoImprovement(2), {"patience": 3}),
        (Budget(usd=1), {"max_usd": 2}),
    ],
)
def test_a_limit_that_until_names_too_is_refused(until: Any, keywords: Any) -> None:
    """It is not clear which of two limits counts, so the loop cannot be made."""
    with pytest.raises(ConfigurationError, match=f"{next(iter(keywords))}: .*name the limit once"):
        Loop(grow, share, until=until, **keywords)
    with pytest.raises(ConfigurationError, match="name the limit once"):
        Loop(grow, share, guards=until, **keywords)


@pytest.mark.parametrize(
    "keywords",
    [{"max_iterations": "3"}, {"min_score": 2}, {"patience": 0}, {"timeout": -1}, {"max_usd": "x"}],
)
def test_a_wrong_limit_is_refused(keywords: Any) -> None:
    """A keyword is checked like the condition."""
    with pytest.raises(ConfigurationError):
        Loop(grow, share, **keywords)
