"""A process that appends to a memory on disk dies at a transaction, and is taken up again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys
from loopwright import run, step
from loopwright.engine.loop_memory import remembered
from loopwright.journal.sqlite import SqliteJournal

where, at = sys.argv[1], int(sys.argv[2])

def point(position, number):
    if position == where and number == at:
        os._exit(9)

async def appends(number, ctx):
    space = remembered(ctx, "lessons")
    for n in range(6):
        await space.note([number, n])

async def main():
    async with SqliteJournal("runs.db", synchronous="normal", on_point=point) as journal:
        runs = [run(step(appends), n, journal=journal, run_id=f"r{n}", takeover=True) for n in range(4)]
        await asyncio.gather(*runs)
        for entry in await journal.memory.entries("lessons"):
            print(entry.value)

asyncio.run(main())
"""


def _process(folder: Path, where: str, at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, where, str(at)],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("where", ["before", "in_txn", "after"])
def test_a_process_that_dies_loses_and_doubles_nothing(tmp_path: Path, where: str) -> None:
    """Killed before, in and after several transactions, the runs leave each entry once, in order (I46)."""
    for at in (2, 5, 7):
        died = _process(tmp_path, where, at)
        assert died.returncode == 9, died.stderr
    done = _process(tmp_path, "never", 0)
    assert done.returncode == 0, done.stderr
    found = [eval(line) for line in done.stdout.splitlines()]
    assert len(found) == 24
    for number in range(4):
        assert [n for run, n in found if run == number] == list(range(6))
