"""The half of a memory that every database shares: rows with checksums, and appends of one pass."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

from ...memory import MemoryEntry
from ...records import codec
from ...records.codec import Json
from .encoding import Value, utf8
from .writer import Connection, Transaction

_SUM = 8  # bytes of a checksum: it detects accidental damage, not forgery

MemoryRow = tuple[Value, ...]
Numbers = list[int]
Perform = Callable[[Transaction[Connection, Numbers]], Awaitable[Numbers]]
Waiting = list[tuple[list[MemoryRow], asyncio.Future[list[int]]]]


def memory_row(item: MemoryEntry) -> MemoryRow:
    """Return the values of an entry: space, kind, at, run, key, value, checksum."""
    texts = (item.space, item.kind, item.run, item.key, codec.encode(item.value))
    space, kind, run, key, value = (utf8(text)[0] for text in texts)
    row = (space, kind, item.at, run, key, value)
    return (*row, _sum(row))


def _sum(row: MemoryRow) -> bytes:
    # NUL cannot be in a text, so no two rows have the same data.
    data = "\0".join(map(str, row)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=_SUM).digest()


class AppendQueue(Generic[Connection]):
    """Collects the appends of one pass of an event loop into one transaction; one for each journal.

    `append` inserts rows within a transaction and returns their numbers.
    """

    def __init__(self, append: Callable[[Connection, Sequence[MemoryRow]], Numbers]) -> None:
        self._append = append
        self._waiting: dict[asyncio.AbstractEventLoop, Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def join(
        self, rows: list[MemoryRow], perform: Perform[Connection]
    ) -> asyncio.Future[list[int]]:
        """Return a future for the numbers of rows."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[int]] = loop.create_future()
        if loop not in self._waiting:
            self._waiting = {
                other: waiting for other, waiting in self._waiting.items() if not other.is_closed()
            }
            self._waiting[loop] = []
            # At the end of the pass, so that the appends of all runs share one transaction.
            loop.call_soon(self._flush, loop, perform)
        self._waiting[loop].append((rows, waiter))
        return waiter

    def _flush(self, loop: asyncio.AbstractEventLoop, perform: Perform[Connection]) -> None:
        waiting = self._waiting.pop(loop)
        task = loop.create_task(self._commit(waiting, perform))
        # The event loop holds tasks by weak references only.
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            for _, waiter in waiting:  # those of a task that was cancelled before it began
                waiter.cancel()

        task.add_done_callback(ended)

    async def _commit(self, waiting: Waiting, perform: Perform[Connection]) -> None:
        rows = [row for mine, _ in waiting for row in mine]

        try:
            numbers = await perform(Transaction(lambda db: self._append(db, rows)))
        except BaseException as error:
            for _, waiter in waiting:
                if not waiter.done() and not isinstance(error, asyncio.CancelledError):
                    waiter.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for mine, waiter in waiting:
            own, numbers = numbers[: len(mine)], numbers[len(mine) :]
            if not waiter.done():  # the caller may have been cancelled
                waiter.set_result(own)


def memory_entry(row: tuple[Json, ...]) -> MemoryEntry:
    """Return a row as an entry; a row that does not match its checksum is unreadable."""
    seq, *stored, checksum = row
    # A damaged entry does not prevent the others from being read.
    try:
        values: list[Json] = [item.decode() if isinstance(item, bytes) else item for item in stored]
        if _sum(tuple(values)) == checksum:
            space, kind, at, run, key, value = values
            decoded = codec.decode(value)
            return MemoryEntry(space, kind, value=decoded, at=at, key=key, run=run, seq=seq)
    except (ValueError, RecursionError):
        pass
    space = stored[0].decode("utf-8", "replace")
    return MemoryEntry(space, "unreadable", None, 0.0, seq=seq)
