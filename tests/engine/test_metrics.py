"""Metrics of loops: their order, acceptance, conditions and records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from loopwright import (
    Degrading,
    Evaluation,
    History,
    Iteration,
    Loop,
    Metric,
    MetricAtLeast,
    MetricAtMost,
    MetricScore,
    NoImprovement,
    NoProgress,
    Reason,
    Result,
    ScoreAtLeast,
    check,
    metric,
    resume_sync,
    run_sync,
)
from loopwright.errors import ConfigurationError
from loopwright.journal import MemoryJournal
from loopwright.recipes import improvement_loop
from loopwright.records.history import table_text


def measured(values: Sequence[Any], **options: Any) -> Loop:
    """Return a loop whose iterations measure these values in order; an error is raised."""

    def evaluate(number: int) -> Any:
        value = values[number - 1]
        if isinstance(value, Exception):
            raise value
        return value if isinstance(value, Evaluation | dict) else {"metrics": {"loss": value}}

    options = {"metrics": {"loss": "minimise"}, "max_iterations": len(values), **options}
    return Loop(
        lambda number: number, evaluate, lambda last: last.number + 1, name="fit", **options
    )


def accepted(result: Result) -> list[int]:
    return [item.number for item in result.history if item.accepted]


def test_the_best_is_the_last_accepted_iteration() -> None:
    """An iteration is accepted if it is better than the last accepted one; the best is the last of them."""
    result = run_sync(measured([3.0, 2.0, 2.5, 2.0, 1.5, 4.0]), 1)
    assert accepted(result) == [1, 2, 5]
    assert result.best is not None
    assert (result.best.number, result.output) == (5, 5)
    assert str(result.best.objective) == "loss 1.5 ↓ -0.5"
    upward = run_sync(measured([3.0, 2.0, 3.5], metrics={"loss": "maximise"}), 1)
    assert accepted(upward) == [1, 3]


def test_an_improvement_must_exceed_min_delta() -> None:
    """Small improvements are rejected one by one; their sum is accepted, and a difference equal to the limit is not."""
    metrics = {"loss": Metric("minimise", min_delta=0.1)}
    result = run_sync(measured([1.0, 0.95, 0.92, 0.89, 0.79], metrics=metrics), 1)
    assert accepted(result) == [1, 4]
    exact = run_sync(measured([0.3, 0.2], metrics=metrics), 1)
    assert accepted(exact) == [1]


def test_an_iteration_without_a_sound_value_is_rejected() -> None:
    """A failure, a missing value and a failed verdict are rejected, whatever was measured."""
    low = Evaluation(passed=False, metrics={"loss": 0.1})
    values = [2.0, ValueError("no"), {"score": 1.0}, low, 1.0]
    result = run_sync(measured(values, on_failure="continue"), 1)
    assert [item.accepted for item in result.history] == [True, False, False, False, True]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_an_error(value: float) -> None:
    """It has the kind `bad_metric`, and no value is recorded."""
    result = run_sync(measured([2.0, value], on_failure="continue"), 1)
    last = result.history[-1]
    assert last.error is not None
    assert (last.error.kind, last.evaluation, last.accepted) == ("bad_metric", None, False)


def test_undeclared_metrics_are_recorded_and_order_nothing() -> None:
    """Without a direction the score orders the loop, and no iteration is accepted or rejected."""
    values = [{"score": s, "metrics": {"loss": 3 - s}} for s in (0.2, 0.9, 0.5)]
    for metrics in (None, {"loss": Metric(unit="s")}):
        result = run_sync(measured(values, metrics=metrics, until=ScoreAtLeast(1)), 1)
        assert result.best is not None
        assert (result.best.number, accepted(result)) == (2, [])
        assert result.history[0].evaluation.metrics == {"loss": 2.8}


def test_the_objective_orders_several_metrics() -> None:
    """The others are shown with their units; two directions need the name of the objective."""
    metrics: dict[str, Any] = {"loss": "minimise", "ms": Metric("minimise", unit="ms")}
    values = [{"metrics": {"loss": a, "ms": b}} for a, b in ((2.0, 5), (1.0, 9), (3.0, 1))]
    result = run_sync(measured(values, metrics=metrics, objective="ms"), 1)
    assert accepted(result) == [1, 3]
    assert [str(item) for item in result.history[2].measures] == ["loss 3 ↑ +1", "ms 1 ms ↓ -4"]
    with pytest.raises(ConfigurationError, match="name the one that orders the loop as objective"):
        measured(values, metrics=metrics)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": {"loss": "minimize"}}, "did you mean 'minimise'"),
        ({"metrics": {"loss": Metric()}, "objective": "loss"}, "has no direction"),
        ({"objective": "los"}, "did you mean 'loss'"),
        ({"objective": ["loss", "ms"]}, "'ms' is not a declared metric"),
        ({"objective": []}, "names no metric"),
        ({"objective": ["loss", "loss"]}, "has a name twice"),
        ({"metrics": ["loss"]}, "is not a mapping"),
        ({"score": {"metric": "loss", "worst": 1, "best": 1}}, "worst and best are both 1"),
        ({"score": {"metric": "loss", "worts": 1}}, "use metric, worst and best"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], message: str) -> None:
    """The error names the place and the nearest valid word."""
    with pytest.raises(ConfigurationError, match=message):
        measured([1.0], **options)


def test_a_metric_becomes_a_score_on_request() -> None:
    """The score is linear between `worst` and `best`; a value outside of them is marked as clamped."""
    scale = MetricScore("loss", worst=3.0, best=1.0)
    result = run_sync(measured([2.0, 0.5, 4.0, {}], score=scale), 1)
    assert [item.score for item in result.history] == [0.5, 1.0, 0.0, None]
    clamped = [item.evaluation.details.get("clamped") for item in result.history if item.evaluation]
    assert clamped == [None, True, True, None]
    reached = run_sync(measured([2.0, 1.0, 3.0], score=scale, until=ScoreAtLeast(0.9)), 1)
    assert (reached.reason, reached.iterations) == (Reason.CONDITION_MET, 2)


def test_a_condition_on_a_score_that_no_evaluator_gives_is_refused() -> None:
    """The error names the conditions on metrics; a score in sight makes the condition valid."""
    evaluate = metric("loss", pattern="([0-9.]+)")
    for until in (ScoreAtLeast(0.9), ScoreAtLeast(0.9) & NoImprovement(2)):
        with pytest.raises(ConfigurationError, match="use metric_at_least or metric_at_most"):
            Loop(str, evaluate, until=until)
        Loop(str, evaluate, until=until, score=MetricScore("loss", 3, 1))
    with pytest.raises(ConfigurationError, match="metric_at_least"):
        Loop(str, metric("loss", gates=[check(min_words=1)]), until=ScoreAtLeast(0.9))


@pytest.mark.parametrize(
    ("until", "stops_at", "reason", "detail"),
    [
        (MetricAtMost("loss", 1.5), 5, Reason.CONDITION_MET, "loss 1.5 s is at most 1.5"),
        (MetricAtLeast("loss", 9), 6, Reason.CONDITION_MET, "loss 9 s is at least 9"),
        (NoImprovement(2), 4, Reason.NO_IMPROVEMENT, "2 iterations without a better loss than 2 s"),
        (NoProgress(2), 4, Reason.NO_PROGRESS, "no iteration was accepted for 2 iterations"),
        (Degrading(rule="strict", window=2), 3, Reason.DEGRADING, "2 values of loss in a row"),
        (
            Degrading(sigma=0, tolerance=5),
            6,
            Reason.DEGRADING,
            "loss is worse by 7.5 s, more than 5",
        ),
    ],
)
def test_conditions_follow_the_metric(
    until: Any, stops_at: int, reason: Reason, detail: str
) -> None:
    """Conditions on progress read the objective, in its order and its unit."""
    metrics = {"loss": Metric("minimise", unit="s")}
    values = [3.0, 2.0, 2.5, 2.0, 1.5, 9.0, 9.0]
    result = run_sync(measured(values, metrics=metrics, until=until), 1)
    assert (result.iterations, result.reason) == (stops_at, reason)
    assert detail in result.detail


def test_differences_are_in_the_unit_of_the_metric() -> None:
    """Without an objective they are differences of scores, so at most 1."""
    values = [900.0, 700.0, 690.0, 680.0]
    assert run_sync(measured(values, until=NoImprovement(2, min_delta=50)), 1).iterations == 4
    with pytest.raises(ConfigurationError, match="min_delta: 50 is out of range"):
        measured(values, metrics=None, until=NoImprovement(2, min_delta=50))


def test_a_loop_with_an_objective_needs_no_success_condition() -> None:
    """It runs to its limit: a passed verdict does not satisfy it unless `until` says so."""
    values = [Evaluation(passed=True, metrics={"loss": float(n)}) for n in (3, 2, 1)]
    assert run_sync(measured(values), 1).reason is Reason.MAX_ITERATIONS


def test_the_baseline_is_the_first_value_to_beat() -> None:
    """With a baseline, the first iteration is compared with the value before it."""

    def loop(first: Any, **options: Any) -> Loop:
        values = {0: first, 1: 2.0, 2: 1.5}
        return Loop(
            lambda n: n + 1,
            lambda n: (
                values[n] if isinstance(values[n], dict) else {"metrics": {"loss": values[n]}}
            ),
            lambda last: last.output,
            metrics={"loss": "minimise"},
            baseline=True,
            max_iterations=2,
            **options,
        )

    assert accepted(run_sync(loop(1.8), 0)) == [2]
    assert accepted(run_sync(loop(9.0), 0)) == [1, 2]
    reached = run_sync(loop(1.0, until=MetricAtMost("loss", 1.0)), 0)
    assert (reached.reason, reached.iterations) == (Reason.ALREADY_SATISFIED, 0)
    unusable = run_sync(loop({"feedback": "train.py is missing"}), 0)
    assert unusable.reason is Reason.EVALUATOR_UNUSABLE
    assert "loss has no value: train.py is missing" in unusable.detail


def test_repeated_measurements_are_combined() -> None:
    """Each metric is measured as often as it says; each measurement is an effect, and the others stay."""
    values = iter([5.0, 1.0, 9.0])
    journal = MemoryJournal()
    metrics = {"loss": Metric("minimise", repeats=3), "size": Metric()}
    loop = Loop(
        str,
        lambda _: {"metrics": {"loss": next(values), "size": 7}},
        metrics=metrics,
        max_iterations=1,
    )
    result = run_sync(loop, 1, journal=journal)
    evaluation = result.history[0].evaluation
    assert evaluation is not None
    assert evaluation.metrics == {"loss": 5.0, "size": 7}
    assert evaluation.details["samples"] == {"loss": [5.0, 1.0, 9.0]}
    again = resume_sync(loop, result.run_id, journal=journal)
    assert again.history == result.history


def test_records_keep_the_decision() -> None:
    """A replay reads the recorded values and decisions, also in JSON; other loops have no new keys."""
    journal = MemoryJournal()
    metrics = {"loss": Metric("minimise", unit="s", min_delta=0.5)}
    loop = measured([3.0, 2.8, 1.0], metrics=metrics)
    result = run_sync(loop, 1, journal=journal)
    again = resume_sync(loop, result.run_id, journal=journal)
    assert again.history == result.history
    rows = [item.to_json() for item in result.history]
    assert [Iteration.from_json(row).to_json() for row in rows] == rows
    assert rows[2]["accepted"] is True
    assert rows[2]["measures"] == {
        "loss": {
            "value": 1.0,
            "unit": "s",
            "direction": "minimise",
            "change": -2.0,
            "objective": True,
        }
    }
    plain = run_sync(Loop(str, lambda _: 0.5, max_iterations=1), 1).history[0].to_json()
    assert not {"accepted", "measures"} & set(plain)


def test_the_table_says_what_was_tried() -> None:
    """A row per iteration: the idea, the value with its change, the decision and its reason."""
    details = {"metrics": {"loss": 1.0}, "details": {"idea": "drop | the\nbatch size"}}
    metrics = {"loss": Metric("minimise", unit="s", min_delta=0.5)}
    values = [3.0, 2.8, details, ValueError("it diverged"), 7.0]
    result = run_sync(measured(values, metrics=metrics, on_failure="continue"), 1)
    assert table_text(result.history).splitlines() == [
        "| iteration | idea | loss | accepted | why |",
        "|---|---|---|---|---|",
        "| 1 | 1 | 3 s | yes | the first value |",
        "| 2 | 2 | 2.8 s ↓ -0.2 | no | better than 3 s, but by too little |",
        "| 3 | drop / the | 1 s ↓ -2 | yes | better than 3 s |",
        "| 4 | 4 |  | no | ValueError: it diverged |",
        "| 5 | 5 | 7 s ↑ +6 | no | not better than 1 s |",
    ]
    assert table_text(History([Iteration(1, evaluation=Evaluation(0.5))])) == ""


def test_an_improvement_loop_keeps_the_order_of_scores() -> None:
    """A recipe on scores is unchanged by metrics that its evaluations have."""
    scores = iter([0.2, 0.6, 0.4, 0.5])
    loop = improvement_loop(
        str, lambda _: {"score": next(scores), "metrics": {"loss": 1.0}}, max_iterations=4
    )
    result = run_sync(loop, 1)
    assert (result.reason, result.best and result.best.number) == (Reason.IMPROVED, 2)


def test_an_unmeasured_condition_is_remarked() -> None:
    """A condition on a metric that no evaluation has is reported when the loop ends."""
    result = run_sync(measured([1.0, 2.0], until=MetricAtMost("time", 1)), 1)
    assert any("metric_at_most could not hold" in warning for warning in result.warnings)


def test_the_first_of_several_objectives_orders_and_all_make_the_front() -> None:
    """Accepted by the first one; the front has what no other iteration is better than in all; a replay has the same."""
    rows = [
        {"loss": 3.0, "ms": 9.0},
        {"loss": 2.0, "ms": 9.0},
        {"ms": 1.0},  # without the first one it orders nothing and is no part of the front
        {"loss": 4.0, "ms": 5.0},
        {"loss": 4.0, "ms": 5.0},
        {"loss": 2.5, "ms": 8.0},
        Evaluation(passed=False, metrics={"loss": 0.1, "ms": 0.1}),
    ]
    values = [row if isinstance(row, Evaluation) else {"metrics": row} for row in rows]
    options: dict[str, Any] = {
        "metrics": {"ms": "minimise", "loss": "minimise"}, "objective": ["loss", "ms"],
    }  # fmt: skip
    journal = MemoryJournal()
    result = run_sync(measured(values, **options), 1, journal=journal, run_id="r")
    assert accepted(result) == [1, 2]
    assert [item.number for item in result.front] == [2, 4, 5, 6]
    assert result.history[3].objective is not None
    assert result.history[3].objective.name == "loss"
    assert result.history[2].objective is None
    assert result.loop_json()["front"] == [2, 4, 5, 6]
    again = resume_sync(measured(values, **options), "r", journal=journal)
    assert [item.number for item in again.front] == [2, 4, 5, 6]
    assert again.history[3].objective is not None
    assert again.history[3].objective.name == "loss"
    one = run_sync(measured(values, **{**options, "objective": ["loss"]}), 1)
    assert one.front == []


def test_several_objectives_change_the_fingerprint_and_one_does_not() -> None:
    """One name in a list is that name; of several, the order counts."""
    metrics = {"loss": "minimise", "ms": "minimise"}
    prints = [
        measured([1.0], metrics=metrics, objective=objective).fingerprint
        for objective in ("loss", ["loss"], ["loss", "ms"], ["ms", "loss"])
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    # The rule that draws from the front can compare them.
    measured([1.0], metrics=metrics, objective=["loss", "ms"], refine_from="pareto")
