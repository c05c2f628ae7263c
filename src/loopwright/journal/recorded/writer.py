"""The open runs of a durable journal, and the one thread that writes their entries.

Entries that all runs of an event loop append within one pass of the loop become one batch, which is
handed to the writer at the end of the pass. The entries of one run in a batch become one row: the
"finished" of an effect and the "started" of the next share it. Everything that waits for the writer
becomes one transaction.

A transaction writes the batches first and then performs the operations (open, close, cancel,
rewind), each in the order of arrival. After the commit, one call into each waiting event loop
resolves the futures of its callers.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from ...errors import JournalError, JournalUnavailable, OwnershipLost
from ..entries import Entry
from ..protocol import RunInfo
from .encoding import Content, Contents, RunRow, Value, entry_text, sealed_row

Connection = TypeVar("Connection")
Connection_co = TypeVar("Connection_co", covariant=True)
Connection_contra = TypeVar("Connection_contra", contravariant=True)
Outcome = TypeVar("Outcome")
GiveBack = Callable[["DurableLog", RunInfo], Awaitable[None]]
WIDTH = 6  # values of a row: run, first, loop, mark, body, sum
# A batch with this many runs is passed on early, so that the writer need not wait.
BATCH_RUNS = 512
_ROW_ENTRIES = 64  # a bound on the size of a row, which a reader decodes as a unit
BEAT = 0.5  # seconds between renewals of the leases
TRANSACTION_ROWS = 4096  # a slow disk makes for large transactions, a fast one for small ones


class Batch:
    """Rows of one event loop that are committed together; row i has values from WIDTH * i on."""

    __slots__ = ("contents", "done", "logs", "loop", "owners", "values", "waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.logs: list[DurableLog] = []
        self.values: list[Value] = []
        self.owners: list[DurableLog] = []
        self.contents: list[tuple[DurableLog, list[Content]]] = []
        self.waiters: list[tuple[asyncio.Future[None], DurableLog | None]] = []
        self.done = False

    def refuse(self, error: JournalError) -> None:
        """Let every run of the batch fail with an error."""
        for log in self.logs:
            if log.failure is None:
                log.fail(error)

    def resolve(self) -> None:
        """Resolve the futures of the callers; runs in the event loop."""
        self.done = True
        for waiter, log in self.waiters:
            if waiter.done():  # the caller was cancelled
                continue
            if log is None or log.failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(log.failure())


class CommitQueue:
    """Collects the appends of one event loop and hands them to the writer in batches."""

    __slots__ = ("batch", "last", "loop", "put", "scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[Batch], None]) -> None:
        self.loop = loop
        self.put = put
        self.batch = Batch(loop)
        self.last: Batch | None = None
        self.scheduled = False

    def join(self, log: DurableLog) -> Batch:
        """Return the batch to which a run may add in this pass."""
        if len(self.batch.logs) >= BATCH_RUNS:
            self.flush()
        if not self.scheduled:
            self.scheduled = True
            # At the end of the pass, so that all runs that resume in it share one transaction.
            self.loop.call_soon(self._end_pass)
        self.batch.logs.append(log)
        return self.batch

    def _end_pass(self) -> None:
        self.scheduled = False
        self.flush()

    def flush(self) -> None:
        """Hand the current batch to the writer."""
        batch = self.batch
        if not batch.logs:
            return
        for log in batch.logs:
            log.end_row(batch)
        self.batch = Batch(self.loop)
        self.last = batch
        self.put(batch)

    async def settled(self) -> None:
        """Wait until every entry appended so far is committed or refused."""
        self.flush()
        if self.last is not None and not self.last.done:
            waiter = self.loop.create_future()
            self.last.waiters.append((waiter, None))
            await waiter


class DurableLog:
    """The open run of a durable journal; see RunLog."""

    __slots__ = (
        "_batch",
        "_cancelled",
        "_contents",
        "_first",
        "_give_back",
        "_loop",
        "_mark",
        "_on_cancel",
        "_on_lost",
        "_on_posted",
        "_pending",
        "_posted",
        "_queue",
        "_seq",
        "_sum",
        "_taken",
        "failure",
        "info",
        "key",
        "posted",
        "recorded",
        "row",
        "verified",
    )  # fmt: skip
    keeps_values = True
    silent = False

    def __init__(
        self, row: RunRow, queue: CommitQueue, contents: Contents, give_back: GiveBack
    ) -> None:
        self.row = row
        self.key = row.key
        self.info = row.info
        self.recorded: Sequence[Entry] = []
        self.failure: Callable[[], BaseException] | None = None
        self.verified = 0  # the state of the database in which the epoch was compared
        self._queue = queue
        self._contents = contents
        self._give_back = give_back
        self._on_cancel: Callable[[], None] | None = None
        self._cancelled = False
        self._on_lost: Callable[[], None] | None = None
        self._taken = False
        self._on_posted: Callable[[], None] | None = None
        self._posted = False
        self.posted = 0  # new limits in its inbox when the store looked last
        self._batch: Batch | None = None
        self._pending: list[str] = []
        self._seq, self._first, self._sum = 0, 1, b""
        self._loop: str | None = None
        self._mark: int | None = None

    def restore(
        self,
        info: RunInfo,
        head: bytes,
        last: int = 0,
        recorded: Sequence[Entry] = (),
        stored: Mapping[bytes, int] | None = None,
    ) -> None:
        """Continue after recorded entries: up to entry `last`, whose row has the checksum `head`."""
        self.info = info
        self.recorded = recorded
        self._contents.add_stored(stored or {})
        for entry in recorded:
            if entry.kind == "iteration":
                self._contents.rank(entry.path)
        self._seq, self._first, self._sum = last, last + 1, head

    def share(self, stored: Mapping[bytes, int]) -> None:
        """Refer to contents of another run, by their digests, instead of storing them again."""
        self._contents.add_stored(stored)

    @property
    def position(self) -> tuple[int, bytes]:
        """The number of the last entry in a batch and the checksum of its row."""
        return self._seq, self._sum

    @property
    def on_cancel(self) -> Callable[[], None] | None:
        """Called on the event loop when cancellation of the run is requested."""
        return self._on_cancel

    @on_cancel.setter
    def on_cancel(self, action: Callable[[], None] | None) -> None:
        self._on_cancel = action
        if action is not None and self._cancelled:
            action()

    def request_cancel(self) -> None:
        """Pass a request to cancel from another thread to the event loop."""
        if self._cancelled:
            return
        with suppress(RuntimeError):  # the event loop is closed: the run is not active any more
            self._queue.loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self._cancelled = True
        if self._on_cancel is not None:
            self._on_cancel()

    @property
    def on_lost(self) -> Callable[[], None] | None:
        """Called on the event loop when another owner took the run over."""
        return self._on_lost

    @on_lost.setter
    def on_lost(self, action: Callable[[], None] | None) -> None:
        self._on_lost = action
        if action is not None and self._taken:
            action()

    def take_away(self) -> None:
        """Refuse all further writes because another owner has the run; for the writer's thread."""
        self.lose()
        with suppress(RuntimeError):  # the event loop is closed: the run is not active any more
            self._queue.loop.call_soon_threadsafe(self._lost)

    def _lost(self) -> None:
        self._taken = True
        if self._on_lost is not None:
            self._on_lost()

    @property
    def on_posted(self) -> Callable[[], None] | None:
        """Called on the event loop after a new limit was put into the inbox."""
        return self._on_posted

    @on_posted.setter
    def on_posted(self, action: Callable[[], None] | None) -> None:
        self._on_posted = action
        if action is not None and self._posted:
            action()

    def count_posted(self, count: int) -> None:
        """Announce new limits if their number in the inbox changed; for a thread of the store."""
        if count != self.posted:
            self.posted = count
            self.announce_posted()

    def announce_posted(self) -> None:
        """Announce a new limit in the inbox; for another thread."""
        with suppress(RuntimeError):  # the event loop is closed: the run is not active any more
            self._queue.loop.call_soon_threadsafe(self._has_posted)

    def _has_posted(self) -> None:
        self._posted = True
        if self._on_posted is not None:
            self._on_posted()

    def append(self, entry: Entry, /) -> None:
        """Append an entry; entries of a run that lost its lease are dropped."""
        batch = self._batch
        if batch is not self._queue.batch:
            batch = self._batch = self._queue.join(self)
        iteration = entry.kind == "iteration"
        # A row has at most one iteration, so that an index can find it.
        if len(self._pending) >= _ROW_ENTRIES or (iteration and self._loop is not None):
            self.end_row(batch)
        self._pending.append(entry_text(entry, self._contents))
        self._seq = entry.seq = self._seq + 1
        if iteration:
            self._loop, self._mark = entry.path, self._seq

    def end_row(self, batch: Batch) -> None:
        """Add the pending entries to their batch as one row."""
        if not self._pending:
            return
        first = self._first
        body, total = sealed_row(self._pending, self._sum, first)
        self._sum = total
        batch.values += (self.key, first, self._loop, self._mark, body, total)
        batch.owners.append(self)
        contents = self._contents
        if contents.waiting:
            batch.contents.append((self, contents.take()))
        contents.here = []
        self._pending = []
        self._first = self._seq + 1
        self._loop = self._mark = None

    def sync(self) -> Awaitable[None] | None:
        """Return an awaitable for the commit of all appended entries; None if they are durable."""
        if self.failure is not None:
            raise self.failure()
        batch = self._batch
        if batch is None or batch.done:
            return None
        waiter: asyncio.Future[None] = self._queue.loop.create_future()
        batch.waiters.append((waiter, self))
        return waiter

    def fail(self, error: JournalError) -> None:
        """Refuse all further writes; the entries appended last may be lost."""
        # A new error for each caller: one that is raised twice would collect tracebacks.
        kind, message = type(error), str(error)
        self.failure = lambda: kind(message)

    def lose(self, why: str = "another owner took this run over") -> None:
        """Refuse all further writes because this log does not own the run any more."""
        message = f"{self.info.run_id}: {why}"
        self.failure = lambda: OwnershipLost(message)

    async def close(self, info: RunInfo) -> None:
        """Write the run's row and give the run back.

        Raises:
            JournalUnavailable: if the store failed to write; the run is left as interrupted.
        """
        # The new owner writes the row; this one may not change it.
        if isinstance(self._error(), OwnershipLost):
            return
        self._queue.flush()
        await self._give_back(self, info)
        error = self._error()
        # A later append is an error of the engine, which must not pass silently.
        self.lose("this log is closed")
        if error is not None and not isinstance(error, OwnershipLost):
            raise error

    def _error(self) -> BaseException | None:
        return self.failure() if self.failure is not None else None


