"""A memory that lasts as long as its process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from ..records.codec import copied
from .entries import MemoryEntry


class InMemory:
    """A memory that lasts as long as its process: that of a MemoryJournal, and for tests."""

    def __init__(self) -> None:
        self._entries: list[MemoryEntry] = []
        self._known: dict[tuple[str, str], int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def append(self, *entries: MemoryEntry) -> list[int]:
        """Append entries and return their numbers; see Memory.append."""
        return [self._append(item) for item in entries]

    def _append(self, item: MemoryEntry) -> int:
        name = (item.space, item.key)
        if item.key and name in self._known:
            return self._known[name]
        seq = len(self._entries) + 1
        self._entries.append(replace(item, value=copied(item.value), seq=seq))
        if item.key:
            self._known[name] = seq
        return seq

    async def entries(
        self, space: str, *, kinds: Sequence[str] = (), after: int = 0, latest: int = 0
    ) -> list[MemoryEntry]:
        """Return the entries of a space in order; see Memory.entries."""
        entries = [
            replace(item, value=copied(item.value))
            for item in self._entries[after:]
            if item.space == space and (not kinds or item.kind in kinds)
        ]
        return entries[-latest:] if latest else entries

    async def spaces(self) -> dict[str, int]:
        """Return the names of the spaces with the number of their entries."""
        return dict(sorted(Counter(item.space for item in self._entries).items()))

    async def close(self) -> None:
        """Do nothing: the memory stays usable."""
