"""The tree of a run that continues another one: it is made from the snapshots of that run."""

from __future__ import annotations

import shutil
from pathlib import Path

from ...records.codec import Json
from .git import GitError
from .saved import SavedWorkspace, saved_workspaces
from .tree import FileTree

__all__ = ["origin_of", "take_over"]


def origin_of(home: Path, begun: Json, run_id: str) -> SavedWorkspace | None:
    """Return the workspace in a store that has the recorded beginning: that of the run, or of another one."""
    same = [one for one in saved_workspaces(home) if one.tree.memory["source"] == begun["source"]]
    own = (one for one in same if one.run == run_id)
    other = (one for one in same if one.base == begun["commit"])
    return next(own, None) or next(other, None)


def take_over(tree: FileTree, begun: Json, origin: str = "") -> None:
    """Give a new tree the rules and the snapshots of the one that another run began.

    Args:
        tree: the tree of the new run.
        begun: the recorded beginning of the first run, whose entries each fork has.
        origin: the run that was forked. It may be a fork itself, with snapshots that the first run lacks.

    Raises:
        GitError: if the files of the other run were deleted.
    """
    same = [one for one in saved_workspaces(tree.store.home) if one.base == begun["commit"]]
    # The path of a loop is the same in all of them, and so is the name of its folder.
    forked = (one for one in same if one.run == origin and one.folder.name == tree.folder.name)
    first = (one for one in same if one.tree.memory["folder"] == begun["folder"])
    other = next(forked, None) or next(first, None)
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
