"""Conditions on hand-made histories: when each stops, what it says, and what it refuses."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loopwright import (
    AllCriteriaMet,
    AllOf,
    AnyOf,
    Budget,
    Condition,
    Criterion,
    Deadline,
    Degrading,
    Evaluation,
    History,
    Iteration,
    MaxIterations,
    NoImprovement,
    OutputMatches,
    Passed,
    PhaseLimit,
    Reason,
    RepeatedOutput,
    ScoreAtLeast,
    Stop,
    Timeout,
    Usage,
)
from loopwright.conditions import CEILING, condition, from_json, prefer, tag_of
from loopwright.conditions.base import TAGS
from loopwright.errors import ConfigurationError

from .support import ERROR, UNDECIDED, examples, history, scores

R = Reason

# Success.


@pytest.mark.parametrize(
    ("marks", "check", "detail"),
    [
        ([], ScoreAtLeast(0.0), None),
        ([0.84], ScoreAtLeast(0.85), None),
        ([0.85], ScoreAtLeast(0.85), "score 0.85 is at least 0.85"),
        ([0.9, 0.2], ScoreAtLeast(0.85), None),
        ([0.0], ScoreAtLeast(0.0), "score 0 is at least 0"),
        ([0.9], ScoreAtLeast(0.5, min_iterations=2), None),
        ([0.9, 0.9], ScoreAtLeast(0.5, min_iterations=2), "score 0.9 is at least 0.5"),
        ([ERROR], ScoreAtLeast(0.0), None),
        ([UNDECIDED], ScoreAtLeast(0.0), None),
        ([True], ScoreAtLeast(0.0), None),
        ([None], Passed(), None),
        ([True], Passed(), "iteration 1 passed its evaluation"),
        ([False], Passed(), None),
        ([1.0], Passed(), None),
        ([True, ERROR], Passed(), None),
        ([], Passed(), None),
        ([True], Passed(min_iterations=2), None),
        ([False, True], Passed(min_iterations=2), "iteration 2 passed its evaluation"),
    ],
    ids=str,
)
def test_success_looks_at_the_latest_iteration(
    marks: list[Any], check: Condition, detail: str | None
) -> None:
    """F5, H3: thresholds and verdicts of the latest record, after completed iterations only."""
    stop = check.check(history(*marks))
    assert stop == (detail and Stop(R.CONDITION_MET, detail))


def test_a_score_of_an_unusable_round_does_not_count() -> None:
    """An output that failed, was cut short or is not whole satisfies nothing."""
    for flag in ("interrupted", "truncated"):
        item = Iteration(1, output="x", evaluation=Evaluation(1.0, True), **{flag: True})
        assert ScoreAtLeast(0.5).check(History([item])) is None
        assert Passed().check(History([item])) is None
        assert OutputMatches("x").check(History([item])) is None


@pytest.mark.parametrize(
    ("criteria", "detail"),
    [
        ([], None),
        ([True], "all 1 criteria are met"),
        ([True, False], None),
        ([True, True, True], "all 3 criteria are met"),
    ],
)
def test_all_criteria_must_be_listed_and_met(criteria: list[bool], detail: str | None) -> None:
    """H6: no criteria is not "all criteria": an empty list satisfies nothing."""
    found = Evaluation(criteria=tuple(Criterion("c", passed) for passed in criteria))
    stop = AllCriteriaMet().check(history(found))
    assert stop == (detail and Stop(R.CONDITION_MET, detail))
    assert AllCriteriaMet().check(history()) is None
    assert AllCriteriaMet().check(history(ERROR)) is None
    assert AllCriteriaMet().check(history(None)) is None


@pytest.mark.parametrize(
    ("pattern", "output", "matches"),
    [
        (r"^DONE:", "DONE: yes", True),
        (r"^DONE:", "not DONE: yet", False),
        (r"\"ok\": true", {"ok": True}, True),
        (r".", None, False),
    ],
)
def test_an_output_matches_as_a_reader_sees_it(pattern: str, output: Any, matches: bool) -> None:
    """Text is searched as it is, everything else as its JSON."""
    stop = OutputMatches(pattern).check(history(None, outputs=[output]))
    assert stop == (Stop(R.CONDITION_MET, f"the output matches {pattern!r}") if matches else None)


def test_a_pattern_may_ignore_case() -> None:
    """ignore_case finds the same word in other letters."""
    found = history(None, outputs=["done"])
    assert OutputMatches("DONE").check(found) is None
    assert OutputMatches("DONE", ignore_case=True).check(found) is not None


def test_a_pattern_looks_at_eligible_outputs_only() -> None:
    """Nothing, a failed round and an undecided one match no pattern."""
    for marks in ([], [ERROR], [UNDECIDED]):
        assert OutputMatches("").check(history(*marks)) is None


def test_a_pattern_that_takes_too_long_counts_as_not_found() -> None:
    """A pattern that backtracks for ever is given up, and the loop goes on to its limit."""
    found = history(None, outputs=["a" * 5000 + "!"])
    assert OutputMatches(r"(a|aa)+$").check(found) is None


# Limits.


@pytest.mark.parametrize("kind", [MaxIterations, PhaseLimit])
def test_a_limit_counts_completed_iterations_failed_or_not(kind: Any) -> None:
    """The limit is reached by the record that makes it full, not by the next one."""
    reason = {MaxIterations: R.MAX_ITERATIONS, PhaseLimit: R.PHASE_LIMIT}[kind]
    assert kind(2).check(history(0.5)) is None
    stop = kind(2).check(history(0.5, ERROR))
    assert stop is not None
    assert stop.reason is reason
    assert stop.detail.startswith("2 of 2 ")
    assert kind(2).check(history(0.5, 0.5, 0.5)) is not None


@pytest.mark.parametrize(("elapsed", "stops"), [(0, False), (59.9, False), (60, True), (61, True)])
def test_a_timeout_is_reached_at_its_second(elapsed: float, stops: bool) -> None:
    """At least, not more than: `>=` on the loop's active seconds."""
    stop = Timeout(60).check(history(elapsed=elapsed))
    assert stop == (Stop(R.TIMEOUT, "60 s used") if stops else None)


