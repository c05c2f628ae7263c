"""The user's repository in its odd states: a run is refused with a sentence, or right, and changes nothing else.

Other states are in `test_loops` (detached HEAD, no commits, bare, uncommitted edits) and `test_interruptions`
(shallow, submodules, hooks, `core.autocrlf`, ten runs at once).
"""

from __future__ import annotations

from pathlib import Path

from loopwright import Loop, Workspace, run_sync, shell

from .conftest import Repo
from .test_loops import by_count, counting


def changed(before: dict[str, object], after: dict[str, object], branch: str) -> set[str]:
    """The names that differ, without objects and the branch of the merge."""
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    # The folders of a new branch and of its log are new too.
    return {n for n in names if "objects" not in n and branch not in n and after.get(n) is not None}


def test_an_edit_of_the_user_during_the_run_stays_his_own(repo: Repo) -> None:
    """It is neither in the copy nor in the branch, and nothing of the user's changes with it."""

    def edit(_: object) -> None:
        repo.write(mine="mine", **{"n.txt": "7\n"})

    loop = counting(Workspace(repo.folder, branch="b"), on_iteration=edit)
    result = run_sync(loop)
    assert [item.output for item in result.history] == ["1", "2", "3"]
    assert (repo.folder / "n.txt").read_text() == "7\n"
    assert repo.git("ls-tree", "--name-only", "b").split() == [
        ".gitignore",
        "n.txt",
        "new1",
        "new2",
    ]


def test_head_index_stash_and_configuration_stay(repo: Repo) -> None:
    """A staged change, a stash and a remote are as before, also after a merge."""
    repo.write(other="1")
    repo.git("add", "other")
    repo.git("stash", "push", "-q")
    repo.git("remote", "add", "origin", "https://example.org/x.git")
    repo.write(staged="2")
    repo.git("add", "staged")
    before = repo.bytes()
    run_sync(counting(Workspace(repo.folder, branch="b")))
    assert changed(before, repo.bytes(), "b") == set()
    assert repo.git("stash", "list").count("stash@") == 1
    assert repo.git("status", "--porcelain") == "A  staged"


def test_a_sparse_checkout_is_refused_with_a_sentence(repo: Repo) -> None:
    """A copy would have files that the user has not checked out."""
    (repo.folder / "sub").mkdir()
    (repo.folder / "sub" / "file").write_text("x")
    repo.commit("sub")
    repo.git("sparse-checkout", "set", "--no-cone", "/n.txt")
    before = repo.bytes()
    result = run_sync(counting(Workspace(repo.folder)))
    assert result.error.kind == "workspace"
    assert "git sparse-checkout disable" in result.error.message
    assert repo.bytes() == before


def test_files_of_lfs_keep_the_bytes_that_are_there(repo: Repo, tmp_path: Path) -> None:
    """No filter runs: a pointer stays a pointer, and a downloaded file stays one."""
    trap = tmp_path / "trap"
    for name in ("clean", "smudge", "process"):
        repo.git("config", f"filter.lfs.{name}", f"touch {trap}; cat")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
    repo.write(**{"large.bin": pointer})
    repo.git("-c", "filter.lfs.clean=cat", "-c", "filter.lfs.process=", "add", "-A")
    repo.git("commit", "-qm", "pointer")
    # The rule comes later, so that the test itself needs no git-lfs.
    repo.write(**{".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    trap.unlink(missing_ok=True)
    result = run_sync(counting(Workspace(repo.folder, branch="b")))
    assert (Path(result.workspace["folder"]) / "large.bin").read_text() == pointer
    assert repo.git("cat-file", "blob", "b:large.bin") == pointer.strip()
    assert not trap.exists()


def test_line_ends_of_the_users_configuration_are_not_converted(repo: Repo) -> None:
    """With `core.autocrlf` and `text=auto`, the copy has the bytes of the user's files."""
    repo.git("config", "core.autocrlf", "true")
    repo.write(**{".gitattributes": "* text=auto\n"})
    (repo.folder / "win").write_bytes(b"a\r\nb\r\n")
    repo.commit("converted")
    before = repo.bytes()
    # The second run copies the files, the first one reads them from the store.
    for number in range(2):
        result = run_sync(counting(Workspace(repo.folder, merge="none")), run_id=f"r{number}")
        folder = Path(result.workspace["folder"])
        assert (folder / "win").read_bytes() == b"a\r\nb\r\n"
    assert repo.bytes() == before


def test_a_run_in_another_worktree_of_the_user(repo: Repo, tmp_path: Path) -> None:
    """The branch appears in the repository, and both work trees stay as they are."""
    second = tmp_path / "second"
    repo.git("worktree", "add", "-q", "-b", "other", str(second))
    (second / "n.txt").write_text("5\n")
    before = repo.bytes()
    loop = Loop(
        shell("n=$(cat n.txt); echo $((n+1)) > n.txt; echo 1"),
        evaluate=by_count,
        max_iterations=1,
        workspace=Workspace(second, branch="b"),
    )
    result = run_sync(loop)
    assert result.error is None
    assert repo.git("show", "b:n.txt") == "6"
    assert (second / "n.txt").read_text() == "5\n"
    assert changed(before, repo.bytes(), "b") == set()
    assert repo.git("-C", str(second), "status", "--porcelain").split() == ["M", "n.txt"]
