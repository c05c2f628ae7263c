"""The files of a run on the command line: `workspace`, `show --files` and `show --diff`."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopwright import Context, Evaluation, Loop, Workflow, Workspace, run_sync, shell
from loopwright._platform import take_lock
from loopwright.ui.cli import main

from ..agents.fakes import WRONG_THEN_RIGHT, fake, until_42, working
from .conftest import Repo
from .test_loops import COUNT, by_count, counting


@pytest.fixture
def run(repo: Repo) -> Path:
    """The folder of an exhausted run of three iterations."""
    return recorded(counting(Workspace(repo.folder, merge="none")))


@pytest.fixture(params=["loop", "workflow"])
def files(request: pytest.FixtureRequest, repo: Repo) -> Path:
    """The folder of such a run, whose workspace is that of the loop or of the workflow around it."""
    own = Workspace(repo.folder, merge="none")
    if request.param == "loop":
        return recorded(counting(own))
    return recorded(Workflow("flow", {"fix": counting(None)}, workspace=own))


def recorded(step: Loop[Any, Any] | Workflow) -> Path:
    """Run a step as `r1`; return the folder of its files."""
    result = run_sync(step, journal="sqlite:.loopwright/runs.db", run_id="r1")
    assert result.workspace is not None
    return Path(result.workspace["folder"])


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_list_and_show_name_the_snapshots(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list has one line for each workspace, and show one for each snapshot."""
    row = shown(capsys, "files", "list")
    assert row.startswith("r1  ") and "  copy  3 snapshots  exhausted" in row
    text = shown(capsys, "files", "list", "last")
    assert text.count("files 2 +2 -1") == 3
    assert text == shown(capsys, "files", "list", "r1", "--loop", "fix")
    assert json.loads(shown(capsys, "files", "list", "r1", "--json"))["recorded"] is True


