"""What a run that was killed left running: found by the token in its environment, and ended.

The supervisors of the run end it by themselves, as their pipes close; they may still be at it. Where
there is no subreaper (macOS) they end process groups only, and what left its group is found here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["TOKEN", "end_leftovers", "title_of"]

TOKEN = "LOOPWRIGHT_RUN"  # the variable that names the run of a process  # noqa: S105
PATIENCE = 5.0  # seconds in which supervisors finish, and again those in which the rest dies
TICK = 0.02  # seconds between two looks
_PROC = Path("/proc")


def title_of(token: str) -> str:
    """Return what the supervisors of a run are called in the list of processes."""
    return f"lw-{token[:12]}"  # a title has 15 bytes


async def end_leftovers(token: str, proc: Path = _PROC) -> list[int]:
    """End every process of a run of which nobody is left to run it; return those that live on.

    Supervisors are waited for first: they know processes whose environment says nothing.
    """
    looks = int(PATIENCE / TICK)
    found: list[int] = []
    for look in range(2 * looks):
        supervisors, others = _of_run(token, proc)
        found = [*supervisors, *others]
        if not found:
            return []
        kill = not supervisors or look >= looks
        for pid in supervisors:
            _send(pid, signal.SIGKILL if kill else signal.SIGTERM)
        for pid in others if kill else ():
            _send(pid, signal.SIGSTOP)
        for pid in others if kill else ():
            _send(pid, signal.SIGKILL)
        await asyncio.sleep(TICK)
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it is gone, or another user's
        os.kill(pid, number)


def _of_run(token: str, proc: Path) -> tuple[list[int], list[int]]:
    """Return the supervisors of a run, and its other processes."""
    mark, title, ours = f"{TOKEN}={token}".encode(), title_of(token), os.getpid()
    if not (proc / "self/stat").exists():
        return [], [pid for pid in _listed(mark) if pid != ours]
    supervisors, others = [], []
    for folder in proc.iterdir():
        if not folder.name.isdigit() or int(folder.name) == ours:
            continue
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text(errors="replace").strip() == title:
                supervisors.append(int(folder.name))
            elif mark in (folder / "environ").read_bytes().split(b"\0"):
                others.append(int(folder.name))
    return supervisors, others


def _listed(mark: bytes) -> Iterator[int]:
    """Iterate over the processes whose environment, as `ps` shows it, has a mark."""
    import shutil  # loads three compression libraries, and only systems without /proc come here

    ps = shutil.which("ps")
    if ps is None:
        return
    done = subprocess.run([ps, "axeww", "-o", "pid=,command="], capture_output=True, check=False)
    for line in done.stdout.splitlines():
        number, _, rest = line.strip().partition(b" ")
        if mark in rest.split(b" ") and number.isdigit():
            yield int(number)
