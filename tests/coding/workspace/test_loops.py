"""A loop whose commands edit files: what is captured, judged, put back and handed over."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loopwright import (
    Evaluation,
    Loop,
    MaxIterations,
    OnStall,
    Passed,
    Workflow,
    Workspace,
    run_sync,
    shell,
)
from loopwright.ui.cli import main

from .conftest import Repo

COUNT = 'n=$(cat n.txt); n=$((n+1)); echo $n > n.txt; echo x > "new$n"; rm -f old; cat n.txt'
SCORES = {1: 0.2, 2: 0.6, 3: 0.4, 4: 0.5}


def by_count(output: str) -> Evaluation:
    return Evaluation(SCORES[int(output)])


def counting(workspace: Workspace | None, **options: object) -> Loop:
    options.setdefault("max_iterations", 3)
    return Loop(
        shell(COUNT, name="edit"),
        evaluate=by_count,
        min_score=0.9,
        name="fix",
        workspace=workspace,
        **options,
    )


def test_an_exhausted_loop_leaves_the_files_of_its_best_iteration(repo: Repo) -> None:
    """The files of the best iteration stay in place, and the later ones are gone."""
    result = run_sync(counting(Workspace(repo.folder, merge="none")), run_id="r")
    folder = Path(result.workspace["folder"])
    assert (folder / "n.txt").read_text() == "2\n"
    assert (folder / "new2").exists()
    assert not (folder / "new3").exists()
    assert result.workspace["iteration"] == 2


def test_each_record_has_the_snapshot_of_its_iteration(repo: Repo) -> None:
    """The record names the commit and counts the changes since the parent."""
    result = run_sync(counting(Workspace(repo.folder, merge="none")))
    assert [item.files["files"] for item in result.history] == [2, 2, 2]
    assert [item.files["added"] for item in result.history] == [2, 2, 2]
    assert len({item.files["commit"] for item in result.history}) == 3


def test_the_users_repository_is_byte_identical_without_a_merge(repo: Repo) -> None:
    """Neither files nor anything in `.git` change, uncommitted edits and untracked files included."""
    repo.write(**{"n.txt": "0\n\n", "old": "mine", "a.log": "ignored"})
    before = repo.bytes()
    run_sync(counting(Workspace(repo.folder, merge="none"), max_iterations=2))
    assert repo.bytes() == before


def test_a_branch_is_the_only_change_of_a_merge(repo: Repo) -> None:
    """HEAD, index, configuration and files stay; one ref is new, and its commit names the run."""
    before = repo.bytes()
    result = run_sync(counting(Workspace(repo.folder)), run_id="r1")
    assert result.workspace["branch"] == "loopwright/r1"
    after = repo.bytes()
    new = [n for n in after if n not in before and not n.startswith(".git/objects")]
    assert {n for n in new if "loopwright" not in n} == set()
    assert {n: after[n] for n in before if after[n] != before[n]} == {}
    assert repo.git("show", "loopwright/r1:n.txt") == "2"
    assert "Loopwright-Run: r1" in repo.git("log", "-1", "--format=%B", "loopwright/r1")
    assert repo.git("rev-parse", "loopwright/r1^") == repo.git("rev-parse", "main")


def test_a_branch_of_another_run_stays(repo: Repo) -> None:
    """An existing branch of the name is not moved: the new one gets a number."""
    repo.git("branch", "fixed")
    result = run_sync(counting(Workspace(repo.folder, branch="fixed")))
    assert result.workspace["branch"] == "fixed-2"
    assert repo.git("rev-parse", "fixed") == repo.git("rev-parse", "main")


def test_uncommitted_edits_are_a_commit_of_their_own(repo: Repo) -> None:
    """A branch separates what the user had changed from what the loop changed."""
    repo.write(old="mine")
    run_sync(counting(Workspace(repo.folder, branch="b")))
    assert repo.git("log", "--format=%s", "main..b").splitlines()[1] == (
        "Uncommitted changes at the start of the run"
    )
    assert repo.git("show", "b~1:old") == "mine"


def test_a_patch_is_what_git_apply_takes(repo: Repo) -> None:
    """The patch turns the files of the start into those of the result."""
    result = run_sync(counting(Workspace(repo.folder, merge="patch")))
    repo.git("apply", result.workspace["patch"])
    assert (repo.folder / "n.txt").read_text() == "2\n"


def test_apply_changes_the_users_files_if_the_loop_is_satisfied(repo: Repo) -> None:
    """Only the changed files are written, three ways: an edit of another file stays."""
    loop = Loop(
        shell("echo fixed > n.txt; test -f other && exit 0; echo new > new.txt"),
        evaluate=lambda _: True,
        workspace=Workspace(repo.folder, merge="apply"),
        on_iteration=lambda _: repo.write(mine="later"),
    )
    result = run_sync(loop)
    assert result.workspace["applied"] == 2
    assert (repo.folder / "n.txt").read_text() == "fixed\n"
    assert (repo.folder / "mine").read_text() == "later"


def test_apply_is_refused_where_both_changed_a_file(repo: Repo) -> None:
    """A conflict leaves the user's files as they are, and a patch."""
    loop = Loop(
        shell("echo fixed > n.txt"),
        evaluate=lambda _: True,
        workspace=Workspace(repo.folder, merge="apply"),
        on_iteration=lambda _: repo.write(**{"n.txt": "mine\n"}),
    )
    result = run_sync(loop)
    assert result.workspace["conflicts"] == ["n.txt"]
    assert (repo.folder / "n.txt").read_text() == "mine\n"
    assert Path(result.workspace["patch"]).exists()


