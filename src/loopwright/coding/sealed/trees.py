"""The files of captured trees and of folders by path, and new trees of them in the private store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..workspace.git import Git, GitError
from ..workspace.rules import ALWAYS
from ..workspace.store import GitStore
from .protect import Protection, TreeEntry

__all__ = ["MAX_FILES", "blob", "entries_of", "protected_files", "tree_with"]

MAX_FILES = 50_000  # in a folder without git, which may be a home folder


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


def protected_files(folder: Path, rules: Protection) -> list[str]:
    """Return the protected files of a folder by their present names; nothing is written."""

    def read(path: str) -> bytes:
        try:
            return (folder / path).read_bytes()
        except OSError:
            return b""  # it may be gone, or a link to nothing

    return sorted(rules.listed({path: TreeEntry("", path) for path in _files(folder)}, read))


def _files(folder: Path) -> list[str]:
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        listed = Git(cwd=folder)(*words).split(b"\0")
    except GitError:
        return _walked(folder)
    return [os.fsdecode(path) for path in listed if path]


def _walked(folder: Path) -> list[str]:
    ignored = {name.rstrip("/") for name in ALWAYS}
    files: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in ignored]
        inside = Path(place).relative_to(folder)
        files += [str(inside / name) for name in names]
        if len(files) > MAX_FILES:
            break
    return files
