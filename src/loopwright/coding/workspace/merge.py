"""The hand-over of a snapshot to the user's repository: a branch, a patch, or changed files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .git import Git, GitError
from .sources import WorkspaceSource
from .store import GitStore
from .tree import FileTree

__all__ = ["HandOver", "applied", "make_branch", "write_patch"]


@dataclass(frozen=True)
class HandOver:
    """A snapshot and where it comes from.

    Args:
        base: the commit of the files at the start of the run.
        commit: the commit of the chosen snapshot.
        message: the message of the commit.
        submodules: the commits of the submodules at the start, by path.
        chain: the commits between the base and the snapshot, oldest first, with their messages; empty
            for one commit.
    """

    base: str
    commit: str
    message: str
    submodules: dict[str, str] = field(default_factory=dict)
    chain: tuple[tuple[str, str], ...] = ()


def make_branch(store: GitStore, source: WorkspaceSource, work: HandOver, name: str) -> str:
    """Create a branch in the user's repository and return its name.

    An existing branch of that name stays, and the new one gets a number. The commit is the same each time,
    so a repeated call finds the branch that it made.
    """
    parent = source_head = store.find(f"{work.base}^") if source.head else ""
    if store.tree_of(work.base) != _without_submodules(store, source_head, work):
        message = "Uncommitted changes at the start of the run\n"
        parent = store.commit(_merged_tree(store, work.base, work), parent, message)
    for commit, message in work.chain or ((work.commit, work.message),):
        parent = store.commit(_merged_tree(store, commit, work), parent, message)
    git = Git(cwd=source.root)
    for number in range(1, 1000):
        branch = name if number == 1 else f"{name}-{number}"
        known = git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", ok=(0, 1))
        if known == parent:
            return branch
        if not known:
            break
    # A fetch by commit ID needs a ref in the other repository.
    store.point(f"refs/merged/{parent}", parent)
    # A fetch by the user's repository, not a push to it: a push would run its hooks.
    words = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
    git(*words, "--", str(store.folder), f"{parent}:refs/heads/{branch}")
    return branch


def _without_submodules(store: GitStore, commit: str, work: HandOver) -> str:
    """Return the tree of the user's commit as a snapshot has it."""
    if not commit:
        return ""
    if not work.submodules:
        return store.tree_of(commit)
    return _edited(store, commit, removed=work.submodules, added={})


def _merged_tree(store: GitStore, commit: str, work: HandOver) -> str:
    """Return the tree of a snapshot with the submodules' commits in place of their files."""
    if not work.submodules:
        return store.tree_of(commit)
    return _edited(store, commit, removed=work.submodules, added=work.submodules)


def _edited(store: GitStore, commit: str, removed: dict[str, str], added: dict[str, str]) -> str:
    # The index of the tree describes the files in place and must not change here.
    index = store.home / f"merge-{os.getpid()}.index"
    git = Git(store.folder, index=index, cwd=store.home)
    try:
        git("read-tree", commit)
        patterns = [f":(literal){path}" for path in removed]
        paths = git("ls-files", "-z", "--", *patterns)
        zeros = b"0 " + b"0" * len(commit) + b"\t"
        rows = [zeros + path + b"\0" for path in paths.split(b"\0") if path]
        rows += [f"160000 {oid}\t".encode() + os.fsencode(p) + b"\0" for p, oid in added.items()]
        git("update-index", "-z", "--index-info", stdin=b"".join(rows))
        return git.text("write-tree", "--missing-ok")
    finally:
        index.unlink(missing_ok=True)


def write_patch(store: GitStore, work: HandOver, file: Path) -> None:
    """Write the changes since the start as a file that `git apply` takes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = store.diff(work.base, work.commit)
    # A patch may contain text in any encoding, and `git apply` needs its exact bytes.
    file.write_bytes(text.encode("utf-8", "surrogateescape"))


class Applied(NamedTuple):
    """The changed paths of a folder, or those that both sides changed so that nothing was changed."""

    changed: list[str]
    conflicts: list[str]


def applied(user: FileTree, work: HandOver, *, write: bool = True) -> Applied:
    """Apply the changes since the start to the user's folder: all of them, or none.

    Args:
        user: the user's folder.
        work: the snapshot.
        write: false to change nothing and only return what would change.

    Raises:
        GitError: if git is older than 2.38, which merges trees without a folder.
    """
    store = user.store
    present, _ = user.scan()
    ours = store.commit(present, work.base, "present")
    theirs = store.commit(store.tree_of(work.commit), work.base, "chosen")
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z")
    # 1 is a conflict, 129 an unknown option: git before 2.38 has no --write-tree.
    done = store.git.run(*words, ours, theirs, ok=(0, 1, 129))
    if done.returncode == 129:
        raise GitError("apply needs git 2.38 or newer; use merge: branch or merge: patch")
    tree, *names = [part for part in done.stdout.decode(errors="replace").split("\0") if part]
    if done.returncode == 1:
        return Applied([], sorted(set(names)))
    if write:
        # Every file has its time in the index since the scan, except those that a scan never touched.
        user.git("update-index", "-q", "--refresh")
        user.git("read-tree", "-m", "-u", present, tree)
    return Applied(list(store.changes(present, tree)), [])
