"""Iterations and histories: what counts, what is best, and that the past stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.support import ERROR, UNDECIDED, history, scores
from loopwright import Evaluation, Failure, History, Iteration, Usage
from loopwright.records import NOTHING

# Iterations and histories.


def test_feedback_is_what_the_next_round_is_told() -> None:
    """The error of a failed round, else the evaluator's words, else nothing."""
    failure = Failure("execute", "error", "it broke")
    assert (
        Iteration(1, error=failure, evaluation=Evaluation(feedback="fine")).feedback == "it broke"
    )
    assert Iteration(1, evaluation=Evaluation(feedback="shorter")).feedback == "shorter"
    assert Iteration(1).feedback == ""


@pytest.mark.parametrize(
    ("item", "eligible"),
    [
        (Iteration(1, output="x"), True),
        (Iteration(1, output="x", evaluation=Evaluation(0.0)), True),
        (Iteration(1, output="x", evaluation=Evaluation(undecided=True)), False),
        (Iteration(1, output="x", error=Failure("evaluate", "error", "")), False),
        (Iteration(1, output="x", interrupted=True), False),
        (Iteration(1, output="x", truncated=True), False),
    ],
)
def test_only_whole_and_judged_outputs_are_eligible(item: Iteration, eligible: bool) -> None:
    """Failed, cut short, truncated and undecided iterations are neither best nor last."""
    assert item.eligible is eligible


BEST = [
    ([], None, None),
    ([0.5], 1, 1),
    ([0.0], 1, 1),
    ([0.0, 0.0], 1, 2),
    ([0.5, 0.5, 0.4], 1, 3),
    ([0.2, 0.9, 0.9, 0.1], 2, 4),
    ([ERROR], None, None),
    ([ERROR, 0.0, ERROR], 2, 2),
    ([UNDECIDED, 0.3, UNDECIDED], 2, 2),
    ([None, None], 2, 2),
    ([False, True], 2, 2),
    ([None, 0.0], 2, 2),
    ([0.0, None], 1, 2),
    ([0.4, False, 0.1], 1, 3),
]


@pytest.mark.parametrize(("marks", "best", "last"), BEST, ids=str)
def test_best_is_the_highest_valid_score_and_last_the_latest_whole_output(
    marks: list[Any], best: int | None, last: int | None
) -> None:
    """I15: the maximum, the earliest on ties; the first valid output is best at score 0 too."""
    found = history(*marks)
    assert (found.best and found.best.number) == best
    assert (found.latest_eligible and found.latest_eligible.number) == last


def test_a_history_is_a_sequence() -> None:
    """Indexing, slicing, iterating and comparing work as for a list of iterations."""
    found = history(0.1, 0.2, 0.3)
    assert [item.number for item in found] == [1, 2, 3]
    assert found[-1].number == 3
    assert [item.number for item in found[1:]] == [2, 3]
    assert found[0] in found
    assert found == History(list(found))
    assert found != [*found]
    assert found.last is found[2]
    assert History().last is None
    assert repr(found) == "<History of 3 iterations, best 3 with score 0.30>"
    with pytest.raises(IndexError, match="there is no iteration 4"):
        found[3]
    with pytest.raises(IndexError):
        found[-4]
    with pytest.raises(TypeError, match="unhashable"):
        hash(found)


marks = st.lists(st.sampled_from([0.0, 0.5, 1.0, None, ERROR, UNDECIDED]) | scores, max_size=12)


@given(marks)
def test_each_earlier_history_is_a_prefix_of_each_later_one(given: list[Any]) -> None:
    """I2: appending never changes a history that someone holds; each view stays what it was."""
    seen = [History()]
    for item in history(*given):
        seen.append(seen[-1].with_iteration(item, 0.0, NOTHING))
    for count, view in enumerate(seen):
        alone = history(*given[:count])
        assert view == alone
        assert len(view) == count
        assert view.best == alone.best
        assert view.scores == alone.scores
        assert view.recent_scores(2) == alone.scores[-2:]
        assert (view.failures, view.undecided) == (alone.failures, alone.undecided)
        assert view.fall == pytest.approx(alone.fall)


@given(marks, marks)
def test_two_continuations_of_one_history_do_not_see_each_other(a: list[Any], b: list[Any]) -> None:
    """I2: going on twice from the same moment gives two histories, each as if it were alone."""
    start = history(0.5)
    first = second = start
    for item in history(0.5, *a)[1:]:
        first = first.with_iteration(item, 0.0, NOTHING)
    for item in history(0.5, *b)[1:]:
        second = second.with_iteration(item, 0.0, NOTHING)
    assert first == history(0.5, *a)
    assert second == history(0.5, *b)
    assert start == history(0.5)


@given(marks)
def test_failures_and_undecided_count_in_a_row(given: list[Any]) -> None:
    """I17: an undecided iteration moves its own counter only; a whole one resets both."""
    found = history(*given)
    failures = undecided = 0
    for mark in given:
        failures = failures + 1 if mark == ERROR else 0
        undecided = undecided + 1 if mark == UNDECIDED else 0
    assert (found.failures, found.undecided) == (failures, undecided)
    whole = [m for m in given if isinstance(m, float)]
    assert found.scores == whole
    without = history(*(m for m in given if m != UNDECIDED))
    assert (found.best and found.best.score) == (without.best and without.best.score)


def test_the_same_rounds_are_seen_at_another_moment() -> None:
    """at_time changes the clock and the spending, not the iterations."""
    found = history(0.5).at_time(elapsed=3.0, usage=Usage(calls=2), now=9.0)
    assert (found.elapsed, found.usage.calls, found.now, len(found)) == (3.0, 2, 9.0, 1)


def test_a_fall_needs_two_scores() -> None:
    """Without two valid scores there is no mean of two to fall from."""
    assert history().fall == history(0.5).fall == 0.0
    assert history(0.9, 0.9, 0.1, 0.1).fall == pytest.approx(0.8)
