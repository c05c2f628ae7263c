"""The tree of a run that continues another one: it is made from the snapshots of that run."""

from __future__ import annotations

import shutil

from ...records.codec import Json
from .git import GitError
from .saved import saved_workspaces
from .tree import FileTree

__all__ = ["take_over"]


def take_over(tree: FileTree, begun: Json) -> None:
    """Give a new tree the rules and the snapshots of the one that another run began.

    Args:
        tree: the tree of the new run.
        begun: the recorded beginning of the other run.

    Raises:
        GitError: if the files of the other run were deleted.
    """
    trees = saved_workspaces(tree.store.home)
    same = (
        one for one in trees if one.base == begun["commit"] and str(one.folder) == begun["folder"]
    )
    other = next(same, None)
    if other is None:
        raise GitError(
            f"workspace: the files of this run were deleted from {begun['folder']}; start a new run"
        )
    tree.private.mkdir(parents=True, exist_ok=True)
    for name in ("rules", "always"):
        shutil.copy(other.tree.private / name, tree.private / name)
    # Its own refs: the other run may be deleted, and a finished step is found by its ref.
    for name, commit in tree.store.refs(other.tree.refs).items():
        if not name.startswith(("lost/", "source/")):
            tree.store.point(tree.refs + name, commit)
