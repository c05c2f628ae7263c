"""Conditions on hand-made histories: no progress, repeats, decline."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.support import ERROR, UNDECIDED, history, scores
from loopwright import Condition, Degrading, NoImprovement, Reason, RepeatedOutput, Stop

R = Reason


# Plateaus.


@pytest.mark.parametrize(
    ("marks", "check", "stops"),
    [
        ([], NoImprovement(1), False),
        ([0.5], NoImprovement(1), False),
        ([0.0], NoImprovement(1), False),
        ([0.5, 0.5], NoImprovement(1), True),
        ([0.0, 0.0], NoImprovement(1), True),
        ([0.5, 0.6], NoImprovement(1), False),
        ([0.5, 0.6], NoImprovement(1, min_delta=0.2), True),
        ([0.5, 0.4], NoImprovement(2), False),
        ([0.5, 0.4, 0.45], NoImprovement(2), True),
        ([0.5, 0.4, 0.6, 0.6], NoImprovement(2), False),
        ([0.5, ERROR, UNDECIDED, None, 0.5], NoImprovement(2), False),
        ([0.5, 0.4, ERROR], NoImprovement(2), False),
        ([0.5, 0.4, 0.4, ERROR], NoImprovement(2), True),
    ],
    ids=str,
)
def test_no_improvement_counts_scores_that_failed_to_beat_the_best(
    marks: list[Any], check: Condition, stops: bool
) -> None:
    """I20, F12: the first score is always progress, at 0 too; rounds without a score do not count."""
    stop = check.check(history(*marks))
    assert (stop is not None) is stops
    assert stop is None or stop.reason is R.NO_IMPROVEMENT


def test_no_improvement_says_what_was_not_beaten() -> None:
    """The sentence names the patience and the best score."""
    stop = NoImprovement(2).check(history(0.5, 0.4, 0.3))
    assert stop == Stop(R.NO_IMPROVEMENT, "2 iterations without a better score than 0.5")


@given(st.lists(scores | st.sampled_from([None, ERROR, UNDECIDED]), max_size=15),
       st.integers(1, 4), st.sampled_from([0.0, 0.1, 0.25]))  # fmt: skip
def test_patience_runs_out_exactly(marks: list[Any], patience: int, delta: float) -> None:
    """I20: it fires exactly when the last `patience` valid scores all failed to beat best + delta."""
    valid = [m for m in marks if isinstance(m, float)]
    best, stall = -math.inf, 0
    for score in valid:
        stall = 0 if score > best + delta else stall + 1
        best = max(best, score)
    stop = NoImprovement(patience, delta).check(history(*marks))
    assert (stop is not None) == (stall >= patience)


REPEATS = [
    ("AA", {}, "the output repeats, seen twice"),
    ("AB", {}, None),
    ("ABA", {}, None),
    ("ABAB", {}, "the outputs repeat in a cycle of 2, seen twice"),
    ("ABCABC", {}, "the outputs repeat in a cycle of 3, seen twice"),
    ("ABCABC", {"period": 2}, None),
    ("ABCDABCD", {}, "the outputs repeat in a cycle of 4, seen twice"),
    ("", {}, None),
    ("A", {}, None),
]


@pytest.mark.parametrize(("outputs", "fields", "detail"), REPEATS)
def test_a_repeat_is_the_same_output_twice_or_a_cycle_twice(
    outputs: str, fields: dict[str, Any], detail: str | None
) -> None:
    """H25: A-B-A does not count; cycles of up to `period` count when they come round twice."""
    found = history(*[None] * len(outputs), outputs=list(outputs))
    assert RepeatedOutput(**fields).check(found) == (detail and Stop(R.REPEATED_OUTPUT, detail))


def test_the_same_input_twice_is_no_repeat() -> None:
    """Where inputs change, the same output from the same input says nothing; from another input it does."""
    same = history(None, None, None, outputs=["B", "A", "A"], inputs=["w", "x", "x"])
    assert RepeatedOutput().check(same) is None
    other = history(None, None, outputs=["A", "A"], inputs=["x", "y"])
    assert RepeatedOutput().check(other) is not None


def test_a_repeat_that_is_a_new_best_does_not_count() -> None:
    """H25: convergence onto a better score is not being stuck."""
    assert RepeatedOutput().check(history(0.5, 0.9, outputs=["A", "A"])) is None
    assert RepeatedOutput().check(history(0.9, 0.9, outputs=["A", "A"])) is not None
    rising = history(0.1, 0.2, 0.3, 0.4, outputs=list("ABAB"))
    assert RepeatedOutput().check(rising) is None


def test_failed_rounds_do_not_repeat() -> None:
    """Two failures in a row have no output, so they are no repeat of one."""
    assert RepeatedOutput().check(history(ERROR, ERROR)) is None
    assert RepeatedOutput(similarity=0.9).check(history(ERROR, ERROR)) is None


def test_an_empty_output_is_not_like_a_failed_one() -> None:
    """Near-duplicates are looked for among whole outputs only."""
    found = history(ERROR, None, outputs=[None, ""])
    assert RepeatedOutput(similarity=0.9).check(found) is None


def test_key_order_and_volatile_keys_are_no_difference() -> None:
    """I22, H25: objects are compared by meaning, without the keys that always change."""
    a, b = {"x": 1, "y": 2, "at": 5}, {"y": 2, "x": 1, "at": 6}
    found = history(None, None, outputs=[a, b])
    assert RepeatedOutput().check(found) is None
    assert RepeatedOutput(volatile=["at"]).check(found) is not None  # type: ignore[arg-type]


def test_near_duplicates_are_an_option() -> None:
    """With `similarity`, texts that share nearly all word runs count as equal."""
    words = [f"word{n}" for n in range(60)]
    a, b = " ".join(words), " ".join([*words[:-1], "other"])
    found = history(None, None, outputs=[a, b])
    assert RepeatedOutput().check(found) is None
    assert RepeatedOutput(similarity=0.9).check(found) is not None
    far = history(None, None, outputs=[a, "something else entirely, in other words"])
    assert RepeatedOutput(similarity=0.9).check(far) is None


@pytest.mark.parametrize(
    ("marks", "check", "stops"),
    [
        ([0.9, 0.8, 0.7], Degrading(rule="strict"), True),
        ([0.9, 0.8, 0.8], Degrading(rule="strict"), False),
        ([0.9, 0.8], Degrading(rule="strict"), False),
        ([0.9, 0.8], Degrading(rule="strict", window=2), True),
        ([0.9, ERROR, 0.8, 0.7], Degrading(rule="strict"), True),
        ([0.9, 0.8, 0.7, ERROR], Degrading(rule="strict"), False),
        ([0.9, 0.8, 0.7, None], Degrading(rule="strict"), False),
        ([0.9, 0.9, 0.9], Degrading(), False),
        ([0.9, 0.8999, 0.8998], Degrading(), False),
        ([0.9, 0.9, 0.7, 0.7], Degrading(), True),
        ([0.9, 0.9, 0.75, 0.75], Degrading(), False),
        ([0.9, 0.1], Degrading(), False),
        ([0.5, 0.9, 0.5, 0.9], Degrading(), False),
        ([0.9, 0.9, 0.1, 0.1], Degrading(sigma=1.0), False),
        ([0.9, 0.9, 0.89], Degrading(sigma=0), True),
        ([0.9, 0.9, 0.9], Degrading(sigma=0), False),
        ([0.9, 0.9, 0.89], Degrading(sigma=0, tolerance=0.05), False),
        ([0.9, 0.9, 0.8], Degrading(sigma=0, tolerance=0.05), True),
        ([], Degrading(), False),
    ],
    ids=str,
)
def test_degrading_is_a_fall_beyond_noise(marks: list[Any], check: Condition, stops: bool) -> None:
    """H26, F19: drawdown of two-score means by default; the seed's strict rule is an option."""
    stop = check.check(history(*marks))
    assert (stop is not None) is stops
    assert stop is None or stop.reason is R.DEGRADING


