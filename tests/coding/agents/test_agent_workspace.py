"""Agents in a workspace: they work on its files, and their conversation follows the files."""

from __future__ import annotations

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
        step, score, until=MaxIterations(3), workspace=Workspace(project, refine_from="best")
    )
    result = run_sync(loop, journal=f"sqlite:{tmp_path / 'runs.db'}")
    assert [item.score for item in result.history] == [0.5, 0.2, 0.3]
    first, second, third = (item.output["session"] for item in result.history)
    assert first == second != third
    assert (project / "answer.txt").read_text() == "0.1"
