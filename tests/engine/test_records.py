"""Records: what is kept of a run, its way to JSON and back, and what best and last mean."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Criterion,
    Evaluation,
    Failure,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    Usage,
)
from loopwright.errors import ConfigurationError, EvaluationError, NotSatisfied
from loopwright.records import NOTHING, as_evaluation

from .support import ERROR, UNDECIDED, examples, history, json_values, scores, texts, usages

seconds = st.integers(0, 10**12).map(lambda n: n / 10**6)
failures = st.builds(
    Failure,
    stage=st.sampled_from(["adapt", "execute", "evaluate"]),
    kind=texts,
    message=texts,
    path=texts,
    retryable=st.booleans(),
    retry_after=st.none() | seconds,
)
criteria = st.builds(Criterion, name=texts, passed=st.booleans(), gap=texts)
evaluations = st.builds(
    Evaluation,
    score=st.none() | scores,
    passed=st.none() | st.booleans(),
    feedback=texts,
    improvements=st.lists(texts, max_size=3).map(tuple),
    criteria=st.lists(criteria, max_size=3).map(tuple),
    votes=st.lists(json_values, max_size=2).map(tuple),
    undecided=st.booleans(),
)
iterations = st.builds(
    Iteration,
    number=st.integers(1, 1000),
    input=json_values,
    output=json_values,
    evaluation=st.none() | evaluations,
    error=st.none() | failures,
    usage=usages,
    seconds=seconds,
    interrupted=st.booleans(),
    truncated=st.booleans(),
    steps=st.none() | st.dictionaries(texts, json_values, min_size=1, max_size=2),
)
stops = st.builds(
    Stop,
    reason=st.sampled_from(Reason),
    detail=texts,
    also=st.lists(st.sampled_from(Reason), max_size=3).map(tuple),
)


# Round trips.


@given(iterations)
def test_an_iteration_goes_to_json_and_back(item: Iteration) -> None:
    """I43: load(dump(v)) = v for iterations, with their evaluation, failure and usage."""
    text = json.dumps(item.to_json(), allow_nan=False)
    assert Iteration.from_json(json.loads(text)) == item


@examples(0.5)
@given(evaluations)
def test_an_evaluation_goes_to_json_and_back(found: Evaluation) -> None:
    """I43: load(dump(v)) = v for evaluations."""
    assert as_evaluation(json.loads(json.dumps(found.to_json()))) == found


@given(usages, st.integers(0, 3), st.integers(0, 3))
def test_a_usage_goes_to_json_and_back(usage: Usage, unpriced: int, estimated: int) -> None:
    """I43: load(dump(v)) = v for usages."""
    usage += Usage(unpriced=unpriced, estimated=estimated)
    assert Usage.from_json(json.loads(json.dumps(usage.to_json()))) == usage
    assert ("unpriced" in usage.to_json()) == bool(unpriced)
    assert ("estimated" in usage.to_json()) == bool(estimated)


@given(stops)
def test_a_stop_goes_to_json_and_back(stop: Stop) -> None:
    """I43: load(dump(v)) = v for stops."""
    assert Stop.from_json(json.loads(json.dumps(stop.to_json()))) == stop


@given(failures)
def test_a_failure_goes_to_json_and_back(failure: Failure) -> None:
    """I43: load(dump(v)) = v for failures; no failure is no failure."""
    assert Failure.from_json(json.loads(json.dumps(failure.to_json()))) == failure
    assert Failure.from_json(None) is None


def test_no_usage_is_nothing() -> None:
    """A missing usage is read as nothing spent."""
    assert Usage.from_json(None) is NOTHING
    assert not NOTHING


# Usage.


@given(usages, usages, usages)
def test_sums_of_usage_do_not_depend_on_their_order(a: Usage, b: Usage, c: Usage) -> None:
    """Dollars are kept to a picodollar, so (a + b) + c = a + (b + c) exactly."""
    assert (a + b) + c == a + (b + c) == c + b + a
    assert a + NOTHING == NOTHING + a == a
    assert a.tokens == a.input_tokens + a.output_tokens


@given(usages, usages)
def test_the_most_of_two_usages_is_the_larger_of_each_figure(a: Usage, b: Usage) -> None:
    """What a cut call is taken to have cost is never less than either figure."""
    most = a.most(b)
    assert most == b.most(a)
    assert most.calls == max(a.calls, b.calls)
    assert most.usd == max(a.usd, b.usd)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"calls": -1}, "usage.calls: -1 is too small; give at least 0"),
        ({"input_tokens": 1.5}, "usage.input_tokens: 1.5 is not a whole number"),
        ({"output_tokens": True}, "usage.output_tokens: True is not a whole number"),
        ({"usd": math.nan}, "usage.usd: nan is not finite"),
        ({"usd": -0.1}, "usage.usd: -0.1 is out of range; give a number at least 0"),
    ],
)
def test_a_usage_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    """Negative, broken and non-finite figures are refused by name."""
    with pytest.raises(ConfigurationError) as caught:
        Usage(**fields)
    assert str(caught.value) == message


# Evaluations.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"feedback": "nul\0", "votes": [(1,)]}, Evaluation(feedback="nul", votes=([1],))),
        (Evaluation(0.5), Evaluation(0.5)),
        (None, Evaluation()),
        (True, Evaluation(passed=True)),
        (False, Evaluation(passed=False)),
        (0.25, Evaluation(0.25)),
        (1, Evaluation(1.0)),
        (0, Evaluation(0.0)),
        ({"score": 0.5, "feedback": "more"}, Evaluation(0.5, feedback="more")),
        ({"confidence": 0.5, "passed": None}, Evaluation(0.5)),
        ({"undecided": True}, Evaluation(undecided=True)),
        ({"undecided": "yes"}, Evaluation()),
        ({"feedback": None, "improvements": None, "criteria": None, "votes": None}, Evaluation()),
        ({"improvements": ["a", None]}, Evaluation(improvements=("a", ""))),
        ({"criteria": [{"name": "n", "passed": True, "gap": None}, Criterion("m", False, "g")]},
         Evaluation(criteria=(Criterion("n", True), Criterion("m", False, "g")))),
    ],
)  # fmt: skip
def test_an_evaluators_answer_is_read(given: Any, expected: Evaluation) -> None:
    """A score, a verdict, an object or nothing: each shape has one meaning."""
    assert as_evaluation(given) == expected


END = "; return a score from 0 to 1, True or False, or an Evaluation"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("0.9", "a str is not an evaluation" + END),
        ([], "a list is not an evaluation" + END),
        ({"scores": 1}, "unknown field 'scores'; did you mean 'score'?" + END),
        ({"passed": "NO"}, "passed: 'NO' is not true or false" + END),
        ({"score": "0.5"}, "score: '0.5' is not a number" + END),
        ({"score": True}, "score: True is not a number" + END),
        ({"feedback": 3}, "feedback: 3 is not text" + END),
        ({"improvements": [3]}, "improvements: 3 is not text" + END),
        ({"criteria": [{"name": "n"}]},
         "criteria: {'name': 'n'} needs a name and passed: true or false" + END),
        (1.5, "score: 1.5 is not a finite number from 0 to 1; divide by the scale you use"),
        (85, "score: 85 is not a finite number from 0 to 1; divide by the scale you use"),
        (math.nan, "score: nan is not a finite number from 0 to 1; divide by the scale you use"),
        (-0.1, "score: -0.1 is not a finite number from 0 to 1; divide by the scale you use"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_is_an_evaluation_error(given: Any, message: str) -> None:
    """The error names the field, and is none that a retry could help."""
    with pytest.raises(EvaluationError) as caught:
        as_evaluation(given)
    assert str(caught.value) == message
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "given",
    [{"improvements": 3}, {"improvements": "text"}, {"criteria": 3}, {"criteria": {"a": 1}},
     {"votes": 3}, {3: 4}, {"score": 1 << 2000}, {"votes": True}, {"votes": [{1}]}],
    ids=str,
)  # fmt: skip
def test_a_list_that_is_none_is_an_evaluation_error(given: Any) -> None:
    """I28: an object of the wrong shape inside is unreadable, not a crash; text is not a list."""
    with pytest.raises(EvaluationError):
        as_evaluation(given)


atoms = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | texts | st.just(b"x")
anything = atoms | st.lists(atoms, max_size=2)
objects = st.dictionaries(
    st.sampled_from(
        ["score", "passed", "feedback", "criteria", "votes", "improvements", "undecided"]
    ),
    anything | st.lists(st.fixed_dictionaries({"name": anything, "passed": st.booleans()})),
    max_size=2,
)


@given(anything | objects)
def test_reading_an_evaluation_is_total(given: Any) -> None:
    """I16, I19: whatever an evaluator returns is a score in [0, 1] or an EvaluationError."""
    try:
        found = as_evaluation(given)
    except EvaluationError:
        return
    assert found.score is None or (math.isfinite(found.score) and 0 <= found.score <= 1)
    assert found.passed in (None, True, False)
    assert as_evaluation(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


@pytest.mark.parametrize("zero", [-0.0, {"score": -0.0}, Evaluation(-0.0)])
def test_minus_zero_becomes_zero(zero: Any) -> None:
    """I16: -0.0 is stored as 0.0."""
    score = as_evaluation(zero).score
    assert score == 0
    assert math.copysign(1, score) == 1


@pytest.mark.parametrize("score", [True, "0.5", math.nan, math.inf, -0.1, 1.1, 10**30])
def test_an_evaluation_holds_no_score_off_its_scale(score: Any) -> None:
    """I16: an Evaluation cannot be made with a score that is not a finite number in [0, 1]."""
    with pytest.raises(EvaluationError, match="is not a finite number from 0 to 1"):
        Evaluation(score)


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
    assert repr(found) == "<History of 3 iterations>"
    with pytest.raises(IndexError, match="iteration 4 of 3"):
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
        seen.append(seen[-1].appended(item, 0.0, NOTHING))
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
        first = first.appended(item, 0.0, NOTHING)
    for item in history(0.5, *b)[1:]:
        second = second.appended(item, 0.0, NOTHING)
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
    """seen_at changes the clock and the spending, not the iterations."""
    found = history(0.5).seen_at(elapsed=3.0, usage=Usage(calls=2), now=9.0)
    assert (found.elapsed, found.usage.calls, found.now, len(found)) == (3.0, 2, 9.0, 1)


def test_a_fall_needs_two_scores() -> None:
    """Without two valid scores there is no mean of two to fall from."""
    assert history().fall == history(0.5).fall == 0.0
    assert history(0.9, 0.9, 0.1, 0.1).fall == pytest.approx(0.8)


# Reasons.


def test_status_is_a_function_of_the_reason() -> None:
    """I4: every reason has one status, and only the five statuses exist."""
    by_status = {status: [r.value for r in Reason if r.status is status] for status in Status}
    assert by_status == {
        Status.SATISFIED: ["condition_met", "completed"],
        Status.EXHAUSTED: [
            "deadline", "timeout", "budget", "repeated_output", "degrading", "no_improvement",
            "phase_limit", "max_iterations", "ceiling",
        ],
        Status.FAILED: [
            "error", "evaluator_unusable", "repeated_failure", "all_failed", "success_rate_not_met",
        ],
        Status.SUSPENDED: ["approval", "needs_attention", "throttled", "quota"],
        Status.CANCELLED: ["cancelled"],
    }  # fmt: skip


def test_reasons_rank_as_decisions_prefer_them() -> None:
    """Section 3: satisfied, cancelled, deadline, timeout, budget, repeated, degrading, stalled, limit."""
    order = [
        Reason.CONDITION_MET, Reason.CANCELLED, Reason.DEADLINE, Reason.TIMEOUT, Reason.BUDGET,
        Reason.REPEATED_OUTPUT, Reason.DEGRADING, Reason.NO_IMPROVEMENT, Reason.MAX_ITERATIONS,
    ]  # fmt: skip
    assert sorted(order, key=lambda reason: reason.rank) == order


def test_every_status_has_its_exit_code() -> None:
    """Section 4: 0 satisfied, 3 exhausted, 1 failed, 4 suspended, 130 cancelled."""
    assert [status.exit_code for status in Status] == [0, 3, 1, 4, 130]


def test_a_stop_says_whether_it_is_success() -> None:
    """Success follows from the reason and from nothing else."""
    assert Stop(Reason.CONDITION_MET).satisfied
    assert not Stop(Reason.MAX_ITERATIONS).satisfied


# Results.


def result(status: Status = Status.SATISFIED, **fields: Any) -> Result:
    """Return a result with little in it."""
    reason = {Status.SATISFIED: Reason.CONDITION_MET}.get(status, Reason.MAX_ITERATIONS)
    return Result(status, reason, "the detail", **fields)


def test_unwrap_returns_the_output_of_success_and_raises_otherwise() -> None:
    """Running out is a result; unwrap is for those who want an exception."""
    assert result(output="text").unwrap() == "text"
    with pytest.raises(NotSatisfied, match="exhausted: the detail") as caught:
        result(Status.EXHAUSTED, output="text").unwrap()
    assert caught.value.result.output == "text"


def test_a_result_is_one_json_object() -> None:
    """The shape that the command line prints: run, loops with their histories, steps, usage."""
    inner = result(Status.EXHAUSTED, output="b", history=history(0.4, 0.7, 0.2), name="inner")
    whole = result(
        output="c", run_id="r", loops={"inner": inner}, steps={"a": 1}, usage=Usage(calls=2),
        also=(Reason.BUDGET,), warnings=("careful",), seconds=1.23456789, judging=Usage(calls=1),
        reported_score=0.6, request={"path": "p"},
    )  # fmt: skip
    data = json.loads(json.dumps(whole.to_json()))
    rows = data.pop("loops")
    apart = data.pop("usage_by")
    assert (apart["work"]["calls"], apart["judging"]["calls"]) == (1, 1)
    assert data == {
        "run_id": "r", "status": "satisfied", "reason": "condition_met", "detail": "the detail",
        "also": ["budget"], "output": "c", "iterations": 3, "best": {"iteration": 2, "score": 0.7},
        "steps": {"a": 1}, "seconds": 1.234568, "warnings": ["careful"],
        "usage": {"calls": 2, "input_tokens": 0, "output_tokens": 0, "usd": 0.0},
        "reported_score": 0.6, "request": {"path": "p"},
    }  # fmt: skip
    assert {k: v for k, v in rows["inner"].items() if k != "history"} == {
        "iterations": 3, "exit_reason": "max_iterations", "status": "exhausted",
        "detail": "the detail", "score": 0.7, "best_iteration": 2, "output": "b",
    }  # fmt: skip
    assert [row["score"] for row in rows["inner"]["history"]] == [0.4, 0.7, 0.2]


def test_a_result_without_rounds_has_no_best() -> None:
    """Where nothing was iterated, best is null and there are 0 iterations."""
    data = result(output="text").to_json()
    assert (data["best"], data["iterations"]) == (None, 0)
    assert result().loop_json()["best_iteration"] is None
