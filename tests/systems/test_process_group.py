"""Programs in a process group: the way without the supervisor, on this system."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from loopwright.tools.supervised import ProcessGroup

IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
HANDLES = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
    "print(1, flush=True); time.sleep(600)"
)
LEAVES = (
    "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
    " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
)


async def ended(program: str, grace: float) -> tuple[int | None, bytes]:
    """Start a program, wait for its first line, end it; return its exit code and the line."""
    group = ProcessGroup([sys.executable, "-c", program], env=dict(os.environ), limit=65536)
    await group.start()
    try:
        line = await group.stdout.readline()
    finally:
        await group.end(grace)
        group.close_pipes()
    return group.returncode, line


def is_alive(pid: int) -> bool:
    """Whether a process runs, within a second in which it may still end."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state in "ZX":
            return False
        time.sleep(0.01)
    return True


async def test_a_program_may_clean_up() -> None:
    """A program that handles SIGTERM ends with its own exit code, within the grace period."""
    assert await ended(HANDLES, 30.0) == (7, b"1\n")


async def test_a_program_that_ignores_the_request_is_killed() -> None:
    """After the grace period the group is killed."""
    assert await ended(IGNORES, 0.05) == (-9, b"1\n")


async def test_what_a_program_left_running_is_killed() -> None:
    """The processes of the group end also where their parent ended before them."""
    code, line = await ended(LEAVES, 5.0)
    assert code in (0, -15)
    assert not is_alive(int(line))


async def test_a_cancelled_end_kills_at_once() -> None:
    """If the caller of `end` is cancelled, the group does not get the rest of its grace period."""
    group = ProcessGroup([sys.executable, "-c", IGNORES], env=dict(os.environ), limit=65536)
    await group.start()
    await group.stdout.readline()
    ending = asyncio.create_task(group.end(600.0))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait({ending})
    await asyncio.wait_for(group.exited, 30.0)
    assert group.returncode == -9
    group.close_pipes()