def test_the_check_judges_the_captured_files_and_its_changes_are_put_back(repo: Repo) -> None:
    """A check that edits files changes neither the snapshot nor the next iteration."""
    check = shell("echo dirt > dirt; echo 9 > n.txt; exit 1", output="result")
    loop = Loop(
        shell(COUNT, name="edit"),
        evaluate=lambda _: 0.1,
        name="fix",
        max_iterations=2,
        min_score=0.9,
        workspace=Workspace(repo.folder, merge="none"),
    )
    judged = Loop(
        loop.execute, evaluate=check_with(check), name="fix", max_iterations=2, min_score=0.9,
        workspace=loop.workspace,
    )  # fmt: skip
    result = run_sync(judged)
    assert [item.output for item in result.history] == ["1", "2"]
    assert not (Path(result.workspace["folder"]) / "dirt").exists()


def check_with(step: object) -> object:
    async def evaluate(_: object, ctx: object) -> float:
        await ctx.call("check", step)
        return 0.1

    return evaluate


def test_a_failed_iteration_is_captured_too(repo: Repo) -> None:
    """The next iteration continues from what the failed one left."""
    result = run_sync(
        Loop(
            shell("echo x >> n.txt; test $(wc -l < n.txt) -gt 2"),
            evaluate=lambda _: True,
            on_failure="continue",
            workspace=Workspace(repo.folder, merge="none"),
        )
    )
    assert [item.error is None for item in result.history] == [False, True]
    assert result.history[0].files["added"] == 1


def test_refine_from_best_continues_from_the_best_files(repo: Repo) -> None:
    """The third iteration is worse, so the fourth starts from the second."""
    result = run_sync(
        counting(Workspace(repo.folder, merge="none"), refine_from="best", max_iterations=4)
    )
    assert [item.output for item in result.history] == ["1", "2", "3", "3"]


def test_steps_of_a_workflow_share_its_workspace(repo: Repo) -> None:
    """A step after a loop continues from the files that the loop left."""
    steps = {"fix": counting(None), "read": shell("cat n.txt; echo done > done.txt")}
    flow = Workflow(
        "flow", steps, needs={"read": ["fix"]}, workspace=Workspace(repo.folder, branch="f")
    )
    result = run_sync(flow, run_id="w")
    assert result.steps["read"] == "2"
    assert repo.git("show", "f:done.txt") == "done"


def test_a_finished_run_returns_its_workspace(repo: Repo) -> None:
    """The result of a recorded run names the same commit, and nothing is captured again."""
    loop = counting(Workspace(repo.folder))
    first = run_sync(loop, journal="sqlite:runs.db", run_id="r")
    again = run_sync(loop, journal="sqlite:runs.db", run_id="r")
    assert again.workspace == first.workspace
    assert [item.files for item in again.history] == [item.files for item in first.history]


