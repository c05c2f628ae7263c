"""One entry of a memory: what was appended, when, by which run.

What every store of memories offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import ConfigurationError, nearest
from ..records import codec
from ..records.codec import Json

__all__ = ["KINDS", "LARGEST", "LONGEST_NAME", "Memory", "MemoryEntry", "entry", "origin"]


LARGEST = 1 << 20  # bytes of an entry as JSON
LONGEST_NAME = 200  # characters of a space's name
KINDS = (
    "set", "deleted", "cleared", "episode", "feedback", "fact", "reinforced", "contradicted",
    "superseded", "decayed", "consolidated", "cleaned", "note",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """One thing that was appended to a space; `entry` makes a checked one.

    `at` is in seconds since the epoch, `run` the run that appended it, `seq` its number in the
    store, from 1, given when it is appended. With a `key` it is appended to its space once. `value`
    None with the kind `unreadable` stands for an entry that the store found damaged.
    """

    space: str
    kind: str
    value: Json
    at: float
    key: str = ""
    run: str = ""
    seq: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        found = {"seq": self.seq, "space": self.space, "kind": self.kind, "at": self.at}
        if self.run:
            found["run"] = self.run
        return {**found, "value": self.value}


def entry(
    space: str, kind: str, value: Json, *, at: float, key: str = "", run: str = ""
) -> MemoryEntry:
    """Return an entry that a store can keep; its value becomes plain JSON.

    Raises:
        ConfigurationError: for a kind, name, time or size that cannot be.
        StepError: of kind `not_json`, for a value that JSON cannot hold.
    """
    if kind not in KINDS:
        raise ConfigurationError(f"memory: {kind!r} is no kind of entry{nearest(kind, KINDS)}")
    if not space or len(space) > LONGEST_NAME or "\0" in space:
        raise ConfigurationError(
            f"memory: the name of a space has 1 to {LONGEST_NAME} characters, and "
            f"{space[:20]!r} has {len(space)}"
        )
    codec.number("memory: at", at)
    plain = value.to_json() if hasattr(value, "to_json") else value
    kept = codec.normalise(plain, what="memory")
    size = len(codec.encode(kept).encode())
    if size > LARGEST:
        raise ConfigurationError(
            f"memory: {space}: an entry of {size:,} bytes is larger than {LARGEST:,}; keep a "
            "summary, and the rest in a file"
        )
    return MemoryEntry(space=space, kind=kind, value=kept, at=float(at), key=key, run=run)


def origin(key: str) -> str:
    """Return the part of a key that names the effect: what comes before its `~`.

    A run that was rewound does an effect again, with another value. Both entries stay in the log;
    the later one stands in the earlier one's place.
    """
    return key.partition("~")[0]


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
