"""What happens to the files when a run waits, is cancelled, is rewound, or a person edits them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loopwright import Context, Loop, MaxIterations, MemoryJournal, Workspace, run, run_sync, shell
from loopwright.ui.cli import main

from .conftest import Repo
from .test_loops import by_count, counting


def test_an_edit_while_the_run_waits_is_adopted(repo: Repo) -> None:
    """The next iteration continues from the edited files, and the edit is on record."""
    journal = "sqlite:.loopwright/runs.db"
    loop = counting(Workspace(repo.folder, merge="none"), max_iterations=2)
    limited = run_sync(loop, journal=journal, run_id="r")
    folder = Path(limited.workspace["folder"])
    (folder / "n.txt").write_text("2\n\n")
    from loopwright import resume_sync

    result = resume_sync(loop, "r", journal=journal, max_iterations=3)
    assert [item.output for item in result.history] == ["1", "2", "3"]
    assert result.history[2].files["removed"] == 2
    assert any("changed outside the run" in warning for warning in result.warnings)


def test_a_cancelled_run_has_its_best_files(repo: Repo) -> None:
    """The interrupted iteration is captured, and the best files are put in place."""

    async def cancelled() -> object:
        async def edit(_: object, ctx: Context) -> str:
            assert ctx.folder is not None
            number = int((ctx.folder / "n.txt").read_text()) + 1
            (ctx.folder / "n.txt").write_text(f"{number}\n")
            if number == 3:
                ctx.run.cancel()
                await asyncio.sleep(5)
            return str(number)

        loop = Loop(edit, evaluate=by_count, min_score=0.9, name="fix",
                    workspace=Workspace(repo.folder, merge="none"))  # fmt: skip
        return await run(loop, journal=MemoryJournal(), run_id="r")

    result = asyncio.run(cancelled())
    assert result.status.value == "cancelled"
    assert len(result.history) == 3
    assert result.history[2].files["files"] == 1
    assert (Path(result.workspace["folder"]) / "n.txt").read_text() == "2\n"


def test_a_rewound_run_continues_from_the_files_of_the_kept_record(repo: Repo) -> None:
    """After a rewind to iteration 2, it starts from the files of iteration 1."""
    loop = counting(Workspace(repo.folder, merge="none"))
    run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="r")
    assert main(["rewind", "r", "fix/2"]) == 0
    result = run_sync(loop, journal="sqlite:.loopwright/runs.db", run_id="r")
    assert [item.output for item in result.history] == ["1", "2", "3"]
    assert [item.files["files"] for item in result.history] == [2, 2, 2]


def test_ten_runs_at_once_have_ten_folders(repo: Repo) -> None:
    """They share the store, and each has its own files and branch."""

    async def ten() -> list[object]:
        runs = (run(counting(Workspace(repo.folder)), run_id=f"r{i}") for i in range(10))
        return await asyncio.gather(*runs)

    results = asyncio.run(ten())
    assert [result.error for result in results] == [None] * 10
    assert len({result.workspace["folder"] for result in results}) == 10
    assert {result.workspace["iteration"] for result in results} == {2}
    assert len(repo.git("branch", "--list", "loopwright/*").splitlines()) == 10


def test_here_works_in_the_folder_and_keeps_the_best_files(repo: Repo) -> None:
    """A clean folder is edited itself, and no branch is made."""
    result = run_sync(counting(Workspace(repo.folder, kind="here")))
    assert (repo.folder / "n.txt").read_text() == "2\n"
    assert repo.git("branch", "--format=%(refname:short)") == "main"
    assert result.workspace["folder"] == str(repo.folder)


def test_here_asks_before_it_touches_uncommitted_changes(repo: Repo) -> None:
    """The run waits for an answer, and nothing has changed."""
    repo.write(mine="mine")
    before = repo.bytes()
    result = run_sync(
        counting(Workspace(repo.folder, kind="here")), journal="sqlite:r.db", run_id="r"
    )
    assert result.status.value == "suspended"
    assert repo.bytes() == before


def test_submodules_hooks_and_line_endings_survive(repo: Repo, make_repo: object) -> None:
    """The branch keeps the commit of a submodule, no hook runs, and bytes stay as they are."""
    inner = make_repo("inner")
    inner.write(lib="1\n")
    inner.commit()
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.folder), "lib")
    repo.git("config", "core.autocrlf", "true")
    (repo.folder / "crlf").write_bytes(b"a\r\nb\n")
    hook = repo.folder / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {repo.folder}/hooked\n")
    repo.commit("with submodule")
    hook.chmod(0o755)
    before = repo.git("ls-tree", "main", "lib")
    result = run_sync(counting(Workspace(repo.folder, branch="b")))
    assert result.error is None
    assert repo.git("ls-tree", "b", "lib") == before
    assert (Path(result.workspace["folder"]) / "lib" / "lib").read_text() == "1\n"
    assert (Path(result.workspace["folder"]) / "crlf").read_bytes() == b"a\r\nb\n"
    assert not (repo.folder / "hooked").exists()


def test_a_shallow_clone_is_copied(repo: Repo, tmp_path: Path) -> None:
    """The branch continues from its only commit."""
    repo.commit("second")
    shallow = tmp_path / "shallow"
    repo.git("clone", "-q", "--depth", "1", f"file://{repo.folder}", str(shallow))
    result = run_sync(counting(Workspace(shallow, branch="b"), max_iterations=MAX.limit))
    assert result.workspace["branch"] == "b"


def test_a_failed_setup_is_named(repo: Repo) -> None:
    """The error has the last output of the command."""
    result = run_sync(counting(Workspace(repo.folder, setup="echo no compiler >&2; exit 3")))
    assert result.error.kind == "workspace"
    assert "no compiler" in result.error.message


MAX = MaxIterations(2)
assert shell is not None
