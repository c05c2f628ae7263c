"""Journals and memories by URL, and copies of their runs and memories from one journal to another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol, Self
from urllib.parse import parse_qsl

from ..errors import ConfigurationError, JournalDamaged, RunNotFound, nearest
from ..memory import Memory, MemoryEntry
from .in_memory import MemoryJournal
from .protocol import DAMAGED, Journal, RunInfo, RunLog, shown_url

_PAGE = 200  # rows of runs read at a time


@dataclass(frozen=True, slots=True)
class Copied:
    """The outcome for one run.

    Args:
        run_id: the run.
        problem: why it was not copied; empty if it was.
    """

    run_id: str
    problem: str = ""


@asynccontextmanager
async def using(journal: Journal | str) -> AsyncIterator[Journal]:
    """Yield a journal; one that is named by its URL is opened here, and closed at the end."""
    store = open_journal(journal) if isinstance(journal, str) else journal
    try:
        yield store
    finally:
        if store is not journal:
            await store.close()


async def oldest_first(journal: Journal) -> AsyncIterator[RunInfo]:
    """Yield the rows of all runs of a journal, in the order of their creation; a damaged one as lists show it."""
    ids: list[str] = []
    damaged: dict[str, RunInfo] = {}
    while rows := await journal.runs(limit=_PAGE, offset=len(ids)):
        ids += [row.run_id for row in rows]
        damaged |= {row.run_id: row for row in rows if row.status == DAMAGED}
    for run_id in reversed(ids):
        yield damaged.get(run_id) or await journal.find(run_id)


async def copy_runs(source: Journal, target: Journal) -> AsyncIterator[Copied]:
    """Copy all runs that have no live owner and that the target does not have yet.

    Entries, answers in the inbox, rewinds and the rows of runs are the same afterwards, except for the
    number of openings and the names of people, to which PostgreSQL adds the role of the one who copies.
    """
    async for info in oldest_first(source):
        if info.status == DAMAGED:
            yield Copied(info.run_id, info.detail)
        elif info.status == "running":
            yield Copied(info.run_id, "a process is running it")
        elif await _has(target, info.run_id):
            yield Copied(info.run_id, "it exists already")
        else:
            try:
                await _copy(source, target, info)
            except JournalDamaged as error:
                yield Copied(info.run_id, str(error))
            else:
                yield Copied(info.run_id)


async def _has(journal: Journal, run_id: str) -> bool:
    try:
        return (await journal.find(run_id)).run_id == run_id
    except RunNotFound:
        return False


async def _copy(source: Journal, target: Journal, info: RunInfo) -> None:
    entries = await source.entries(info.run_id)
    answers = await source.inbox(info.run_id)
    await target.create([info])
    if info.status != "queued":
        log = await target.open(info, resume=True)
        for entry in entries:
            if entry.kind == "rewound":
                await _settled(log)
                await log.close(replace(log.info, status="interrupted", active=entry.at))
                await target.rewind(info.run_id, entry.path, **(entry.value or {}))
                log = await target.open(info, resume=True)
            else:
                log.append(entry)
        await _settled(log)
        await log.close(replace(info, epoch=log.info.epoch, owner=""))
    for answer in answers:
        await target.post(info.run_id, answer)


async def _settled(log: RunLog) -> None:
    if (written := log.sync()) is not None:
        await written


SCHEMES = "loopwright.journals"
"""The entry points of other stores: the scheme of their URLs, and a function that opens a URL."""
_FORMS = "sqlite:PATH, postgres://HOST/DATABASE or memory:"
_BUILT_IN = ("memory", "sqlite")


class _Store(Journal, Protocol):
    """A journal with a memory in the same store."""

    @property
    def memory(self) -> Memory: ...


def open_journal(url: str) -> Journal:
    """Return the journal at a URL; no file is opened before the first use.

    Args:
        url: `memory:` lasts as long as the process. `sqlite:PATH` is a file, which the first run
            creates. `sqlite:PATH?synchronous=normal` is faster; a loss of power may undo its last
            commits. `postgres://HOST/DATABASE` is a PostgreSQL database, which several machines may
            share (extra `postgres`). Packages add schemes by entry points of `loopwright.journals`.

    Returns:
        The journal; use it as an async context manager, or close it.

    Raises:
        ConfigurationError: for any other URL; names the nearest scheme or option.

    Example:
        >>> open_journal("memory:").__class__.__name__
        'MemoryJournal'
    """
    return _open(url)


def open_memory(url: str) -> OpenMemory:
    """Return the memory in the store at a URL; see `open_journal` for the URLs.

    A run with a journal uses the memory of that journal; this function is for programs that read or
    write memory outside a run. Use the result as an async context manager, or close it.

    Raises:
        ConfigurationError: as for `open_journal`.

    Example:
        >>> import asyncio
        >>> async def example() -> None:
        ...     async with open_memory("memory:") as memory:
        ...         await Space(memory, "notes").note("a value", at=1.0)
        ...         print(await memory.spaces())
        >>> from loopwright.memory import Space
        >>> asyncio.run(example())
        {'notes': 1}
    """
    return OpenMemory(_open(url))


class OpenMemory:
    """The memory of a store that is opened for it alone, and closed with it; see Memory."""

    def __init__(self, store: _Store) -> None:
        self._store = store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def append(self, *entries: MemoryEntry) -> list[int]:
        return await self._store.memory.append(*entries)

    async def entries(
        self, space: str, *, kinds: Sequence[str] = (), after: int = 0, latest: int = 0
    ) -> list[MemoryEntry]:
        return await self._store.memory.entries(space, kinds=kinds, after=after, latest=latest)

    async def spaces(self) -> dict[str, int]:
        return await self._store.memory.spaces()

    async def close(self) -> None:
        await self._store.close()


def _open(url: str) -> _Store:
    if not isinstance(url, str):
        raise ConfigurationError(
            f"journal: {url!r} is not a journal URL. Use sqlite:PATH or memory:."
        )
    scheme, colon, rest = url.partition(":")
    if not colon and scheme.startswith("postgres"):
        raise ConfigurationError(
            f"journal: {shown_url(url)!r} has no colon after its scheme. Use postgres://HOST/DATABASE."
        )
    if not colon:
        raise ConfigurationError(
            f"journal: {url!r} has no scheme. Use sqlite:{url} for a file, or memory:."
        )
    if scheme not in _BUILT_IN:
        return _registered(url, scheme)
    if scheme == "memory":
        if rest:
            raise ConfigurationError(
                f"journal: {url!r}: unexpected {rest!r} after memory:. Use memory: alone."
            )
        return MemoryJournal()
    return _sqlite(url, rest)


def _registered(url: str, scheme: str) -> _Store:
    """Open a URL by the entry point of its scheme."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    points = {point.name: point for point in entry_points(group=SCHEMES)}
    if scheme not in points:
        hint = nearest(scheme, [*_BUILT_IN, *points]) or f"; use {_FORMS}"
        raise ConfigurationError(f"journal: {shown_url(url)!r}: unknown scheme {scheme!r}{hint}")
    opener: Callable[[str], _Store] = points[scheme].load()
    return opener(url)


def _sqlite(url: str, rest: str) -> _Store:
    path, _, query = rest.partition("?")
    # A journal in SQLite's own memory would be another one for each connection.
    if not path or path == ":memory:" or path.startswith("//"):
        raise ConfigurationError(
            f"journal: {url!r} has no path. Use sqlite:PATH, such as sqlite:runs.db, or memory:."
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name != "synchronous":
            hint = nearest(name, ["synchronous"]) or "; the only option is synchronous"
            raise ConfigurationError(f"journal: {url!r}: unknown option {name!r}{hint}")
    # sqlite3 takes longer to import than a run in memory takes to start.
    from .sqlite import SqliteJournal

    return SqliteJournal(path, synchronous=options.get("synchronous", "full"))