def test_a_deadline_is_a_moment_of_the_wall_clock() -> None:
    """It holds from its second on, in any offset."""
    deadline = Deadline("2030-01-31T18:00:00+01:00")
    moment = deadline.timestamp()
    assert deadline.check(history(now=moment - 1)) is None
    stop = deadline.check(history(now=moment))
    assert stop == Stop(R.DEADLINE, "it is past 2030-01-31T18:00:00+01:00")


@pytest.mark.parametrize(
    ("budget", "spent", "detail"),
    [
        (Budget(calls=3), Usage(calls=2), None),
        (Budget(calls=3), Usage(calls=3), "3 of 3 calls spent"),
        (Budget(tokens=10), Usage(input_tokens=4, output_tokens=5), None),
        (Budget(tokens=10), Usage(input_tokens=4, output_tokens=6), "10 of 10 tokens spent"),
        (Budget(usd=0.5), Usage(usd=0.49), None),
        (Budget(usd=0.5), Usage(usd=0.75), "0.75 of 0.5 usd spent"),
        (Budget(calls=1, usd=9.0), Usage(calls=1), "1 of 1 calls spent"),
    ],
)
def test_a_budget_is_spent_at_its_cap(budget: Budget, spent: Usage, detail: str | None) -> None:
    """F20, H24: at least, not more than; whichever unit is first."""
    stop = budget.check(history(usage=spent))
    assert stop == (detail and Stop(R.BUDGET, detail))


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
    """The same output from the same input says nothing; from another input it does."""
    same = history(None, None, outputs=["A", "A"], inputs=["x", "x"])
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


# Combining.


