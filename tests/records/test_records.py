"""Records: usage, reasons and results, and the way of all records to JSON and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.support import examples, history, usages
from loopwright import Evaluation, Failure, Iteration, Reason, Result, Status, Stop, Usage
from loopwright.errors import ConfigurationError, NotSatisfied
from loopwright.records import NOTHING, as_evaluation

from .records_made import evaluations, failures, iterations, stops

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
        ({"input_tokens": 1.5}, "usage.input_tokens: 1.5 is not an integer"),
        ({"output_tokens": True}, "usage.output_tokens: True is not an integer"),
        ({"usd": math.nan}, "usage.usd: nan is not finite"),
        ({"usd": -0.1}, "usage.usd: -0.1 is out of range; give a number at least 0"),
    ],
)
def test_a_usage_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    """Negative, broken and non-finite figures are refused by name."""
    with pytest.raises(ConfigurationError) as caught:
        Usage(**fields)
    assert str(caught.value) == message


# Reasons.


def test_status_is_a_function_of_the_reason() -> None:
    """I4: every reason has one status, and only the six statuses exist."""
    by_status = {status: [r.value for r in Reason if r.status is status] for status in Status}
    assert by_status == {
        Status.SATISFIED: ["condition_met", "completed", "accepted", "improved", "already_satisfied"],
        Status.EXHAUSTED: [
            "deadline", "timeout", "budget", "items_exhausted", "repeated_output", "degrading",
            "no_progress", "no_change", "no_improvement", "phase_limit", "max_iterations", "ceiling", "stopped",
        ],
        Status.FAILED: [
            "tampered", "error", "evaluator_unusable", "repeated_failure", "all_failed",
            "items_failed", "success_rate_not_met",
        ],
        Status.IMPOSSIBLE: ["impossible"],
        Status.SUSPENDED: ["approval", "needs_attention", "throttled", "quota", "waiting", "held"],
        Status.CANCELLED: ["cancelled"],
    }  # fmt: skip


def test_reasons_rank_as_decisions_prefer_them() -> None:
    """Rulings 1.5: success, tampering, cancel, time, budget, impossible, the guards, the limit."""
    order = [
        Reason.CONDITION_MET, Reason.TAMPERED, Reason.CANCELLED, Reason.DEADLINE, Reason.TIMEOUT,
        Reason.BUDGET, Reason.IMPOSSIBLE, Reason.REPEATED_OUTPUT, Reason.DEGRADING,
        Reason.NO_PROGRESS, Reason.NO_CHANGE, Reason.NO_IMPROVEMENT, Reason.MAX_ITERATIONS,
    ]  # fmt: skip
    assert sorted(order, key=lambda reason: reason.rank) == order


def test_every_status_has_its_exit_code() -> None:
    """Section 4: 0 satisfied, 3 exhausted, 1 failed, 5 impossible, 4 suspended, 130 cancelled."""
    assert [status.exit_code for status in Status] == [0, 3, 1, 5, 4, 130]


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


def test_an_iteration_has_the_suggestions_of_its_evaluation() -> None:
    """`last.improvements` in Python is what `loop.last.improvements` is in a template."""
    evaluation = Evaluation(0.4, improvements=("shorter", "warmer"))
    assert Iteration(1, evaluation=evaluation).improvements == ("shorter", "warmer")
    assert Iteration(1).improvements == ()
