"""Every kind of memory passes the one suite; the SQLite one survives what files go through."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loopwright.errors import ConfigurationError, JournalDamaged, JournalUnavailable
from loopwright.journal import MemoryJournal, open_journal, open_memory
from loopwright.journal.sqlite import SqliteJournal
from loopwright.journal.sqlite.database import SideLock
from loopwright.memory import InMemory, Memory, Space, entry

from .memory_contract import MemoryContract, Store, note, values
from .postgres_stores import query

Play = Callable[[Store], Coroutine[Any, Any, Any]]


class ProcessStore:
    """An InMemory, which outlives what is called its process."""

    def __init__(self) -> None:
        self.memory: Memory = InMemory()

    async def reopen(self) -> Memory:
        return self.memory

    async def close(self) -> None:
        await self.memory.close()


class UrlStore:
    """Memories at one URL, each opened anew."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made = [open_memory(self._url)]
        self.memory: Memory = self._made[0]

    async def reopen(self) -> Memory:
        self._made.append(open_memory(self._url))
        return self._made[-1]

    async def close(self) -> None:
        for memory in self._made:
            await memory.close()


async def _played(play: Play, store: Store) -> None:
    try:
        await play(store)
    finally:
        await store.close()


class TestInMemory(MemoryContract):
    @pytest.fixture
    def opened(self) -> Callable[[Play], None]:
        return lambda play: asyncio.run(_played(play, ProcessStore()))


class TestSqlite(MemoryContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[[Play], None]:
        def run(play: Play) -> None:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            asyncio.run(_played(play, UrlStore(f"sqlite:{folder}/runs.db?synchronous=normal")))

        return run


class TestPostgres(MemoryContract):
    @pytest.fixture
    def opened(self, postgres_url: str) -> Callable[[Play], None]:
        def run(play: Play) -> None:
            query(postgres_url, "DROP SCHEMA IF EXISTS loopwright CASCADE")
            asyncio.run(_played(play, UrlStore(postgres_url)))

        return run


def test_it_is_in_the_journals_own_file(tmp_path: Path) -> None:
    """Runs and memories share one file, which only its owner may read, and one writer."""
    path = tmp_path / "runs.db"

    async def play() -> None:
        async with SqliteJournal(path) as journal:
            await journal.memory.append(note("a"))
            assert await journal.runs() == []
        async with open_memory(f"sqlite:{path}") as memory:
            assert await values(memory) == ["a"]

    asyncio.run(play())
    files = [path, *tmp_path.glob("runs.db-*")]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("SELECT version FROM memory_format").fetchone() == (1,)


def test_reading_makes_no_file(tmp_path: Path) -> None:
    """Looking into a store that is not there finds nothing and leaves nothing behind."""

    async def play() -> None:
        async with open_memory(f"sqlite:{tmp_path / 'none.db'}") as memory:
            assert await memory.spaces() == {} and await memory.entries("s") == []

    asyncio.run(play())
    assert list(tmp_path.iterdir()) == []


def test_an_older_journal_gets_the_tables(tmp_path: Path) -> None:
    """A journal without memories is read as one that has none, and gets their tables by the first."""

    async def play() -> None:
        path = tmp_path / "runs.db"
        async with SqliteJournal(path) as journal:
            await journal.memory.append(note("a"))
        with closing(sqlite3.connect(path)) as db:
            db.execute("DROP TABLE memories")
            db.execute("DROP TABLE memory_format")
            db.commit()
        async with SqliteJournal(path) as journal:
            assert await journal.memory.entries("s") == []
            await journal.memory.append(note("b"))
            assert await values(journal.memory) == ["b"]

    asyncio.run(play())


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """Memories that a newer version wrote are neither read nor added to; the journal goes on."""

    async def play() -> None:
        path = tmp_path / "runs.db"
        async with SqliteJournal(path) as journal:
            await journal.memory.append(note("a"))
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE memory_format SET version=2")
            db.commit()
        async with SqliteJournal(path) as journal:
            with pytest.raises(JournalUnavailable, match="format 2, this version reads 1"):
                await journal.memory.append(note("b"))
            with pytest.raises(JournalUnavailable, match="upgrade"):
                await journal.memory.entries("s")
            assert await journal.runs() == []

    asyncio.run(play())


def test_a_damaged_entry_is_left_out(tmp_path: Path) -> None:
    """An entry that does not match its checksum is not believed; the others are, and it is counted."""

    async def play() -> None:
        path = tmp_path / "runs.db"
        async with SqliteJournal(path) as journal:
            space = Space(journal.memory, "s")
            for text in ("one", "two", "three"):
                await space.remember(text, at=1.0)
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE memories SET value=replace(value,'two','ten') WHERE id=2")
            db.commit()
        async with SqliteJournal(path) as journal:
            view = await Space(journal.memory, "s").view()
            assert [fact.text for fact in view.facts.values()] == ["one", "three"]
            assert view.unreadable == 1

    asyncio.run(play())


def test_all_or_none(tmp_path: Path) -> None:
    """An entry that cannot be keeps nothing of what is appended with it."""

    async def play(memory: Memory) -> None:
        with pytest.raises(ConfigurationError, match="1,048,576"):
            await memory.append(note("a"), note("x" * (1 << 20)))
        assert await memory.entries("s") == []

    asyncio.run(play(InMemory()))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "epsode"}, "did you mean 'episode'"),
        ({"space": ""}, "1 to 200 characters"),
        ({"space": "x" * 201}, "has 201"),
        ({"at": float("nan")}, "not finite"),
    ],
)
def test_entries_that_cannot_be(given: dict[str, Any], told: str) -> None:
    """An entry is checked where it is made: its kind, its space and its time."""
    fields: dict[str, Any] = {"space": "s", "kind": "note", "at": 1.0, **given}
    with pytest.raises(ConfigurationError, match=told):
        entry(fields["space"], fields["kind"], None, at=fields["at"])


