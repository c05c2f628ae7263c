"""The files of a run on the command line: `workspace`, `show --files` and `show --diff`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from loopwright import Context, Evaluation, Loop, Workspace, run_sync, shell
from loopwright.ui.cli import main

from ..agents.fakes import WRONG_THEN_RIGHT, fake, until_42, working
from .conftest import Repo
from .test_loops import COUNT, by_count, counting


@pytest.fixture
def run(repo: Repo) -> Path:
    """The folder of an exhausted run of three iterations."""
    loop = counting(Workspace(repo.folder, merge="none"))
    result = run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="r1")
    return Path(result.workspace["folder"])


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_list_and_show_name_the_snapshots(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list has one line for each workspace, and show one for each snapshot."""
    assert "r1  fix  copy  3 snapshots  exhausted" in shown(capsys, "workspace", "list")
    assert "files 2 +2 -1" in shown(capsys, "workspace", "show", "r1")
    assert json.loads(shown(capsys, "workspace", "show", "r1", "--json"))["recorded"] is True


def test_restore_puts_an_iteration_in_place(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was there is kept without a record."""
    (run / "mine").write_text("mine")
    shown(capsys, "workspace", "restore", "r1", "3")
    assert (run / "n.txt").read_text() == "3\n"
    assert not (run / "mine").exists()
    assert len(json.loads(shown(capsys, "workspace", "show", "r1", "--json"))["lost"]) == 1


def test_diff_is_a_patch_of_two_iterations(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command and `show --diff` print the same difference of files."""
    assert "-1\n+2" in shown(capsys, "workspace", "diff", "r1", "1", "2")
    assert "-1\n+2" in shown(capsys, "show", "r1", "--diff", "1", "2")


def test_branch_is_made_later(repo: Repo, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any iteration becomes a branch."""
    shown(capsys, "workspace", "branch", "r1", "1", "--name", "first")
    assert repo.git("show", "first:n.txt") == "1"


def test_prune_of_a_run_deletes_its_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a run it deletes those whose time is over."""
    assert "no workspace to delete" in shown(capsys, "workspace", "prune")
    shown(capsys, "workspace", "prune", "r1")
    assert not run.exists()
    assert "no workspaces" in shown(capsys, "workspace", "list")


def test_show_lists_the_changed_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each iteration has the paths that it changed."""
    text = shown(capsys, "show", "r1", "--files")
    assert "new2  +1 -0" in text
    assert json.loads(shown(capsys, "show", "r1", "--files", "--json"))["files"]["2"]["new2"] == [
        1,
        0,
    ]
    assert "files 2 +2 -1" in shown(capsys, "show", "r1")


def test_the_start_is_iteration_0_of_a_difference(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show --diff 0 N` prints what changed since the start, as `workspace diff` does."""
    assert run.exists()
    text = shown(capsys, "show", "r1", "--diff", "0", "3")
    assert "-0\n+3" in text
    assert text == shown(capsys, "workspace", "diff", "r1", "0", "3")


def test_apply_changes_the_files_of_the_folder(
    repo: Repo, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default it applies the files in place; a file that both sides changed is refused."""
    assert "2 files" not in shown(capsys, "workspace", "list")
    assert "changed" in shown(capsys, "workspace", "apply", "r1")
    assert (repo.folder / "n.txt").read_text() == (run / "n.txt").read_text() == "2\n"
    (repo.folder / "n.txt").write_text("mine\n")
    assert main(["workspace", "apply", "r1", "3"]) == 2
    assert "nothing was changed" in capsys.readouterr().err
    assert (repo.folder / "n.txt").read_text() == "mine\n"


def test_tests_that_an_iteration_turned_green_or_red_are_named(
    repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are those whose state differs from the iteration before."""

    def judge(output: str) -> Evaluation:
        failing = {"1": ["test_a"], "2": ["test_b"]}[output]
        return Evaluation(0.5, False, "no", details={"tests": {"failing": failing}})

    loop = Loop(shell(COUNT, name="edit"), judge, max_iterations=2, name="fix",
                workspace=Workspace(repo.folder, merge="none"))  # fmt: skip
    run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="t")
    text = shown(capsys, "show", "t", "--iteration", "2")
    assert "tests that turned green: test_a" in text
    assert "tests that turned red: test_b" in text
    assert "turned" not in shown(capsys, "show", "t", "--iteration", "1")


def test_show_has_the_cost_of_each_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two calls of one session are one line, with the sum of their costs."""
    monkeypatch.chdir(tmp_path)
    step = fake(tmp_path, "claude", *WRONG_THEN_RIGHT, session="loop")
    result = run_sync(
        until_42(step, working(tmp_path)), journal="sqlite:.loopwright/runs.db", run_id="s"
    )
    [session] = json.loads(shown(capsys, "show", "s", "--json"))["sessions"]
    assert session["calls"] == 2
    assert session["usage"]["usd"] == pytest.approx(result.usage.usd)
    assert f"session {session['agent']} {session['session'][:12]}: 2 calls" in shown(
        capsys, "show", "s"
    )


def test_an_unknown_run_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names where it looked."""
    assert main(["workspace", "show", "zz"]) == 2
    assert "no workspace of this run" in capsys.readouterr().err


def test_export_writes_the_result_as_a_patch(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The patch has the changes of the files in place since the start."""
    assert "-0\n+2" in shown(capsys, "export", "r1", "--format", "patch")


def killed_in_the_second_iteration(repo: Repo) -> Path:
    """Run a loop in a child that dies in the middle of a step; return the folder of its files."""

    def edit(_: object, ctx: Context) -> str:
        (ctx.folder / "n.txt").write_text(f"{ctx.iteration}\n")
        if ctx.iteration == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return str(ctx.iteration)

    loop = Loop(edit, evaluate=by_count, max_iterations=3, min_score=0.9, name="fix",
                workspace=Workspace(repo.folder, merge="none"))  # fmt: skip
    pid = os.fork()
    if pid == 0:
        run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="r1")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    return Path(".loopwright/trees/r1/fix").resolve()


def test_a_killed_run_shows_that_its_files_are_in_no_recorded_state(
    repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    """`runs`, `show` and `workspace list` say so until a restore puts the last capture in place."""
    folder = killed_in_the_second_iteration(repo)
    assert (folder / "n.txt").read_text() == "2\n"
    text = "not in a recorded state"
    assert text in shown(capsys, "runs")
    assert json.loads(shown(capsys, "runs", "--json"))["runs"][0]["detail"].endswith(text)
    assert "loopwright workspace restore r1" in shown(capsys, "show", "r1")
    assert text in shown(capsys, "workspace", "list")
    shown(capsys, "workspace", "restore", "r1")
    assert (folder / "n.txt").read_text() == "1\n"
    assert text not in shown(capsys, "runs") + shown(capsys, "show", "r1")
