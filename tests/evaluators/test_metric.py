"""`metric`: the number, its repeats, its gates, and the lock of the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from loopwright import Early, Evaluation, check, for_each, metric, run_sync
from loopwright.documents import Settings, load
from loopwright.documents.project import Recorded
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.evaluators.metric import Measurement, metric_of


def value_of(step: Any, value: Any = "") -> Evaluation:
    result = run_sync(step, value)
    assert isinstance(result.output, Evaluation), result.detail
    return result.output


@pytest.mark.parametrize(
    ("printed", "pattern", "expected"),
    [
        ("loss: 3\nloss: 2.5\n", "loss: ([0-9.]+)", 2.5),
        ("epoch 1\n0.75\n", "", 0.75),
        ("took 1.5e-3 s", "[0-9.e-]+(?= s)", 0.0015),
        ("-7", "", -7.0),
    ],
)
def test_the_last_match_is_the_number(printed: str, pattern: str, expected: float) -> None:
    """The first group or the complete match counts, without a pattern the last line; there is no score."""
    for step, value in (
        (metric("loss", ["printf", printed], pattern=pattern), ""),
        (metric("loss", pattern=pattern), printed),
    ):
        evaluation = value_of(step, value)
        assert evaluation.metrics == {"loss": expected}
        assert (evaluation.score, evaluation.passed) == (None, None)


def test_the_value_is_in_the_feedback() -> None:
    """The feedback is the value as people read it; a document that is recorded with a run has the unit here."""
    assert value_of(metric("time", ["echo", "2.50"])).feedback == "time 2.5"
    former = metric_of(Measurement("time", "s"), ["echo", "2.50"])
    assert value_of(former).feedback == "time 2.5 s"


@pytest.mark.parametrize(
    ("command", "pattern", "feedback"),
    [
        ("echo broken; exit 3", "", "loss has no value: the command exited with 3\nbroken"),
        (
            "echo none",
            "loss: ([0-9.]+)",
            "loss has no value: nothing matches 'loss: ([0-9.]+)'\nnone",
        ),
        ("echo high", "", "loss has no value: 'high' is not a number\nhigh"),
        ("true", "", "loss has no value: no number was printed"),
    ],
)
def test_a_command_without_a_number_has_no_value(command: str, pattern: str, feedback: str) -> None:
    """The evaluation failed, and its feedback says why."""
    evaluation = value_of(metric("loss", command, pattern=pattern))
    assert (evaluation.metrics, evaluation.passed) == ({}, False)
    assert evaluation.feedback == feedback


def test_a_number_that_is_not_finite_is_an_error() -> None:
    """Its kind is `bad_metric`."""
    result = run_sync(metric("loss", "echo nan"), "")
    assert result.error is not None
    assert result.error.kind == "bad_metric"


def test_a_command_that_cannot_run_is_broken() -> None:
    """A missing program is not a value of the output."""
    result = run_sync(metric("loss", ["no-such-program"]), "")
    assert result.error is not None
    assert result.error.kind == "evaluator_broken"


def test_gates_come_before_the_measurement(tmp_path: Path) -> None:
    """Nothing is measured after a failed gate; gates make no score."""
    step = metric(
        "size", f"touch {tmp_path}/measured; echo 5", gates=["grep -q ok", check(min_words=2)]
    )
    failed = value_of(step, "not o.k.")
    assert (failed.passed, failed.score, failed.metrics) == (False, None, {})
    assert not (tmp_path / "measured").exists()
    passed = value_of(step, "is ok")
    assert (passed.passed, passed.score, passed.metrics) == (None, None, {"size": 5.0})


@pytest.mark.parametrize(
    ("take", "expected"), [("median", 2.0), ("mean", 3.0), ("min", 1.0), ("max", 6.0)]
)
def test_repeats_are_separate_measurements(take: str, expected: float, tmp_path: Path) -> None:
    """Each measurement of a document that is recorded with a run counts, and `take` says which value does."""
    command = "echo x >> n; case $(wc -l < n) in 1) echo 6;; 2) echo 1;; *) echo 2;; esac"
    step = metric_of(Measurement("t"), command, repeats=3, take=take, cwd=tmp_path)
    evaluation = value_of(step)
    assert evaluation.metrics == {"t": expected}
    assert evaluation.details["samples"] == {"t": [6.0, 1.0, 2.0]}


def test_the_idea_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line of the file describes the change."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "IDEA.txt").write_text("halve the rate\nbecause\n")
    assert value_of(metric("loss", "echo 1")).details == {"idea": "halve the rate"}
    assert value_of(metric("loss", "echo 1", idea="other.txt")).details == {}


@pytest.mark.parametrize(("at_once", "together"), [(1, 1), (2, 2)])
def test_measurements_wait_for_each_other(at_once: int, together: int, tmp_path: Path) -> None:
    """At most `at_once` commands run at a time on the machine, also of other loops."""
    command = 'name=$(mktemp "$DIR/r.XXXX"); ls "$DIR" | wc -l; sleep 0.1; rm "$name"'
    step = metric("running", command, at_once=at_once, env={"DIR": str(tmp_path)})
    result = run_sync(for_each(step, at_once=4), [1, 2, 3, 4])
    counts = [item.output["metrics"]["running"] for item in result.history]
    assert max(counts) <= together


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: metric(""), "is not a name"),
        (lambda: metric("x", early=Early("(a)(b)")), "early belongs to a command"),
        (lambda: metric("x", "true", early=Early("(a)")), "needs two groups"),
        (lambda: Early(earlier=0), "earlier: 0 is too small"),
        (lambda: Early(from_=-1), "from: -1 is out of range"),
        (lambda: metric("x", timeout=3), "timeout belongs to a command"),
        (lambda: metric("x", pattern="("), "pattern '\\('"),
    ],
)
def test_a_wrong_option_is_refused(make: Any, message: str) -> None:
    """The error names the option and the nearest valid value."""
    with pytest.raises(ConfigurationError, match=message):
        make()


LOOP = """\
schema: loopwright/1
name: tune
steps:
  - name: tune
    loop:
      execute: {shell: "echo 3"}
      evaluate: {metric: {name: loss, command: [cat]}}
