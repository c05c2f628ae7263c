"""Files of a folder put in place and removed by their open folders, never through a link.

A process that an agent left can exchange a folder for a link at any moment. Git checks a path before it writes, and
would write behind the link.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["Placing"]

# Windows has none of these flags, and no descriptors of folders: a workspace does not work there.
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)


class Placing:
    """A folder whose files are replaced, as a context.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._opened: list[tuple[bytes, int]] = []  # the folders on the way to the last file

    def __enter__(self) -> Placing:
        self._opened = [(b"", os.open(self._root, _FOLDER & ~_NOFOLLOW))]
        return self

    def __exit__(self, *_: object) -> None:
        self._close(0)

    def remove(self, paths: Iterable[bytes], *, folders: bool = False) -> None:
        """Remove files and links, with the folders that become empty; also whole folders if `folders`."""
        emptied: set[bytes] = set()
        for path in paths:
            place, _, name = path.rpartition(b"/")
            with suppress(OSError):
                at = self._folder(place, make=False)
                if folders and stat.S_ISDIR(os.lstat(name, dir_fd=at).st_mode):
                    shutil.rmtree(os.fsdecode(name), dir_fd=at)
                else:
                    os.unlink(name, dir_fd=at)
            while place:
                emptied.add(place)
                place = place.rpartition(b"/")[0]
        # Inner folders first.
        for place in sorted(emptied, reverse=True):
            around, _, name = place.rpartition(b"/")
            with suppress(OSError):
                os.rmdir(name, dir_fd=self._folder(around, make=False))

    def put(self, paths: Iterable[bytes], staged: Path) -> None:
        """Put files and links in place, from a folder that has them at the same paths."""
        for path in paths:
            place, _, name = path.rpartition(b"/")
            at, source = self._folder(place, make=True), staged / os.fsdecode(path)
            self._clear(name, at)
            if source.is_symlink():
                os.symlink(source.readlink(), os.fsdecode(name), dir_fd=at)
                continue
            mode = 0o777 if source.stat().st_mode & stat.S_IXUSR else 0o666
            made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=at)
            with os.fdopen(made, "wb") as copy, source.open("rb") as content:
                shutil.copyfileobj(content, copy)

    @staticmethod
    def _clear(name: bytes, at: int) -> None:
        """Remove what is in the way, such as a folder of ignored files."""
        try:
            os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(os.fsdecode(name), dir_fd=at)

    def _folder(self, path: bytes, *, make: bool) -> int:
        """Return the open folder at a path; a link or a file in its place is replaced if `make`.

        Raises:
            OSError: if it is not there, and not made.
        """
        parts = path.split(b"/") if path else []
        known = 0
        while (
            known < min(len(parts), len(self._opened) - 1)
            and self._opened[known + 1][0] == parts[known]
        ):
            known += 1
        self._close(known + 1)
        for part in parts[known:]:
            at = self._opened[-1][1]
            try:
                opened = os.open(part, _FOLDER, dir_fd=at)
            except OSError:
                if not make:
                    raise
                self._clear(part, at)
                os.mkdir(part, dir_fd=at)
                opened = os.open(part, _FOLDER, dir_fd=at)
            self._opened.append((part, opened))
        return self._opened[-1][1]

    def _close(self, kept: int) -> None:
        while len(self._opened) > kept:
            os.close(self._opened.pop()[1])
