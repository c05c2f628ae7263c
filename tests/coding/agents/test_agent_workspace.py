"""Agents in a workspace: they work on its files, and their conversation follows the files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from loopwright import Context, Loop, MaxIterations, agent, run_sync
from loopwright.coding.workspace import Workspace

from .fakes import scripted


def test_a_session_follows_the_files_that_are_put_back(tmp_path: Path) -> None:
    """The second iteration is worse, so the third begins at the files of the first, in a fresh session."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "answer.txt").write_text("0.1")
    calls = [[{"write": {"answer.txt": score}}, {"say": score}] for score in ("0.5", "0.2", "0.3")]
    step = agent(
        scripted(tmp_path, "claude", *calls), "Improve it.", session="loop", output="result"
    )

    def score(output: object, ctx: Context) -> float:
        assert ctx.folder is not None
        return float((ctx.folder / "answer.txt").read_text())

    loop = Loop(
        step,
        score,
        until=MaxIterations(3),
        workspace=Workspace(project, home=tmp_path / "home"),
        refine_from="best",
    )
    result = run_sync(loop, journal=f"sqlite:{tmp_path / 'runs.db'}")
    assert [item.score for item in result.history] == [0.5, 0.2, 0.3]
    first, second, third = (item.output["session"] for item in result.history)
    assert first == second != third
    assert (project / "answer.txt").read_text() == "0.1"


def test_the_empty_files_that_an_agent_leaves_are_not_captured(tmp_path: Path) -> None:
    """Only files that are empty, new and on the list of the manifest: an empty module is work, so is an emptied file.

    Claude Code makes such files to protect their names from the commands that it runs, and does not remove them.
    """
    project = tmp_path / "project"
    project.mkdir()
    (project / ".npmrc").write_text("tracked")
    made = scripted(
        tmp_path, "claude",
        [
            {"write": {".env": "", ".env.local": "", "pkg/__init__.py": "", "sub/yarn.lock": "", ".npmrc": ""}},
            {"write": {".yarnrc": "settings", "other": "", "answer.txt": "42"}}, {"say": "x"},
        ],
        [{"write": {"answer.txt": "43"}}, {"say": "x"}],
    )  # fmt: skip
    loop = Loop(
        agent(made, "x"),
        lambda output: False,
        until=MaxIterations(2),
        workspace=Workspace(project, merge="none", home=tmp_path / "home"),
    )
    result = run_sync(loop)
    assert result.workspace is not None, result.error
    store, snapshots = (
        tmp_path / "home" / "store.git",
        [item.files for item in result.history],
    )
    for files in snapshots:
        assert files is not None
        names = ["git", f"--git-dir={store}", "ls-tree", "-r", "--name-only", files["commit"]]
        listed = set(subprocess.check_output(names, text=True).split())
        assert {".npmrc", "pkg/__init__.py", ".yarnrc", "other", "answer.txt"} <= listed
        assert not {".env", ".env.local", "sub/yarn.lock"} & listed
    # They are no edit of a person either.
    assert result.warnings == ()
