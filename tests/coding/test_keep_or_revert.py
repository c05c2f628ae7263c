"""Keep or revert: which changes stay, the branch, the prompt, and the options of `until`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopwright import (
    Context,
    Loop,
    Metric,
    MetricAtMost,
    Reason,
    Workspace,
    keep_or_revert_loop,
    metric,
    run_sync,
)
from loopwright.coding.until_document import MetricOption
from loopwright.errors import ConfigurationError
from warm_python import warm_python

RATES = ["0.8", "0.9", "oops", "0.5", "0.5"]
TRAIN = """
import json
rate = json.load(open("rate.json"))
print("val_loss:", round(abs(rate - 0.4) + 0.1, 4))
"""
MEASURE: dict[str, Any] = {
    "command": [sys.executable, "train.py"],
    "pattern": "val_loss: ([0-9.]+)",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a program whose loss is 0.7; the current folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "rate.json").write_text("1.0")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "start")
    monkeypatch.chdir(folder)
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def change(seen: list[str] | None = None) -> Callable[[Any, Context], str]:
    """Return an agent that sets the next rate, and reads the present one first."""

    def act(_: Any, ctx: Context) -> str:
        assert ctx.folder is not None
        if seen is not None:
            seen.append((ctx.folder / "rate.json").read_text())
        rate = RATES[ctx.iteration - 1]
        (ctx.folder / "rate.json").write_text(rate)
        return f"rate {rate}"

    return act


def keeping(agent: Any, **options: Any) -> Loop:
    evaluate = metric("val_loss", **MEASURE)
    options = {"max_iterations": 5, "workspace": Workspace(branch="kept"), **options}
    return keep_or_revert_loop(agent, evaluate, {"val_loss": "minimise"}, **options)


def test_changes_that_do_not_improve_the_metric_are_put_back(project: Path) -> None:
    """Each iteration continues from the last accepted one, also after one that broke the program."""
    seen: list[str] = []
    result = run_sync(keeping(change(seen)), None)
    assert seen == ["1.0", "0.8", "0.8", "0.8", "0.5"]
    assert [item.accepted for item in result.history] == [True, False, False, True, False]
    assert result.workspace is not None
    assert (Path(result.workspace["folder"]) / "rate.json").read_text() == "0.5"
    assert (project / "rate.json").read_text() == "1.0"


def test_the_branch_has_a_commit_for_each_accepted_change(project: Path) -> None:
    """Its message is the idea, with the iteration and the value as trailers."""
    run_sync(keeping(change()), None)
    log = git(
        project,
        "log",
        "--reverse",
        "--format=%s|%(trailers:key=Loopwright-Metric,valueonly)",
        "kept",
    )
    assert [line for line in log.splitlines() if line] == [
        "start|", "rate 0.8|val_loss 0.5", "rate 0.5|val_loss 0.2",
    ]  # fmt: skip
    assert git(project, "show", "kept~1:rate.json") == "0.8"


def test_a_change_without_a_changed_file_is_rejected(project: Path) -> None:
    """A better value of equal files is noise."""
    values = iter([1.0, 0.5, 0.4])
    loop = keep_or_revert_loop(
        lambda _: "nothing",
        lambda _: {"metrics": {"val_loss": next(values)}},
        {"val_loss": "minimise"},
        max_iterations=2,
    )
    assert [item.accepted for item in run_sync(loop, None).history] == [False, False]


def test_the_files_at_the_start_are_the_first_to_beat(project: Path) -> None:
    """Without an accepted change the files of the start stay, and no branch is made."""
    result = run_sync(
        keeping(change(), max_iterations=1, until=MetricAtMost("val_loss", 0.7)), None
    )
    assert (result.reason, result.iterations) == (Reason.ALREADY_SATISFIED, 0)
    loop = keep_or_revert_loop(
        change(), metric("val_loss", **MEASURE), {"val_loss": Metric("minimise", min_delta=0.3)},
        max_iterations=2, workspace=Workspace(branch="kept"),
    )  # fmt: skip
    result = run_sync(loop, None)
    assert [item.accepted for item in result.history] == [False, False]
    assert result.workspace is not None
    assert result.workspace["iteration"] == 0
    assert "kept" not in git(project, "branch")


def test_a_base_that_cannot_be_measured_ends_the_loop(project: Path) -> None:
    """The agent is not called."""
    (project / "rate.json").write_text("none")
    result = run_sync(keeping(change()), None)
    assert (result.reason, result.iterations) == (Reason.EVALUATOR_UNUSABLE, 0)


def test_a_command_is_asked_with_the_table(project: Path) -> None:
    """The prompt has the goal, the metric and its direction, and the changes so far."""
    agent = ["sh", "-c", "cat > prompt.txt; printf 0.8 > rate.json; echo try 0.8 > IDEA.txt"]
    result = run_sync(keeping(agent, goal="Tune it.", max_iterations=1), None)
    assert result.workspace is not None
    prompt = (Path(result.workspace["folder"]) / "prompt.txt").read_text()
    assert prompt.startswith(
        "Tune it.\n\nIteration 1 of at most 1. The metric is val_loss, and lower"
    )
    assert "<output>\nval_loss 0.7\n</output>" in prompt


def test_a_metric_without_a_direction_is_refused() -> None:
    """No change could be better."""
    with pytest.raises(ConfigurationError, match="no metric has a direction"):
        keep_or_revert_loop(["true"], len, {"val_loss": Metric()})


# --- loopwright until ---


def until(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_STATE_HOME": str(folder.parent / ".state")}
    return warm_python().run(
        ["-m", "loopwright", "until", *words], cwd=folder, env=env, timeout=120
    )


AGENT = """\
cat > "prompt$LOOPWRIGHT_ITERATION.txt"
case "$LOOPWRIGHT_ITERATION" in 1) rate=0.8;; 2) rate=0.9;; *) rate=0.5;; esac
printf "$rate" > rate.json
echo "set the rate to $rate" > IDEA.txt
"""
OPTION = "val_loss:min=val_loss: ([0-9.]+)"


def test_until_keeps_changes_that_improve_a_number(project: Path) -> None:
    """`--metric` is the same loop: the accepted changes are the commits of the branch."""
    words = ("--metric", OPTION, "--max", "3", "--yes", "--json", "--sandbox", "none")
    done = until(project, f"{sys.executable} train.py", *words, "--", "sh", "-c", AGENT)
    assert done.returncode == 3, done.stderr
    result = json.loads(done.stdout)
    rows = result["loops"]["until"]["history"]
    assert [row["accepted"] for row in rows] == [True, False, True]
    branch = result["loops"]["until"]["workspace"]["branch"]
    log = git(project, "log", "--reverse", "--format=%s", branch)
    assert log.splitlines() == ["start", "set the rate to 0.8", "set the rate to 0.5"]
    prompt = git(project, "show", f"{branch}:prompt3.txt")
    assert "The metric is val_loss, and lower values are better." in prompt
    assert "| 1 | set the rate to 0.8 | 0.5 ↓ -0.2 | yes | better than 0.7 |" in prompt
    assert "| 2 | set the rate to 0.9 | 0.6 ↑ +0.1 | no | not better than 0.5 |" in prompt


def test_until_reads_a_score(project: Path) -> None:
    """`--score-pattern` reads a number in the output, also of a check that fails; exit code 0 passes."""
    check = 'n=$(cat n || echo 0); echo "$n/4 done"; test "$n" = 4'
    agent = "cat > /dev/null; echo $((LOOPWRIGHT_ITERATION * 2)) > n"
    words = ("--score-pattern", "([0-9]+/[0-9]+) done", "--yes", "--json", "--sandbox", "none")
    done = until(project, check, *words, "--", "sh", "-c", agent)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["loops"]["until"]["history"]
    assert [(row["score"], row["passed"]) for row in rows] == [(0.5, False), (1.0, True)]


def test_the_printed_document_is_the_loop(project: Path) -> None:
    """`--patience` ends the loop, and the workspace has a commit for each accepted iteration."""
    words = ("--metric", "ops:max", "--patience", "7", "--print-yaml")
    document = yaml.safe_load(
        until(project, "make bench", *words, "--", "codex", "exec", "go").stdout
    )
    loop = document["steps"][0]["loop"]
    assert loop["evaluate"] == {
        "metric": {"name": "ops", "command": "make bench", "sandbox": "auto", "sealed": True}
    }
    assert loop["metrics"] == {"ops": "maximise"}
    assert {"no_improvement": {"patience": 7}} in loop["until"]
    assert loop["workspace"] == {"kind": "copy", "commits": "iterations"}
    assert loop["refine_from"] == "best"
    assert loop["execute"]["agent"]["prompt"].startswith("go\n")


@pytest.mark.parametrize("text", ["val_loss", "val_loss=x", "val_loss:low=x", ":min=x"])
def test_a_wrong_metric_is_refused(text: str) -> None:
    """The error shows the form."""
    with pytest.raises(ConfigurationError, match="NAME:min=PATTERN"):
        MetricOption.parse(text)


def test_options_that_contradict_a_metric_are_refused(project: Path) -> None:
    """One number decides."""
    done = until(
        project, "true", "--metric", "a:min", "--score-pattern", "x", "--yes", "--", "true"
    )
    assert done.returncode == 2
    assert "remove --score-pattern" in done.stderr
