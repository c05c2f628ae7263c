"""The SQLite journal: which files are taken for one, and formats older and newer than its own."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright.errors import JournalDamaged, JournalError, JournalUnavailable, RunNotFound
from loopwright.journal import RunInfo
from loopwright.journal.sqlite import SqliteJournal, tables
from loopwright.journal.sqlite.tables import VERSION

from .recording import info, recorded, rounds
from .sqlite_files import filled, query


@pytest.mark.parametrize(
    ("contents", "kind", "message"),
    [
        (
            b"a text that somebody wrote, long enough to be taken for a database" * 9,
            JournalDamaged,
            "it is not an SQLite file; name another, or restore it from a backup",
        ),
    ],
)
async def test_a_file_that_is_no_journal_is_refused(
    tmp_path: Path, contents: bytes, kind: type[JournalError], message: str
) -> None:
    """A file of another kind where runs are expected is an error."""
    path = tmp_path / "runs.db"
    path.write_bytes(contents)
    made = SqliteJournal(path)
    calls: list[Callable[[], Any]] = [
        lambda: made.find("run-1"),
        lambda: made.runs(),
        lambda: made.open(info(), resume=True),
        lambda: made.entries("run-1"),
        lambda: made.cancel("run-1"),
    ]
    for call in calls:
        with pytest.raises(kind) as caught:
            await call()
        assert str(caught.value) == f"{path}: {message}"
    await made.close()
    assert path.read_bytes() == contents


async def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """An SQLite file that some other program made is neither read nor written."""
    path = tmp_path / "other.db"
    query(path, "CREATE TABLE notes(text)")
    before = path.read_bytes()
    made = SqliteJournal(path)
    for call in (made.open(info()), made.find("run-1")):
        with pytest.raises(JournalUnavailable) as caught:
            await call
        assert str(caught.value) == f"{path}: it belongs to another program; use another file"
    await made.close()
    assert path.read_bytes() == before


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT r.* FROM other r, n"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (("ALTER TABLE runs RENAME TO other", f"CREATE VIEW runs AS {ENDLESS}"), "the view 'runs'"),
        (("CREATE VIEW more AS SELECT 1",), "the view 'more'"),
        (
            ("CREATE TRIGGER late AFTER UPDATE ON runs BEGIN DELETE FROM entries; END",),
            "the trigger 'late'",
        ),
        (("CREATE VIRTUAL TABLE words USING fts5(text)",), "the virtual table 'words'"),
    ],
)
async def test_a_journal_with_statements_of_somebody_else_is_refused(
    tmp_path: Path, statements: tuple[str, ...], message: str
) -> None:
    """A view, which can be endless, or a trigger is refused at opening, by readers, writers and memory."""
    path = tmp_path / "runs.db"
    await filled(path)
    for statement in statements:
        query(path, statement)
    made = SqliteJournal(path)
    calls: list[Callable[[], Any]] = [
        lambda: made.find("run-1"),
        lambda: made.runs(),
        lambda: made.open(info(), resume=True),
        lambda: made.memory.entries("space"),
    ]
    for call in calls:
        with pytest.raises(JournalUnavailable) as caught:
            await call()
        assert str(caught.value).startswith(
            f"{path}: it has {message}, which Loopwright does not make"
        )
    await made.close()


async def test_a_row_above_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Long values are in files, so a row of this size is not ours; it costs no memory to say so."""
    path = tmp_path / "runs.db"
    await filled(path)
    query(path, "UPDATE runs SET detail=CAST(zeroblob(70000000) AS TEXT)")
    made = SqliteJournal(path)
    tracemalloc.start()
    for call in (made.find("run-1"), made.runs()):
        with pytest.raises(JournalUnavailable, match="a value is too large for a journal"):
            await call
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    await made.close()
    assert peak < 1 << 20


async def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    """A journal of a newer version of the program is neither read nor written."""
    path = tmp_path / "runs.db"
    await filled(path)
    query(path, "PRAGMA user_version=99")
    made = SqliteJournal(path)
    for call in (made.open(info()), made.find("run-1")):
        with pytest.raises(JournalUnavailable) as caught:
            await call
        assert str(caught.value) == (
            f"{path}: a newer version of Loopwright wrote it (format 99, this version reads {VERSION}); "
            "upgrade Loopwright"
        )
    await made.close()


def test_an_older_journal_is_brought_forward(tmp_path: Path) -> None:
    """Tables go through every version that they lack, in one transaction or not at all."""
    db = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    tables.migrate(db, 0)
    known = [("x",)] * VERSION
    broken = (*known, ("CREATE TABLE more(a)",), ("CREATE TABLE more(a)",))
    with pytest.raises(sqlite3.OperationalError, match=r"already exists"):
        tables.migrate(db, VERSION, broken)
    assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    tables.migrate(db, VERSION, broken[:-1])
    assert db.execute("PRAGMA user_version").fetchone() == (VERSION + 1,)
    assert db.execute("SELECT count(*) FROM more").fetchone() == (0,)
    db.close()


async def test_a_database_without_tables_is_a_new_journal(tmp_path: Path) -> None:
    """What a crash leaves of a journal that was just being made is made anew."""
    path = tmp_path / "runs.db"
    query(path, "PRAGMA journal_mode=WAL")
    assert path.stat().st_size
    async with SqliteJournal(path) as made:
        assert await made.runs() == []
        await recorded(made, info(), rounds(1))
        assert len(await made.entries("run-1")) == 3


async def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A folder in place of the file, or a file in place of the folder, is an error and no more."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "file" / "runs.db"):
        made = SqliteJournal(path)
        with pytest.raises(JournalError):
            await made.open(info())
        with pytest.raises(JournalError):
            await made.find("run-1")
        await made.close()


@pytest.mark.parametrize("version", range(VERSION))
def test_an_older_journal_gets_the_tables_of_a_new_one(version: int) -> None:
    """Whatever format it begins with, a journal that is brought forward has what a new one has."""
    told = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as new,
        contextlib.closing(sqlite3.connect(":memory:")) as old,
    ):
        tables.migrate(new, 0)
        tables.migrate(old, 0, tables.STEPS[:version])
        tables.migrate(old, version)
        assert old.execute(told).fetchall() == new.execute(told).fetchall()


def test_a_run_needs_no_entries_to_be_listed(tmp_path: Path) -> None:
    """A missing file is a journal without runs, and reading does not make it."""

    async def check() -> None:
        made = SqliteJournal(tmp_path / "runs.db")
        assert await made.runs() == []
        for call in (made.find("a"), made.entries("a"), made.iterations("a"), made.cancel("a")):
            with pytest.raises(RunNotFound):
                await call
        with pytest.raises(RunNotFound):
            await made.rewind("a", "b")
        await made.close()

    asyncio.run(check())
    assert list(tmp_path.iterdir()) == []
    assert RunInfo("a", "b").status == "running"
