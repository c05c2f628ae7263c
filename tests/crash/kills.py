"""The common part of the programs that are killed: points, children, and what a resumed run must equal."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopwright.coding.workspace.store import Git

# Before a call of git, and the positions of a commit of the journal.
POSITIONS = ("git", "before", "in_txn", "after")


class Point:
    """The point at which this process dies, and the number of points that it passed at each position."""

    def __init__(self, position: str = "", number: int = 0) -> None:
        self.position, self.number = position, number
        self.passed = dict.fromkeys(POSITIONS, 0)

    def reach(self, position: str, number: int) -> None:
        """Die here, or count the point."""
        self.passed[position] = number
        if (position, number) == (self.position, self.number):
            os.kill(os.getpid(), signal.SIGKILL)


def watch_git(point: Point) -> None:
    """Make each call of git a point, before it starts."""
    original = Git.start

    def counted(git: Git, *words: str) -> subprocess.Popen[bytes]:
        point.reach("git", point.passed["git"] + 1)
        return original(git, *words)

    Git.start = counted  # type: ignore[method-assign]


def in_child(main: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> int:
    """Run a coroutine function in a child, which has our imports already; return its exit status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(main(*arguments))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make the user's repository in `folder/project`; return the folder."""
    project = folder / "project"
    project.mkdir(parents=True)
    for name, text in files.items():
        (project / name).write_text(text)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"],
                  ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):  # fmt: skip
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)
    return folder


@dataclass(frozen=True)
class Ended:
    """What a run that ended left in its folder: its result, and the number of commands that were paid for."""

    result: str
    commands: int

    @classmethod
    def read(cls, folder: Path) -> Ended:
        """Read the files `result.json` and `bill`, which the programs write."""
        return cls((folder / "result.json").read_text(), len((folder / "bill").read_text().split()))

    def difference(self, folder: Path, repeated: int) -> str:
        """Return how another run differs from this one, or ""; it may repeat this number of commands."""
        other = Ended.read(folder)
        if other.result != self.result:
            return f"{other.result} is not {self.result}"
        again = other.commands - self.commands
        return f"{again} commands ran again" if again > repeated else ""


def killed_and_resumed(
    folder: Path,
    run: Callable[[str, int], int],
    point: tuple[str, int],
    unchanged: Callable[[], bool],
) -> str | None:
    """Kill a run at a point and resume it; return "" or what is wrong, None if there is no such point.

    Args:
        folder: the folder of the run; it is deleted if there is no such point.
        run: starts or resumes the run with a point at which it dies, and returns its exit status.
        point: a position and a number.
        unchanged: whether the user's files are as before; checked after the kill and after the resume.
    """
    code = run(*point)
    if code == 0:
        shutil.rmtree(folder)
        return None
    if code != -signal.SIGKILL:
        return f"it ended with {code} before the point"
    if not unchanged():
        return "the user's files changed"
    if run("", 0) != 0:
        return "the resume failed"
    return "" if unchanged() else "the user's files changed after the resume"
