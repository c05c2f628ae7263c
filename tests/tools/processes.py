"""What the tests of commands share: to run one to its end, and to see which processes are left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from loopwright import Loop, run_sync


def done(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie that nobody reaps."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False


def gone(folder: Path) -> bool:
    """Whether all processes noted in a folder are gone; one that was killed may need a moment."""
    for _ in range(2000):
        if not any(alive(pid) for pid in pids(folder)):
            return True
        time.sleep(0.001)
    return False


def pids(folder: Path) -> list[int]:
    """Return the numbers that scripts noted in a folder."""
    return [int(file.name) for file in folder.iterdir() if file.name.isdigit()]


async def noted(folder: Path, count: int) -> None:
    """Wait until scripts have noted so many processes."""
    while len(pids(folder)) < count:
        await asyncio.sleep(0.005)


def caught(step: Any, value: Any = None) -> Any:
    """Return the failure that a loop records when a step fails."""
    return run_sync(Loop(step), value).history[0].error