class CommitOperation(Protocol[Connection_contra]):
    """Work inside a transaction."""

    loop: asyncio.AbstractEventLoop | None
    opening: RunInfo | None
    """The run that it opens or creates; a store may insert the rows of several at once before `run`."""
    closing: tuple[DurableLog, RunInfo] | None
    """The run that it gives back; a store may write the rows of several at once before `run`."""
    owning: bool
    """Whether it makes this store the owner of a run."""

    def run(self, db: Connection_contra) -> None:
        """Do the work; an error of the journal itself is kept for the caller."""

    def committed(self) -> None:
        """Act on the commit, in the writer's thread."""

    def refuse(self, error: JournalError) -> None:
        """Let the caller fail with an error."""

    def resolve(self) -> None:
        """Resolve the caller's future; runs in the event loop."""


class Store(Protocol[Connection_co]):
    """A database as the writer uses it; all calls come from the writer's thread."""

    @property
    def name(self) -> str:
        """The path or URL that messages name."""

    @property
    def logs(self) -> Mapping[int, DurableLog]:
        """The open runs, whose leases `beat` renews."""

    def commit(
        self, batches: Sequence[Batch], operations: Sequence[CommitOperation[Connection_co]]
    ) -> None:
        """Write batches and perform operations in one durable transaction, or raise."""

    def journal_error(self, error: Exception) -> JournalError:
        """Return the error of the journal for an error of the database."""

    def beat(self) -> None:
        """Renew the leases and find requests to cancel."""

    def finish(self) -> None:
        """Give back the leases and close the database."""


