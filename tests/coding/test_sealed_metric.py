"""Sealed metrics: what is measured when an agent changes the program that measures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Context,
    Reason,
    Result,
    Workspace,
    keep_or_revert_loop,
    run_sync,
    sealed_metric,
)
from loopwright.coding.until_document import MetricOption, UntilOptions, until_document
from loopwright.documents import load
from loopwright.errors import DocumentError

GRADER = "print('size:', len(open('data.txt').read()))\n"
FORGED = "print('size: 0')\n"
COMMAND = [sys.executable, "grade.py"]
PATTERN = "size: ([0-9.]+)"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a program that measures 10; the current folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "grade.py").write_text(GRADER)
    (folder / "data.txt").write_text("0123456789")
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "start"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    monkeypatch.chdir(folder)
    return folder


def agent(*edits: dict[str, str]) -> Callable[[Any, Context], str]:
    """Return an agent that writes these files, one iteration after the other."""

    def act(_: Any, ctx: Context) -> str:
        assert ctx.folder is not None
        for name, text in edits[ctx.iteration - 1].items():
            (ctx.folder / name).write_text(text)
        return "changed"

    return act


def kept(*edits: dict[str, str], **options: Any) -> Result:
    """Run a loop that keeps only what lowers the size."""
    measure = sealed_metric(
        "size", COMMAND, pattern=PATTERN, **{"protect": ["grade.py"], **options}
    )
    return run_sync(
        keep_or_revert_loop(
            agent(*edits), measure, {"size": "minimise"},
            max_iterations=len(edits), workspace=Workspace(branch="kept"),
        ),
        None,
    )  # fmt: skip


def branch(folder: Path, name: str) -> str:
    words = ["git", "show", f"kept:{name}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_an_agent_that_edits_the_grader_does_not_improve_the_metric(project: Path) -> None:
    """The grader of the start measures, the edit is put back, and a real improvement counts."""
    result = kept({"grade.py": FORGED}, {"grade.py": FORGED, "data.txt": "0123"})
    first, second = result.history
    assert first.evaluation is not None
    assert second.evaluation is not None
    assert [first.evaluation.metrics, second.evaluation.metrics] == [{"size": 10.0}, {"size": 4.0}]
    assert first.evaluation.tampered is not None
    assert first.evaluation.tampered.paths == ("grade.py",)
    assert "grade.py was changed and put back" in first.feedback
    assert branch(project, "data.txt") == "0123"
    assert branch(project, "grade.py") == GRADER


def test_a_policy_may_reject_the_iteration_or_stop(project: Path) -> None:
    """`reject` gives no value to an iteration that changed the grader, and `stop` ends the loop."""
    cheat = {"grade.py": FORGED, "data.txt": "0"}
    rejected = kept(cheat, on_tamper="reject").history[0].evaluation
    assert rejected is not None
    assert rejected.metrics == {}
    assert kept(cheat, on_tamper="stop").reason is Reason.TAMPERED


def test_gates_run_in_the_clean_copy(project: Path) -> None:
    """A gate reads the protected files of the start, and a failing gate leaves no value."""
    gate = "grep -q size grade.py && test $(wc -c < data.txt) -gt 2"
    result = kept({"data.txt": "0"}, {"data.txt": "012"}, gates=[gate])
    values = [item.evaluation and dict(item.evaluation.metrics) for item in result.history]
    assert values == [{}, {"size": 3.0}]


def test_until_seals_its_metric_and_isolates_it() -> None:
    """The document of `--metric` has the protected files and the sandbox; that of `--score-pattern` the sandbox."""
    metric = MetricOption("size", "minimise", PATTERN)
    options = UntilOptions("python grade.py", ["./a.sh"], metric=metric, protect=["grade.py"])
    evaluate = until_document(options)["steps"][0]["loop"]["evaluate"]["metric"]
    assert (evaluate["sealed"], evaluate["protect"]) == (True, ["grade.py"])
    assert evaluate["sandbox"] == "auto"
    options = UntilOptions("make", ["./a.sh"], score="([0-9]+)%", sandbox="bubblewrap")
    check = until_document(options)["steps"][0]["loop"]["evaluate"]["check"]
    assert check == {"command": "make", "sandbox": "bubblewrap", "score": "([0-9]+)%"}


@pytest.mark.parametrize(
    "metric", ["{name: a, command: x, protect: [b]}", "{name: a, sealed: true}"]
)
def test_keys_that_need_a_sealed_metric_are_refused(tmp_path: Path, metric: str) -> None:
    """`protect` needs `sealed`, and `sealed` needs a command."""
    text = f"schema: loopwright/1\nname: a\nsteps:\n- name: b\n  loop: {{execute: {{shell: x}}, evaluate: {{metric: {metric}}}, max_iterations: 1}}\n"
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(DocumentError, match="sealed"):
        load(file)


def test_a_gate_of_tests_runs_on_what_is_left(project: Path) -> None:
    """A gate that names a test program runs on the tests that the agent added, too."""
    test = "from pathlib import Path\n\n\ndef test_added():\n    assert Path('data.txt').stat().st_size > 5\n"
    gate = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_first.py",
        "tests",
    ]
    (project / "test_first.py").write_text("def test_first():\n    assert True\n")
    (project / "tests").mkdir()
    (project / "tests" / "test_second.py").write_text("def test_second():\n    assert True\n")
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    added = {"tests/test_added.py": test}
    result = kept({"data.txt": "0", **added}, {"data.txt": "012345", **added},
                  gates=[gate], protect=["auto", "grade.py"])  # fmt: skip
    assert [item.accepted for item in result.history] == [False, True]
