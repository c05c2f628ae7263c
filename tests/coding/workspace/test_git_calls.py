"""Every call of git has the same closed environment, and nothing that a folder or a repository brings is executed."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright
from loopwright import Workspace, run_sync
from loopwright.coding.workspace.store import Git
from loopwright.ui.cli import main

from .conftest import Repo
from .hostile_stores import executed
from .test_loops import counting

SOURCE = Path(loopwright.__file__).parent
ALLOWED = {
    *(f"GIT_{role}_{part}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL", "DATE")),
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_ATTR_NOSYSTEM", "GIT_TERMINAL_PROMPT", "GIT_NO_LAZY_FETCH",
    "GIT_OPTIONAL_LOCKS", "GIT_ALLOW_PROTOCOL", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
}  # fmt: skip
# One of each way in which a payload can reach git; `make hostile` tries them all.
SAMPLE = [
    ("tracked", "filter.e.clean"), ("unpacked", "core.fsmonitor"), ("adopted", "promisor"), ("adopted", "commondir"),
    ("journal", "promisor"), ("own copy", "alternates"), ("own copy", "url.ext::PROGRAM %S.insteadOf"),
    ("own worktree", "filter.e.clean"), ("own here", "filter.e.clean"), ("environment", "GIT_CONFIG_PARAMETERS"),
]  # fmt: skip


def git_words(source: str) -> Iterator[int]:
    """The lines of a source where a command begins with git, or git is looked up."""
    for node in ast.walk(ast.parse(source)):
        words: list[ast.expr] = []
        if isinstance(node, ast.List | ast.Tuple):
            words = node.elts[:1]
        elif isinstance(node, ast.Call):
            words = node.args[:1]
        for word in words:
            if isinstance(word, ast.Constant) and str(word.value).split(" ")[0] == "git":
                yield node.lineno


def test_only_one_module_starts_git() -> None:
    """A command that begins with git stands in `store.py` alone."""
    assert list(git_words('run(["git", "status"])')) == [1]
    assert list(git_words('which("git")\nsystem("git status")')) == [1, 2]
    own = SOURCE / "coding" / "workspace" / "store.py"
    found = {
        f"{file.relative_to(SOURCE)}:{line}"
        for file in SOURCE.rglob("*.py")
        if file != own
        for line in git_words(file.read_text("utf-8"))
    }
    assert found == set()


def recorder(folder: Path, log: Path) -> str:
    """A PATH with a `git` that records its arguments and variables, and then is git."""
    folder.mkdir(exist_ok=True)
    program = folder / "git"
    # One write per call: several run at once.
    program.write_text(
        f'#!/bin/sh\nrow="$(printf "%s\\037" "$@")$(env -0 | tr "\\0" "\\037")"\n'
        f'printf "%s\\036" "$row" >> {log}\nexec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_every_call_of_a_run_and_of_the_commands_is_closed(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variables that restrict git are set, no other one of git reaches it, and only copies may use a transport."""
    log = tmp_path / "log"
    monkeypatch.setenv("PATH", recorder(tmp_path / "bin", log))
    for name in ("GIT_DIR", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT"):
        monkeypatch.setenv(name, "hostile")
    repo.write(new="1")
    run_sync(counting(Workspace(repo.folder)), journal="sqlite:.loopwright/runs.db", run_id="r")
    assert main(["files", "list", "r"]) == main(["show", "r", "--diff", "0", "1"]) == 0
    assert main(["export", "r", "-f", "html"]) == main(["files", "prune", "r"]) == 0
    calls = [row.split("\x1f") for row in log.read_text().split("\x1e") if row]
    assert len(calls) > 30
    for row in calls:
        variables = {word.partition("=")[0]: word.partition("=")[2] for word in row if "=" in word}
        names = {name for name in variables if name.startswith("GIT_")}
        if "upload-pack" in row:
            # It serves another repository of this machine to a copy, and git itself starts it.
            assert variables["GIT_ALLOW_PROTOCOL"] == ""
            continue
        if "hooksPath" not in " ".join(row) and "core.hooksPath=/dev/null" not in row:
            assert row[0] in (
                "pack-objects",
                "index-pack",
                "--version",
                "unpack-objects",
                "rev-list",
            )
            continue
        assert names <= ALLOWED | {
            "GIT_CONFIG_PARAMETERS",
            "GIT_PREFIX",
            "GIT_EXEC_PATH",
            "GIT_INTERNAL_SUPER_PREFIX",
        }
        assert variables["GIT_CONFIG_GLOBAL"] == os.devnull
        assert variables["GIT_CONFIG_NOSYSTEM"] == variables["GIT_NO_LAZY_FETCH"] == "1"
        assert {"core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.allow=never"} <= set(
            row
        )
        transfers = bool({"clone", "fetch"} & set(row))
        assert variables["GIT_ALLOW_PROTOCOL"] == ("file" if transfers else "")


NAMES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1, max_size=12).map("GIT_".__add__)


@settings(max_examples=30)
@given(variables=st.dictionaries(NAMES, st.text("ab/=", max_size=5), max_size=6))
def test_no_variable_of_git_is_inherited(
    variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever variables the process has, a call has exactly those of ours."""
    log = tmp_path_factory.mktemp("calls") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", recorder(log.parent / "bin", log))
        for name, value in variables.items():
            patch.setenv(name, value)
        Git(cwd=log.parent)("--version")
    [row] = [row.split("\x1f") for row in log.read_text().split("\x1e") if row]
    found = dict(word.split("=", 1) for word in row if word.startswith("GIT_"))
    assert found.keys() <= ALLOWED
    assert found["GIT_CONFIG_GLOBAL"] == os.devnull
    assert found["GIT_ALLOW_PROTOCOL"] == ""


@pytest.mark.parametrize(("place", "payload"), SAMPLE)
def test_nothing_of_a_hostile_folder_is_executed(
    place: str, payload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No program of a configuration, a hook, an attribute, another repository or a variable runs."""
    monkeypatch.setenv("XDG_STATE_HOME", "restored at the end")
    assert executed(place, payload, every=False) == []
