"""Ends the processes that a killed run left running; the token in their environment identifies them.

The supervisors of such a run end its processes when their pipes close, which may still be in progress.
On systems without a subreaper (macOS) they end process groups only; this module also ends the processes
that left their group.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["COMMAND", "TOKEN", "end_leftovers", "title_of"]

TOKEN = "LOOPWRIGHT_RUN"  # the environment variable that names the run of a process  # noqa: S105
COMMAND = "LOOPWRIGHT_COMMAND"  # the one that names its command, of a run with several at a time
PATIENCE = 5.0  # seconds for supervisors to finish, and again for the processes that are killed
TICK = 0.02  # seconds between two searches
_PROC = Path("/proc")


def title_of(token: str) -> str:
    """Return the title of the supervisors of a run in the list of processes."""
    return f"lw-{token[:12]}"  # a title has 15 bytes


async def end_leftovers(token: str, proc: Path = _PROC, *, name: str = TOKEN) -> list[int]:
    """End all processes of a run whose own process is dead; return those that cannot be ended.

    With another name of a variable, end those of a command whose supervisor is dead.
    """
    searches = int(PATIENCE / TICK)
    remaining: list[int] = []
    for search in range(2 * searches):
        supervisors, others = _of_run(token, proc, name)
        remaining = [*supervisors, *others]
        if not remaining:
            return []
        # Supervisors first: they also end processes that cleared their environment.
        kill = not supervisors or search >= searches
        for pid in supervisors:
            _send(pid, signal.SIGKILL if kill else signal.SIGTERM)
        # All are stopped before the first is killed, so that none can start another meanwhile.
        for pid in others if kill else ():
            _send(pid, signal.SIGSTOP)
        for pid in others if kill else ():
            _send(pid, signal.SIGKILL)
        await asyncio.sleep(TICK)
    return remaining


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended, or belongs to another user
        os.kill(pid, number)


def _of_run(token: str, proc: Path, name: str) -> tuple[list[int], list[int]]:
    """Return the supervisors of a run, and its other processes."""
    variable, title, own_pid = f"{name}={token}".encode(), title_of(token), os.getpid()
    if not (proc / "self/stat").exists():
        return [], [pid for pid in _listed(variable) if pid != own_pid]
    supervisors, others = [], []
    for folder in proc.iterdir():
        if not folder.name.isdigit() or int(folder.name) == own_pid:
            continue
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text(errors="replace").strip() == title:
                supervisors.append(int(folder.name))
            elif variable in (folder / "environ").read_bytes().split(b"\0"):
                others.append(int(folder.name))
    return supervisors, others


def _listed(variable: bytes) -> Iterator[int]:
    """Iterate over the processes whose environment, as `ps` prints it, contains a variable."""
    import shutil  # loads three compression libraries, and only systems without /proc need it

    ps = shutil.which("ps")
    if ps is None:
        return
    done = subprocess.run([ps, "axeww", "-o", "pid=,command="], capture_output=True, check=False)
    for line in done.stdout.splitlines():
        number, _, rest = line.strip().partition(b" ")
        if variable in rest.split(b" ") and number.isdigit():
            yield int(number)
