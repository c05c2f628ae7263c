"""Groups of processes: started together, and ended together.

POSIX systems have process groups and signals for them. On Windows `taskkill /T` ends a process with its
descendants, and a process in a new group does not receive Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TypedDict

__all__ = ["HAS_GROUPS", "KILLED", "GroupSettings", "end_group", "exists", "new_group"]

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