def test_memories_by_url() -> None:
    """`memory:` lives as long as what it was opened for; other URLs are read as those of journals."""

    async def play() -> None:
        async with open_memory("memory:") as memory:
            await memory.append(note("a"))
            assert await values(memory) == ["a"]
        journal = open_journal("memory:")
        assert isinstance(journal, MemoryJournal)
        assert await values(journal.memory) == []

    asyncio.run(play())
    with pytest.raises(ConfigurationError, match="sqlite"):
        open_memory("sqlit:x")


def test_an_append_that_is_cancelled_disturbs_no_other(tmp_path: Path) -> None:
    """Of appends made together one may be cancelled; the others are told their numbers."""

    async def play() -> None:
        async with SqliteJournal(tmp_path / "runs.db") as journal:
            memory = journal.memory
            tasks = [asyncio.ensure_future(memory.append(note(n, f"k{n}"))) for n in range(5)]
            await asyncio.sleep(0)
            tasks[2].cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(found[2], asyncio.CancelledError)
            kept = {item.value: item.seq for item in await memory.entries("s")}
            assert all(found[n] == [kept[n]] for n in (0, 1, 3, 4))

    asyncio.run(play())


def test_a_file_that_is_no_journal_has_no_memories(tmp_path: Path) -> None:
    """A look into a file of another kind is an error that says so, not an empty memory."""
    path = tmp_path / "notes.txt"
    path.write_text("just some words\n" * 100)

    async def play() -> None:
        async with open_memory(f"sqlite:{path}") as memory:
            for look in (memory.entries("s"), memory.spaces()):
                with pytest.raises(JournalDamaged, match="it is not an SQLite file"):
                    await look

    asyncio.run(play())


def test_bytes_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    """An entry whose text is no Unicode any more is unreadable in its place; the others are read."""

    async def play() -> None:
        path = tmp_path / "runs.db"
        async with SqliteJournal(path) as journal:
            await journal.memory.append(note("a"), note("b"), note("c"))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE memories SET value=CAST(x'22ff22' AS TEXT) WHERE id=2")
        async with SqliteJournal(path) as journal:
            found = await journal.memory.entries("s")
            assert [item.kind for item in found] == ["note", "unreadable", "note"]
            assert [item.value for item in found] == ["a", None, "c"]

    asyncio.run(play())


def test_an_event_loop_that_ends_loses_no_append_on_its_way(tmp_path: Path) -> None:
    """What was handed over when a loop ends is kept whole, before what comes later."""
    journal = SqliteJournal(tmp_path / "runs.db")
    kept: list[asyncio.Task[list[int]]] = []

    async def leave() -> None:
        appends = (journal.memory.append(note(word), note(word)) for word in "ab")
        kept.extend(map(asyncio.ensure_future, appends))
        for _ in range(3):
            await asyncio.sleep(0)

    async def later() -> None:
        assert await journal.memory.append(note("c")) == [5]
        assert await values(journal.memory) == ["a", "a", "b", "b", "c"]
        await journal.close()

    lock = SideLock(tmp_path / "runs.db-lock")
    with lock:  # another process writes
        asyncio.run(leave())
    lock.close()
    assert all(task.cancelled() for task in kept)
    asyncio.run(later())


@pytest.mark.parametrize(("passes", "number"), [(2, 1), (3, 2)])
def test_who_waits_for_an_append_hears_that_its_work_was_cancelled(
    passes: int, number: int, tmp_path: Path
) -> None:
    """A program that cancels every task but its main one leaves no append waiting for ever, be it
    before the work began or in the middle of it."""

    async def play() -> None:
        main, lock = asyncio.current_task(), SideLock(tmp_path / "runs.db-lock")
        async with SqliteJournal(tmp_path / "runs.db") as journal:
            with lock:  # another process writes
                append = asyncio.ensure_future(journal.memory.append(note("a")))
                for _ in range(passes):
                    await asyncio.sleep(0)
                for task in asyncio.all_tasks() - {main, append}:
                    task.cancel()
                await asyncio.wait({append}, timeout=10)
                assert append.cancelled()
            assert await journal.memory.append(note("b")) == [number]
        lock.close()

    asyncio.run(play())
