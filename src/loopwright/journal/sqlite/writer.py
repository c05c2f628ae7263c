"""The one thread that writes: everything that waits becomes one transaction.

What is asked for is done in order: the batches of a transaction first, then its orders (open,
close, cancel, rewind). It is acknowledged after the commit, by one call into each event loop that
waits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from ...errors import JournalError, JournalUnavailable
from .database import Database
from .errors import journal_error
from .leases import BEAT
from .run_log import Batch

__all__ = ["Transaction", "Writer"]

T = TypeVar("T")
QUICK = 0.001  # seconds that a commit may take on the thread of an event loop
TRANSACTION_ROWS = 4096  # a slow disk makes for large transactions, a quick one for small ones


class Transaction(Generic[T]):
    """Something to do in a transaction: `act`, and once it is committed `after`.

    Both are called in the writer's thread.
    """

    __slots__ = ("act", "after", "error", "future", "loop", "result")

    def __init__(
        self, act: Callable[[sqlite3.Connection], T], after: Callable[[T], None] | None = None
    ) -> None:
        self.act = act
        self.after = after
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[T] | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def wait(self) -> asyncio.Future[T]:
        """Return what to await for its result."""
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        return self.future

    def run(self, db: sqlite3.Connection) -> None:
        """Do it; a refusal by the journal itself is the caller's alone."""
        try:
            self.result = self.act(db)
        except JournalError as error:
            self.error = error

    def committed(self) -> None:
        """Act on its success."""
        if self.after is not None and self.error is None:
            self.after(self.result)

    def settle(self) -> None:
        """Tell its caller; called in the event loop."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Stop:
    __slots__ = ("order",)

    def __init__(self, order: Transaction[None]) -> None:
        self.order = order


class Writer:
    """The one thread that writes a journal, started by its first job."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._jobs: SimpleQueue[Any] = SimpleQueue()
        self._turn = threading.Lock()  # of whoever uses the database
        self._next_beat = 0.0
        self._started = False
        self._ended = False

    def put(self, job: object) -> None:
        """Hand over a batch or an order."""
        if not self._started:
            self._started = True
            name = f"journal {self.database.path.name}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put(job)
        if self._ended:
            self._refuse_late()

    def commit_here(self, batch: Batch) -> bool:
        """Commit a batch on the calling thread; return False if that might block it for long.

        It might if the latest commit took long, if someone else is writing, or with a content for
        a file, which takes several syncs.
        """
        slow = self.database.took > QUICK or batch.has_files()
        if slow or not self._turn.acquire(blocking=False):
            return False
        try:
            return self.database.commit_at_once(batch)
        except Exception as fault:
            self._refuse([batch], journal_error(fault, str(self.database.path)))
            return True
        finally:
            self._turn.release()

    async def perform(
        self, order: Transaction[T], *, unwanted: Callable[[T], None] | None = None
    ) -> T:
        """Do something in a transaction and return its result once it is durable.

        The transaction goes on when the caller is cancelled; `unwanted` gets its result then.
        """
        waiter = order.wait()
        self.put(order)
        if unwanted is None:
            return await waiter
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError:
            waiter.add_done_callback(partial(_hand_on, unwanted))
            await asyncio.wait({waiter})
            raise

    async def stop(self) -> None:
        """Finish what was handed over, give back the leases and close the database."""
        if self._started:
            order: Transaction[None] = Transaction(lambda _: None)
            waiter = order.wait()
            self._jobs.put(_Stop(order))
            await waiter

    def stop_soon(self) -> None:
        """Do the same without waiting for it."""
        if self._started:
            self._jobs.put(_Stop(Transaction(lambda _: None)))

    def _work(self) -> None:
        while self._step():
            pass

    def _step(self) -> bool:
        """Do what waits; return whether to go on. Nothing of it is held on to while waiting."""
        jobs = self._gather()
        stop = jobs.pop() if jobs and type(jobs[-1]) is _Stop else None
        if jobs:
            with self._turn:
                self._transact(jobs)
        if stop is not None:
            self._finish(stop.order)
            return False
        if self.database.logs and time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + BEAT
            with self._turn:
                self.database.beat()
        return True

    def _gather(self) -> list[Any]:
        """Wait for a job or the next beat; return what waits, up to a transaction's worth."""
        jobs: list[Any] = []
        rows = 0
        wait = max(0.0, self._next_beat - time.monotonic()) if self.database.logs else None
        with suppress(Empty):
            job = self._jobs.get(timeout=wait)
            while True:
                jobs.append(job)
                rows += len(job.owners) if type(job) is Batch else 1
                if rows >= TRANSACTION_ROWS or type(job) is _Stop:
                    break
                job = self._jobs.get_nowait()
        return jobs

    def _transact(self, jobs: list[Any]) -> None:
        batches = [job for job in jobs if type(job) is Batch]
        orders = [job for job in jobs if type(job) is not Batch]
        try:
            self.database.commit(batches, orders)
        except Exception as fault:  # whatever it is, those who wait must hear of it
            self._refuse(jobs, journal_error(fault, str(self.database.path)))
        else:
            for order in orders:
                order.committed()
        self._notify(jobs)

    def _refuse(self, jobs: list[Any], error: JournalError) -> None:
        for job in jobs:
            if type(job) is not Batch:
                job.error = type(error)(str(error))
                continue
            for log in job.logs:
                if log.failure is None:
                    log.fail(error)

    def _finish(self, order: Transaction[None]) -> None:
        with self._turn:
            self.database.finish()
        self._ended = True
        self._refuse_late()
        self._notify([order])

    def _refuse_late(self) -> None:
        """Refuse what came after the end; who comes later still does this itself."""
        late: list[Any] = []
        with suppress(Empty):
            while True:
                late.append(self._jobs.get_nowait())
        late = [job.order if type(job) is _Stop else job for job in late]
        closed = f"{self.database.path}: the journal was closed; open it again"
        self._refuse(late, JournalUnavailable(closed))
        self._notify(late)

    def _notify(self, jobs: list[Any]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[Any]] = {}
        for job in jobs:
            if job.loop is not None:
                loops.setdefault(job.loop, []).append(job)
        for loop, mine in loops.items():
            with suppress(RuntimeError):  # that event loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, mine)


def _hand_on(unwanted: Callable[[T], None], done: asyncio.Future[T]) -> None:
    if not done.cancelled() and done.exception() is None:
        unwanted(done.result())


def _settle(jobs: list[Any]) -> None:
    for job in jobs:
        job.settle()
