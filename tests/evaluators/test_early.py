"""Measurements that end early, by `early` of a command and by `ctx.interim` of a function."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Context,
    Early,
    Loop,
    Metric,
    Result,
    Workspace,
    metric,
    resume_sync,
    run_sync,
    sealed_metric,
)
from loopwright.documents import load
from loopwright.engine.early import POINTS, Curve
from loopwright.errors import ConfigurationError, DocumentError, StoppedEarly
from loopwright.evaluators import gates
from loopwright.journal import MemoryJournal

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "search" / "early.py"
# Ten lines, then the value; it prints the number of its last line to `made`.
SCRIPT = """
rm -f made; for i in 1 2 3 4 5 6 7 8 9 10; do echo "step ${i}0 loss $((10 * N - i)).5"; echo $i >> made; sleep 0.02; done
echo "val: $N"
"""
RULE = Early("step ([0-9]+) loss ([0-9.]+)", from_=30, earlier=2)


def losses(rates: list[float], **options: Any) -> Loop:
    """Return a loop whose iterations train at these rates: after step n the loss is rate / (n + 1)."""

    def train(rate: float, ctx: Context) -> Any:
        for step in range(5):
            ctx.interim(rate / (step + 1), step, Early(from_=1, earlier=2))
        return {"metrics": {"loss": rate}}

    options = {"metrics": {"loss": "minimise"}, "max_iterations": len(rates), **options}
    return Loop(
        lambda _, ctx: rates[ctx.iteration - 1], train, lambda last: 0, name="fit", **options
    )


def ended(result: Result) -> list[int]:
    return [item.number for item in result.history if "stopped early" in item.feedback]


def test_a_function_ends_where_it_is_worse_than_the_median() -> None:
    """From its first step on, after enough earlier iterations; it has no value and did not pass."""
    result = run_sync(losses([4.0, 2.0, 5.0, 1.0, 1.5]), 0)
    assert ended(result) == [3]
    third = result.history[2]
    assert third.feedback == "stopped early at step 1: 2.5 is worse than the median 1.5 of 2"
    assert third.evaluation is not None
    assert (third.passed, third.evaluation.metrics, third.accepted) == (False, {}, False)
    assert third.evaluation.details["curve"] == [[0, 5.0], [1, 2.5]]
    fourth = result.history[3].evaluation
    assert fourth is not None
    assert len(fourth.details["curve"]) == 5
    assert [item.accepted for item in result.history] == [True, True, False, True, False]


def test_the_direction_is_that_of_the_objective() -> None:
    """Of a metric to maximise, lower values end; without an objective, none does."""
    upward = run_sync(losses([4.0, 2.0, 5.0, 1.0], metrics={"loss": "maximise"}), 0)
    assert ended(upward) == [4]
    none = run_sync(losses([4.0, 2.0, 5.0, 1.0], metrics=None), 0)
    assert ended(none) == []


def test_the_input_and_new_votes_are_never_ended() -> None:
    """The baseline has no earlier ones, and `rejudge` measures to the end."""
    result = run_sync(losses([4.0, 2.0, 5.0], baseline=True, rejudge=1), 9.0)
    assert ended(result) == [3]
    assert not result.warnings


def test_a_replay_has_the_same_curves() -> None:
    """A resumed run reads recorded evaluations, whatever type the function declares."""

    def train(rate: float, ctx: Context) -> float:
        for step in range(5):
            ctx.interim(rate / (step + 1), step, Early(earlier=2))
        return 0.5

    def loop(limit: int) -> Loop:
        return Loop(
            lambda _, ctx: float(ctx.iteration),
            train,
            lambda last: 0,
            name="fit",
            max_iterations=limit,
        )

    journal = MemoryJournal()
    run_sync(loop(2), 0, journal=journal, run_id="r")
    result = resume_sync(loop(2), "r", journal=journal, max_iterations=3)
    curves = [item.evaluation.details["curve"] for item in result.history]
    assert [len(curve) for curve in curves] == [5, 5, 5]
    assert [item.score for item in result.history] == [0.5, 0.5, 0.5]


def test_a_function_that_goes_on_ends_all_the_same() -> None:
    """What it returns after `interim` has raised does not count."""

    def train(rate: float, ctx: Context) -> Any:
        for step in range(3):
            try:
                ctx.interim(rate, step, Early(earlier=1))
            except StoppedEarly:
                pass
        return {"metrics": {"loss": rate}}

    loop = Loop(
        lambda _, ctx: float(ctx.iteration),
        train,
        lambda last: 0,
        metrics={"loss": "minimise"},
        max_iterations=2,
    )
    assert ended(run_sync(loop, 0)) == [2]


@pytest.mark.parametrize("value", ["1", None])
def test_what_is_no_number_is_an_error_of_the_function(value: Any) -> None:
    """The iteration fails with it; elsewhere than in an evaluation, `interim` does nothing."""

    def report(_: Any, ctx: Context) -> Any:
        ctx.interim(value, 1)
        return 1.0

    result = run_sync(Loop(lambda _: 0, report, max_iterations=1), 0)
    assert result.error is not None
    assert result.error.kind == "TypeError"

    def good(_: Any, ctx: Context) -> str:
        ctx.interim(1.0, 1)
        return "done"

    assert run_sync(Loop(good, lambda _: 1.0, max_iterations=1), 0).output == "done"


def test_a_value_that_is_not_a_number_is_worse() -> None:
    """A training that diverged ends, and its curve has only numbers."""
    curve = Curve(Early(earlier=1), [[[0, 1.0]]], -1)
    assert curve.add(0, 0.5) == ""
    assert (
        curve.add(1, float("nan")) == "stopped early at step 1: nan is worse than the median 1 of 1"
    )
    assert curve.points == [[0, 0.5]]


def test_a_curve_has_at_most_a_thousand_points() -> None:
    """Of more values every second one stays, the first one included."""
    curve = Curve(Early(), [], 0)
    for step in range(5000):
        curve.add(step, 1.0)
    assert POINTS / 2 <= len(curve.points) <= POINTS
    assert curve.points[0] == [0, 1.0]


def test_a_command_ends_where_it_is_worse(tmp_path: Path) -> None:
    """The command and what it started are ended; the value of an earlier iteration at or before the step counts."""
    step = metric(
        "val",
        SCRIPT,
        pattern="val: ([0-9.]+)",
        early=RULE,
        env={"N": lambda value, _: value},
        cwd=tmp_path,
    )
    loop = Loop(
        lambda value: value,
        step,
        lambda last: last.number + 1,
        metrics={"val": "minimise"},
        max_iterations=3,
    )
    result = run_sync(loop, 1)
    assert ended(result) == [3]
    third = result.history[2].evaluation
    assert third is not None
    assert third.feedback == "stopped early at step 30: 27.5 is worse than the median 12.5 of 2"
    assert third.details["curve"][-1] == [30, 27.5]
    assert len((tmp_path / "made").read_text().splitlines()) < 10


def test_a_sealed_measurement_ends_early(tmp_path: Path) -> None:
    """It runs in the clean copy, and is ended there."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "n.txt").write_text("1")

    def change(_: Any, ctx: Context) -> str:
        assert ctx.folder is not None
        (ctx.folder / "n.txt").write_text(str(ctx.iteration))
        return "changed"

    step = sealed_metric("val", f"N=$(cat n.txt)\n{SCRIPT}", pattern="val: ([0-9.]+)", early=RULE)
    workspace = Workspace(project, home=tmp_path / "home", merge="none")
    loop = Loop(change, step, metrics={"val": "minimise"}, max_iterations=3, workspace=workspace)
    result = run_sync(loop, None)
    assert ended(result) == [3]


