"""The Journal protocol on a database, from the writer, the readers and the rows of runs of a store."""

from __future__ import annotations

import asyncio
import copy
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Generic, Protocol, Self, TypeVar

from ...errors import JournalError
from ...records import Iteration, Result
from ..entries import Entry, is_at, set_aside, surviving
from ..inbox import cancel_waiting
from ..protocol import Posted, Rewind, RunInfo, existing_run
from ..results import recorded_result
from ..views import RunPage, RunView, Wanted, Watch
from .log import CommitQueue, DurableLog, OpenedRun
from .pages import PageReader
from .rows import RewindPlan, running
from .writer import Connection, Store, Transaction, Writer

T = TypeVar("T")
Reader = TypeVar("Reader", bound=PageReader)


class OwningStore(Store[Connection], Protocol[Connection]):
    """A database with the rows of runs; methods with a connection work in a transaction."""

    def new_content(self) -> int:
        """Return a content id that no other store uses."""

    def hold(self, log: DurableLog) -> None:
        """Register a run that was opened; an older log of the same run loses it."""

    def release(self, log: DurableLog) -> None:
        """Remove a run that was given back."""

    def take(self, db: Connection, info: RunInfo, *, resume: bool, takeover: bool) -> OpenedRun:
        """Take the lease of a run, which is created if it is new. Raises RunNotFound, RunLocked."""

    def create(self, db: Connection, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs without an owner; return the ids of those that are new."""

    def give_back(self, log: DurableLog, info: RunInfo, db: Connection) -> DurableLog:
        """Write the row of a run and release it, if the log still owns it; return the log."""

    def leave(self, log: DurableLog, status: str, db: Connection) -> DurableLog:
        """Release a run with a status and no other change; return the log."""

    def request_cancel(self, db: Connection, run_id: str) -> bool:
        """Ask the owner of a run to cancel it; return whether it has a live owner."""

    def rewind(self, db: Connection, plan: RewindPlan) -> None:
        """Record a rewind of a run without an owner. Raises RunLocked."""

    def share(self, db: Connection, origin: int, run: int) -> None:
        """Let a run refer to the contents of another one, by their keys."""

    def post(self, db: Connection, run_id: str, answer: Posted) -> Posted:
        """Store an answer unless the question has one; return the answer that is stored."""


class RecordedJournal(ABC, Generic[Connection, Reader]):
    """A journal in a database; a store adds its connections and statements."""

    def __init__(self, new_database: Callable[[], OwningStore[Connection]], beat: float) -> None:
        self._new_database = new_database
        self._beat = beat  # seconds between renewals of the leases
        self._queues: dict[asyncio.AbstractEventLoop, CommitQueue] = {}
        self._readers: list[Reader] = []  # one, after the first read
        # One connection for all readers, because a connection is for one thread at a time.
        self._reading = threading.Lock()
        self._begin()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _begin(self) -> None:
        """Use a new database and writer from now on; nothing is opened before the first use."""
        self._database = self._new_database()
        self._writer = Writer(self._database, self._beat)
        # A journal that is dropped without `close` still releases its leases.
        self._finalizer = weakref.finalize(self, _release, self._writer, self._readers)

    @abstractmethod
    async def _read(self, work: Callable[[PageReader], T]) -> T:
        """Call `work` with a reader, in a thread, once all entries appended here are written."""

    def _expect(self, run_id: str) -> None:
        """Raise RunNotFound if this journal does not exist yet."""

    def _queue(self) -> CommitQueue:
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            # Each `run_sync` has another event loop; those that ended are dropped here.
            self._queues = {k: queue for k, queue in self._queues.items() if not k.is_closed()}
            queue = self._queues[loop] = CommitQueue(loop, self._writer.put)
        return queue

    async def open(
        self, info: RunInfo, *, resume: bool = False, takeover: bool = False
    ) -> DurableLog:
        """Open a run for writing and take its lease; see Journal.open."""
        if resume:
            self._expect(info.run_id)
        database, writer, queue = self._database, self._writer, self._queue()
        give_back = partial(writer.give_back, database.give_back, database.release)

        def work(db: Connection) -> DurableLog:
            opened = database.take(db, info, resume=resume, takeover=takeover)
            return DurableLog(opened, queue, database.new_content, give_back)

        def leave(log: DurableLog) -> Transaction[Connection, DurableLog]:
            status = log.before or "interrupted"
            return Transaction(
                partial(database.leave, log, status), database.release, releasing=True
            )

        def undo(taken: asyncio.Future[DurableLog]) -> None:
            if not taken.cancelled() and taken.exception() is None:
                writer.put(leave(taken.result()))

        taken = writer.perform(
            Transaction(work, database.hold, opening=None if resume else info, owning=True)
        )
        # Shielded: the transaction cannot be taken back, so a run that was taken must be released.
        try:
            log = await asyncio.shield(taken)
        except asyncio.CancelledError:
            taken.add_done_callback(undo)
            await asyncio.wait({taken})
            raise
        if log.before:
            # A run whose entries cannot be read is released, or it would stay locked by a live process.
            try:
                await self._restore(log)
            except BaseException:
                with suppress(JournalError):
                    await writer.perform(leave(log))
                raise
        return log

    async def _restore(self, log: DurableLog) -> None:
        row = log.row
        info, recorded = await self._read(lambda r: (r.complete(row, row.info), r.recorded(row)))
        entries = recorded.entries
        if entries:
            # A process that was killed did not write its row, but its entries have the time.
            info = replace(info, active=max(info.active, entries[-1].at))
        log.restore(info, recorded.head, recorded.last, surviving(entries), recorded.contents)

    async def create(self, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs that no process has opened yet; see Journal.create."""
        database = self._database
        return await self._perform(Transaction(lambda db: database.create(db, runs)))

    async def find(self, run_id: str) -> RunInfo:
        """Return the row of a run; see Journal.find."""
        self._expect(run_id)
        return (await self._read(lambda reader: reader.find(run_id))).view()

    async def runs(
        self,
        *,
        limit: int = 50,
        offset: int = 0,
        name: str = "",
        status: str = "",
        text: str = "",
        queue: str = "",
        worker: str = "",
    ) -> list[RunInfo]:
        """Return the rows of runs, newest first."""
        wanted = Wanted(name, status, text=text, limit=limit, queue=queue, worker=worker)
        return [row.view() for row in await self._rows(wanted, offset)]

    async def _rows(self, wanted: Wanted, offset: int) -> list[RunInfo]:
        return await self._read(lambda reader: reader.runs(wanted, offset))

    async def entries(self, run_id: str, *, after: int = 0, limit: int = 0) -> list[Entry]:
        """Return the entries of a run after a number; see Journal.entries."""
        self._expect(run_id)
        return await self._read(lambda reader: reader.entries(reader.row(run_id), after, limit))

    async def iterations(
        self, run_id: str, *, loop: str = "", offset: int = 0, limit: int = 100
    ) -> list[tuple[str, Iteration]]:
        """Return (loop path, iteration) pairs by page; see Journal.iterations."""
        self._expect(run_id)
        return await self._read(
            lambda reader: reader.iterations(reader.row(run_id), loop, offset, limit)
        )

    async def result(self, run_id: str) -> Result:
        """Return the recorded result of a run; see Journal.result."""
        info = await self.find(run_id)
        return recorded_result(info, await self.entries(info.run_id))

    async def cancel(self, run_id: str) -> bool:
        """Request the cancellation of a run; see Journal.cancel."""
        self._expect(run_id)
        database = self._database
        requested = await self._perform(Transaction(lambda db: database.request_cancel(db, run_id)))
        return requested or await cancel_waiting(self, run_id)

    async def post(self, run_id: str, answer: Posted) -> Posted:
        """Put an answer into the inbox of a run; see Journal.post."""
        self._expect(run_id)
        database = self._database

        def announce(_: Posted) -> None:
            # The owner may be this store, whose own commits it does not look for.
            for log in database.logs.values():
                if log.info.run_id == run_id:
                    log.announce_posted()

        return await self._perform(
            Transaction(lambda db: database.post(db, run_id, answer), announce)
        )

    async def inbox(self, run_id: str) -> list[Posted]:
        """Return the answers in the inbox of a run; see Journal.inbox."""
        self._expect(run_id)
        return await self._read(lambda reader: reader.inbox(reader.row(run_id)))

    async def fork(self, origin: str, info: RunInfo, entries: Sequence[Entry]) -> None:
        """Create a run that begins with entries of another one; see Journal.fork."""
        self._expect(origin)
        database = self._database
        if not await self._perform(Transaction(lambda db: database.create(db, [info]))):
            raise existing_run(info.run_id)
        row, recorded = await self._read(lambda r: (r.row(origin), r.recorded(r.row(origin))))
        log = await self.open(info, resume=True)
        await self._perform(Transaction(lambda db: database.share(db, row.key, log.key)))
        # The texts of long values are recognised by their digests, and only referred to.
        log.share(recorded.contents)
        # In one pass of the event loop, and so in one transaction: a fork has all its entries or none.
        for entry in entries:
            log.append(copy.copy(entry))
        await log.close(replace(info, epoch=log.info.epoch, status="interrupted", owner=""))

    async def rewind(self, run_id: str, path: str) -> Rewind:
        """Discard the recorded results from `path` onward; see Journal.rewind."""
        self._expect(run_id)
        database = self._database

        def read(reader: PageReader) -> tuple[RewindPlan, int]:
            row = reader.row(run_id)
            if reader.shown(run_id)[1].status == "running":
                raise running(row.info.run_id)
            recorded = reader.recorded(row, values=False)
            remaining = surviving(recorded.entries)
            count = set_aside(remaining, path)
            first = next(entry.seq for entry in remaining if is_at(entry, path))
            return RewindPlan(row, path, recorded.last, recorded.head, first), count

        # Read outside the transaction, which is short; `OwningStore.rewind` refuses a run that changed
        # meanwhile.
        plan, count = await self._read(read)
        await self._perform(Transaction(lambda db: database.rewind(db, plan)))
        return Rewind(path, count)

    async def look(self, work: Callable[[PageReader], T]) -> T:
        """Call `work` with a reader that reads at one moment, in a thread."""

        def read(reader: PageReader) -> T:
            with reader.moment():
                return work(reader)

        return await self._read(read)

    async def view(self, run_id: str, work: Callable[[RunView], T]) -> T:
        """Return the result of `work` on the view of a run; see Journal.view."""
        return await self.look(lambda reader: work(reader.view(run_id)))

    async def listing(self, wanted: Wanted, work: Callable[[RunPage], T]) -> T:
        """Return the result of `work` on a page of the run list; see Journal.listing."""
        return await self.look(lambda reader: work(reader.listing(wanted)))

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of the tables."""

    async def prepare(self) -> int:
        """Create or migrate the tables, and return their version."""
        await self._perform(Transaction(lambda _: None))
        return self.version

    async def notes(self) -> list[str]:
        """Return what an operator should know about the database."""
        return []

    @abstractmethod
    def watch(self) -> Watch:
        """Return a detector of commits by any process; see Journal.watch."""

    async def close(self) -> None:
        """Write all waiting entries, release all runs and close the connections.

        An open run is left as interrupted. The next use of the journal opens it again.
        """
        queue = self._queues.get(asyncio.get_running_loop())
        if queue is not None and queue.batch.logs:
            queue.flush()
        if self._readers or self._reading.locked():
            await asyncio.to_thread(self._close_reader)
        self._finalizer.detach()
        # Renewed before the old one ends, so that a use meanwhile opens the journal again.
        writer, self._queues = self._writer, {}
        self._begin()
        await writer.stop()

    def _close_reader(self) -> None:
        with self._reading:
            self._drop_reader()

    def _drop_reader(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def _perform(self, transaction: Transaction[Connection, T]) -> asyncio.Future[T]:
        return self._writer.perform(transaction)


def _release(writer: Writer[Connection], readers: Sequence[PageReader]) -> None:
    # Readers first: the last connection to SQLite removes the write-ahead log.
    for reader in readers:
        reader.close()
    writer.stop_soon()
