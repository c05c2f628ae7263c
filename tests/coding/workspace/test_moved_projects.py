"""A project that its user moved or copied with its folder `.loopwright`: its runs continue in the new place."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loopwright.ui.cli import main

from .conftest import Repo

DOCUMENT = """
schema: loopwright/1
name: fix
steps:
  - name: count
    loop:
      workspace: {kind: KIND, merge: none, link: [lib]}
      execute: {shell: 'n=$(cat n.txt); echo $((n+1)) > n.txt; cat n.txt'}
      evaluate: {check: {command: [grep, -q, "3", n.txt]}}
      until: [passed, {max_iterations: 2}]
"""


def _move(old: Path, new: Path) -> None:
    old.rename(new)


def _copy(old: Path, new: Path) -> None:
    shutil.copytree(old, new, symlinks=True)


def _prepared(repo: Repo, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo.folder)
    (repo.folder / "lib").mkdir()
    repo.write(**{"fix.yaml": DOCUMENT.replace("KIND", kind), ".gitignore": "lib\n"})
    repo.commit()
    assert main(["run", "fix.yaml", "--yes", "--run-id", "r"]) == 3


@pytest.mark.parametrize("change", [_move, _copy])
@pytest.mark.parametrize("kind", ["copy", "worktree", "here"])
def test_a_run_continues_where_its_project_is_now(
    repo: Repo,
    tmp_path: Path,
    kind: str,
    change: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command acts on the new place; the original of a copy stays as it was to the byte."""
    _prepared(repo, kind, monkeypatch)
    new = tmp_path / "elsewhere" / "renamed"
    new.parent.mkdir()
    change(repo.folder, new)
    before = repo.bytes() if repo.folder.exists() else {}
    monkeypatch.chdir(new)
    for words in (
        ["show", "r"],
        ["show", "r", "--files"],
        ["show", "r", "--diff", "0", "1"],
        ["export", "r", "-f", "patch"],
        ["files", "diff", "r"],
        ["files", "restore", "r", "1"],
        ["files", "branch", "r", "1", "--branch", "made"],
        ["files", "restore", "r"],
    ):
        assert main(words) == 0, (words, capsys.readouterr().err)
    # By the name of its journal from another folder, too.
    monkeypatch.chdir(tmp_path)
    journal = ["--journal", f"sqlite:{new}/.loopwright/runs.db"]
    assert main(["show", "r", "--files", *journal]) == 0
    monkeypatch.chdir(new)
    capsys.readouterr()
    code = main(["resume", "r", "--max-iterations", "3", "--yes", "--json"])
    told = capsys.readouterr()
    assert code == 0, told.err
    folder = Path(json.loads(told.out)["loops"]["count"]["workspace"]["folder"])
    assert folder == (new if kind == "here" else new / ".loopwright" / "trees" / "r" / folder.name)
    assert (folder / "n.txt").read_text() == "3\n"
    # What git in the tree reads and writes, and what its links lead to, is in the new place as well.
    if kind != "here":
        assert (folder / "lib").resolve() == new / "lib"
        assert main(["files", "apply", "r"]) == 0
    words = ["git", "-C", str(folder), "rev-parse", "--path-format=absolute", "--git-common-dir"]
    shared = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert Path(shared.strip()).is_relative_to(new)
    assert (new / "n.txt").read_text() == "3\n"
    made = subprocess.run(["git", "-C", str(new), "show", "made:n.txt"], capture_output=True)
    assert made.stdout == b"1\n"
    assert not before or repo.bytes() == before


