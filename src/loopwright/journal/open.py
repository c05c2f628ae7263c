"""Where runs are kept: the journals that a URL can name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import parse_qsl

from ..errors import ConfigurationError, nearest
from ..memory import MemoryEntry
from .in_memory import MemoryJournal
from .protocol import Journal

__all__ = ["open_journal", "open_memory"]

_SCHEMES = ("memory", "sqlite")


def open_journal(url: str) -> Journal:
    """Return the journal that a URL names; nothing is touched before it is used.

    `memory:` lives as long as the process. `sqlite:PATH` is a file, made when the first run is
    opened; `sqlite:PATH?synchronous=normal` may lose its last commits at a loss of power, and is
    faster.

    Raises:
        ConfigurationError: naming what cannot be read and the nearest word that can.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"journal: {url!r} is no URL; write sqlite:PATH or memory:")
    scheme, colon, rest = url.partition(":")
    if not colon:
        raise ConfigurationError(
            f"journal: {url!r} names no kind of store; write sqlite:{url} or memory:"
        )
    if scheme not in _SCHEMES:
        guess = nearest(scheme, _SCHEMES) or "; use memory: or sqlite:PATH"
        raise ConfigurationError(f"journal: {url!r}: {scheme!r} is no kind of store{guess}")
    if scheme == "memory":
        if rest:
            raise ConfigurationError(
                f"journal: {url!r} has {rest!r} after memory:; write memory: alone"
            )
        return MemoryJournal()
    return _sqlite(url, rest)


def open_memory(url: str) -> OpenMemory:
    """Return the memory in the store that a URL names; see `open_journal` for the URLs.

    It is a context manager, or close it. A run that has a journal uses the memory in it without
    being told.

    Raises:
        ConfigurationError: as for `open_journal`.
    """
    return OpenMemory(open_journal(url))


class OpenMemory:
    """The memory of a store that was opened for nothing else, and is closed with it."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def append(self, *entries: MemoryEntry) -> list[int]:
        numbers: list[int] = await self._store.memory.append(*entries)
        return numbers

    async def entries(
        self, space: str, *, kinds: Sequence[str] = (), after: int = 0, latest: int = 0
    ) -> list[MemoryEntry]:
        found: list[MemoryEntry] = await self._store.memory.entries(
            space, kinds=kinds, after=after, latest=latest
        )
        return found

    async def spaces(self) -> dict[str, int]:
        found: dict[str, int] = await self._store.memory.spaces()
        return found

    async def close(self) -> None:
        await self._store.close()


def _sqlite(url: str, rest: str) -> Journal:
    path, _, query = rest.partition("?")
    if not path or path == ":memory:" or path.startswith("//"):
        raise ConfigurationError(
            f"journal: {url!r} names no file; write sqlite:PATH, such as sqlite:runs.db, or memory:"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name != "synchronous":
            raise ConfigurationError(
                f"journal: {name!r} in {url!r} is no option of sqlite, which has "
                f"synchronous{nearest(name, ['synchronous'])}"
            )
    # sqlite3 takes longer to import than a run in memory takes to start.
    from .sqlite import SqliteJournal

    return SqliteJournal(path, synchronous=options.get("synchronous", "full"))
