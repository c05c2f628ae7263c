"""The entries of captured trees, and new trees of them in the private store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..workspace.store import GitStore
from .protect import TreeEntry

__all__ = ["blob", "entries_of", "tree_with"]


def entries_of(store: GitStore, commit: str) -> dict[str, TreeEntry]:
    """Return the files and links of a commit or tree by path."""
    rows = store.git("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")
    entries = {}
    for row in rows:
        head, _, path = row.partition(b"\t")
        if path:
            mode, _, digest = head.decode().split()
            entries[os.fsdecode(path)] = TreeEntry(mode, digest)
    return entries


def blob(store: GitStore, digest: str) -> bytes:
    """Return the content of a file."""
    return store.git("cat-file", "blob", digest)


def tree_with(store: GitStore, commit: str, entries: Mapping[str, TreeEntry]) -> str:
    """Return the tree that has exactly these entries; `commit` is one that shares most of them."""
    present = entries_of(store, commit)
    if present == entries:
        return store.tree_of(commit)
    zero = "0" * len(store.tree_of(commit))
    # Removals first: a file may take the place of a folder, and the other way round.
    rows = [f"0 {zero}\t{path}" for path in present if path not in entries]
    rows += [
        f"{entry.mode} {entry.digest}\t{path}"
        for path, entry in entries.items()
        if present.get(path) != entry
    ]
    with tempfile.TemporaryDirectory(prefix="loopwright-") as scratch:
        git = replace(store.git, index=Path(scratch) / "index")
        git("read-tree", commit)
        data = b"".join(os.fsencode(row) + b"\0" for row in rows)
        git("update-index", "-z", "--index-info", stdin=data)
        return git.text("write-tree")