def test_a_project_that_was_made_later_in_the_old_place_is_another_one(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is known, and does not have the files of the run."""
    _prepared(repo, "copy", monkeypatch)
    new = tmp_path / "aside"
    repo.folder.rename(new)
    again = Repo(repo.folder)
    again.write(**{"n.txt": "0\n"})
    again.commit()
    shutil.copy(new / "fix.yaml", again.folder)
    (again.folder / "lib").mkdir()
    monkeypatch.chdir(again.folder)
    assert main(["run", "fix.yaml", "--yes", "--run-id", "s"]) == 3
    before = again.bytes()
    monkeypatch.chdir(new)
    assert main(["show", "r", "--files"]) == 0
    assert main(["resume", "r", "--max-iterations", "3", "--yes"]) == 0
    assert again.bytes() == before


@pytest.mark.parametrize("committed", [True, False])
def test_a_tracked_folder_is_read_and_taken_out_by_the_printed_command(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], committed: bool
) -> None:
    """`show` ends with 0 and says that files are not shown; then the journal is kept, and a run starts."""
    _prepared(repo, "copy", monkeypatch)
    repo.git("add", "-f", ".loopwright")
    if committed:
        repo.git("commit", "-q", "-m", "by mistake")
    (repo.folder / ".loopwright" / "id").touch()
    (repo.folder / ".loopwright" / "new").touch()
    with (repo.folder / ".loopwright" / ".gitignore").open("a") as file:
        file.write("# changed\n")
    capsys.readouterr()
    assert main(["show", "r"]) == main(["runs"]) == 0
    told = capsys.readouterr()
    assert "files are not shown: " in told.err and "count" in told.out
    assert main(["journal", "adopt"]) == main(["run", "fix.yaml", "--yes"]) == 2
    command = capsys.readouterr().err.strip().rpartition(" with: ")[2]
    assert command.startswith("git rm -r --cached")
    subprocess.run(shlex.split(command), check=True, capture_output=True)
    assert main(["run", "fix.yaml", "--yes"]) == 3
    assert main(["show", "r", "--files"]) == 0


@pytest.mark.parametrize("keep", [True, False])
def test_a_tracked_folder_from_elsewhere_is_removed_or_adopted_by_the_printed_commands(
    repo: Repo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    keep: bool,
) -> None:
    """Both ways out are printed, and a run starts after each."""
    _prepared(repo, "copy", monkeypatch)
    repo.git("add", "-f", ".loopwright")
    repo.git("commit", "-q", "-m", "hostile")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    capsys.readouterr()
    assert main(["show", "r"]) == 0
    assert main(["run", "fix.yaml", "--yes"]) == 2
    _, out, remove, adopt = capsys.readouterr().err.strip().split(" with: ")[-4:]
    subprocess.run(shlex.split(out.partition(";")[0]), check=True, capture_output=True)
    if keep:
        assert main([*shlex.split(adopt)[1:], "--yes"]) == 0
    else:
        subprocess.run(shlex.split(remove.partition(",")[0]), check=True)
    assert main(["run", "fix.yaml", "--yes"]) == 3
    assert main(["show", "r", "--files"]) == (0 if keep else 2)


def test_an_unknown_folder_ends_every_command_with_2(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`adopt` without a terminal names `--yes` and asks nothing."""
    _prepared(repo, "copy", monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    capsys.readouterr()
    resume = ["resume", "r", "--max-iterations", "3", "--yes"]
    for words in (resume, ["run", "fix.yaml", "--yes"], ["rewind", "r", "count/2"]):
        assert main(words) == 2, words
        assert "journal adopt" in capsys.readouterr().err
    assert main(["journal", "adopt"]) == 2
    told = capsys.readouterr().err
    assert "repeat with --yes" in told and "[y/N]" not in told
    assert main(["journal", "adopt", "--yes"]) == 0
    assert main(resume) == 0


WAITING = DOCUMENT.replace(
    "steps:\n",
    """steps:
  - name: gate
    loop: {execute: {shell: echo hi}, approve: iteration, until: [{max_iterations: 3}]}
""",
)


@pytest.mark.parametrize("inside", [False, True])
def test_a_run_that_waits_before_its_first_workspace_continues_where_its_project_is_now(
    repo: Repo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    inside: bool,
) -> None:
    """It has no recorded folder; after a copy, and a copy of that, the branch is made in the last one."""
    monkeypatch.chdir(repo.folder)
    document = WAITING.replace("KIND", "copy").replace("merge: none", "merge: branch")
    repo.write(**{"fix.yaml": document, ".gitignore": "lib\ncopy\n"})
    repo.commit()
    assert main(["run", "fix.yaml", "--yes", "--run-id", "r"]) == 4
    first = repo.folder / "copy" if inside else tmp_path / "first"
    _copy(repo.folder, first)
    monkeypatch.chdir(first)
    # A run that began in the copy, and is copied with it.
    assert main(["run", "fix.yaml", "--yes", "--run-id", "s"]) == 4
    second = tmp_path / "second"
    _copy(first, second)
    before = repo.bytes()
    monkeypatch.chdir(second)
    for run in ("r", "s"):
        assert main(["approve", run, "--accept"]) == 0
        assert main(["resume", run, "--yes"]) == 3
        capsys.readouterr()
        assert main(["show", run]) == 0
        assert f"from {second}/fix.yaml" in capsys.readouterr().out.replace("\n", "")
        assert main(["resume", run, "--max-iterations", "3", "--yes"]) == 0
    branches = {
        folder: subprocess.run(
            ["git", "-C", str(folder), "branch", "--format=%(refname:short)"],
            capture_output=True, text=True, check=True,
        ).stdout.split()
        for folder in (repo.folder, first, second)
    }  # fmt: skip
    assert [name for name in branches[second] if "/" in name] == ["loopwright/r", "loopwright/s"]
    assert not [n for f in (repo.folder, first) for n in branches[f] if "/" in n]
    assert repo.bytes() == before
