"""A journal in one SQLite file; see the package for how it keeps its promises."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...errors import ConfigurationError, JournalError, JournalUnavailable, nearest
from ...records import Iteration
from .. import (
    Entry,
    Posted,
    Rewind,
    RunInfo,
    cancel_suspended,
    is_at,
    missing_run,
    set_aside,
    surviving,
)
from .changes import Watch
from .database import Database, OnPoint
from .encoding import Contents
from .errors import as_damage, journal_error
from .inbox import put
from .leases import Clocks
from .memory import SqliteMemory, Together
from .reader import Reader, RecordedEntries
from .rows import RunRow
from .run_log import CommitQueue, SqliteLog
from .run_ownership import (
    OpenedRun,
    ask_to_cancel,
    find_row,
    give_back,
    leave_run,
    rewind_row,
    running,
    take,
)
from .schema import VERSION, connect_reader, expect_journal
from .views import Pages
from .writer import Transaction, Writer

__all__ = ["SqliteJournal"]

T = TypeVar("T")
_SYNCHRONOUS = ("full", "normal")


class SqliteJournal:
    """A journal in one SQLite file, which several processes may use at once with different runs.

    `synchronous` is `full` (what is acknowledged survives a loss of power) or `normal` (the last
    commits may be lost with the power, none with the process). `clocks` are those of leases.
    `on_point(position, n)` is called by the writing thread around the n-th transaction, at
    `before`, `in_txn` and `after`, so that a test can end the process there.

    `memory` is the memory in the same file. The file is made when the first run is opened. Use it as an async context manager, or close it.

    Raises:
        ConfigurationError: if `synchronous` is neither word.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: str = "full",
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
        self._clocks = clocks or Clocks()
        self._on_point = on_point
        self._lanes: dict[asyncio.AbstractEventLoop, CommitQueue] = {}
        self._readers: list[Pages] = []  # one, once something was read
        self._reading = threading.Lock()
        self._together = Together()
        self._renew_writer()

    def _renew_writer(self) -> None:
        database = Database(self.path, self._synchronous, self._clocks, self._on_point)
        self._database = database
        self._writer = Writer(database)
        self._finalizer = weakref.finalize(self, _let_go, self._writer, self._readers)

    @property
    def memory(self) -> SqliteMemory:
        """The memory in the same file, which is written with what the journal writes."""
        return SqliteMemory(self.path, self._order, self._together)

    async def __aenter__(self) -> SqliteJournal:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _lane(self) -> CommitQueue:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            self._lanes = {
                known: lane for known, lane in self._lanes.items() if not known.is_closed()
            }
            lane = self._lanes[loop] = CommitQueue(loop, self._writer.put, self._writer.commit_here)
        return lane

    async def open(
        self, info: RunInfo, *, resume: bool = False, takeover: bool = False
    ) -> SqliteLog:
        """Open a run for writing and take its lease; see Journal.open."""
        if resume:
            self._expect(info.run_id)
        database, writer, lane = self._database, self._writer, self._lane()

        def act(db: sqlite3.Connection) -> tuple[OpenedRun, SqliteLog]:
            taken = take(database, db, info, resume=resume, takeover=takeover)
            contents = Contents(database.new_content)
            give_back = partial(self._give_back, writer)
            return taken, SqliteLog(taken.row, lane, contents, give_back)

        def leave(taken: OpenedRun, log: SqliteLog) -> Transaction[None]:
            status = taken.before or "interrupted"
            return Transaction(
                lambda db: leave_run(db, log, status), lambda _: database.release(log)
            )

        taken, log = await writer.perform(
            Transaction(act, lambda done: database.hold(done[1])),
            unwanted=lambda done: writer.put(leave(*done)),
        )
        try:
            await self._restore(log, taken, info)
        except BaseException:
            with suppress(JournalError):
                await writer.perform(leave(taken, log))
            raise
        return log

    async def _restore(self, log: SqliteLog, taken: OpenedRun, given: RunInfo) -> None:
        row = taken.row
        if not taken.before:
            log.restore(log.info.altered(input=given.input, source=given.source), row.head)
            return
        info, recorded = await self._read(lambda r: (r.complete(row, row.info), r.recorded(row)))
        entries = recorded.entries
        if entries:
            info = info.altered(active=max(info.active, entries[-1].at))
        log.restore(info, recorded.head, recorded.last, surviving(entries), recorded.contents)

    async def _give_back(self, writer: Writer, log: SqliteLog, info: RunInfo) -> None:
        database = writer.database
        await writer.perform(
            Transaction(
                lambda db: give_back(database, db, log, info), lambda _: database.release(log)
            )
        )

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
        """Ask the owner of a run to cancel it; see Journal.cancel."""
        self._expect(run_id)
        database = self._database
        asked = await self._writer.perform(
            Transaction(lambda db: ask_to_cancel(database, db, run_id))
        )
        return asked or await cancel_suspended(self, run_id)

    async def post(self, run_id: str, answer: Posted) -> Posted:
        """Put an answer into the inbox of a run; see Journal.post."""
        self._expect(run_id)
        return await self._writer.perform(
            Transaction(lambda db: put(db, find_row(db, run_id).key, answer))
        )

    async def inbox(self, run_id: str) -> list[Posted]:
        """Return the answers in the inbox of a run; see Journal.inbox."""
        self._expect(run_id)
        return await self._read(lambda reader: reader.inbox(reader.row(run_id)))

    async def rewind(self, run_id: str, path: str) -> Rewind:
        """Set aside what was recorded from `path` on; see Journal.rewind."""
        self._expect(run_id)
        database, now = self._database, self._clocks.wall()

        def read(reader: Reader) -> tuple[RunRow, RecordedEntries]:
            row = reader.row(run_id)
            if reader.find(run_id, now).status == "running":
                raise running(row.info.run_id)
            return row, reader.recorded(row, values=False)

        row, recorded = await self._read(read)
        kept = surviving(recorded.entries)
        count = set_aside(kept, path)
        first = next(e.seq for e in kept if is_at(e, path))
        at = (recorded.last, recorded.head)
        await self._writer.perform(
            Transaction(
                lambda db: rewind_row(database, db, seen=row, path=path, at=at, first=first)
            )
        )
        return Rewind(path, count)

    async def look(self, work: Callable[[Pages, float], T]) -> T:
        """Do something with the reader of pages and the time of now, in a thread.

        Raises:
            JournalUnavailable: if there is no journal at this path yet.
        """
        if not expect_journal(self.path):
            raise JournalUnavailable(f"{self.path}: there is no journal yet; a first run makes it")
        now = self._clocks.wall()

        def read(reader: Pages) -> T:
            with reader.moment():
                return work(reader, now)

        return await self._read(read)

    def watch(self) -> Watch:
        """Return a look at what was committed by any process, which costs microseconds."""
        return Watch(self.path)

    async def close(self) -> None:
        """Write what is waiting, give back what is held and let go of the file.

        A run that is still open is left as interrupted. The journal may be used again: it is opened
        anew.
        """
        lane = self._lanes.get(asyncio.get_running_loop())
        if lane is not None:
            lane.flush()
        await asyncio.to_thread(self._close_reader)
        self._finalizer.detach()
        writer, self._lanes = self._writer, {}
        self._renew_writer()
        await writer.stop()

    def _close_reader(self) -> None:
        with self._reading:
            while self._readers:
                self._readers.pop().close()

    async def _order(self, order: Transaction[T]) -> T:
        """Do something in a transaction of the writer."""
        return await self._writer.perform(order)

    def _expect(self, run_id: str) -> None:
        if not expect_journal(self.path):
            raise missing_run(run_id)

    async def _read(self, work: Callable[[Pages], T]) -> T:
        """Do something with the reader, in a thread, once what was appended here is written."""
        await self._lane().settled()
        try:
            return await asyncio.to_thread(self._with_reader, work)
        except _Outdated:
            await self._writer.perform(
                Transaction(lambda _: None)
            )  # the writer brings the tables forward
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


def _let_go(writer: Writer, readers: list[Pages]) -> None:
    for reader in readers:  # before the writer, who is to be the last: it takes the WAL away
        reader.close()
    writer.stop_soon()


class _Outdated(Exception):
    pass
