"""Every kind of journal passes the one suite."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from loopwright import run
from loopwright.errors import ConfigurationError
from loopwright.journal import Journal, MemoryJournal, open_journal
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.sqlite import Clocks, SqliteJournal
from loopwright.journal.sqlite import ownership as leases

from .contract import JournalContract
from .postgres_stores import PostgresStore


class MemoryStore:
    """A MemoryJournal, which outlives what is called its process."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()

    def crash(self) -> Journal:
        self.journal.crash()
        return self.journal

    async def reopen(self) -> Journal:
        await self.journal.close()
        return self.journal


class SqliteStore:
    """SqliteJournals on one file, each as on a machine of its own; to a later one, the lease of an
    earlier one has run out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made: list[SqliteJournal] = []
        self.journal: Journal = self._another()

    def _another(self) -> SqliteJournal:
        late = 3600.0 * len(self._made)
        clocks = Clocks(wall=lambda: 1_000_000.0 + late)
        self._made.append(SqliteJournal(self._path, synchronous="normal", clocks=clocks))
        return self._made[-1]

    def machine(self) -> str:
        """Return the name of the machine of the latest journal."""
        return f"machine {len(self._made)}"

    def crash(self) -> Journal:
        return self._another()

    async def reopen(self) -> Journal:
        await self._made[-1].close()
        return self._another()

    async def close(self) -> None:
        for journal in self._made:
            await journal.close()


class TestMemoryJournal(JournalContract):
    """The journal of one process keeps the contract."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    def fresh(self) -> tuple[Journal, Callable[[], Coroutine[Any, Any, None]]]:
        journal = MemoryJournal()
        return journal, journal.close


class TestSqliteJournal(JournalContract):
    """The journal in a file keeps the contract."""

    @pytest.fixture
    async def store(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[SqliteStore]:
        made = SqliteStore(tmp_path / "runs.db")
        monkeypatch.setattr(leases, "place", made.machine)
        yield made
        await made.close()

    def fresh(self) -> tuple[Journal, Callable[[], Coroutine[Any, Any, None]]]:
        folder = tempfile.TemporaryDirectory()
        journal = SqliteJournal(Path(folder.name) / "runs.db", synchronous="normal")

        async def end() -> None:
            await journal.close()
            folder.cleanup()

        return journal, end


class TestPostgresJournal(JournalContract):
    """The journal in a PostgreSQL database keeps the contract."""

    @pytest.fixture(autouse=True)
    def database(self, postgres_url: str) -> None:
        self.url = postgres_url

    @pytest.fixture
    async def store(self) -> AsyncIterator[PostgresStore]:
        made = PostgresStore(self.url)
        yield made
        await made.close()

    def fresh(self) -> tuple[Journal, Callable[[], Coroutine[Any, Any, None]]]:
        journal = PostgresJournal(self.url)
        return journal, journal.close


def test_a_url_names_a_journal(tmp_path: Path) -> None:
    """`memory:` and `sqlite:PATH` are journals; nothing is touched before they are used."""
    assert isinstance(open_journal("memory:"), MemoryJournal)
    path = tmp_path / "folder" / "runs.db"
    for url in (f"sqlite:{path}", f"sqlite:{path}?synchronous=normal"):
        journal = open_journal(url)
        assert isinstance(journal, SqliteJournal)
        assert journal.path == path
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (5, "journal: 5 is not a journal URL. Use sqlite:PATH or memory:."),
        (
            "runs.db",
            "journal: 'runs.db' has no scheme. Use sqlite:runs.db for a file, or memory:.",
        ),
        (
            "sqlit:runs.db",
            "journal: 'sqlit:runs.db': unknown scheme 'sqlit'; did you mean 'sqlite'?",
        ),
        (
            "nowhere:x",
            "journal: 'nowhere:x': unknown scheme 'nowhere'; use sqlite:PATH, "
            "postgres://HOST/DATABASE or memory:",
        ),
        ("memory:x", "journal: 'memory:x': unexpected 'x' after memory:. Use memory: alone."),
        (
            "sqlite:",
            "journal: 'sqlite:' has no path. Use sqlite:PATH, such as sqlite:runs.db, or memory:.",
        ),
        (
            "sqlite:///runs.db",
            "journal: 'sqlite:///runs.db' has no path. Use sqlite:PATH, such as sqlite:runs.db, or memory:.",
        ),
        (
            "sqlite:a.db?synchronus=full",
            "journal: 'sqlite:a.db?synchronus=full': unknown option 'synchronus'; did you mean 'synchronous'?",
        ),
        (
            "sqlite:a.db?synchronous=ful",
            "synchronous: 'ful' is neither 'full' nor 'normal'; did you mean 'full'?",
        ),
    ],
)
def test_a_url_that_names_nothing_is_refused(url: str, message: str) -> None:
    """A URL that cannot be read is refused in one sentence, with the nearest word."""
    with pytest.raises(ConfigurationError) as caught:
        open_journal(url)
    assert str(caught.value) == message


@pytest.mark.parametrize("url", ["memory:", "sqlite:{folder}/a.db"])
async def test_a_journal_is_a_context_manager(url: str, tmp_path: Path) -> None:
    """Every store is closed at the end of the block."""
    async with open_journal(url.format(folder=tmp_path)) as journal:
        await run(lambda value: value, 1, journal=journal, run_id="r")
        assert [info.run_id for info in await journal.runs()] == ["r"]