def test_a_folder_without_git_is_a_snapshot(tmp_path: Path) -> None:
    """Without a repository the folder is copied, and the result is a patch."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "n.txt").write_text("0\n")
    result = run_sync(counting(Workspace(folder, home=tmp_path / "home")))
    assert (folder / "n.txt").read_text() == "0\n"
    assert Path(result.workspace["patch"]).read_text().count("+2\n") == 1


@pytest.mark.parametrize("kind", ["worktree", "copy"])
def test_a_detached_head_and_another_kind(repo: Repo, kind: str) -> None:
    """A detached HEAD stays where it is."""
    repo.git("checkout", "-q", "--detach")
    result = run_sync(counting(Workspace(repo.folder, kind=kind, branch="b")))
    assert repo.git("show", "b:n.txt") == "2"
    assert repo.git("rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
    assert result.workspace["iteration"] == 2


def test_a_repository_without_commits(make_repo, tmp_path: Path) -> None:
    """The branch begins with the files that are there."""
    empty = make_repo("empty")
    empty.write(**{"n.txt": "0\n"})
    run_sync(counting(Workspace(empty.folder, branch="b", home=tmp_path / "h")))
    assert empty.git("show", "b:n.txt") == "2"


def test_a_bare_repository_is_refused_with_a_sentence(tmp_path: Path, repo: Repo) -> None:
    """It has no files."""
    bare = tmp_path / "bare.git"
    repo.git("clone", "-q", "--bare", ".", str(bare))
    result = run_sync(counting(Workspace(bare)))
    assert result.status.value == "failed"
    assert result.error.kind == "workspace"
    assert "bare repository" in result.error.message


def test_configuration_of_an_agent_never_runs(repo: Repo, tmp_path: Path) -> None:
    """A filter and a hook that a step sets up in the copy do not run when files are captured."""
    trap = tmp_path / "trap"
    evil = (
        f"git config filter.evil.clean 'touch {trap}'; echo '* filter=evil' > .gitattributes; "
        f"printf '#!/bin/sh\\ntouch {trap}\\n' > .git/hooks/post-index-change; "
        "chmod +x .git/hooks/post-index-change; echo 1 > n.txt; rm -rf .git/index; echo 1"
    )
    loop = Loop(shell(evil), evaluate=by_count, max_iterations=2, min_score=0.9,
                workspace=Workspace(repo.folder, branch="b"))  # fmt: skip
    run_sync(loop)
    assert not trap.exists()
    assert repo.git("show", "b:n.txt") == "1"


def test_a_document_has_a_workspace(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    """The shell step and the shell check of a loop run in the copy."""
    repo.write(**{
        "fix.yaml": """
schema: loopwright/1
name: fix
steps:
  - name: count
    loop:
      workspace: {kind: copy, branch: fixed}
      execute: {shell: 'n=$(cat n.txt); echo $((n+1)) > n.txt; cat n.txt'}
      evaluate: {check: {command: [grep, -q, "2", n.txt]}}
      until: [passed, {max_iterations: 5}]
"""
    })  # fmt: skip
    code = main(["run", str(repo.folder / "fix.yaml"), "--yes", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == 0, result
    assert result["loops"]["count"]["workspace"]["branch"] == "fixed"
    assert repo.git("show", "fixed:n.txt") == "2"
    assert (repo.folder / "n.txt").read_text() == "0\n"


def test_loops_without_a_workspace_have_no_new_fields(tmp_path: Path) -> None:
    """Neither records nor results name files."""
    os.chdir(tmp_path)
    result = run_sync(Loop(lambda n: n, until=MaxIterations(1)), 1)
    assert "files" not in result.history[0].to_json()
    assert "workspace" not in result.to_json()
    assert Passed() is not None


def test_a_fresh_chain_begins_with_the_files_of_the_start(repo: Repo) -> None:
    """The branch has a commit for each iteration that led to the result: those of its chain."""
    scores = iter([0.2, 0.3, 0.1, 0.4, 0.6])
    loop = Loop(
        shell(COUNT, name="edit"),
        lambda output: next(scores),
        max_iterations=5,
        min_score=0.9,
        name="fix",
        workspace=Workspace(repo.folder, branch="b", commits="iterations"),
        on_stall=OnStall("fresh", patience=1),
    )
    result = run_sync(loop, run_id="r")
    assert [item.output for item in result.history] == ["1", "2", "3", "1", "2"]
    assert [(item.parent, item.chain) for item in result.history][3:] == [(0, 2), (None, 2)]
    trailers = repo.git("log", "--format=%(trailers:key=Loopwright-Iteration,valueonly)", "main..b")
    assert trailers.split() == ["5", "4"]
    assert repo.git("show", "b:n.txt") == "2"
