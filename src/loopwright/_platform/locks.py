"""Exclusive locks on open files: `fcntl.flock` where it exists, else the same function with `msvcrt`.

A lock belongs to the open file, and ends with its process. Two openings of one file exclude each other,
also within one process.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

flock: Callable[[int, int], None]
"""Take or release the lock of an open file (`TAKE`, `RELEASE`). Raises BlockingIOError if it is held."""

try:
    import fcntl
except ImportError:
    msvcrt: Any = importlib.import_module("msvcrt")  # by name, because types are checked for POSIX
    TAKE, RELEASE = msvcrt.LK_NBLCK, msvcrt.LK_UNLCK

    def _flock(file: int, operation: int) -> None:
        os.lseek(file, 0, os.SEEK_SET)  # the lock is on the bytes at the position of the file
        try:
            msvcrt.locking(file, operation, 1)
        except OSError as error:
            raise BlockingIOError(error.errno, error.strerror) from error

    flock = _flock
else:
    TAKE, RELEASE = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
    # `flock` and not `lockf`: the latter's locks belong to the process and end with any close of the file.
    flock = fcntl.flock


def take_lock(file: int) -> bool:
    """Take the lock of an open file unless it is held; return whether it was taken."""
    try:
        flock(file, TAKE)
    except BlockingIOError:
        return False
    return True


__all__ = ["RELEASE", "TAKE", "flock", "take_lock"]
