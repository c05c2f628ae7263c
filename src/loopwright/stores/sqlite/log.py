"""The open run of a SqliteJournal, and how what it records gets to the writer.

What all runs of an event loop append within one pass of it becomes one batch, handed to the writer by one put. What one
run appended in it becomes one row: the "finished" of an effect and the "started" of the next share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import JournalError, OwnershipLost
from ...journal import Entry, RunInfo
from .encoding import Contents, entry_text, utf8
from .rows import chained

__all__ = ["Batch", "Lane", "SqliteLog"]

BATCH_RUNS = 128  # runs in a batch before it is handed over, so that the writer starts while the loop goes on
_ROW_ENTRIES = 64


class Batch:
    """Rows of one event loop that are committed together; `values` holds those of row i from 6 i on."""

    __slots__ = ("contents", "done", "lane", "logs", "owners", "values", "waiters")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.logs: list[SqliteLog] = []
        self.values: list[Any] = []
        self.owners: list[SqliteLog] = []
        self.contents: list[tuple[SqliteLog, list[tuple[int, bytes, int, str]]]] = []
        self.waiters: list[tuple[asyncio.Future[None], SqliteLog]] = []
        self.done = False


class Lane:
    """The way of one event loop to the writer."""

    __slots__ = ("batch", "last", "loop", "put", "scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[Batch], None]) -> None:
        self.loop = loop
        self.put = put
        self.batch = Batch(self)
        self.last: Batch | None = None
        self.scheduled = False

    def join(self, log: SqliteLog) -> Batch:
        """Return the batch that a run may add to in this pass."""
        if len(self.batch.logs) >= BATCH_RUNS:
            self._hand_over()
        if not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self.flush)
        self.batch.logs.append(log)
        return self.batch

    def flush(self) -> None:
        """Hand over what was appended in this pass."""
        self.scheduled = False
        if self.batch.logs:
            self._hand_over()

    def _hand_over(self) -> None:
        batch = self.batch
        for log in batch.logs:
            log.cut(batch)
        self.batch = Batch(self)
        self.last = batch
        self.put(batch)

    async def settled(self) -> None:
        """Wait until everything handed over so far was committed or refused."""
        self.flush()
        batch = self.last
        if batch is not None and not batch.done:
            waiter = self.loop.create_future()
            batch.waiters.append((waiter, _NOBODY))
            await waiter

    @staticmethod
    def settle(batches: Sequence[Batch]) -> None:
        """Tell everyone who waits for these batches how they went; called in the event loop."""
        for batch in batches:
            batch.done = True
            for waiter, log in batch.waiters:
                if waiter.done():
                    continue
                if log.failure is None:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(log.failure())


class _Nobody:
    failure = None


_NOBODY: Any = _Nobody()


class SqliteLog:
    """The open run of a SqliteJournal."""

    keeps_values = True

    __slots__ = (
        "_batch", "_contents", "_first", "_give_back", "_lane", "_loop", "_mark", "_pending", "_seq", "_sum",
        "cancel_requested", "failure", "info", "key", "opened", "recorded", "verified",
    )  # fmt: skip

    def __init__(
        self,
        key: int,
        info: RunInfo,
        lane: Lane,
        contents: Contents,
        give_back: Callable[[SqliteLog, RunInfo], Any],
        head: bytes,
    ) -> None:
        self.key = key
        self.info = info
        self.recorded: Sequence[Entry] = []
        self.cancel_requested = False
        self.failure: Callable[[], BaseException] | None = None
        self.verified = 0
        self._lane = lane
        self._contents = contents
        self._give_back = give_back
        self._batch: Batch | None = None
        self._pending: list[str] = []
        self._seq = 0
        self._first = 1
        self._sum = head
        self._loop: str | None = None
        self._mark: int | None = None

    def restore(self, recorded: Sequence[Entry], seq: int, head: bytes) -> None:
        """Go on after what was recorded before this opening."""
        self.recorded = recorded
        self._seq, self._first, self._sum = seq, seq + 1, head

    @property
    def position(self) -> tuple[int, bytes]:
        """The number of the last entry handed over and the sum of its row."""
        return self._seq, self._sum

    def append(self, entry: Entry) -> None:
        """Put an entry in order."""
        if self.failure is not None:
            raise self.failure()
        batch = self._batch
        if batch is not self._lane.batch:
            batch = self._batch = self._lane.join(self)
        iteration = entry.kind == "iteration"
        if len(self._pending) >= _ROW_ENTRIES or (iteration and self._loop is not None):
            self.cut(batch)
        self._seq = entry.seq = self._seq + 1
        self._pending.append(entry_text(entry, self._contents))
        if iteration:
            self._loop, self._mark = entry.path, entry.seq

    def cut(self, batch: Batch) -> None:
        """Make a row of what waits, in the batch it belongs to."""
        if not self._pending:
            return
        body = f"[{','.join(self._pending)}]"
        body, data = utf8(body)
        self._sum = chained(self._sum, self._first, data)
        batch.values += (self.key, self._first, self._loop, self._mark, body, self._sum)
        batch.owners.append(self)
        if self._contents.waiting:
            batch.contents.append((self, self._contents.take()))
        self._pending = []
        self._first = self._seq + 1
        self._loop = self._mark = None

    def sync(self) -> asyncio.Future[None] | None:
        """Return what to await until everything appended is durable; None if it is already."""
        if self.failure is not None:
            raise self.failure()
        batch = self._batch
        if batch is None or batch.done:
            return None
        waiter: asyncio.Future[None] = self._lane.loop.create_future()
        batch.waiters.append((waiter, self))
        return waiter

    def fail(self, error: JournalError) -> None:
        """Refuse everything from here on: what was appended last may not have been kept."""
        kind, message = type(error), str(error)
        self.failure = lambda: kind(message)

    def lose(self) -> None:
        """Refuse everything from here on: another owner has the run."""
        message = f"{self.info.run_id}: another owner took this run over"
        self.failure = lambda: OwnershipLost(message)

    async def close(self, info: RunInfo) -> None:
        """Write how far the run is and give it back.

        Raises:
            JournalUnavailable: if the store failed to write; the run is then left as interrupted.
        """
        await self._give_back(self, info)
