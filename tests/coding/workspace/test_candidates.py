"""Candidates that edit files: each has a folder of its own, and the files of the chosen one stay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.support import DyingJournal
from loopwright import (
    Candidates,
    Combine,
    Context,
    Loop,
    MaxIterations,
    Workflow,
    Workspace,
    run,
    run_sync,
    sequence,
    shell,
    tests,
)
from loopwright.errors import ConfigurationError, LoopwrightWarning, OwnershipLost

from .conftest import Repo

pytestmark = pytest.mark.filterwarnings(f"ignore::{LoopwrightWarning.__module__}.LoopwrightWarning")


def edit(value: Any, ctx: Context) -> str:
    """Count up by the number of the candidate, in its own folder; the first one also leaves a file."""
    assert ctx.folder is not None
    number = ctx.folder / "n.txt"
    number.write_text(f"{int(number.read_text()) + ctx.candidate}\n")
    (ctx.folder / f"by{ctx.candidate}").write_text("x")
    return str(ctx.folder)


def judge(output: str, ctx: Context) -> float:
    """Score the file that is in place, and change it: what an evaluator writes does not count."""
    number = Path(output) / "n.txt"
    found = int(number.read_text())
    number.write_text("99\n")
    return 1 - abs(found - 2) / 10 if found < 4 else found / 20


def counting(workspace: Workspace | None, **options: Any) -> Loop:
    options.setdefault("until", MaxIterations(2))
    options.setdefault("candidates", 3)
    return Loop(edit, judge, name="fix", workspace=workspace, **options)


@pytest.mark.parametrize("kind", ["worktree", "snapshot"])
def test_the_files_of_the_chosen_one_become_those_of_the_iteration(repo: Repo, kind: Any) -> None:
    """Each candidate begins with the files of the parent; only the chosen one's stay, and no folder is left."""
    before = repo.bytes()
    result = run_sync(counting(Workspace(repo.folder, kind=kind, merge="none")), run_id="r")
    assert [item.candidate for item in result.history] == [2, 1]
    folder = Path(result.workspace["folder"])
    assert (folder / "n.txt").read_text() == "2\n"
    assert sorted(p.name for p in folder.glob("by*")) == ["by2"]
    assert result.workspace["iteration"] == 1
    assert len({one for item in result.history for one in [item.output]}) == 2
    left = [p for p in folder.parent.rglob("*") if ".beside" in p.name or p.name == "beside"]
    assert left == []
    assert [p for p in folder.parent.iterdir() if p.is_dir() and p.name not in (folder.name, ".state")] == []  # fmt: skip
    assert {n: after for n, after in repo.bytes().items() if not n.startswith(".git/")} == {
        n: content for n, content in before.items() if not n.startswith(".git/")
    }


def test_loops_in_the_workspace_of_a_workflow_have_candidates_too(repo: Repo) -> None:
    """The folders are made from the files that the steps before left."""
    work = Workflow(
        "w",
        {"first": shell("echo 5 > n.txt"), "fix": counting(None, until=MaxIterations(1))},
        needs={"fix": ["first"]},
        workspace=Workspace(repo.folder, merge="none"),
    )
    result = run_sync(work, run_id="r")
    assert (Path(result.workspace["folder"]) / "n.txt").read_text() == "8\n"


def test_a_combination_sees_the_changes_of_each(repo: Repo) -> None:
    """`changes` is the difference from the files that a candidate began with."""
    seen: list[Any] = []

    def combine(parts: Any, ctx: Context) -> str:
        seen.extend(part["changes"] for part in parts)
        return edit(None, ctx)

    several = Candidates(2, pick=Combine(combine))
    result = run_sync(
        counting(Workspace(repo.folder, merge="none"), candidates=several, until=MaxIterations(1))
    )
    assert [one.number for one in result.history[0].candidates] == [1, 2, 3]
    assert sorted("+2" in text for text in seen) == [False, True]
    assert all("by" in text for text in seen)


@pytest.mark.parametrize("at", [14, 27])
def test_a_killed_run_ends_with_the_same_files(repo: Repo, at: int) -> None:
    """A candidate continues from its last finished step, and no folder of a killed process is left."""

    def first(value: Any, ctx: Context) -> str:
        (ctx.folder / "first").write_text("1")  # type: ignore[operator]
        return "first"

    def second(value: Any, ctx: Context) -> str:
        assert ctx.folder is not None
        assert (ctx.folder / "first").read_text() == "1"
        edit(value, ctx)
        return str(ctx.candidate)

    def rate(output: str, ctx: Context) -> float:
        assert ctx.folder is not None
        return int((ctx.folder / "n.txt").read_text()) / 10

    loop = Loop(
        sequence(first, second, name="both"), rate, name="fix", candidates=2,
        until=MaxIterations(2), workspace=Workspace(repo.folder, merge="none"),
    )  # fmt: skip
    expected = run_sync(loop, run_id="whole")
    journal = DyingJournal(at)
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        asyncio.run(run(loop, journal=journal, run_id="r"))
    journal.at = 0
    result = asyncio.run(run(loop, journal=journal, run_id="r", takeover=True))
    assert [item.files["tree"] for item in result.history] == [item.files["tree"] for item in expected.history]  # fmt: skip
    folder = Path(result.workspace["folder"])
    assert (folder / "n.txt").read_text() == "4\n"
    assert not [p for p in folder.parent.rglob("*") if "beside" in p.name]


def test_sealed_checks_of_several_do_not_meet(repo: Repo) -> None:
    """Each that runs at the same time has a clean copy of its own."""
    repo.write(**{"check.sh": "sleep 0.3; grep -q 2 n.txt\n"})
    repo.commit()

    def work(value: Any, ctx: Context) -> str:
        assert ctx.folder is not None
        if ctx.candidate == 1:
            (ctx.folder / "check.sh").write_text("exit 0\n")
        return edit(value, ctx)

    check = tests("sh check.sh", sealed=True, protect=["check.sh"], sandbox="none")
    loop = Loop(
        work, check, name="fix", candidates=2, until=MaxIterations(1),
        workspace=Workspace(repo.folder, merge="none"),
    )  # fmt: skip
    rows = run_sync(loop).history[0].candidates
    assert [(row.state, row.passed) for row in rows] == [("lost", False), ("chosen", True)]
    assert "not to be believed" not in rows[0].feedback + rows[1].feedback


def test_one_folder_cannot_have_several(repo: Repo) -> None:
    """`kind: here` with candidates is refused, in a loop and in a workflow around one."""
    here = Workspace(repo.folder, kind="here")
    with pytest.raises(ConfigurationError, match="cannot edit one folder"):
        counting(here)
    with pytest.raises(ConfigurationError, match="loop fix: candidates"):
        Workflow("w", {"fix": counting(None)}, workspace=here)
    counting(here, candidates=1)