"""


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("until: [{score_at_least: 0.9}]", "use metric_at_least or metric_at_most"),
        ("metrics: {loss: lower}", "metrics"),
        ("metrics: {loss: {minimise: true, maximise: true}}", "keep one"),
        ("metrics: {loss: minimise, ms: minimise}", "name the one that orders the loop"),
        ("metrics: {loss: minimise}\n      objective: los", "did you mean 'loss'"),
        ("metrics: {loss: {minimize: true}}", "did you mean 'minimise'"),
        ("score: {metric: loss, worst: 1, best: 1}", "worst and best are both 1"),
    ],
)
def test_a_wrong_document_is_refused(lines: str, message: str, tmp_path: Path) -> None:
    """The error of a document names the key."""
    file = tmp_path / "tune.yaml"
    file.write_text(f"{LOOP}      {lines}\n")
    with pytest.raises(DocumentError, match=message):
        load(file)


def test_commands_of_a_metric_need_approval(tmp_path: Path) -> None:
    """The command and its gates are listed before a document runs."""
    file = tmp_path / "tune.yaml"
    file.write_text(
        LOOP.replace("command: [cat]", 'command: [cat], gates: ["make test", [ruff, check]]')
    )
    commands = load(file).local_actions().commands
    assert {"cat", "make test", "ruff check"} <= set(commands)


def test_a_recorded_document_measures_as_it_did(tmp_path: Path) -> None:
    """The document that is recorded with a run has unit, repeats and take at the evaluator, with the same meaning."""
    file = tmp_path / "tune.yaml"
    text = LOOP.replace("command: [cat]", "command: [cat], unit: s, repeats: 3, take: min")
    file.write_text(f"{text}      metrics: {{loss: minimise}}\n      max_iterations: 1\n")
    with pytest.raises(
        DocumentError, match=r"write metrics: \{loss: \{minimise: true, take: median\}\}"
    ):
        load(file)
    recorded = Recorded({os.path.realpath(file): file.read_bytes()})
    loop = load(file, Settings(recorded=recorded)).step
    evaluation = run_sync(loop, "").loops["tune"].history[0].evaluation
    assert evaluation.details["samples"] == {"loss": [3.0, 3.0, 3.0]}
    assert evaluation.feedback == "loss 3 s"
