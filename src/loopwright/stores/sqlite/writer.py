"""The one thread that writes: everything that waits becomes one transaction.

Rules:

1. What is asked for is done in order: the batches of a transaction first, then its orders (open, close, cancel, rewind).
2. A run's epoch holds within a transaction: nobody else commits while the side lock is held, so it is compared only when
   another connection has committed since (`PRAGMA data_version`).
3. A run that lost its lease or whose rows could not be kept writes nothing more; the other runs go on.
4. Rows go in by few, long statements: each step of a statement gives up the interpreter lock, and getting it back from a
   busy event loop can take milliseconds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from ...errors import JournalError
from .encoding import FILE
from .faults import journal_error
from .files import SideLock, write_content
from .log import Batch, Lane, SqliteLog
from .owners import BEAT, LEASE, Clocks, Owner, register, renew
from .schema import connect_writer

__all__ = ["OnPoint", "Order", "Writer"]

T = TypeVar("T")
OnPoint = Callable[[str, int], None]
TRANSACTION_ROWS = 512
_CHUNKS = (64, 8, 1)
_ENTRY = "INSERT INTO entries(run, first, loop, mark, body, sum) VALUES "
_CONTENT = "INSERT INTO contents(id, digest, size, body) VALUES "


class Order(Generic[T]):
    """Something to do in a transaction: `act`, and once it is committed `after`, both in the writer's thread."""

    __slots__ = ("act", "after", "error", "future", "loop", "result")

    def __init__(
        self, act: Callable[[sqlite3.Connection], T], after: Callable[[T], None] | None = None
    ) -> None:
        self.act = act
        self.after = after
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self, db: sqlite3.Connection) -> None:
        """Do it; a refusal by the journal itself is the caller's alone."""
        try:
            self.result = self.act(db)
        except JournalError as error:
            self.error = error

    def committed(self) -> None:
        """Act on its success."""
        if self.after is not None and self.error is None:
            self.after(self.result)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Tell its caller; called in the event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


class _Stop:
    __slots__ = ("order",)

    def __init__(self, order: Order[None] | None) -> None:
        self.order = order


class Writer:
    """The one thread that writes a journal, started by its first job."""

    def __init__(self, path: Path, synchronous: str, clocks: Clocks, on_point: OnPoint | None) -> None:
        self.logs: dict[int, SqliteLog] = {}
        self.owner: Owner | None = None
        self.next_content: Callable[[], int] = itertools.count(1).__next__
        self.files = path.with_name(path.name + ".files")
        self.clocks = clocks
        self._path = path
        self._synchronous = synchronous
        self._on_point = on_point
        self._points = 0
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        self._born = clocks.steady()
        self._lock: SideLock | None = None
        self._db: sqlite3.Connection | None = None
        self._seen = -1
        self._version = 0
        self._next_beat = 0.0
        self._thread = threading.Thread(target=self._work, name=f"journal {path.name}", daemon=True)
        self._started = False

    def put(self, job: object) -> None:
        """Hand over a batch, an order or the end."""
        if not self._started:
            self._started = True
            self._thread.start()
        self._jobs.put(job)

    async def perform(
        self, act: Callable[[sqlite3.Connection], T], after: Callable[[T], None] | None = None
    ) -> T:
        """Do something in a transaction and return its result once it is durable.

        A caller that is cancelled stops waiting; the transaction goes on.
        """
        order = Order(act, after)
        self.put(order)
        return await order.future

    async def stop(self) -> None:
        """Finish what was handed over, give back the leases and close the database."""
        if self._started:
            order: Order[None] = Order(lambda _: None)
            self.put(_Stop(order))
            await order.future

    def stop_soon(self) -> None:
        """Do the same without waiting for it."""
        if self._started:
            self._jobs.put(_Stop(None))

    @property
    def seconds(self) -> float:
        """How long this store has been alive."""
        return self.clocks.steady() - self._born

    # The rest runs in the writer's thread.

    def _work(self) -> None:
        while True:
            jobs = self._gather()
            stop = jobs.pop() if jobs and type(jobs[-1]) is _Stop else None
            if jobs:
                self._transact(jobs)
            if stop is not None:
                return self._finish(stop.order)
            if self.logs and time.monotonic() >= self._next_beat:
                self._beat()

    def _gather(self) -> list[Any]:
        jobs: list[Any] = []
        rows = 0
        try:
            wait = max(0.0, self._next_beat - time.monotonic()) if self.logs else None
            job = self._jobs.get(timeout=wait)
            while True:
                jobs.append(job)
                rows += len(job.owners) if type(job) is Batch else 1
                if rows >= TRANSACTION_ROWS or type(job) is _Stop:
                    break
                job = self._jobs.get_nowait()
        except Empty:
            pass
        return jobs

    def _transact(self, jobs: list[Any]) -> None:
        batches = [job for job in jobs if type(job) is Batch]
        orders = [job for job in jobs if type(job) is not Batch]
        try:
            self._commit(batches, orders)
        except (sqlite3.Error, OSError, JournalError) as fault:
            error = journal_error(fault, str(self._path))
            for log in {log for batch in batches for log in batch.logs}:
                if log.failure is None:
                    log.fail(error)
            for order in orders:
                order.error = type(error)(str(error))
        self._notify(batches, orders)

    def _commit(self, batches: list[Batch], orders: list[Order[Any]]) -> None:
        for batch in batches:
            if batch.contents:
                self._write_files(batch)
        db, lock = self._open()
        with lock:
            self._point("before")
            db.execute("BEGIN IMMEDIATE")
            try:
                self._fence(db, batches)
                owner = self.owner or register(db, self.clocks.wall())
                if self.owner is None:
                    self._enlist(owner)
                self._insert(db, batches)
                for order in orders:
                    order.run(db)
                self._point("in_txn")
                db.execute("COMMIT")
            except BaseException:
                if owner_is_new := not self._points_committed:
                    self.owner = None
                if db.in_transaction:
                    with suppress(sqlite3.Error):
                        db.execute("ROLLBACK")
                raise
            self._point("after")
        for order in orders:
            order.committed()