class Always(Condition):
    """Stops at once, for the reason it is given."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason

    def check(self, history: History) -> Stop | None:
        return Stop(self.reason, self.reason.value)


class Never(Condition):
    def check(self, history: History) -> Stop | None:
        return None


def test_or_flattens_and_prefers_success() -> None:
    """AnyOf prefers a satisfied stop over a limit of the same round; the others are named too."""
    limit, good, stall = Always(R.MAX_ITERATIONS), Always(R.CONDITION_MET), Always(R.NO_IMPROVEMENT)
    tree = (limit | stall) | (good | Never())
    assert len(tree.members) == 4
    stop = tree.check(History())
    assert stop == Stop(R.CONDITION_MET, "condition_met", (R.NO_IMPROVEMENT, R.MAX_ITERATIONS))
    assert (Never() | Never()).check(History()) is None


def test_and_needs_every_member() -> None:
    """AllOf stops when all hold, is satisfied if any part is, and says all details."""
    limit, good = Always(R.MAX_ITERATIONS), Always(R.CONDITION_MET)
    stop = ((limit & good) & limit).check(History())
    assert stop == Stop(
        R.CONDITION_MET, "max_iterations and condition_met and max_iterations", (R.MAX_ITERATIONS,)
    )
    assert (limit & Never()).check(History()) is None
    assert (Never() & limit).check(History()) is None


def test_an_or_inside_an_and_stays_what_it_is() -> None:
    """Only members of the same kind are flattened."""
    tree = (Passed() | MaxIterations(3)) & (Timeout(5) | ScoreAtLeast(0.5))
    assert len(tree.members) == 2
    assert str(tree) == (
        "(passed() | max_iterations(limit=3)) & (timeout(seconds=5) | score_at_least(threshold=0.5))"
    )
    assert [str(c) for c in tree.limits()] == ["max_iterations(limit=3)", "timeout(seconds=5)"]
    assert list(tree.flat()) == [tree]


@given(st.permutations(list(Reason)[:8]), st.integers(1, 8))
def test_the_order_of_members_changes_only_text(order: list[Reason], count: int) -> None:
    """I7, F25: an "or" reports the same reason in any order, and all that held."""
    chosen = order[:count]
    stop = AnyOf(tuple(Always(reason) for reason in chosen)).check(History())
    assert stop is not None
    assert stop.reason is min(chosen, key=lambda reason: reason.rank)
    assert {stop.reason, *stop.also} == set(chosen)
    assert stop == AnyOf(tuple(Always(r) for r in sorted(chosen, key=lambda r: r.rank))).check(
        History()
    )


def test_a_condition_has_no_truth_value() -> None:
    """`or` and `and` would silently drop a condition, so they raise."""
    with pytest.raises(TypeError) as caught:
        Passed() and MaxIterations(3)
    assert str(caught.value) == (
        "a condition has no truth value; combine conditions with | and &, not with or and and"
    )


def test_preferring_nothing_is_nothing() -> None:
    """No stop held, so there is none to report."""
    assert prefer([]) is None


# Refusals.

REFUSED = [
    (lambda: ScoreAtLeast(1.5),
     "score_at_least: threshold: 1.5 is out of range; give a number at least 0 and at most 1"),
    (lambda: ScoreAtLeast(85),
     "score_at_least: threshold: 85 is out of range; give a number at least 0 and at most 1"),
    (lambda: ScoreAtLeast(-0.1),
     "score_at_least: threshold: -0.1 is out of range; give a number at least 0 and at most 1"),
    (lambda: ScoreAtLeast(math.nan), "score_at_least: threshold: nan is not finite"),
    (lambda: ScoreAtLeast("high"), "score_at_least: threshold: 'high' is not a number"),
    (lambda: ScoreAtLeast(0.5, min_iterations=0),
     "score_at_least: min_iterations: 0 is too small; give at least 1"),
    (lambda: Passed(min_iterations=0), "passed: min_iterations: 0 is too small; give at least 1"),
    (lambda: MaxIterations(0), "max_iterations: limit: 0 is too small; give at least 1"),
    (lambda: MaxIterations(2.5), "max_iterations: limit: 2.5 is not a whole number"),
    (lambda: MaxIterations(1001),
     "max_iterations: 1001 is above the ceiling of 1000; give at most 1000"),
    (lambda: PhaseLimit(0), "phase_limit: limit: 0 is too small; give at least 1"),
    (lambda: PhaseLimit(1001), "phase_limit: 1001 is above the ceiling of 1000; give at most 1000"),
    (lambda: Timeout(0), "timeout: seconds: 0 is out of range; give a number above 0"),
    (lambda: Timeout(math.inf), "timeout: seconds: inf is not finite"),
    (lambda: Timeout(math.nan), "timeout: seconds: nan is not finite"),
    (lambda: Deadline("tomorrow"),
     ("deadline: 'tomorrow' is not a date and time with an offset; "
     "write it like 2030-01-31T18:00:00+00:00")),
    (lambda: Deadline("2030-01-31T18:00:00"),
     ("deadline: '2030-01-31T18:00:00' is not a date and time with an offset; "
     "write it like 2030-01-31T18:00:00+00:00")),
    (lambda: Deadline(5),
     "deadline: 5 is not a date and time with an offset; write it like 2030-01-31T18:00:00+00:00"),
    (lambda: Budget(), "budget: needs calls, tokens or usd"),
    (lambda: Budget(calls=0), "budget: calls: 0 is too small; give at least 1"),
    (lambda: Budget(tokens=0), "budget: tokens: 0 is too small; give at least 1"),
    (lambda: Budget(usd=0), "budget: usd: 0 is out of range; give a number above 0"),
    (lambda: Budget(usd=math.nan), "budget: usd: nan is not finite"),
    (lambda: NoImprovement(0), "no_improvement: patience: 0 is too small; give at least 1"),
    (lambda: NoImprovement(1, min_delta=-1),
     "no_improvement: min_delta: -1 is out of range; give a number at least 0 and at most 1"),
    (lambda: RepeatedOutput(period=0), "repeated_output: period: 0 is too small; give at least 1"),
    (lambda: RepeatedOutput(period=5), "repeated_output: period: 5 is above 4"),
    (lambda: RepeatedOutput(volatile="at"), "repeated_output: volatile: give a list of keys"),
    (lambda: RepeatedOutput(volatile=3), "repeated_output: volatile: give a list of keys"),
    (lambda: RepeatedOutput(similarity=0),
     "repeated_output: similarity: 0 is out of range; give a number above 0 and at most 1"),
    (lambda: Degrading(window=1), "degrading: window: 1 is too small; give at least 2"),
    (lambda: Degrading(horizon=1), "degrading: horizon: 1 is too small; give at least 2"),
    (lambda: Degrading(sigma=-1),
     "degrading: sigma: -1 is out of range; give a number at least 0 and at most 1"),
    (lambda: Degrading(tolerance=2),
     "degrading: tolerance: 2 is out of range; give a number at least 0 and at most 1"),
    (lambda: Degrading(rule="strickt"),
     "degrading: rule: unknown rule 'strickt'; did you mean 'strict'?"),
    (lambda: OutputMatches("("), "pattern '(': missing ) at position 1"),
    (lambda: OutputMatches(3), "output_matches: pattern: 3 is not text"),
    (lambda: AnyOf(()), "any_of: the list of conditions is empty; name at least one"),
    (lambda: AllOf(()), "all_of: the list of conditions is empty; name at least one"),
    (lambda: AnyOf((3,)), "3 is not a condition"),
    (lambda: AnyOf(Passed()), "any_of: give a list of conditions, not passed()"),
    (lambda: Passed() | 3, "3 is not a condition"),
    (lambda: Passed() & None, "None is not a condition"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"), REFUSED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_condition_that_cannot_mean_anything_is_refused(make: Any, message: str) -> None:
    """I10: degenerate configuration is refused at load, with the place, the value and the range."""
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert str(caught.value) == message


# JSON.

leaves = st.one_of(
    st.builds(ScoreAtLeast, scores, min_iterations=st.integers(1, 5)),
    st.builds(Passed, min_iterations=st.integers(1, 3)),
    st.builds(MaxIterations, st.integers(1, CEILING)),
    st.builds(PhaseLimit, st.integers(1, CEILING)),
    st.builds(Timeout, st.floats(0.001, 1e6)),
    st.just(Deadline("2030-01-31T18:00:00+00:00")),
    st.builds(Budget, calls=st.integers(1, 99), usd=st.none() | st.floats(0.01, 9)),
    st.builds(NoImprovement, st.integers(1, 9), min_delta=scores),
    st.builds(RepeatedOutput, period=st.integers(1, 4),
              volatile=st.lists(st.text(max_size=3), max_size=2).map(tuple),
              similarity=st.none() | st.floats(0.1, 1)),
    st.builds(Degrading, window=st.integers(2, 5), rule=st.sampled_from(["strict", "drawdown"])),
    st.just(OutputMatches("DONE", ignore_case=True)),
    st.just(AllCriteriaMet()),
)  # fmt: skip
trees = st.recursive(
    leaves,
    lambda inner: (
        st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(AllOf, st.lists(inner, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


@given(trees)
def test_a_condition_goes_to_json_and_back(tree: Condition) -> None:
    """I43: from_json(to_json(c)) = c for every tree, through text."""
    text = json.dumps(tree.to_json(), allow_nan=False)
    assert from_json(json.loads(text)) == tree


@examples(0.5)
@given(trees, st.lists(scores | st.sampled_from([None, True, ERROR, UNDECIDED]), max_size=6))
def test_a_decision_is_a_pure_function_of_the_history(tree: Condition, marks: list[Any]) -> None:
    """I7: asking twice, or from JSON, gives the same answer and changes nothing."""
    found = history(*marks, elapsed=3.0)
    before = list(found)
    assert tree.check(found) == tree.check(found) == from_json(tree.to_json()).check(found)
    assert list(found) == before


@examples(0.5)
@given(st.lists(leaves, min_size=1, max_size=4),
       st.lists(scores | st.sampled_from([None, True, ERROR]), max_size=8))  # fmt: skip
def test_an_or_stops_at_its_earliest_member_and_an_and_not_before_its_latest(
    members: list[Condition], marks: list[Any]
) -> None:
    """I9: an "or" holds if and only if a member does, an "and" only if all do."""
    found = history(*marks, elapsed=1.0, usage=Usage(calls=2))
    held = [member.check(found) is not None for member in members]
    assert (AnyOf(tuple(members)).check(found) is not None) == any(held)
    assert (AllOf(tuple(members)).check(found) is not None) == all(held)


@given(trees, trees, trees)
def test_or_and_and_are_associative(a: Condition, b: Condition, c: Condition) -> None:
    """Grouping does not matter: (a | b) | c = a | (b | c), and the same for &."""
    assert (a | b) | c == a | (b | c)
    assert (a & b) & c == a & (b & c)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("passed", Passed()),
        ({"max_iterations": 5}, MaxIterations(5)),
        ({"max_iterations": {"limit": 5}}, MaxIterations(5)),
        ({"passed": None}, Passed()),
        ({"repeated_output": {"volatile": ["at"]}}, RepeatedOutput(volatile=("at",))),
        (["passed"], Passed()),
        (["passed", {"max_iterations": 5}], Passed() | MaxIterations(5)),
        ({"any_of": ["passed", {"timeout": 3}]}, Passed() | Timeout(3)),
        ({"all_of": "passed"}, AllOf((Passed(),))),
        ({"budget": {"usd": 0.5}}, Budget(usd=0.5)),
    ],
    ids=str,
)
def test_a_document_may_spell_a_condition_in_short(data: Any, expected: Condition) -> None:
    """A tag alone, a tag with its first field, or a list that is an "or"."""
    assert from_json(data) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"max_iteration": 5}, "unknown condition 'max_iteration'; did you mean 'max_iterations'?"),
        ({3: 5}, "unknown condition 3"),
        (7, "7 is not a condition; write one tag with its value"),
        ({}, "{} is not a condition; write one tag with its value"),
        ({"a": 1, "b": 2}, "{'a': 1, 'b': 2} is not a condition; write one tag with its value"),
        ([], "any_of: the list of conditions is empty; name at least one"),
        ({"max_iterations": {"limits": 5}},
         "max_iterations: unknown field 'limits'; did you mean 'limit'?"),
        ({"timeout": {"x": 5}}, "timeout: unknown field 'x'; it has seconds"),
        ({"all_criteria_met": 3}, "all_criteria_met: unknown field 'value'; it has no fields"),
        ({"score_at_least": {"min_iterations": 2}}, "score_at_least: needs threshold"),
        ({"max_iterations": None}, "max_iterations: needs limit"),
        ({"max_iterations": [3]}, "max_iterations: limit: (3,) is not a whole number"),
    ],
    ids=str,
)  # fmt: skip
def test_a_spelling_that_cannot_be_read_is_refused(data: Any, message: str) -> None:
    """The refusal names the tag or field and the nearest valid one."""
    with pytest.raises(ConfigurationError) as caught:
        from_json(data)
    assert str(caught.value) == message


def test_a_tag_is_the_snake_case_of_its_class() -> None:
    """There is no table of names to maintain."""
    assert tag_of(ScoreAtLeast) == "score_at_least"
    assert {tag_of(kind) for kind in TAGS.values()} == set(TAGS)


def test_a_tag_belongs_to_one_class() -> None:
    """Registering a second class under a taken tag is refused."""
    with pytest.raises(ConfigurationError, match="the condition 'passed' is already registered"):

        @condition
        @dataclass(frozen=True)
        class Passed(Condition):
            def check(self, history: History) -> Stop | None:
                return None


def test_fields_at_their_default_are_left_out() -> None:
    """JSON and text show what was said, not what was left unsaid."""
    assert ScoreAtLeast(0.5).to_json() == {"score_at_least": {"threshold": 0.5}}
    assert str(ScoreAtLeast(0.5, min_iterations=2)) == (
        "score_at_least(threshold=0.5, min_iterations=2)"
    )
    assert RepeatedOutput(volatile=("a",)).to_json() == {"repeated_output": {"volatile": ["a"]}}


@given(st.lists(scores, min_size=1, max_size=10), scores, scores)
def test_a_lower_threshold_never_stops_later(marks: list[float], low: float, high: float) -> None:
    """I8: wherever the higher threshold stops, the lower one has stopped."""
    assume(low <= high)
    for count in range(1, len(marks) + 1):
        found = history(*marks[:count])
        if ScoreAtLeast(high).check(found) is not None:
            assert ScoreAtLeast(low).check(found) is not None
