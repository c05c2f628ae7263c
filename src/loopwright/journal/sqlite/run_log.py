"""The open run of a SqliteJournal, and how what it records gets to the writer.

What all runs of an event loop append within one pass of it becomes one batch, handed to the writer
by one put. What one run appended in it becomes one row: the "finished" of an effect and the
"started" of the next share it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...errors import JournalError, OwnershipLost
from .. import Entry, RunInfo
from .encoding import FILE, Content, Contents, entry_text, utf8
from .rows import RunRow, chained

__all__ = ["WIDTH", "Batch", "CommitQueue", "SqliteLog"]

GiveBack = Callable[["SqliteLog", RunInfo], Awaitable[None]]
WIDTH = 6  # values of a row: run, first, loop, mark, body, sum
BATCH_RUNS = 512  # runs in a batch before it is handed over, so that the writer need not wait
SHARE = 0.005  # seconds after which the event loop gets to do what else there is
_ROW_ENTRIES = 64


class Batch:
    """Rows of one event loop that are committed together; row i has values from WIDTH * i on."""

    __slots__ = ("contents", "done", "logs", "loop", "owners", "values", "waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.logs: list[SqliteLog] = []
        self.values: list[Any] = []
        self.owners: list[SqliteLog] = []
        self.contents: list[tuple[SqliteLog, list[Content]]] = []
        self.waiters: list[tuple[asyncio.Future[None], SqliteLog | None]] = []
        self.done = False

    def sound_values(self) -> list[Any]:
        """Return the values of the rows whose runs may still write."""
        if all(log.failure is None for log in self.logs):
            return self.values
        starts = [i * WIDTH for i, log in enumerate(self.owners) if log.failure is None]
        return [value for i in starts for value in self.values[i : i + WIDTH]]

    def has_files(self) -> bool:
        """Return whether a content in it is large enough to be a file."""
        return bool(self.contents) and any(
            size > FILE for _, rows in self.contents for _, _, size, _ in rows
        )

    def settle(self) -> None:
        """Tell everyone who waits for it how it went; called in the event loop."""
        self.done = True
        for waiter, log in self.waiters:
            if waiter.done():  # whoever waited was cancelled
                continue
            if log is None or log.failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(log.failure())


class CommitQueue:
    """The way of one event loop to the writer; `runs` counts those that are open."""

    __slots__ = ("batch", "commit", "last", "loop", "passed", "put", "runs", "scheduled")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        put: Callable[[Batch], None],
        commit: Callable[[Batch], bool],
    ) -> None:
        self.loop = loop
        self.put = put
        self.commit = commit
        self.batch = Batch(loop)
        self.last: Batch | None = None
        self.passed = 0.0  # when the event loop last came by
        self.runs = 0
        self.scheduled = False

    def join(self, log: SqliteLog) -> Batch:
        """Return the batch that a run may add to in this pass."""
        if len(self.batch.logs) >= BATCH_RUNS:
            self.hand_over()
        if not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self.flush)
        self.batch.logs.append(log)
        return self.batch

    def flush(self) -> None:
        """Hand over what was appended in this pass."""
        self.scheduled = False
        self.passed = time.monotonic()
        if self.batch.logs and self.runs == 1:
            self.commit_here()
        elif self.batch.logs:
            self.hand_over()

    def hand_over(self) -> None:
        """Hand over what was appended, be it all of this pass or not."""
        self.put(self._take())

    def _take(self) -> Batch:
        batch = self.batch
        for log in batch.logs:
            log.cut(batch)
        self.batch = Batch(self.loop)
        self.last = batch
        return batch

    def commit_here(self) -> None:
        """Commit what was appended on this very thread, where that is quick; else hand it over.

        Two hand-overs between threads cost more than a quick commit.
        """
        if self.last is not None and not self.last.done:
            self.hand_over()
            return
        batch = self._take()
        if self.commit(batch):
            batch.settle()
        else:
            self.put(batch)

    async def settled(self) -> None:
        """Wait until everything appended so far was committed or refused."""
        if self.batch.logs:
            self.hand_over()
        batch = self.last
        if batch is not None and not batch.done:
            waiter = self.loop.create_future()
            batch.waiters.append((waiter, None))
            await waiter


class SqliteLog:
    """The open run of a SqliteJournal."""

    __slots__ = (
        "_asked", "_batch", "_contents", "_first", "_give_back", "_lane", "_loop", "_mark",
        "_on_cancel", "_pending", "_seq", "_sum", "failure", "info", "keeps_values", "key",
        "recorded", "row", "silent", "verified",
    )  # fmt: skip

    def __init__(
        self, row: RunRow, lane: CommitQueue, contents: Contents, give_back: GiveBack
    ) -> None:
        self.row = row
        self.key = row.key
        self.info = row.info
        self.recorded: Sequence[Entry] = []
        self.keeps_values = True
        self.silent = False
        self.failure: Callable[[], BaseException] | None = None
        self.verified = 0  # the state of the database in which its epoch was compared
        self._lane = lane
        self._contents = contents
        self._give_back = give_back
        self._on_cancel: Callable[[], None] | None = None
        self._asked = False
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
        """Go on after what was recorded before: up to entry `last`, whose row has sum `head`."""
        self.info = info
        self.recorded = recorded
        self._contents.know(stored or {})
        for entry in recorded:
            if entry.kind == "iteration":
                self._contents.rank(entry.path)
        self._seq, self._first, self._sum = last, last + 1, head
        self._lane.runs += 1

    @property
    def position(self) -> tuple[int, bytes]:
        """The number of the last entry handed over and the sum of its row."""
        return self._seq, self._sum

    @property
    def on_cancel(self) -> Callable[[], None] | None:
        """What is called on the event loop when someone asks for the run to be cancelled."""
        return self._on_cancel

    @on_cancel.setter
    def on_cancel(self, action: Callable[[], None] | None) -> None:
        self._on_cancel = action
        if action is not None and self._asked:
            action()

    def ask_to_cancel(self) -> None:
        """Pass on, from the writer's thread, that someone asks for the run to be cancelled."""
        with suppress(RuntimeError):  # its event loop is closed: it does not run any more
            self._lane.loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._asked = True
        if self._on_cancel is not None:
            self._on_cancel()

    def append(self, entry: Entry, /) -> None:
        """Put an entry in order; what a run without its lease appends goes nowhere."""
        batch = self._batch
        if batch is not self._lane.batch:
            batch = self._batch = self._lane.join(self)
        iteration = entry.kind == "iteration"
        # At most one iteration in a row, so that its row can be found.
        if len(self._pending) >= _ROW_ENTRIES or (iteration and self._loop is not None):
            self.cut(batch)
        self._pending.append(entry_text(entry, self._contents))
        self._seq = entry.seq = self._seq + 1
        if iteration:
            self._loop, self._mark = entry.path, self._seq

    def cut(self, batch: Batch) -> None:
        """Make a row of what waits, in the batch it belongs to."""
        if not self._pending:
            return
        body = f"[{','.join(self._pending)}]"
        try:
            data = body.encode()
        except UnicodeEncodeError:
            body, data = utf8(body)
        first = self._first
        self._sum = total = chained(self._sum, first, data)
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
        """Return what to await until everything appended is durable; None if it is already."""
        if self.failure is not None:
            raise self.failure()
        batch = self._batch
        if batch is None or batch.done:
            return None
        lane = self._lane
        # Where one effect is in flight nobody else could join this batch.
        if lane.runs == 1 and batch is lane.batch and len(self._contents.intents) <= 1:
            lane.commit_here()
            if batch.done:
                return self._settled()
        waiter: asyncio.Future[None] = lane.loop.create_future()
        batch.waiters.append((waiter, self))
        return waiter

    def _settled(self) -> Awaitable[None] | None:
        if self.failure is not None:
            raise self.failure()
        # Others have a share of this thread: timers, signals, tasks.
        overdue = time.monotonic() - self._lane.passed > SHARE
        return asyncio.sleep(0) if overdue else None

    def fail(self, error: JournalError) -> None:
        """Refuse everything from here on: what was appended last may not have been kept."""
        kind, message = type(error), str(error)
        self.failure = lambda: kind(message)

    def lose(self, why: str = "another owner took this run over") -> None:
        """Refuse everything from here on: the run is not ours to write any more."""
        message = f"{self.info.run_id}: {why}"
        self.failure = lambda: OwnershipLost(message)

    async def close(self, info: RunInfo) -> None:
        """Write how far the run is and give it back.

        Raises:
            JournalUnavailable: if the store failed to write; the run is left as interrupted.
        """
        if isinstance(self._error(), OwnershipLost):
            return
        self._lane.runs -= 1
        if self._lane.batch.logs:
            self._lane.hand_over()
        await self._give_back(self, info)
        error = self._error()
        self.lose("it was given back")
        if error is not None and not isinstance(error, OwnershipLost):
            raise error

    def _error(self) -> BaseException | None:
        return self.failure() if self.failure is not None else None
