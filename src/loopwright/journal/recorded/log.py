"""The open runs of a durable journal, whose entries become batches.

Entries that all runs of an event loop append within one pass of the loop become one batch, which is
handed to the writer at the end of the pass. The entries of one run in a batch become one row: the
"finished" of an effect and the "started" of the next share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from ...errors import JournalError, OwnershipLost
from ..entries import Entry
from ..protocol import RunInfo
from .encoding import Content, Contents, RunRow, Value, entry_text, sealed_row

GiveBack = Callable[["DurableLog", RunInfo], Awaitable[None]]
WIDTH = 6  # values of a row: run, first, loop, mark, body, sum
# A batch with this many runs is passed on early, so that the writer need not wait.
BATCH_RUNS = 512
_ROW_ENTRIES = 64  # a bound on the size of a row, which a reader decodes as a unit


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
        self.batch = Batch(self.loop)
        for log in batch.logs:
            log.end_row(batch)
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
