"""Options of a workspace: `reset`, `secrets`, `retain`; and the tree of a run that was forked."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from loopwright import Loop, Workspace, run_sync, shell
from loopwright.coding.workspace.workspace import Files
from loopwright.errors import ConfigurationError
from loopwright.ui.cli import main

from .conftest import Repo
from .test_loops import by_count, counting

KEY = "sk-" + "a1B2" * 8


def test_reset_runs_whenever_files_were_put_in_place(repo: Repo, tmp_path: Path) -> None:
    """The command sees the files from which the iteration continues."""
    seen = tmp_path / "seen"
    workspace = Workspace(repo.folder, merge="none", reset=f"cat n.txt >> {seen}")
    run_sync(counting(workspace, refine_from="best", max_iterations=4))
    assert seen.read_text().split() == ["0", "1", "2", "2"]


def test_a_failed_reset_ends_the_loop(repo: Repo) -> None:
    """Files and database would not belong together."""
    result = run_sync(counting(Workspace(repo.folder, reset="echo no server >&2; exit 3")))
    assert result.error.kind == "workspace"
    assert "no server" in result.error.message


def leaking(repo: Repo, **options: object) -> Loop:
    return Loop(
        shell(f"echo key = {KEY} > settings; echo 1 > n.txt; echo 1"),
        evaluate=by_count,
        max_iterations=1,
        name="leak",
        workspace=Workspace(repo.folder, branch="b", **options),
    )


def test_a_file_with_a_key_is_handed_over_with_a_warning(repo: Repo) -> None:
    """The warning names the file and not the key."""
    result = run_sync(leaking(repo))
    assert result.workspace["secrets"] == ["settings"]
    assert KEY in repo.git("show", "b:settings")
    assert any("settings" in text for text in result.warnings)
    assert not any(KEY in text for text in result.warnings)


def test_a_file_with_a_key_can_be_left_out(repo: Repo) -> None:
    """The other changes are handed over, and no commit of the branch has the key."""
    result = run_sync(leaking(repo, secrets="drop", commits="iterations"))
    assert result.workspace["secrets"] == ["settings"]
    assert repo.git("show", "b:n.txt") == "1"
    assert KEY not in repo.git("log", "-p", "b")


def test_a_key_that_was_there_before_is_not_reported(repo: Repo) -> None:
    """A file is reported for what the loop added."""
    repo.write(settings=f"key = {KEY}\n")
    repo.commit()
    loop = leaking(repo)
    assert "secrets" not in run_sync(loop).workspace


def test_a_value_of_the_environment_is_a_key(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its form does not matter: the variable has the name of a key."""
    monkeypatch.setenv("SOME_API_KEY", "correct horse battery")
    repo.write(**{
        "leak.yaml": """
schema: loopwright/1
name: leak
steps:
  - name: leak
    loop:
      workspace: {branch: b, secrets: drop}
      execute: {shell: 'printf "correct horse %s" battery > settings; echo 1 > n.txt'}
      evaluate: {check: {command: ["true"]}}
      until: [passed]
"""
    })  # fmt: skip
    assert main(["run", str(repo.folder / "leak.yaml"), "--yes", "--json"]) == 0
    assert '"settings"' in capsys.readouterr().out
    assert "settings" not in repo.git("ls-tree", "--name-only", "b").split()


def test_an_ended_workspace_is_deleted_after_its_time(
    repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    """`retain` is counted from the end, and a suspended or running one stays."""
    for name in ("old", "new"):
        run_sync(counting(Workspace(repo.folder, merge="none", retain="1h")), run_id=name)
    [state] = Path(".loopwright/trees/old").glob(".state/*/state.json")
    os.utime(state, (1.0, 1.0))
    assert main(["files", "prune"]) == 0
    assert "old" in capsys.readouterr().out
    assert main(["files", "list"]) == 0
    listed = capsys.readouterr().out
    assert "new" in listed
    assert "old" not in listed


@pytest.mark.parametrize("kind", ["copy", "worktree", "snapshot"])
def test_a_forked_run_has_a_tree_with_the_recorded_files(repo: Repo, kind: str) -> None:
    """It is made from the snapshots of the first run, which keeps its own files."""
    repo.write(**{"a.log": "ignored"})
    workspace = Workspace(repo.folder, kind=kind, merge="none")
    first = run_sync(counting(workspace), run_id="first")
    begun = {
        "commit": first.workspace["base"],
        "folder": first.workspace["folder"],
        "source": str(repo.folder),
        "home": str(Path.cwd() / ".loopwright"),
        "host": socket.gethostname(),
    }
    fork = Files(workspace, "second", "fix")
    assert fork._open(begun) == ""
    fork._restore(first.history[0].files["commit"], True, "adopt")
    assert (fork.folder / "n.txt").read_text() == "1\n"
    assert fork.folder != Path(first.workspace["folder"])
    assert (Path(first.workspace["folder"]) / "n.txt").read_text() == "2\n"
    # The rules of the first run hold, and a step of its kept iterations is found.
    (fork.folder / "b.log").write_text("ignored")
    assert fork.tree.capture("2", fork.base)["tree"] == first.history[0].files["tree"]
    assert fork.tree.store.find(f"{fork.tree.refs}1") == first.history[0].files["commit"]


def test_a_run_whose_files_were_deleted_is_not_resumed(repo: Repo) -> None:
    """The error says that they were deleted."""
    loop = counting(Workspace(repo.folder, merge="none"))
    run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="r")
    assert main(["rewind", "r", "fix/2"]) == 0
    assert main(["files", "prune", "r"]) == 0
    result = run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="r")
    assert "were deleted" in result.error.message


def test_an_unknown_value_of_secrets_is_refused() -> None:
    """The values are `warn` and `drop`."""
    with pytest.raises(ConfigurationError, match="secrets"):
        Workspace(secrets="dorp")


def test_the_command_fork_continues_from_the_recorded_files(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The forked run makes its third iteration from the files of the second, in a folder of its own."""
    repo.write(**{
        "count.yaml": """
schema: loopwright/1
name: fix
steps:
  - name: count
    loop:
      workspace: {merge: none}
      execute: {shell: 'n=$(cat n.txt); echo $((n+1)) > n.txt; cat n.txt'}
      evaluate: {check: {command: [grep, -q, "9", n.txt]}}
      until: [passed, {max_iterations: 3}]
"""
    })  # fmt: skip
    monkeypatch.chdir(repo.folder)
    assert main(["run", "count.yaml", "--yes", "--run-id", "first"]) == 3
    assert main(["fork", "first", "fix/count/3", "--run-id", "second"]) == 3
    capsys.readouterr()
    assert main(["files", "diff", "second", "0", "3"]) == 0
    assert "-0\n+3" in capsys.readouterr().out
    assert (repo.folder / ".loopwright/trees/second").is_dir()
