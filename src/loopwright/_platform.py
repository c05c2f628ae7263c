"""The differences between operating systems: file locks, temporary folders, and groups of processes.

Locks on open files are exclusive: `fcntl.flock` where it exists, else the same function with `msvcrt`. A lock belongs
to the open file, and ends with its process. Two openings of one file exclude each other, also within one process.

The processes of a group are started together, and ended together. POSIX systems have process groups and signals for
them. On Windows `taskkill /T` ends a process with its descendants, and a process in a new group does not receive Ctrl-C.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

__all__ = [
    "HAS_GROUPS",
    "KILLED",
    "RELEASE",
    "TAKE",
    "GroupSettings",
    "end_group",
    "exists",
    "flock",
    "new_group",
    "remove_left_scratch",
    "take_lock",
    "temporary_folder",
]

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


_SCRATCH = "loopwright-scratch-"


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Make an empty temporary folder, locked while it is used; its name has `name` and random characters."""
    with tempfile.TemporaryDirectory(
        prefix=f"{_SCRATCH}{name}-", ignore_cleanup_errors=True
    ) as folder:
        # Windows does not open folders.
        lock = os.open(folder if HAS_GROUPS else os.devnull, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks
                take_lock(lock)
            yield Path(folder)
        finally:
            os.close(lock)


def remove_left_scratch() -> None:
    """Remove the temporary folders that processes of this user left when they were killed; POSIX only."""
    for place in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(lock)
                # A process takes the lock right after it has made the folder.
                if (
                    status.st_uid == os.getuid()
                    and time.time() - status.st_mtime > 1
                    and take_lock(lock)
                ):
                    shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(lock)


HAS_GROUPS = hasattr(os, "killpg")
# The exit code of a process that was killed: the negative number of the signal, as subprocess reports it.
KILLED = -int(getattr(signal, "SIGKILL", 9))
_SYSTEM = 10.0  # seconds for a program of the system


class GroupSettings(TypedDict, total=False):
    """The keywords of `subprocess` that start a process in a new group."""

    start_new_session: bool
    creationflags: int


def new_group() -> GroupSettings:
    """Return the keywords of `subprocess` that start a process in a new group, away from Ctrl-C."""
    if HAS_GROUPS:
        return {"start_new_session": True}
    return {"creationflags": int(getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0))}


def end_group(pid: int, *, kill: bool) -> None:
    """End the group that a process leads. A group that has ended is no error.

    Args:
        pid: the process that `new_group` started.
        kill: whether the processes get no time to clean up. They get none on Windows, where a program
            that ended first would hide its descendants from `taskkill`.
    """
    with suppress(OSError, subprocess.TimeoutExpired):
        if HAS_GROUPS:
            os.killpg(pid, signal.SIGKILL if kill else signal.SIGTERM)
        else:
            _run(["taskkill", "/T", "/F", "/PID", str(pid)])


def exists(pid: int) -> bool:
    """Return whether a process exists; True if the system does not tell."""
    if pid == os.getpid():
        return True
    if os.name == "nt":  # `os.kill` with 0 would send Ctrl-C there
        with suppress(OSError, subprocess.TimeoutExpired):
            return f'"{pid}"' in _run(["tasklist", "/FI", f"PID eq {pid}", "/NH", "/FO", "CSV"])
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process of another user
        return True
    return True


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SYSTEM)
    return done.stdout
