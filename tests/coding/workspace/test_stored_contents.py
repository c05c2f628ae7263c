"""A branch has what the user's own git would store, and no commit of changes that `git status` does not show."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwright import Loop, Workspace, run_sync, shell
from loopwright.coding.workspace.handover import HandOver, make_branch
from loopwright.coding.workspace.workspace import Files

from .conftest import Repo
from .test_loops import by_count, counting


def log(repo: Repo, branch: str = "b") -> list[str]:
    return repo.git("log", "--format=%s", f"main..{branch}").splitlines()


def editing(repo: Repo, script: str, **options: object) -> Loop:
    return Loop(
        shell(f"{script}; echo 1"), evaluate=by_count, max_iterations=1,
        workspace=Workspace(repo.folder, branch="b", **options),
    )  # fmt: skip


def checked_out_again(repo: Repo, *names: str) -> None:
    """Give files the line ends of the configuration."""
    for name in names:
        (repo.folder / name).unlink()
    repo.git("checkout", "-q", "--", *names)
    assert repo.git("status", "--porcelain") == ""


def test_line_ends_of_a_clean_tree_are_no_changes(repo: Repo) -> None:
    """With `core.autocrlf` the branch has one commit; a file keeps its blob, and a changed one is stored with LF."""
    repo.write(a="1\n2\n", same="1\n2\n")
    repo.commit("text")
    repo.git("config", "core.autocrlf", "true")
    checked_out_again(repo, "a", "same", "n.txt", ".gitignore")
    assert (repo.folder / "same").read_bytes() == b"1\r\n2\r\n"
    result = run_sync(editing(repo, "printf '1\\r\\n3\\r\\n' > a; printf 'x\\r\\n' > new"))
    assert result.workspace["branch"] == "b"
    assert len(log(repo)) == 1
    assert repo.git("diff", "--name-only", "main", "b").split() == ["a", "new"]
    assert repo.git("cat-file", "blob", "b:a") == "1\n3"
    assert "\r" not in repo.git("cat-file", "blob", "b:new")


def test_the_question_and_the_refusal_see_what_git_status_shows(repo: Repo) -> None:
    """Line ends alone are no uncommitted changes; a file with other words is one."""
    repo.git("config", "core.autocrlf", "true")
    checked_out_again(repo, "n.txt", ".gitignore")
    done = run_sync(counting(Workspace(repo.folder, dirty="refuse", merge="none")))
    assert done.error is None
    done = run_sync(counting(Workspace(repo.folder, kind="here")))
    assert done.status.value != "suspended"
    repo.git("checkout", "-q", "--", ".")
    repo.write(mine="mine\n")
    refused = run_sync(counting(Workspace(repo.folder, dirty="refuse")))
    assert "uncommitted changes, such as mine" in refused.error.message


def test_a_submodule_makes_no_commit(repo: Repo, make_repo: object) -> None:
    """A clean tree with a checked-out submodule has one commit in its branch, with the submodule as it was."""
    inner = make_repo("inner")
    inner.write(lib="1\n")
    inner.commit()
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.folder), "lib")
    repo.commit("with submodule")
    run_sync(editing(repo, "echo 2 > n.txt"))
    assert len(log(repo)) == 1
    assert repo.git("diff", "--name-only", "main", "b") == "n.txt"
    assert repo.git("ls-tree", "b", "lib") == repo.git("ls-tree", "main", "lib")


def test_modes_that_the_user_ignores_are_no_changes(repo: Repo) -> None:
    """With `core.fileMode=false` a file keeps its mode."""
    repo.git("config", "core.fileMode", "false")
    (repo.folder / "n.txt").chmod(0o755)
    run_sync(editing(repo, "echo 2 > n.txt"))
    assert len(log(repo)) == 1
    assert repo.git("ls-tree", "b", "n.txt").startswith("100644")


def test_a_clean_file_with_a_filter_keeps_its_blob(
    repo: Repo, caplog: pytest.LogCaptureFixture
) -> None:
    """Its bytes are not those of the blob; a changed one is handed over as its bytes, with a warning."""
    content = "large content\n"
    digest = hashlib.sha256(content.encode()).hexdigest()
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"
    )
    repo.write(**{".gitattributes": "*.bin filter=lfs -text\n", "pointer": pointer})
    repo.git("config", "filter.lfs.clean", f"cat {repo.folder}/pointer")
    repo.git("config", "filter.lfs.smudge", f"printf '{content}'")
    repo.write(**{"kept.bin": content, "changed.bin": content})
    repo.commit("large")
    assert repo.git("cat-file", "blob", "main:kept.bin") == pointer.strip()
    result = run_sync(editing(repo, "echo other > changed.bin"))
    assert "did not run on these files of the branch: changed.bin" in caplog.text
    assert len(log(repo)) == 1
    assert repo.git("diff", "--name-only", "main", "b") == "changed.bin"
    assert repo.git("cat-file", "blob", "b:changed.bin") == "other"
    assert result.workspace["filtered"] == ["changed.bin"]


LINES = st.lists(st.sampled_from([b"a\n", b"a\r\n", b"\0\n", b"b"]), max_size=3).map(b"".join)
FILES = st.dictionaries(st.sampled_from(["a.txt", "b.txt", "c.bin", "d/e.txt"]), LINES, max_size=4)
RULES = st.lists(
    st.sampled_from(["* text=auto", "*.txt text eol=crlf", "*.bin -text", "*.txt text", "d/* ident", "*.txt eol=lf"]),
    max_size=2,
)  # fmt: skip


@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(before=FILES, after=FILES, rules=RULES, crlf=st.sampled_from(["", "true", "input", "false"]))
def test_the_branch_is_what_git_add_stores(
    before: dict[str, bytes], after: dict[str, bytes], rules: list[str], crlf: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    """For any files, attributes and `core.autocrlf`, it has the tree of `git add -A` on the same files."""
    top = tmp_path_factory.mktemp("stored")
    repo = Repo(top / "project")
    if crlf:
        repo.git("config", "core.autocrlf", crlf)
    repo.write(**{".gitattributes": "\n".join([*rules, ""])})
    written(repo.folder, before)
    repo.commit("start")
    files = Files(Workspace(repo.folder, branch="b", home=top / "home"), "r", "fix")
    files._open(None)
    begun = files._begin()
    store = files.tree.store
    # The files are clean, as `git status` says, so their stored form is the tree of the commit.
    assert files.stored == store.tree_of(begun["head"])
    for name in before.keys() - after.keys():
        (files.root / name).unlink()
    written(files.root, after)
    commit = files.tree.capture("1", begun["commit"])["commit"]
    work = HandOver(
        files.base or begun["commit"], commit, "m", head=files.head, stored=files.stored
    )
    made = make_branch(store, files.place, work, "b")
    for name in before.keys() - after.keys():
        (repo.folder / name).unlink()
    written(repo.folder, after)
    repo.git("add", "-A")
    assert repo.git("rev-parse", f"{made.name}^{{tree}}") == repo.git("write-tree")
    shutil.rmtree(top)


def written(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
