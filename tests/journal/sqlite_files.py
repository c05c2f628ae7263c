"""What the tests of the SQLite journal share: files that hold a run, and what happens to them."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopwright.journal import Entry
from loopwright.journal.sqlite import Clocks, SqliteJournal
from warm_python import warm_python

from .recording import LONG, info, rounds, rounds_seen, settle, shown

LATE = Clocks(wall=lambda: time.time() + 3600)


async def filled(path: Path, count: int = 6) -> list[Any]:
    """Make a journal with one ended run; return its entries as JSON."""
    async with SqliteJournal(path, synchronous="normal") as made:
        entries = [*rounds(count), Entry("ended", "", 9.0, {"output": LONG, "steps": {"a": LONG}})]
        log = await made.open(info(input=LONG))
        for entry in entries:
            log.append(entry)
            if entry.kind == "iteration":
                await settle(log)
        await log.close(replace(info(input=LONG), epoch=1))
    return shown(rounds_seen(entries))


def query(path: Path, statement: str, *values: Any) -> list[Any]:
    """Do something to the file that no journal would."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        return db.execute(statement, values).fetchall()


async def read_all(path: Path, *, takeover: bool = False) -> list[Any]:
    """Open the one run of a journal for writing, as a resume does, and return what it holds.

    `takeover` is for a run whose owner is this very process, which lives.
    """
    async with SqliteJournal(path, synchronous="normal", clocks=LATE) as made:
        log = await made.open(info(), resume=True, takeover=takeover)
        assert log.info.input == LONG
        return shown(log.recorded)


def child(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return warm_python().run(["-c", program, *map(str, arguments)])


def ended(thread: threading.Thread) -> bool:
    """Tell if a thread that nobody needs any more ends, once it has let go of what it did last."""
    for _ in range(100):
        gc.collect()
        thread.join(0.05)
        if not thread.is_alive():
            break
    return not thread.is_alive()
