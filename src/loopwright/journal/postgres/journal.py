"""PostgresJournal: the Journal protocol on a PostgreSQL database."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeVar

import psycopg

from ...errors import StepError
from ..file_store import FileStore
from ..recorded.encoding import as_damage
from ..recorded.journal import RecordedJournal
from ..recorded.memory import AppendQueue
from ..recorded.writer import BEAT, Transaction
from .connection import Connection, Row, Server, patiently
from .database import PATIENCE, OnPoint
from .memory import PostgresMemory, append_rows
from .owners import LEASE
from .reader import PostgresWatch, Reader
from .runs import PostgresRuns, prune, prune_files
from .schema import VERSION, notes_of
from .shared_schema import problems_of

T = TypeVar("T")


class PostgresJournal(RecordedJournal[Connection, Reader]):
    """A journal in a PostgreSQL database, which processes on several machines may share.

    Nothing is connected before the first use, which also creates the tables in the schema `loopwright`.
    Use the journal as an async context manager, or close it. `memory` is the memory in the same database.

    Args:
        url: `postgres://USER@HOST:PORT/DATABASE`, or any URL that libpq accepts. Give the password in
            PGPASSWORD or in a service file.
        lease: seconds after which other processes may take the runs of one that is silent (default: 10).
        beat: seconds between two renewals of the lease (default: 0.5).
        patience: seconds for which a commit is repeated while the database is away (default: 60).
        on_point: for tests: called as `on_point(position, n)` by the writer's thread in the n-th
            transaction, at `before`, `in_txn` and `after`.

    Raises:
        ConfigurationError: if the URL is not valid.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: float = LEASE,
        beat: float = BEAT,
        patience: float = PATIENCE,
        on_point: OnPoint | None = None,
    ) -> None:
        self.server = Server(url)
        self.url = url
        self._lease, self.patience = lease, patience
        super().__init__(
            partial(
                PostgresRuns,
                self.server,
                lease=lease,
                beat=beat,
                patience=patience,
                on_point=on_point,
            ),
            beat,
        )

    @property
    def version(self) -> int:
        """The version of the tables."""
        return VERSION

    @property
    def memory(self) -> PostgresMemory:
        """The memory in the same database; it shares the transactions of the journal."""
        return PostgresMemory(self._read_rows, self._perform, self._appends)

    @cached_property
    def _appends(self) -> AppendQueue[Connection]:
        return AppendQueue(append_rows)

    @property
    def files(self) -> FileStore:
        """The files of its runs, in a table of the same database."""
        return PostgresFiles(self.server)

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """Return the result of `work` in a durable transaction of the writer's thread.

        `work` may be repeated, if the database is away before the commit.
        """
        return await self._perform(Transaction(work))

    async def notes(self) -> list[str]:
        """Return what an operator should know about the database."""
        return await self._read(lambda reader: notes_of(reader.db, self._lease))

    async def prune(self, before: float) -> int:
        """Delete the runs that ended before a time, in seconds since the epoch; return their number."""
        deleted = 0
        while count := await self._perform(Transaction(lambda db: prune(db, before))):
            deleted += count
        return deleted

    async def prune_files(self) -> int:
        """Delete the files that were stored over a day ago and that no run uses; return their number."""
        return await self._perform(Transaction(prune_files))

    async def problems(self) -> list[str]:
        """Return what is wrong in the tables that workers share."""
        return await self._read(lambda reader: problems_of(reader.db))

    def watch(self) -> PostgresWatch:
        """Return a detector of commits by any process; see Journal.watch."""
        return PostgresWatch(self.server)

    async def _read_rows(self, work: Callable[[Connection], T]) -> T:
        return await self._read(lambda reader: work(reader.db))

    async def _read(self, work: Callable[[Reader], T]) -> T:
        """Call `work` with the reader, in a thread, once all entries appended here are written."""
        await self._queue().settled()
        if not self._readers:
            await self._perform(Transaction(lambda _: None))  # the writer creates the tables
        return await asyncio.to_thread(self._with_reader, work)

    def _with_reader(self, work: Callable[[Reader], T]) -> T:
        with self._reading:
            try:
                with as_damage(self.server.name):
                    return patiently(lambda: work(self._reader()), self._drop_reader, self.patience)
            except psycopg.Error as error:
                raise self.server.error(error) from error

    def _reader(self) -> Reader:
        if not self._readers:
            db = self.server.connect("reader")
            self._readers.append(Reader(db))
        return self._readers[0]


class PostgresFiles(FileStore):
    """The contents of files that runs use, in a table; see FileStore."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def put(self, content: bytes) -> str:
        """Store a content and return its digest; see FileStore.put."""
        digest = hashlib.sha256(content)
        self._execute(
            # A content that is stored again is used again: `prune` must not take it for an old one.
            "INSERT INTO loopwright.files(digest, body) VALUES (%s, %s) "
            "ON CONFLICT (digest) DO UPDATE SET stored=now()",
            (digest.digest(), content),
        )
        return digest.hexdigest()

    def get(self, digest: str) -> bytes:
        """Return the content with a digest; see FileStore.get."""
        query = "SELECT body FROM loopwright.files WHERE digest=decode(%s, 'hex')"
        rows = self._execute(query, (digest,))
        content = rows[0][0] if rows else None
        if not isinstance(content, bytes) or hashlib.sha256(content).hexdigest() != digest:
            state = "is damaged" if rows else "is missing"
            raise StepError(
                f"the recorded file {digest[:12]} {state} in {self._server.name}",
                kind="file_missing",
            )
        return content

    def digests(self) -> list[str]:
        """Return the digests of all contents."""
        rows = self._execute("SELECT encode(digest, 'hex') FROM loopwright.files", ())
        return [digest.decode() for (digest,) in rows]

    def _execute(self, query: str, values: tuple[object, ...]) -> list[Row]:
        try:
            with self._server.connect("files") as db:
                cursor = db.execute(query, values)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._server.error(error) from error