class Transaction(Generic[Connection, Outcome]):
    """An operation with a result: `work` runs in a transaction, `after` once it is committed.

    Both run in the writer's thread.
    """

    __slots__ = (
        "_result",
        "after",
        "closing",
        "error",
        "future",
        "loop",
        "opening",
        "owning",
        "work",
    )

    def __init__(
        self,
        work: Callable[[Connection], Outcome],
        after: Callable[[Outcome], None] | None = None,
        *,
        opening: RunInfo | None = None,
        closing: tuple[DurableLog, RunInfo] | None = None,
        owning: bool = False,
    ) -> None:
        self.work = work
        self.owning = owning
        self.after = after
        self.opening = opening
        self.closing = closing
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Outcome] | None = None
        self.error: JournalError | None = None
        self._result: list[Outcome] = []  # one, once the work is done

    def wait(self) -> asyncio.Future[Outcome]:
        """Return a future for its result."""
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        return self.future

    def run(self, db: Connection) -> None:
        """Do the work; see CommitOperation."""
        self.error = None  # a store may repeat a transaction
        try:
            self._result = [self.work(db)]
        except JournalError as error:
            self.error = error

    def committed(self) -> None:
        """Act on the commit; see CommitOperation."""
        if self.after is not None and self.error is None:
            self.after(self._result[0])

    def refuse(self, error: JournalError) -> None:
        """Let the caller fail with an error; see CommitOperation."""
        self.error = type(error)(str(error))

    def resolve(self) -> None:
        """Resolve the caller's future; see CommitOperation."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self._result[0])


class _Stop(Transaction[Connection, None]):
    """The last job: the writer ends after it."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self._result = [None]


Job = Batch | CommitOperation[Connection]