def test_degrading_says_by_how_much() -> None:
    """The sentence carries the figures of the rule."""
    strict = Degrading(rule="strict").check(history(0.9, 0.8, 0.7))
    assert strict == Stop(R.DEGRADING, "3 scores in a row, each below the last")
    drawdown = Degrading().check(history(0.9, 0.9, 0.5, 0.5))
    assert drawdown == Stop(R.DEGRADING, "scores fell by 0.4, more than 0.192")


@given(st.lists(scores, max_size=8), st.integers(2, 6), st.sampled_from(["strict", "drawdown"]),
       st.sampled_from([0.0, 0.01, 0.07]))  # fmt: skip
def test_degrading_needs_its_window(
    marks: list[float], window: int, rule: str, sigma: float
) -> None:
    """I21: it never fires on fewer scores than its window, nor on scores that never fall."""
    check = Degrading(window=window, rule=rule, sigma=sigma)
    if len(marks) < window:
        assert check.check(history(*marks)) is None
    assert check.check(history(*sorted(marks))) is None


def test_an_output_that_came_anywhere_before_is_an_option() -> None:
    """`anywhere` sees A B A, by the same rules on inputs, new best scores and failures; the default does not."""
    found = history(None, None, None, outputs=list("ABA"))
    assert RepeatedOutput().check(found) is None
    stop = RepeatedOutput(anywhere=True).check(found)
    assert stop == Stop(R.REPEATED_OUTPUT, "the output is that of iteration 1")
    assert RepeatedOutput(anywhere=True).check(history(None, None, outputs=list("AA"))) is not None
    assert RepeatedOutput(anywhere=True).check(history(None, None, outputs=list("AB"))) is None
    assert RepeatedOutput(anywhere=True).check(history(0.5, 0.6, 0.7, outputs=list("ABA"))) is None
    same = history(None, None, None, outputs=list("ABA"), inputs=["x", "y", "x"])
    assert RepeatedOutput(anywhere=True).check(same) is None
    assert RepeatedOutput(anywhere=True).check(history(ERROR, None, ERROR)) is None
    assert RepeatedOutput(anywhere=True).to_json() == {"repeated_output": {"anywhere": True}}
