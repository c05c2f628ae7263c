"""SqliteJournal: the Journal protocol on one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from ...errors import ConfigurationError, JournalError, JournalUnavailable, nearest
from ...records import Iteration
from ..entries import Entry, is_at, set_aside, surviving
from ..file_store import FileStore
from ..inbox import cancel_waiting
from ..protocol import Posted, Rewind, RunInfo, missing_run
from ..recorded.encoding import Contents, as_damage
from ..recorded.writer import BEAT, CommitQueue, DurableLog, Transaction, Writer
from .database import Database, OnPoint
from .leases import LEASE, Clocks
from .memory import AppendQueue, SqliteMemory
from .reader import Reader
from .run_ownership import (
    OpenedRun,
    RewindPlan,
    create_queued,
    find_row,
    give_back,
    leave_run,
    put,
    request_cancel,
    rewind_row,
    running,
    take,
)
from .schema import VERSION, connect_reader, expect_journal, journal_error
from .views import Pages, Watch

T = TypeVar("T")
_SYNCHRONOUS = ("full", "normal")


class SqliteJournal:
    """A journal in one SQLite file. Several processes may use it at once with different runs.

    The file is created when the first run is opened. Use the journal as an async context manager,
    or close it. `memory` is the memory in the same file.

    Args:
        path: the file.
        synchronous: `full` (default): a commit survives a loss of power. `normal`: a loss of power may
            undo the last commits, the end of the process does not.
        lease: seconds after which another machine may take the runs of a process that is silent
            (default: 10).
        beat: seconds between two renewals of the lease (default: 0.5).
        clocks: the clocks of the leases (default: the system's).
        on_point: for tests: called as `on_point(position, n)` by the writer's thread in the n-th
            transaction, at `before`, `in_txn` and `after`.

    Raises:
        ConfigurationError: if `synchronous` has another value.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: str = "full",
        lease: float = LEASE,
        beat: float = BEAT,
        clocks: Clocks | None = None,
        on_point: OnPoint | None = None,
    ) -> None:
        if synchronous not in _SYNCHRONOUS:
            raise ConfigurationError(
                f"synchronous: {synchronous!r} is neither 'full' nor 'normal'"
                f"{nearest(synchronous, _SYNCHRONOUS)}"
            )
        self.path = Path(path)
        self._synchronous = synchronous
        self._lease, self._beat = lease, beat
        self._clocks = clocks or Clocks()
        self._on_point = on_point
        self._queues: dict[asyncio.AbstractEventLoop, CommitQueue] = {}
        self._readers: list[Pages] = []  # one, after the first read
        # One connection for all readers: SQLite's is for one thread at a time.
        self._reading = threading.Lock()
        self._renew_writer()

    def _renew_writer(self) -> None:
        database = Database(
            self.path, self._synchronous, self._clocks, self._on_point, lease=self._lease
        )
        self._database = database
        self._writer = Writer(database, self._beat)
        # A journal that is dropped without `close` still releases its leases.
        self._finalizer = weakref.finalize(self, _release, self._writer, self._readers)

    @property
    def memory(self) -> SqliteMemory:
        """The memory in the same file; it shares the transactions of the journal."""
        return SqliteMemory(self.path, self._perform, self._appends)

    @property
    def files(self) -> FileStore:
        """The files of its runs, in a folder beside the database."""
        return FileStore(self.path.with_name(f"{self.path.name}.files"))

    @cached_property
    def _appends(self) -> AppendQueue:
        return AppendQueue(self.path)

    async def __aenter__(self) -> SqliteJournal:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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

        def work(db: sqlite3.Connection) -> tuple[OpenedRun, DurableLog]:
            opened = take(database, db, info, resume=resume, takeover=takeover)
            contents = Contents(database.new_content)
            close = partial(_give_back, writer, database)
            return opened, DurableLog(opened.row, queue, contents, close)

        def leave(
            opened: OpenedRun, log: DurableLog
        ) -> Transaction[sqlite3.Connection, DurableLog]:
            status = opened.before or "interrupted"
            return Transaction(partial(leave_run, log, status), database.release)

        opened, log = await writer.perform(
            Transaction(work, lambda done: database.hold(done[1])),
            unwanted=lambda done: writer.put(leave(*done)),
        )
        # A run whose entries cannot be read is released, or it would stay locked by a live process.
        try:
            await self._restore(log, opened)
        except BaseException:
            with suppress(JournalError):
                await writer.perform(leave(opened, log))
            raise
        return log

    async def _restore(self, log: DurableLog, opened: OpenedRun) -> None:
        row = opened.row
        if not opened.before:
            log.restore(row.info, row.head)
            return
        info, recorded = await self._read(lambda r: (r.complete(row, row.info), r.recorded(row)))
        entries = recorded.entries
        if entries:
            # A process that was killed did not write its row, but its entries have the time.
            info = replace(info, active=max(info.active, entries[-1].at))
        log.restore(info, recorded.head, recorded.last, surviving(entries), recorded.contents)

    async def create(self, runs: Sequence[RunInfo]) -> list[str]:
        """Create runs that no process has opened yet; see Journal.create."""
        database = self._database
        return await self._perform(Transaction(lambda db: create_queued(database, db, runs)))

    async def find(self, run_id: str) -> RunInfo:
        """Return the row of a run; see Journal.find."""
        self._expect(run_id)
        now = self._clocks.wall()
        return (await self._read(lambda reader: reader.find(run_id, now))).view()

    async def runs(
        self, *, limit: int = 50, offset: int = 0, name: str = "", status: str = "", text: str = ""
    ) -> list[RunInfo]:
        """Return the rows of runs, newest first."""
        if not expect_journal(self.path):
            return []
        now = self._clocks.wall()
        rows = await self._read(
            lambda r: r.runs(now, limit=limit, offset=offset, name=name, status=status, text=text)
        )
        return [row.view() for row in rows]

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

    async def cancel(self, run_id: str) -> bool:
        """Request the cancellation of a run; see Journal.cancel."""
        self._expect(run_id)
        database = self._database
        requested = await self._perform(
            Transaction(lambda db: request_cancel(database, db, run_id))
        )
        return requested or await cancel_waiting(self, run_id)

    async def post(self, run_id: str, answer: Posted) -> Posted:
        """Put an answer into the inbox of a run; see Journal.post."""
        self._expect(run_id)
        return await self._perform(
            Transaction(lambda db: put(db, find_row(db, run_id).key, answer))
        )

    async def inbox(self, run_id: str) -> list[Posted]:
        """Return the answers in the inbox of a run; see Journal.inbox."""
        self._expect(run_id)
        return await self._read(lambda reader: reader.inbox(reader.row(run_id)))

    async def rewind(self, run_id: str, path: str) -> Rewind:
        """Discard the recorded results from `path` onward; see Journal.rewind."""
        self._expect(run_id)
        database, now = self._database, self._clocks.wall()

        def read(reader: Reader) -> tuple[RewindPlan, int]:
            row = reader.row(run_id)
            if reader.find(run_id, now).status == "running":
                raise running(row.info.run_id)
            recorded = reader.recorded(row, values=False)
            remaining = surviving(recorded.entries)
            count = set_aside(remaining, path)
            first = next(entry.seq for entry in remaining if is_at(entry, path))
            return RewindPlan(row, path, recorded.last, recorded.head, first), count

        # Read outside the transaction, which is short; `rewind_row` refuses a run that changed
        # meanwhile.
        plan, count = await self._read(read)
        await self._perform(Transaction(lambda db: rewind_row(database, db, plan)))
        return Rewind(path, count)

    async def look(self, work: Callable[[Pages, float], T]) -> T:
        """Call `work` with a reader of pages and the present time, in a thread.

        Raises:
            JournalUnavailable: if no journal exists at this path yet.
        """
        if not expect_journal(self.path):
            raise JournalUnavailable(
                f"{self.path}: this journal does not exist yet; the first run creates it"
            )
        now = self._clocks.wall()

        def read(reader: Pages) -> T:
            with reader.moment():
                return work(reader, now)

        return await self._read(read)

    def watch(self) -> Watch:
        """Return a detector of commits by any process, at a cost of microseconds."""
        return Watch(self.path)

    async def close(self) -> None:
        """Write all waiting entries, release all runs and close the file.

        An open run is left as interrupted. The next use of the journal opens it again.
        """
        queue = self._queues.get(asyncio.get_running_loop())
        if queue is not None:
            queue.flush()
        await asyncio.to_thread(self._close_reader)
        self._finalizer.detach()
        # Renewed before the old one ends, so that a use meanwhile opens the journal again.
        writer, self._queues = self._writer, {}
        self._renew_writer()
        await writer.stop()

    def _close_reader(self) -> None:
        with self._reading:
            while self._readers:
                self._readers.pop().close()

    async def _perform(self, transaction: Transaction[sqlite3.Connection, T]) -> T:
        return await self._writer.perform(transaction)

    def _expect(self, run_id: str) -> None:
        if not expect_journal(self.path):
            raise missing_run(run_id)

    async def _read(self, work: Callable[[Pages], T]) -> T:
        """Call `work` with the reader, in a thread, once all entries appended here are written."""
        # A caller reads what it has appended.
        await self._queue().settled()
        try:
            return await asyncio.to_thread(self._with_reader, work)
        except _Outdated:
            await self._perform(Transaction(lambda _: None))  # the writer migrates the tables
            return await asyncio.to_thread(self._with_reader, work)

    def _with_reader(self, work: Callable[[Pages], T]) -> T:
        with self._reading:
            try:
                with as_damage(str(self.path)):
                    if not self._readers:
                        self._readers.append(self._connect())
                    return work(self._readers[0])
            except (sqlite3.Error, OSError) as error:
                raise journal_error(error, str(self.path)) from error

    def _connect(self) -> Pages:
        db, version = connect_reader(self.path)
        if version != VERSION:
            db.close()
            raise _Outdated
        return Pages(db, self._database.files)


async def _give_back(
    writer: Writer[sqlite3.Connection], database: Database, log: DurableLog, info: RunInfo
) -> None:
    await writer.perform(Transaction(partial(give_back, database, log, info), database.release))


def _release(writer: Writer[sqlite3.Connection], readers: list[Pages]) -> None:
    for reader in readers:  # before the writer: the last connection removes the WAL
        reader.close()
    writer.stop_soon()


class _Outdated(Exception):
    """The tables are of an older version."""
