"""Runs a program in an interpreter without the POSIX parts that Windows does not have.

    python like_windows.py FOLDER PROGRAM

`fcntl` cannot be imported, `msvcrt` is a stand-in that locks for real, there is no fork, no process group
and no sending of open files, and `taskkill` in FOLDER ends processes. `os.name` stays, because the
standard library reads it.
"""

import errno
import fcntl
import os
import runpy
import socket
import stat
import sys
import types
from pathlib import Path

_flock, _exclusive, _free = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN


def locking(file: int, mode: int, count: int) -> None:
    """Lock or unlock the first byte of an open file, as msvcrt does at the position of the file."""
    assert (os.lseek(file, 0, os.SEEK_CUR), count) == (0, 1)
    try:
        _flock(file, _exclusive if mode == standin.LK_NBLCK else _free)
    except BlockingIOError:
        raise OSError(errno.EACCES, "Permission denied") from None


standin = types.ModuleType("msvcrt")
standin.LK_NBLCK, standin.LK_UNLCK, standin.locking = 2, 0, locking  # type: ignore[attr-defined]

MISSING = {
    os: (
        "fork",
        "forkpty",
        "killpg",
        "setsid",
        "O_CLOEXEC",
        "O_DIRECTORY",
        "O_NOFOLLOW",
        "O_NONBLOCK",
    ),
    socket: ("send_fds", "recv_fds"),
}

if __name__ == "__main__":
    folder, program = sys.argv[1:]
    command = Path(folder) / "taskkill"
    script = Path(__file__).with_name("taskkill.py")
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    command.chmod(stat.S_IRWXU)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    import subprocess  # noqa: F401

    for module, names in MISSING.items():
        for name in names:
            delattr(module, name)
    sys.modules["fcntl"] = None  # type: ignore[assignment]
    sys.modules["msvcrt"] = standin
    runpy.run_path(program, run_name="__main__")