class Writer(Generic[Connection]):
    """The one thread that writes a journal, started by its first job."""

    def __init__(self, store: Store[Connection], beat: float = BEAT) -> None:
        self._store = store
        self._beat = beat  # seconds between renewals of the leases
        self._jobs: SimpleQueue[Job[Connection]] = SimpleQueue()
        self._next_beat = 0.0
        self._started = False
        self._ended = False

    def put(self, job: Job[Connection]) -> None:
        """Hand over a batch or an operation."""
        if not self._started:
            self._started = True
            name = f"journal {Path(self._store.name).name}"
            # A daemon: a program that never closes its journal must still end.
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put(job)
        # Checked after the job is put: a writer that ends meanwhile may have seen its queue empty.
        if self._ended:
            self._refuse_late()

    async def perform(
        self,
        transaction: Transaction[Connection, Outcome],
        *,
        unwanted: Callable[[Outcome], None] | None = None,
    ) -> Outcome:
        """Perform a transaction and return its result once it is durable.

        The transaction continues if the caller is cancelled; `unwanted` then receives its result.
        """
        waiter = transaction.wait()
        self.put(transaction)
        if unwanted is None:
            return await waiter
        # Shielded: the transaction cannot be taken back, so its result must reach `unwanted`.
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError:
            waiter.add_done_callback(partial(_pass_on, unwanted))
            await asyncio.wait({waiter})
            raise

    async def stop(self) -> None:
        """Finish the accepted jobs, release the leases and close the database."""
        if self._started:
            stop: _Stop[Connection] = _Stop()
            waiter = stop.wait()
            self._jobs.put(stop)
            await waiter

    def stop_soon(self) -> None:
        """Do the same as `stop` without waiting for it."""
        if self._started:
            self._jobs.put(_Stop())

    def _work(self) -> None:
        # The first transaction registers the store with a whole lease.
        self._next_beat = time.monotonic() + self._beat
        while self._step():
            pass

    def _step(self) -> bool:
        """Do the waiting jobs; return whether to continue. No job is referenced while waiting."""
        jobs = self._gather()
        stop = jobs.pop() if jobs and isinstance(jobs[-1], _Stop) else None
        if jobs:
            self._transact(jobs)
        if stop is not None:
            self._store.finish()
            # Set before the queue is emptied; see `put`.
            self._ended = True
            self._refuse_late()
            _notify([stop])
            return False
        if self._store.logs and time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + self._beat
            self._store.beat()
        return True

    def _gather(self) -> list[Job[Connection]]:
        """Wait for a job or the next beat; return the waiting jobs of one transaction."""
        jobs: list[Job[Connection]] = []
        rows = 0
        # Without open runs there is no lease to renew, so an idle journal does not wake up.
        wait = max(0.0, self._next_beat - time.monotonic()) if self._store.logs else None
        with suppress(Empty):
            job = self._jobs.get(timeout=wait)
            while True:
                jobs.append(job)
                rows += len(job.owners) if isinstance(job, Batch) else 1
                # Nothing follows a stop: its callers have been refused.
                if rows >= TRANSACTION_ROWS or isinstance(job, _Stop):
                    break
                job = self._jobs.get_nowait()
        return jobs

    def _transact(self, jobs: list[Job[Connection]]) -> None:
        batches = [job for job in jobs if isinstance(job, Batch)]
        operations = [job for job in jobs if not isinstance(job, Batch)]
        try:
            # Batches first: a run that closes must have its last entries in the same transaction.
            self._store.commit(batches, operations)
        except Exception as error:  # of any kind: the callers must receive it
            failure = self._store.journal_error(error)
            for job in jobs:
                job.refuse(failure)
        else:
            for operation in operations:
                operation.committed()
        _notify(jobs)

    def _refuse_late(self) -> None:
        """Refuse the jobs that arrived after the end; later callers of `put` come here themselves."""
        late: list[Job[Connection]] = []
        with suppress(Empty):
            while True:
                late.append(self._jobs.get_nowait())
        for job in late:
            job.refuse(
                JournalUnavailable(f"{self._store.name}: the journal is closed; open it again")
            )
        _notify(late)


def _notify(jobs: Sequence[Job[Connection]]) -> None:
    # One call for each event loop: waking one up costs a system call.
    loops: dict[asyncio.AbstractEventLoop, list[Job[Connection]]] = {}
    for job in jobs:
        if job.loop is not None:
            loops.setdefault(job.loop, []).append(job)
    for loop, mine in loops.items():
        with suppress(RuntimeError):  # the event loop is closed: no caller waits any more
            loop.call_soon_threadsafe(_resolve, mine)


def _pass_on(unwanted: Callable[[Outcome], None], done: asyncio.Future[Outcome]) -> None:
    if not done.cancelled() and done.exception() is None:
        unwanted(done.result())


def _resolve(jobs: Sequence[Job[Connection]]) -> None:
    for job in jobs:
        job.resolve()
