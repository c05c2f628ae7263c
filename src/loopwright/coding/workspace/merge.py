"""The hand-over of a snapshot to the user's repository: a branch, a patch, or changed files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .git import Git, GitError
from .sources import WorkspaceSource
from .store import GitStore
from .stored import Stored, as_stored
from .tree import FileTree

__all__ = [
    "Branch", "HandOver", "applied", "committed_tree", "make_branch", "stored_start", "write_patch",
]  # fmt: skip


@dataclass(frozen=True)
class HandOver:
    """A snapshot and where it comes from.

    Args:
        base: the commit of the files at the start of the run.
        commit: the commit of the chosen snapshot.
        message: the message of the commit.
        head: the user's commit at the start of the run, or "".
        stored: the tree of the files at the start as the user's git stores them; "" if it is not recorded.
        filtered: the files that differ from the user's commit at the start, and whose filter did not run.
        submodules: the commits of the submodules at the start, by path.
        chain: the commits between the base and the snapshot, oldest first, with their messages; empty
            for one commit.
    """

    base: str
    commit: str
    message: str
    head: str = ""
    stored: str = ""
    filtered: tuple[str, ...] = ()
    submodules: dict[str, str] = field(default_factory=dict)
    chain: tuple[tuple[str, str], ...] = ()


class Branch(NamedTuple):
    """A branch, and the changed files in it whose filter did not run."""

    name: str
    filtered: list[str]


def make_branch(store: GitStore, source: WorkspaceSource, work: HandOver, name: str) -> Branch:
    """Create a branch in the user's repository.

    An existing branch of that name stays, and the new one gets a number. The commit is the same each time,
    so a repeated call finds the branch that it made.
    """
    parent = work.head
    stored = Stored(work.stored, list(work.filtered))
    if not work.stored:
        stored = stored_start(store, source, store.tree_of(work.base), work.head, work.submodules)
    if not parent or stored.tree != store.tree_of(parent):
        message = "Uncommitted changes at the start of the run\n"
        parent = store.commit(stored.tree, parent, message)
    filtered = set(stored.filtered)
    for commit, message in work.chain or ((work.commit, work.message),):
        after = as_stored(
            store, source, work.base, commit, onto=stored.tree, submodules=work.submodules
        )
        filtered |= set(after.filtered)
        parent = store.commit(after.tree, parent, message)
    git = Git(cwd=source.root)
    for number in range(1, 1000):
        branch = name if number == 1 else f"{name}-{number}"
        known = git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", ok=(0, 1))
        if known == parent:
            break
        if not known:
            # Not by a fetch or a push: the configuration of the user's repository names programs for both.
            wanted = f"{parent}\n^{work.head}\n" if work.head else f"{parent}\n"
            words = ("pack-objects", "--revs", "--stdout", "--quiet")
            git("unpack-objects", "-q", stdin=store.git(*words, stdin=wanted.encode()))
            git("update-ref", f"refs/heads/{branch}", parent, "0" * len(parent))
            break
    return Branch(branch, sorted(filtered))


def committed_tree(store: GitStore, head: str) -> str:
    """Return the tree of the user's commit; without one the empty tree."""
    return store.tree_of(head) if head else store.git.text("mktree")


def stored_start(
    store: GitStore,
    source: WorkspaceSource,
    tree: str,
    head: str,
    submodules: Mapping[str, str],
    *,
    untouched: bool = False,
) -> Stored:
    """Return the tree of the files at the start as the user's git stores them: that of his commit, if they are clean.

    Args:
        store: the store of the trees.
        source: the user's folder.
        tree: the tree of the files as bytes.
        head: the user's commit, or "".
        submodules: the commits of the submodules, by path.
        untouched: as in `as_stored`.
    """
    onto = committed_tree(store, head)
    return as_stored(store, source, onto, tree, onto, submodules, untouched=untouched)


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
