"""Conditions as they are written: what is refused, and the way to JSON and back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from engine.support import ERROR, UNDECIDED, examples, history, scores
from loopwright import (
    AllCriteriaMet,
    AllOf,
    AnyOf,
    Budget,
    Condition,
    Deadline,
    Degrading,
    History,
    Loop,
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
from loopwright.conditions import CEILING, condition, from_json, tag_of
from loopwright.conditions.base import TAGS
from loopwright.errors import ConfigurationError

R = Reason


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
    (lambda: MaxIterations(2.5), "max_iterations: limit: 2.5 is not an integer"),
    (lambda: MaxIterations(1001),
     "max_iterations: 1001 is above the ceiling of 1000; use at most 1000"),
    (lambda: PhaseLimit(0), "phase_limit: limit: 0 is too small; give at least 1"),
    (lambda: PhaseLimit(1001), "phase_limit: 1001 is above the ceiling of 1000; use at most 1000"),
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
    (lambda: Budget(), "budget: needs calls, tokens, usd or effects"),
    (lambda: Budget(calls=0), "budget: calls: 0 is too small; give at least 1"),
    (lambda: Budget(tokens=0), "budget: tokens: 0 is too small; give at least 1"),
    (lambda: Budget(usd=0), "budget: usd: 0 is out of range; give a number above 0"),
    (lambda: Budget(usd=math.nan), "budget: usd: nan is not finite"),
    (lambda: NoImprovement(0), "no_improvement: patience: 0 is too small; give at least 1"),
    (lambda: NoImprovement(1, min_delta=-1),
     "no_improvement: min_delta: -1 is out of range; give a number at least 0"),
    (lambda: RepeatedOutput(period=0), "repeated_output: period: 0 is too small; give at least 1"),
    (lambda: RepeatedOutput(period=5), "repeated_output: period: 5 is above 4"),
    (lambda: RepeatedOutput(volatile="at"), "repeated_output: volatile: use a list of keys"),
    (lambda: RepeatedOutput(volatile=3), "repeated_output: volatile: use a list of keys"),
    (lambda: RepeatedOutput(similarity=0),
     "repeated_output: similarity: 0 is out of range; give a number above 0 and at most 1"),
    (lambda: Degrading(window=1), "degrading: window: 1 is too small; give at least 2"),
    (lambda: Degrading(horizon=1), "degrading: horizon: 1 is too small; give at least 2"),
    (lambda: Degrading(sigma=-1),
     "degrading: sigma: -1 is out of range; give a number at least 0"),
    (lambda: Loop(len, len, until=Degrading(tolerance=2)),
     "degrading: tolerance: 2 is out of range; give a number at least 0 and at most 1"),
    (lambda: Degrading(rule="strickt"),
     "degrading: rule: unknown rule 'strickt'; did you mean 'strict'?"),
    (lambda: OutputMatches("("), "pattern '(': missing ) at position 1"),
    (lambda: OutputMatches(3), "output_matches: pattern: 3 is not text"),
    (lambda: AnyOf(()), "any_of: the list of conditions is empty; add at least one"),
    (lambda: AllOf(()), "all_of: the list of conditions is empty; add at least one"),
    (lambda: AnyOf((3,)), "3 is not a condition"),
    (lambda: AnyOf(Passed()), "any_of: use a list of conditions, not passed()"),
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
@example(RepeatedOutput(volatile=("a\0",)))
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
        (7, "7 is not a condition; use one tag with its value"),
        ({}, "{} is not a condition; use one tag with its value"),
        ({"a": 1, "b": 2}, "{a: 1, b: 2} is not a condition; use one tag with its value"),
        ([], "any_of: the list of conditions is empty; add at least one"),
        ({"max_iterations": {"limits": 5}},
         "max_iterations: unknown field 'limits'; did you mean 'limit'?"),
        ({"timeout": {"x": 5}}, "timeout: unknown field 'x'; it has seconds"),
        ({"all_criteria_met": 3}, "all_criteria_met: unknown field 'value'; it has no fields"),
        ({"score_at_least": {"min_iterations": 2}}, "score_at_least: needs threshold"),
        ({"max_iterations": None}, "max_iterations: needs limit"),
        ({"max_iterations": [3]}, "max_iterations: limit: [3] is not an integer"),
        ({"max_iterations": True}, "max_iterations: limit: true is not an integer"),
    ],
    ids=str,
)  # fmt: skip
def test_a_spelling_that_cannot_be_read_is_refused(data: Any, message: str) -> None:
    """The refusal names the tag or field and the nearest valid one; values have the form of JSON and YAML."""
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


def test_a_class_that_is_not_derived_from_condition_is_refused_on_both_sides() -> None:
    """A class with `check` alone names the base class, also as the left operand."""

    class Bare:
        def check(self, history: History) -> None: ...

    for combine in (lambda: Bare() | MaxIterations(2), lambda: MaxIterations(2) & Bare()):
        with pytest.raises(
            ConfigurationError, match=r"derive its class from loopwright\.Condition"
        ):
            combine()


def test_a_class_that_is_not_derived_from_condition_is_not_registered() -> None:
    """`@condition` refuses it at once, and its tag stays free."""

    @dataclass(frozen=True)
    class Underived:
        def check(self, history: History) -> None: ...

    for target, name in ((Underived, Underived.__qualname__), (3, "3")):
        with pytest.raises(ConfigurationError) as caught:
            condition(target)  # type: ignore[type-var]
        assert str(caught.value) == (
            f"{name}: it is not a condition class; derive it from loopwright.conditions.Condition"
        )
    assert "underived" not in TAGS
