"""`replay` decides with the conditions that each run had, whatever became of its document or program."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import (
    Impossible,
    Loop,
    MaxIterations,
    Metric,
    NoImprovement,
    OnStall,
    RepeatedOutput,
    ScoreAtLeast,
    Undecided,
    run_sync,
)
from loopwright.documents import Settings, load
from loopwright.engine.loop import ReplayedLoop, loop_of_rules
from loopwright.ui.cli import main

DOCUMENT = """
schema: loopwright/1
name: count
steps:
  - name: search
    loop:
      execute: {set: "{{ loop.iteration }}"}
      evaluate: {check: {contains: "{{ goal }}"}}
      until: [passed, {max_iterations: 5}]
  - name: again
    workflow: called
    with: {goal: "{{ goal }}"}
"""
CALLED = """
schema: loopwright/1
name: called
steps:
  - name: inner
    loop:
      execute: {set: "{{ loop.iteration }}"}
      evaluate: {check: {contains: "{{ goal }}"}}
      until: [passed, {max_iterations: 4}]
"""
RUNS = 12


def edited(folder: Path) -> None:
    """Change every condition, and the names of the steps."""
    for name in ("count.yaml", "called.yaml"):
        text = (folder / name).read_text()
        text = text.replace("[passed, {max_iterations", "[{max_iterations")
        (folder / name).write_text(text.replace("4", "2").replace("5", "1").replace("search", "s"))


def broken(folder: Path) -> None:
    """Make the document unreadable."""
    (folder / "count.yaml").write_text("steps: [")


def deleted(folder: Path) -> None:
    """Remove both files."""
    (folder / "count.yaml").unlink()
    (folder / "called.yaml").unlink()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with runs of a document."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "count.yaml").write_text(DOCUMENT)
    (tmp_path / "called.yaml").write_text(CALLED)
    for number in range(RUNS):
        loaded = load("count.yaml", Settings(sets={"goal": str(number % 7 + 1)}))
        source = loaded.source
        run_sync(loaded.step, 1, journal="sqlite:runs.db", run_id=f"r{number}", source=source)
    return tmp_path


def reproduced(loop: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return what `replay --json` says about the recorded stops of a loop."""
    capsys.readouterr()
    code = main(
        [
            "measure",
            "limits",
            "name:count",
            "--mix",
            "--loop",
            loop,
            "--journal",
            "sqlite:runs.db",
            "--json",
        ]
    )
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return dict(json.loads(captured.out)["reproduced"])


@pytest.mark.parametrize("change", [edited, broken, deleted])
@pytest.mark.parametrize("loop", ["search", "inner"])
def test_all_stops_are_reproduced_after_a_change_of_the_document(
    change: Callable[[Path], None], loop: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The conditions recorded with a run decide, and no file is read."""
    change(folder)
    assert reproduced(loop, capsys) == {"ok": RUNS, "of": RUNS, "failed": 0, "left_out": []}


def test_runs_of_a_python_program_are_replayed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program is not needed: its conditions are recorded with each run."""
    for number in range(RUNS):
        scores = random.Random(number)
        loop = Loop(
            lambda value: value,
            lambda output, scores=scores: scores.random(),
            until=ScoreAtLeast(0.8) | NoImprovement(2),
            name="write",
            min_iterations=2,
            max_iterations=6,
        )
        run_sync(loop, 1, journal="sqlite:runs.db", run_id=f"p{number}")
    main(["measure", "limits", "name:write", "--mix", "--journal", "sqlite:runs.db", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["reproduced"] == {"ok": RUNS, "of": RUNS, "failed": 0, "left_out": []}
    assert report["loop"] == "write"


PROGRAM = """
from loopwright import Condition, Loop, Reason, Stop, run_sync

class Mine(Condition):
    def check(self, history):
        return Stop(Reason.CONDITION_MET) if history else None

run_sync(Loop(str, until=Mine(), name="own"), 1, journal="sqlite:runs.db", run_id="own")
"""


def test_a_run_with_a_condition_that_is_not_imported_is_left_out_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No code is imported to replay a run."""
    (folder / "own_program.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "-c", "import own_program"], cwd=folder, check=True)
    assert main(["measure", "limits", "own", "--journal", "sqlite:runs.db"]) == 2
    assert "own_program:Mine" in capsys.readouterr().err
    assert "own_program" not in sys.modules


CONDITIONS = st.recursive(
    st.sampled_from(
        [MaxIterations(7), ScoreAtLeast(0.9), NoImprovement(3, min_delta=0.1), RepeatedOutput()]
    ),
    lambda inner: st.tuples(inner, inner, st.booleans()).map(
        lambda three: three[0] & three[1] if three[2] else three[0] | three[1]
    ),
    max_leaves=5,
)


@given(
    until=st.none() | CONDITIONS,
    guards=st.none() | CONDITIONS,
    judged=st.booleans(),
    options=st.fixed_dictionaries(
        {},
        optional={
            "on_failure": st.sampled_from(["halt", "continue", "retry"]),
            "keep": st.sampled_from(["best", "last"]),
            "min_iterations": st.integers(1, 5),
            "max_failures": st.integers(1, 9),
            "impossible": st.builds(Impossible, st.integers(1, 4), st.integers(2, 4)),
            "undecided": st.builds(
                Undecided, st.integers(1, 4), st.sampled_from(["fail", "pause"])
            ),
            "on_stall": st.builds(OnStall, st.sampled_from(["best", "stop"]), st.integers(1, 4)),
            "metrics": st.sampled_from([{"loss": "minimise"}, {"loss": Metric("minimise", "s")}]),
        },
    ),
)
@settings(max_examples=60, deadline=None)
def test_rules_of_a_loop_survive_their_record(
    until: Any, guards: Any, judged: bool, options: dict[str, Any]
) -> None:
    """A loop made of recorded rules has the same conditions and decides by the same options."""
    if "metrics" in options:
        options = {**options, "objective": "loss"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Not `Loop`, which refuses a patience that no stall can reach.
        loop = ReplayedLoop(
            str, len if judged else None, until=until, guards=guards, name="l", **options
        )
    again = loop_of_rules("l", json.loads(json.dumps(loop.rules)))
    assert again.members == loop.members
    assert (again.until, again.guards, again.limit) == (loop.until, loop.guards, loop.limit)
    same = ("on_failure", "keep", "min_iterations", "max_failures", "impossible", "on_stall")
    assert [getattr(again, name) for name in same] == [getattr(loop, name) for name in same]
    assert again.undecided.after == loop.undecided.after
