"""A journal's file is whole before it has its name, and a lost one is reported as lost."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from loopwright import Loop, MaxIterations, run, run_sync
from loopwright.errors import JournalDamaged
from loopwright.journal.sqlite import SqliteJournal, tables


def one(value: int) -> int:
    return value + 1


def test_a_journal_that_could_not_be_made_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: what ends in the middle of its birth leaves nothing that later runs take for a journal."""

    def ends(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(tables, "migrate", ends)
        with pytest.raises(Exception, match=r"runs\.db"):
            run_sync(one, 1, journal=f"sqlite:{tmp_path}/runs.db")
    assert [file.name for file in tmp_path.iterdir()] == ["runs.db-lock"]
    assert run_sync(one, 1, journal=f"sqlite:{tmp_path}/runs.db").output == 2


def test_what_a_killed_birth_left_is_no_obstacle(tmp_path: Path) -> None:
    """Rule: an unfinished draft of another process is dropped by the next that holds the lock."""
    (tmp_path / "runs.db-new").write_bytes(b"half")
    assert run_sync(one, 1, journal=f"sqlite:{tmp_path}/runs.db").output == 2
    assert not (tmp_path / "runs.db-new").exists()


async def test_an_empty_file_is_initialised(tmp_path: Path) -> None:
    """Rule: a file without a byte holds no runs, and the first run makes it a journal."""
    path = tmp_path / "runs.db"
    path.touch(mode=0o600)
    async with SqliteJournal(path) as journal:
        assert await journal.runs() == []
        assert (await run(one, 1, journal=journal, run_id="r")).output == 2
        assert [row.run_id for row in await journal.runs()] == ["r"]


def test_a_database_deleted_under_a_run_is_lost(tmp_path: Path) -> None:
    """Rule: the run ends with an error that says so; nothing that is in no file is acknowledged."""
    path = tmp_path / "runs.db"

    def deletes(value: int) -> int:
        if value == 2:
            path.unlink()
        return value + 1

    loop = Loop(deletes, adapt=lambda last: last.output, until=MaxIterations(9), name="l")
    with pytest.raises(JournalDamaged, match="the database was deleted or replaced"):
        run_sync(loop, 1, journal=f"sqlite:{path}")


async def test_a_log_without_its_database_is_lost(tmp_path: Path) -> None:
    """Rule: neither a list without runs nor a new journal in its place."""
    path = tmp_path / "runs.db"
    (tmp_path / "runs.db-wal").write_bytes(b"log of runs")
    async with SqliteJournal(path) as journal:
        with pytest.raises(JournalDamaged, match="the database was deleted or moved"):
            await journal.runs()
        with pytest.raises(JournalDamaged, match="the database was deleted or moved"):
            await run(one, 1, journal=journal)
    assert not path.exists()


def _first_run(path: str, number: int) -> None:
    run_sync(one, number, journal=f"sqlite:{path}", run_id=f"r{number}")


async def test_processes_that_make_it_at_once_make_one(tmp_path: Path) -> None:
    """Rule: two processes that create a journal at the same time share it."""
    path = tmp_path / "runs.db"
    context = multiprocessing.get_context("spawn")
    made = [context.Process(target=_first_run, args=(str(path), n)) for n in range(3)]
    for process in made:
        process.start()
    for process in made:
        process.join()
    assert [process.exitcode for process in made] == [0, 0, 0]
    async with SqliteJournal(path) as journal:
        assert {row.run_id for row in await journal.runs()} == {"r0", "r1", "r2"}
