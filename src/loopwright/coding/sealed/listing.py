"""The files of a folder that a sealed check would protect, for `loopwright check`."""

from __future__ import annotations

import os
from pathlib import Path

from ..workspace.git import Git, GitError
from ..workspace.rules import ALWAYS
from .protect import Protection, TreeEntry

__all__ = ["MAX_FILES", "protected_files"]

MAX_FILES = 50_000  # in a folder without git, which may be a home folder


def protected_files(folder: Path, rules: Protection) -> list[str]:
    """Return the protected files of a folder by their present names; nothing is read or written."""
    return sorted(rules.listed({path: TreeEntry("", "") for path in _files(folder)}))


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