def test_a_recorded_run_has_the_place_of_its_files(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` and a second `resume` read it, for a loop's workspace and for that of a workflow."""
    workspace = json.loads(shown(capsys, "show", "r1", "--json"))["workspace"]
    assert (workspace["folder"], set(workspace)) == (
        str(files),
        {"folder", "base", "iteration", "commit", "tree"},
    )


def test_restore_puts_an_iteration_in_place(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was there is kept without a record."""
    (files / "mine").write_text("mine")
    shown(capsys, "files", "restore", "r1", "3")
    assert (files / "n.txt").read_text() == "3\n"
    assert not (files / "mine").exists()
    assert len(json.loads(shown(capsys, "files", "list", "r1", "--json"))["lost"]) == 1


def test_a_snapshot_is_named_by_its_hash(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The beginning that `show` prints is enough, also for a state without a record."""
    snapshots = json.loads(shown(capsys, "files", "list", "r1", "--json"))["snapshots"]
    first, third = snapshots["1"][:12], snapshots["3"]
    by_number = shown(capsys, "files", "diff", "r1", "1", "3")
    assert shown(capsys, "files", "diff", "r1", first.upper(), third) == by_number != ""
    (files / "mine").write_text("mine")
    assert "iteration 3 (" in shown(capsys, "files", "restore", "r1", third[:7])
    assert (files / "n.txt").read_text() == "3\n"
    [lost] = json.loads(shown(capsys, "files", "list", "r1", "--json"))["lost"]
    shown(capsys, "files", "restore", "r1", lost[:12])
    assert (files / "mine").read_text() == "mine"
    assert "a state without a record in place" in shown(capsys, "files", "list")


@pytest.mark.parametrize("text", ["wrong", "0.5", "-", "9", "abc", "99999999"])
def test_an_unknown_snapshot_is_refused(
    files: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """The message has the numbers that there are, and hashes for a text that is no number."""
    start = json.loads(shown(capsys, "files", "list", "r1", "--json"))["snapshots"]["0"]
    assert main(["files", "restore", "r1", text]) == 2
    message = capsys.readouterr().err
    assert f"no snapshot {text}; it has 0 (the start) to 3" in message
    assert (start[:12] in message) == (text != "9")


def test_a_mistyped_hash_names_the_nearest(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One wrong character is enough to be told the right hash."""
    commit = json.loads(shown(capsys, "files", "list", "r1", "--json"))["snapshots"]["2"][:12]
    wrong = commit[:-1] + ("0" if commit[-1] != "0" else "1")
    assert main(["files", "diff", "r1", wrong]) == 2
    assert f"did you mean '{commit}'?" in capsys.readouterr().err


def test_states_without_a_record_are_listed(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`list` counts them, and `show` has the files of each and the command that puts one in place."""
    assert "without a record" not in shown(capsys, "files", "list")
    (files / "mine").write_text("mine")
    shown(capsys, "files", "restore", "r1", "3")
    assert ", 1 state without a record  " in shown(capsys, "files", "list")
    assert main(["files", "list", "r1"]) == 0
    output, notes = capsys.readouterr()
    [line] = [row for row in output.splitlines() if row.startswith("  without")]
    assert line.endswith("files 1 +1 -0  mine")
    assert f"loopwright files restore r1 {line.split()[3]}" in notes


def test_restore_without_a_number_puts_the_result_in_place(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It follows a restored iteration too, which `list` and `show` name while it is in place."""
    result = (files / "n.txt").read_text()
    assert "iteration 1 (" in shown(capsys, "files", "restore", "r1", "1")
    assert (files / "n.txt").read_text() == "1\n" != result
    assert "iteration 1 in place" in shown(capsys, "files", "list")
    [line] = [row for row in shown(capsys, "files", "list", "r1").splitlines() if "(in" in row]
    assert line.startswith("  1  ") and line.endswith("  (in place)")
    shown(capsys, "files", "restore", "r1")
    assert (files / "n.txt").read_text() == result
    assert "in place" not in shown(capsys, "files", "list")


def test_diff_is_a_patch_of_two_iterations(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command and `show --diff` print the same difference of files."""
    assert "-1\n+2" in shown(capsys, "files", "diff", "r1", "1", "2")
    assert "-1\n+2" in shown(capsys, "show", "r1", "--diff", "1", "2")


def test_branch_is_made_later(repo: Repo, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any iteration becomes a branch."""
    shown(capsys, "files", "branch", "r1", "1", "--branch", "first")
    assert repo.git("show", "first:n.txt") == "1"


def test_files_with_a_key_are_named(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    """A branch or a change that is made later warns of them, as the end of a run does."""
    key = shell(f"echo 1; echo sk-{'a' * 24} > settings.txt", name="edit")
    own = Workspace(repo.folder, merge="none")
    recorded(Loop(key, by_count, max_iterations=1, name="fix", workspace=own))
    for words in (("branch", "r1"), ("apply", "r1", "1")):
        assert json.loads(shown(capsys, "files", *words, "--json"))["secrets"] == ["settings.txt"]


def test_prune_of_a_run_deletes_its_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a run it deletes those whose time is over."""
    assert "no workspace to delete" in shown(capsys, "files", "prune")
    shown(capsys, "files", "prune", "r1")
    assert not run.exists()
    assert "no workspaces" in shown(capsys, "files", "list")


def test_prune_frees_the_space_of_the_snapshots(
    repo: Repo, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Objects that another run shares stay, and while a run works there nothing is collected."""
    own = Workspace(repo.folder, merge="none")
    big = os.urandom(300_000).hex()

    def write(_: object, ctx: Context) -> str:
        (ctx.folder / "big").write_text(big)
        return "1"

    for name in ("shares", "alone"):
        loop = Loop(write, by_count, max_iterations=1, name="fix", workspace=own)
        run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id=name)
    store = Path(".loopwright/store.git")
    before = used(store)
    assert "bytes freed" in shown(capsys, "files", "prune", "alone")
    assert before - used(store) < 300_000
    with (run.parent / ".state" / "fix" / "lock").open() as lock:
        assert take_lock(lock.fileno())
        assert json.loads(shown(capsys, "files", "prune", "--json"))["freed_bytes"] is None
    shown(capsys, "files", "prune", "shares")
    assert used(store) < before - 300_000
    assert "-2\n+3" in shown(capsys, "files", "diff", "r1", "2", "3")


def used(store: Path) -> int:
    """Return the bytes of the objects, which are made older than any that prune keeps."""
    files = [file for file in (store / "objects").rglob("*") if file.is_file()]
    for file in files:
        os.utime(file, (0, 0))
    return sum(file.stat().st_size for file in files)


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
    """`show --diff 0 N` prints what changed since the start, as `files diff` does."""
    assert run.exists()
    text = shown(capsys, "show", "r1", "--diff", "0", "3")
    assert "-0\n+3" in text
    assert text == shown(capsys, "files", "diff", "r1", "0", "3")


def test_each_of_several_loops_has_its_iterations(
    repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number alone is ambiguous, and `--loop` names the loop, by its path or its name."""
    loops = {
        name: replace(counting(None, max_iterations=1), name=name) for name in ("fix", "again")
    }
    needs = {"again": ["fix"]}
    recorded(Workflow("flow", loops, needs=needs, workspace=Workspace(repo.folder, merge="none")))
    assert "  2 snapshots  " in shown(capsys, "files", "list")
    assert "-1\n+2" in shown(capsys, "files", "diff", "r1", "--loop", "again", "0", "1")
    assert "-0\n+1" in shown(capsys, "files", "diff", "r1", "--loop", "flow/fix", "1")
    assert main(["files", "restore", "r1", "1"]) == 2
    assert "use --loop: again, fix" in capsys.readouterr().err
    assert main(["files", "list", "r1", "--loop", "agin"]) == 2
    assert "did you mean 'again'?" in capsys.readouterr().err


def test_the_complete_id_is_not_the_beginning_of_another(
    repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    """`r1` names that run also beside `r10`, and a beginning of both is refused."""
    loop = counting(Workspace(repo.folder, merge="none"), max_iterations=1)
    for name in ("r1", "r10"):
        run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id=name)
    assert shown(capsys, "files", "list", "r1").startswith("r1  fix  copy  1 snapshot ")
    assert main(["files", "list", "r"]) == 2
    assert "several runs begin like this: r1, r10" in capsys.readouterr().err


def test_apply_changes_the_files_of_the_folder(
    repo: Repo, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default it applies the files in place; a file that both sides changed is refused."""
    assert "2 files" not in shown(capsys, "files", "list")
    assert "changed" in shown(capsys, "files", "apply", "r1")
    assert (repo.folder / "n.txt").read_text() == (run / "n.txt").read_text() == "2\n"
    (repo.folder / "n.txt").write_text("mine\n")
    assert main(["files", "apply", "r1", "3"]) == 2
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


def test_the_first_iteration_is_compared_with_the_baseline(
    repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluation before the first iteration names the tests that fail at the start."""

    def judge(output: str | None) -> Evaluation:
        failing = ["test_b"] if output else ["test_a", "test_b"]
        return Evaluation(0.5, False, "no", details={"tests": {"failing": failing}})

    loop = Loop(shell(COUNT, name="edit"), judge, max_iterations=1, name="fix", baseline=True,
                workspace=Workspace(repo.folder, merge="none"))  # fmt: skip
    run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="t")
    text = shown(capsys, "show", "t", "--iteration", "1")
    assert "tests that turned green: test_a" in text
    assert "turned red" not in text


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
    """The message names where it looked and the option for another folder, and guesses no other run."""
    assert main(["files", "diff", "r2"]) == 2
    said = capsys.readouterr().err
    assert "r2: there is no workspace of this run in .loopwright;" in said
    assert "--home DIR/.loopwright" in said and "r1" not in said
    # A patch of no change is empty, also for a program that reads it.
    assert main(["files", "diff", "r1", "1", "1"]) == 0
    assert tuple(capsys.readouterr()) == ("", "no change\n")


def test_export_writes_the_result_as_a_patch(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The patch has the changes of the files in place since the start."""
    assert "-0\n+2" in shown(capsys, "export", "r1", "--format", "patch")


def test_export_writes_each_iteration_as_a_branch_of_a_bundle(
    repo: Repo, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`git fetch` takes the start and the iterations from it."""
    assert files.exists()
    bundle = tmp_path / "r1.bundle"
    shown(capsys, "export", "r1", "--format", "bundle", "-o", str(bundle))
    repo.git("fetch", "--quiet", str(bundle), "iteration-3:third")
    assert repo.git("show", "third:n.txt") == "3"


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
    """`runs`, `show` and `files list` say so until a restore puts the last capture in place."""
    folder = killed_in_the_second_iteration(repo)
    assert (folder / "n.txt").read_text() == "2\n"
    text = "not in a recorded state"
    assert text in shown(capsys, "runs")
    assert json.loads(shown(capsys, "runs", "--json"))["runs"][0]["detail"].endswith(text)
    assert "loopwright files restore r1" in shown(capsys, "show", "r1")
    assert text in shown(capsys, "files", "list")
    assert main(["files", "list"]) == 0
    assert "replace the files, with edits of yours" in capsys.readouterr().err
    assert "in place" not in shown(capsys, "files", "list", "r1")
    shown(capsys, "files", "restore", "r1")
    assert (folder / "n.txt").read_text() == "1\n"
    assert text not in shown(capsys, "runs") + shown(capsys, "show", "r1")
