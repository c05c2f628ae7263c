"""The entries of a memory, the protocol that every store of memories implements, and the store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from ..errors import ConfigurationError, nearest
from ..records import codec
from ..records.codec import Json, copied

LARGEST = 1 << 20  # bytes of an entry as JSON: a view reads all entries of its space
LONGEST_NAME = 200  # characters of a space's name
KINDS = (
    "set", "deleted", "cleared", "episode", "feedback", "fact", "reinforced", "contradicted",
    "superseded", "decayed", "consolidated", "cleaned", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One entry of a space; `entry` returns a checked one.

    Args:
        space: the name of the space.
        kind: one of KINDS; `unreadable`, with the value None, for a damaged entry.
        value: the value, as JSON.
        at: seconds since the epoch.
        key: with a key, the entry is appended to its space once.
        run: the id of the run that appended it.
        seq: its number in the store, from 1; assigned by the store.
    """

    space: str
    kind: str
    value: Json
    at: float
    key: str = ""
    run: str = ""
    seq: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return the entry as a JSON object."""
        run = {"run": self.run} if self.run else {}
        data = {"seq": self.seq, "space": self.space, "kind": self.kind, "at": self.at}
        return {**data, **run, "value": self.value}


def entry(
    space: str, kind: str, value: Json, *, at: float, key: str = "", run: str = ""
) -> MemoryEntry:
    """Return a checked entry; its value becomes plain JSON.

    Args:
        space: the name of the space.
        kind: one of KINDS.
        value: the value.
        at: seconds since the epoch.
        key: with a key, the entry is appended to its space once (default: "").
        run: the id of the run that appends it (default: "").

    Raises:
        ConfigurationError: for an invalid kind, name or time, or a value above 1 MiB.
        StepError: of kind `not_json`, for a value that JSON cannot hold.

    Example:
        >>> entry("notes", "note", {"a": 1}, at=2.0).to_json()
        {'seq': 0, 'space': 'notes', 'kind': 'note', 'at': 2.0, 'value': {'a': 1}}
    """
    if kind not in KINDS:
        raise ConfigurationError(f"memory: unknown kind of entry {kind!r}{nearest(kind, KINDS)}")
    # NUL separates the fields of a checksum in the SQLite store.
    if not space or len(space) > LONGEST_NAME or "\0" in space:
        raise ConfigurationError(
            f"memory: the name of a space has 1 to {LONGEST_NAME} characters, and "
            f"{space[:20]!r} has {len(space)}"
        )
    codec.number("memory: at", at)
    plain = value.to_json() if hasattr(value, "to_json") else value
    recorded = codec.normalise(plain, what="memory")
    # In bytes, as the store counts them: a character may have four.
    size = len(codec.encode(recorded).encode())
    if size > LARGEST:
        raise ConfigurationError(
            f"memory: {space}: an entry of {size:,} bytes is larger than {LARGEST:,}; record a "
            "summary, and keep the rest in a file"
        )
    return MemoryEntry(space=space, kind=kind, value=recorded, at=float(at), key=key, run=run)


def origin(key: str) -> str:
    """Return the part of a key before its `~`, which names the effect.

    A rewound run repeats an effect with another value. Both entries stay in the log, and the later one
    replaces the earlier one in views.
    """
    return key.partition("~")[0]


class Memory(Protocol):
    """An append-only log of memories; all stores pass one suite of tests."""

    async def append(self, *entries: MemoryEntry) -> list[int]:
        """Append entries, all or none, and return their numbers once they are durable.

        An entry with a key that exists in its space is not appended; its number is that of the existing
        entry.

        Raises:
            JournalUnavailable: if the store could not be written.
        """

    async def entries(
        self, space: str, *, kinds: Sequence[str] = (), after: int = 0, latest: int = 0
    ) -> list[MemoryEntry]:
        """Return the entries of a space in the order of their numbers.

        Args:
            space: the name of the space.
            kinds: only entries of these kinds (default: all).
            after: only entries with a higher number.
            latest: only this many entries, the latest; 0 is all.

        Returns:
            The entries; a damaged one has the kind `unreadable`.
        """

    async def spaces(self) -> dict[str, int]:
        """Return the names of the spaces, sorted, with the number of their entries."""

    async def close(self) -> None:
        """Write all waiting entries and close the store."""


class InMemory:
    """A memory that lasts as long as its process: that of a MemoryJournal, and for tests."""

    def __init__(self) -> None:
        self._entries: list[MemoryEntry] = []
        self._numbers: dict[tuple[str, str], int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def append(self, *entries: MemoryEntry) -> list[int]:
        """Append entries and return their numbers; see Memory.append."""
        # Nothing is awaited between them, so the entries are appended together.
        return [self._append(item) for item in entries]

    def _append(self, item: MemoryEntry) -> int:
        name = (item.space, item.key)
        if item.key and name in self._numbers:
            return self._numbers[name]
        seq = len(self._entries) + 1
        # Copied at both ends, so that no caller can change the log.
        self._entries.append(replace(item, value=copied(item.value), seq=seq))
        if item.key:
            self._numbers[name] = seq
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
