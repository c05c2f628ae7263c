"""Exclusive locks on open files: `fcntl` where it exists, else `msvcrt`.

A lock belongs to the open file, and ends with its process. Two openings of one file exclude each other,
also within one process.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

try:
    import fcntl
except ImportError:
    msvcrt: Any = importlib.import_module("msvcrt")  # by name, because types are checked for POSIX

    def take(file: int) -> bool:
        """Take the lock of an open file unless it is held; return whether it was taken."""
        os.lseek(file, 0, os.SEEK_SET)  # the lock is on the bytes at the position of the file
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def release(file: int) -> None:
        """Release the lock of an open file."""
        os.lseek(file, 0, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

else:

    def take(file: int) -> bool:
        """Take the lock of an open file unless it is held; return whether it was taken."""
        try:
            # `flock` and not `lockf`: the latter's locks belong to the process and end with any close of the file.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(file: int) -> None:
        """Release the lock of an open file."""
        fcntl.flock(file, fcntl.LOCK_UN)


__all__ = ["release", "take"]
