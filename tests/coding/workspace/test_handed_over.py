"""What a branch says of its run, and what it lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from loopwright import Loop, MaxIterations, Passed, Workflow, Workspace, run_sync


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def repository(root: Path) -> Path:
    folder = root / "project"
    folder.mkdir()
    (folder / "state").write_text("0")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    return folder


def counting(limit: int) -> Loop[Any, Any]:
    """Return a loop whose second iteration passes."""

    def execute(_: object, ctx: Any) -> str:
        (ctx.folder / "state").write_text(str(ctx.iteration))
        return str(ctx.iteration)

    return Loop(execute, lambda out: out == "2", until=Passed() | MaxIterations(limit), name="fix")


def test_the_iteration_of_a_loop_in_the_workspace_of_a_document(tmp_path: Path) -> None:
    """The commit names the iteration of the loop whose files are there at the end, and no iteration 0."""
    folder = repository(tmp_path)
    space = Workspace(folder, home=tmp_path / "home")
    result = run_sync(Workflow("until", {"fix": counting(3)}, workspace=space), "")
    assert result.workspace is not None
    message = git(folder, "log", "-1", "--format=%B", result.workspace["branch"])
    assert message.startswith("until: satisfied in iteration 2 of 2\n")
    assert "\nLoopwright-Iteration: 2\n" in message


def test_without_an_iteration_there_is_no_trailer(tmp_path: Path) -> None:
    """Files that a later step changed belong to no iteration."""
    folder = repository(tmp_path)

    def after(_: object, ctx: Any) -> None:
        (ctx.folder / "state").write_text("later")

    space = Workspace(folder, home=tmp_path / "home")
    result = run_sync(Workflow("until", {"fix": counting(3), "after": after}, workspace=space), "")
    assert result.workspace is not None
    message = git(folder, "log", "-1", "--format=%B", result.workspace["branch"])
    assert "Loopwright-Iteration" not in message


def test_a_large_file_that_is_missing_from_the_branch_is_named(tmp_path: Path) -> None:
    """A file above `max_file` is in no snapshot; the user learns that his branch lacks it."""
    folder = repository(tmp_path)

    def execute(_: object, ctx: Any) -> str:
        (ctx.folder / "state").write_text("done")
        (ctx.folder / "large.bin").write_bytes(b"x" * 2000)
        return "done"

    space = Workspace(folder, home=tmp_path / "home", max_file=1000)
    result = run_sync(Loop(execute, lambda out: True, name="fix", workspace=space), "")
    assert any("large.bin" in text and "max_file" in text for text in result.warnings)
