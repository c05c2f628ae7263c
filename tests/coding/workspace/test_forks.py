"""Forks of runs with a workspace: the files are those of the path, in a folder of the new run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopwright import Workspace, fork, resume_sync, run_sync
from loopwright.engine.functions import wait_for
from loopwright.errors import ConfigurationError
from loopwright.ui.cli import main

from .conftest import Repo
from .test_loops import counting

JOURNAL = "sqlite:.loopwright/runs.db"


@pytest.mark.parametrize("kind", ["copy", "worktree", "snapshot"])
@pytest.mark.parametrize("path", ["fix/2", "fix/2/evaluate", "fix/1"])
def test_a_fork_continues_from_the_files_of_the_path(repo: Repo, kind: Any, path: str) -> None:
    """The forked run ends like the first one, and the files of the first run stay as they are."""
    loop = counting(Workspace(repo.folder, kind=kind, merge="none"))
    Path(".loopwright").mkdir(exist_ok=True)
    first = run_sync(loop, journal=JOURNAL, run_id="first")
    wait_for(lambda: fork("first", journal=JOURNAL, at=path, new_id="second"))
    second = resume_sync(loop, "second", journal=JOURNAL)
    assert second.iterations == first.iterations
    assert [i.output for i in second.history] == [i.output for i in first.history]
    trees = [
        [i.files["tree"] for i in result.history if i.files is not None]
        for result in (first, second)
    ]
    assert trees[0] == trees[1]
    folders = [Path(result.workspace["folder"]) for result in (first, second)]
    assert folders[0] != folders[1]
    texts = [(folder / "n.txt").read_text() for folder in folders]
    assert texts[0] == texts[1]


def test_a_fork_of_a_fork_continues_from_the_files_of_the_fork(repo: Repo) -> None:
    """Its parent has snapshots that the first run lacks, and the first run may have been deleted."""
    Path(".loopwright").mkdir(exist_ok=True)
    loop = counting(Workspace(repo.folder, merge="none"))
    run_sync(loop, journal=JOURNAL, run_id="first")
    wait_for(lambda: fork("first", journal=JOURNAL, at="fix/2", new_id="second"))
    second = resume_sync(loop, "second", journal=JOURNAL)
    assert main(["files", "prune", "first"]) == 0
    wait_for(lambda: fork("second", journal=JOURNAL, at="fix/3", new_id="third"))
    third = resume_sync(loop, "third", journal=JOURNAL)
    assert [i.output for i in third.history] == [i.output for i in second.history]
    assert main(["files", "diff", "third", "1", "2"]) == 0


def test_a_run_in_the_folder_of_the_user_cannot_be_forked(repo: Repo) -> None:
    """A fork of kind `here` is refused in one sentence: it would put recorded files into that folder."""
    loop = counting(Workspace(repo.folder, kind="here", merge="none"))
    Path(".loopwright").mkdir(exist_ok=True)
    run_sync(loop, journal=JOURNAL, run_id="first")
    before = (repo.folder / "n.txt").read_text()
    with pytest.raises(ConfigurationError, match="its workspace is your folder") as caught:
        wait_for(lambda: fork("first", journal=JOURNAL, at="fix/1", new_id="second"))
    assert "\n" not in str(caught.value)
    assert (repo.folder / "n.txt").read_text() == before
