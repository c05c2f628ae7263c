"""The protected files while a check runs: read-only where a sandbox works, and compared afterwards.

What the check itself writes on the base is left out: it is the user's own code.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .protect import TreeEntry, digest_of, folders_above

__all__ = ["ChangedFiles", "ProtectedWatch", "entry_of"]

MOST_PLACES = 1000  # mounts of one sandbox, each of which takes time
_MODE = "100644"
SHA1 = 40  # digits


class ChangedFiles(Exception):
    """Protected files that changed while a check ran. Its argument is their paths."""


@dataclass
class ProtectedWatch:
    """The protected files of one run of a check.

    Args:
        folder: the copy in which it runs.
        files: the protected entries by path.
        written: what the check writes on the base: paths, and folders with a slash at the end.
    """

    folder: Path
    files: Mapping[str, TreeEntry]
    written: frozenset[str] = frozenset()
    _before: dict[str, tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.files = {path: entry for path, entry in self.files.items() if path not in self.written}
        self._before = {path: self._state(path) for path in [*self.files, *self._folders]}

    @property
    def _folders(self) -> list[str]:
        """The folders of the files, each with a slash at its end."""
        return [f"{folder}/" for folder in folders_above(self.files)]

    def places(self, others: Iterable[str]) -> list[Path]:
        """Return what is mounted read-only: folders in which nothing else is, and single files.

        Args:
            others: the other paths of the copy, and those that may be made.
        """
        mixed = folders_above([*others, *(f"{name}x" for name in self.written)])
        found = dict[str, None]()
        for path in sorted(self.files):
            above = sorted(folders_above([path]), key=len)
            found[next((folder for folder in above if folder not in mixed), path)] = None
        places = (self.folder / place for place in found)
        # What a link leads to is outside of the copy, or a file of its own.
        return [place for place in places if place.exists() and not place.is_symlink()][
            :MOST_PLACES
        ]

    def changed(self) -> list[str]:
        """Return the files whose content is another one."""
        return [
            path
            for path, entry in self.files.items()
            if self._state(path) != self._before[path] and self._digest(path, entry) != entry.digest
        ]

    def written_now(self) -> frozenset[str]:
        """Return the files and folders that a run changed."""
        return frozenset(
            path for path, before in self._before.items() if self._state(path) != before
        )

    def _state(self, path: str) -> tuple[int, ...]:
        try:
            status = os.lstat(self.folder / path)
        except OSError:
            return ()
        # The time of the last change of a file cannot be set, unlike that of its content.
        return (
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
        )

    def _digest(self, path: str, entry: TreeEntry) -> str:
        """Return the digest of the present content, as git computes it; "" for what is no file."""
        place = self.folder / path
        try:
            mode = os.lstat(place).st_mode
            if stat.S_ISLNK(mode) != (entry.mode == "120000"):
                return ""
            content = os.fsencode(place.readlink()) if stat.S_ISLNK(mode) else place.read_bytes()
        except OSError:
            return ""
        return digest_of(content, len(entry.digest))


def entry_of(content: bytes) -> TreeEntry:
    """Return the entry of a file that is in no tree."""
    return TreeEntry(_MODE, digest_of(content, SHA1))
