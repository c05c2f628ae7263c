"""Conditions on hand-made histories: success, limits, and how they combine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.support import ERROR, UNDECIDED, history
from loopwright import (
    AllCriteriaMet,
    AnyOf,
    Budget,
    Condition,
    Criterion,
    Deadline,
    Evaluation,
    History,
    Iteration,
    MaxIterations,
    OutputMatches,
    Passed,
    PhaseLimit,
    Reason,
    ScoreAtLeast,
    Stop,
    Timeout,
    Usage,
)
from loopwright.conditions import prefer

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
        (
            Budget(usd=0.5),
            Usage(usd=0.75),
            "0.75 of 0.5 usd spent; the last call cost more than was left: its step states no reserve, or too small a one",
        ),
        (Budget(calls=1, usd=9.0), Usage(calls=1), "1 of 1 calls spent"),
    ],
)
def test_a_budget_is_spent_at_its_cap(budget: Budget, spent: Usage, detail: str | None) -> None:
    """F20, H24: at least, not more than; whichever unit is first."""
    stop = budget.check(history(usage=spent))
    assert stop == (detail and Stop(R.BUDGET, detail))


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