def test_early_ends_keep_the_best_and_save_steps() -> None:
    """Sampled from `benchmarks.search.early`: at most 60 % of the steps, and the best is rarely ended."""
    spec = importlib.util.spec_from_file_location("early_stop", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    early = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = early
    spec.loader.exec_module(early)
    share, lost = early.simulate(Early(from_=100), 1, early.KINDS[1], 20)
    assert share <= 0.65
    assert lost <= 2


LOOP = """\
schema: loopwright/1
name: tune
steps:
  - name: tune
    loop:
      execute: {shell: "echo 3"}
      evaluate: {metric: {name: loss, command: [cat], METRIC}}
      max_iterations: 2
      LOOP
"""
EARLY = "early: {pattern: 'step ([0-9]+) ([0-9.]+)', from: 100, earlier: 3}"


def document(folder: Path, metric: str, loop: str) -> Path:
    file = folder / "tune.yaml"
    file.write_text(LOOP.replace("METRIC", metric).replace("LOOP", loop))
    return file


def test_a_document_says_when_a_measurement_ends(tmp_path: Path) -> None:
    """`from` and `earlier` reach the evaluator, whose fingerprint changes."""
    metrics = "metrics: {loss: minimise}"
    with_it = load(document(tmp_path, EARLY, metrics)).step
    without = load(document(tmp_path, "pattern: '([0-9]+)'", metrics)).step
    assert with_it.fingerprint != without.fingerprint


def test_a_metric_that_ends_early_needs_a_direction() -> None:
    """A program gets the error that a document gets, also for a sealed metric and for one among others."""
    plain = metric("loss", "true", early=RULE, gates=[["true"]])
    sealed = sealed_metric("loss", ["true"], early=RULE, protect=["a"])
    for evaluate in (plain, sealed, gates(plain, lambda output: True)):
        for metrics in (None, {"seconds": "minimise"}, {"loss": Metric(unit="s")}):
            with pytest.raises(ConfigurationError, match="the metric 'loss' needs a direction"):
                Loop(str, evaluate, max_iterations=2, metrics=metrics)
    assert Loop(str, plain, max_iterations=2, metrics={"loss": "minimise"}).limit == 2


@pytest.mark.parametrize(
    ("metric", "loop", "message"),
    [
        (EARLY, "metrics: {loss: {unit: s}}", "needs a direction"),
        ("early: {pattern: '([0-9]+)'}", "metrics: {loss: minimise}", "needs two groups"),
        (
            "early: {pattern: '(a)(b)', erlier: 2}",
            "metrics: {loss: minimise}",
            "did you mean 'earlier'",
        ),
        (
            "repeats: 3",
            "metrics: {loss: minimise}",
            "metrics: {loss: {minimise: true, repeats: 3}} in the loop",
        ),
        ("unit: s", "metrics: {loss: minimise}", "unit"),
        ("take: mean", "metrics: {loss: minimise}", "take"),
        (
            "pattern: '([0-9]+)'",
            "metrics: {loss: minimise}\n      confirm: {stages: [3, 2]}",
            "does not rise",
        ),
        ("pattern: '([0-9]+)'", "confirm: {}", "an objective"),
        ("pattern: '([0-9]+)'", "metrics: {loss: minimise}\n      confirm: {alpha: 2}", "alpha"),
        (
            "pattern: '([0-9]+)'",
            "metrics: {loss: minimise}\n      confirm: {}\n      refine_from: last",
            "remove refine_from",
        ),
    ],
)
def test_a_wrong_document_is_refused(metric: str, loop: str, message: str, tmp_path: Path) -> None:
    """The error of a document names the key, and of a former one the new place."""
    with pytest.raises(DocumentError, match=message.replace("{", r"\{").replace("}", r"\}")):
        load(document(tmp_path, metric, loop))
