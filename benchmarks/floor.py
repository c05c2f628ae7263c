"""The least that many durable tasks at once can cost: no engine, one wake-up and one record each."""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

_CHUNK = 64  # records of a statement
_MOST = 64  # batches of a transaction


def tasks(path: Path, count: int, effects: int, pause: float = 0.0, *, records: int = 1) -> float:
    """Return the seconds in which so many tasks each wait for so many durable effects of theirs.

    What a pass of the event loop asks for is one batch, what waits is one commit, in FULL. An effect
    has one row of `records` JSON texts. After every third one, from the first on, a task sleeps
    `pause` seconds.
    """
    return asyncio.run(_main(path, count, effects, pause, records=records))


async def _main(path: Path, count: int, effects: int, pause: float, *, records: int) -> float:
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    base = _made(path)
    writer = threading.Thread(target=_write, args=(base, jobs))
    writer.start()
    loop = asyncio.get_running_loop()
    rows: list[str] = []
    waiters: list[asyncio.Future[None]] = []

    def hand_over() -> None:
        nonlocal rows, waiters
        jobs.put((loop, rows, waiters))
        rows, waiters = [], []

    async def work(task: int) -> None:
        for number in range(effects):
            waiter = loop.create_future()
            if not waiters:
                loop.call_soon(hand_over)
            waiters.append(waiter)
            texts = [
                json.dumps(
                    {"path": f"{task}/{number}", "value": number, "of": "x" * (250 // records)}
                )
                for _ in range(records)
            ]
            rows.append(",".join(texts))
            await waiter
            if pause and number % 3 == 0:
                await asyncio.sleep(pause)

    start = time.perf_counter()
    await asyncio.gather(*(work(task) for task in range(count)))
    taken = time.perf_counter() - start
    jobs.put(None)
    writer.join()
    base.close()
    return taken


def _made(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    base.execute("pragma journal_mode=wal")
    base.execute("pragma synchronous=full")
    base.execute("create table record(id integer primary key, body text)")
    return base


def _write(base: sqlite3.Connection, jobs: queue.SimpleQueue[Any]) -> None:
    job = jobs.get()
    while job is not None:
        batches = [job]
        while not jobs.empty() and len(batches) < _MOST and (job := jobs.get()) is not None:
            batches.append(job)
        base.execute("begin immediate")
        for _, rows, _ in batches:
            for at in range(0, len(rows), _CHUNK):
                part = rows[at : at + _CHUNK]
                base.execute(
                    "insert into record(body) values " + ",".join(["(?)"] * len(part)), part
                )
        base.execute("commit")
        for loop, _, waiters in batches:
            loop.call_soon_threadsafe(_settle, waiters)
        job = jobs.get() if job is not None else None


def _settle(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        waiter.set_result(None)
