"""SqliteJournal: the Journal protocol on one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from ...errors import ConfigurationError, JournalUnavailable, nearest
from ..file_store import FileStore
from ..live_lines import LiveLines
from ..protocol import RunInfo, missing_run
from ..recorded.encoding import as_damage
from ..recorded.journal import RecordedJournal
from ..recorded.memory import AppendQueue
from ..recorded.pages import PageReader
from ..recorded.writer import BEAT, Transaction
from ..views import RunPage, Wanted
from .database import OnPoint, SqliteRuns, files_of
from .leases import LEASE, Clocks
from .memory import SqliteMemory, append_rows
from .schema import VERSION, connect_reader, expect_journal, journal_error
from .views import Pages, SqliteWatch

T = TypeVar("T")
_SYNCHRONOUS = ("full", "normal")


class SqliteJournal(RecordedJournal[sqlite3.Connection, Pages]):
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
        self._clocks = clocks or Clocks()
        super().__init__(
            partial(SqliteRuns, self.path, synchronous, self._clocks, on_point, lease=lease), beat
        )

    @property
    def version(self) -> int:
        """The version of the tables."""
        return VERSION

    @property
    def memory(self) -> SqliteMemory:
        """The memory in the same file; it shares the transactions of the journal."""
        return SqliteMemory(self.path, self._perform, self._appends)

    @property
    def files(self) -> FileStore:
        """The files of its runs, in a folder beside the database."""
        return FileStore(files_of(self.path))

    @property
    def live(self) -> LiveLines:
        """The last lines of running agents, in a folder beside the database."""
        return LiveLines(self.path.with_name(f"{self.path.name}.live"))

    @cached_property
    def _appends(self) -> AppendQueue[sqlite3.Connection]:
        return AppendQueue(partial(append_rows, self.path))

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
        """Return the rows of runs, newest first; none if the file does not exist yet."""
        if not expect_journal(self.path):
            return []
        return await super().runs(
            limit=limit,
            offset=offset,
            name=name,
            status=status,
            text=text,
            queue=queue,
            worker=worker,
        )

    async def look(self, work: Callable[[PageReader], T]) -> T:
        """Call `work` with a reader that reads at one moment, in a thread.

        Raises:
            JournalUnavailable: if no journal exists at this path yet.
        """
        if not expect_journal(self.path):
            raise JournalUnavailable(
                f"{self.path}: this journal does not exist yet; the first run creates it"
            )
        return await super().look(work)

    async def listing(self, wanted: Wanted, work: Callable[[RunPage], T]) -> T:
        """Return the result of `work` on a page of the run list; see Journal.listing."""
        # The page may be open before the first run creates the database.
        if not self.path.exists():
            return work(RunPage([], [], 0))
        return await super().listing(wanted, work)

    def watch(self) -> SqliteWatch:
        """Return a detector of commits by any process, at a cost of microseconds."""
        return SqliteWatch(self.path)

    def _expect(self, run_id: str) -> None:
        if not expect_journal(self.path):
            raise missing_run(run_id)

    async def _read(self, work: Callable[[PageReader], T]) -> T:
        """Call `work` with the reader, in a thread, once all entries appended here are written."""
        # A caller reads what it has appended.
        await self._queue().settled()
        try:
            return await asyncio.to_thread(self._with_reader, work)
        except _Outdated:
            await self._perform(Transaction(lambda _: None))  # the writer migrates the tables
            return await asyncio.to_thread(self._with_reader, work)

    def _with_reader(self, work: Callable[[PageReader], T]) -> T:
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
        return Pages(db, files_of(self.path), self._clocks.wall)


class _Outdated(Exception):
    """The tables are of an older version."""
