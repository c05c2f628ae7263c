"""What every store of memories offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .entries import MemoryEntry

__all__ = ["Memory"]


class Memory(Protocol):
    """An append-only log of memories; in memory, SQLite and others pass one contract suite."""

    async def append(self, *entries: MemoryEntry) -> list[int]:
        """Append entries, all or none, and return their numbers once they are durable.

        An entry whose key its space has already is not appended again: its number is that of the
        first.

        Raises:
            JournalUnavailable: if it could not be written.
        """

    async def entries(
        self, space: str, *, kinds: Sequence[str] = (), after: int = 0, latest: int = 0
    ) -> list[MemoryEntry]:
        """Return the entries of a space in the order in which they were appended.

        Only those of `kinds`, if any are named, with a number above `after`, and of them the
        `latest`; 0 is all. A damaged entry comes as one of the kind `unreadable`.
        """

    async def spaces(self) -> dict[str, int]:
        """Return the names of the spaces, sorted, with the number of their entries."""

    async def close(self) -> None:
        """Write what is waiting and let go of the store."""
