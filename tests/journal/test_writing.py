"""What a writer does when others write, take over, give up or leave no room."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from loopwright.errors import JournalError, JournalUnavailable, OwnershipLost, RunLocked
from loopwright.journal import Entry
from loopwright.journal.sqlite import SqliteJournal
from loopwright.journal.sqlite.database import SideLock
from loopwright.journal.sqlite.tables import connect_reader

from .recording import info, record, recorded, rounds, rounds_seen, settle, shown
from .sqlite_files import ended

OFTEN = 12  # times, because a commit is made on the thread of the event loop only where it is quick


@contextmanager
def quota(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def nobody() -> Iterator[None]:
    """Be a user to whom permissions apply."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# Others who write.


async def test_effects_do_not_wait_for_another_process(tmp_path: Path) -> None:
    """While another process writes the event loop goes on, and what waits is kept in its order."""
    async with SqliteJournal(tmp_path / "runs.db", synchronous="normal") as made:
        log = await made.open(info())
        lock = SideLock(tmp_path / "runs.db-lock")
        for turn in range(OFTEN):
            with lock:
                waiting = []
                for part in "ab":
                    log.append(Entry("started", f"{turn}{part}", turn))
                    waiting.append(log.sync())
            assert all(waiting)
            await asyncio.gather(*(one for one in waiting if one is not None))
        lock.close()
        paths = [entry.path for entry in await made.entries("run-1")]
        assert paths == [f"{turn}{part}" for turn in range(OFTEN) for part in "ab"]


async def test_what_is_appended_before_a_takeover_is_seen_goes_nowhere(tmp_path: Path) -> None:
    """A run taken over by another thread of this process keeps nothing that its former owner adds."""
    async with SqliteJournal(tmp_path / "runs.db", synchronous="normal") as made:

        async def take(name: str) -> None:
            log = await made.open(info(name), takeover=True)
            await record(log, [Entry("started", "new", 2.0)])

        for turn in range(OFTEN):
            name = f"run-{turn}"
            former = await made.open(info(name))
            former.append(Entry("started", "old", 1.0))
            thread = threading.Thread(target=asyncio.run, args=(take(name),))
            thread.start()
            thread.join()
            await asyncio.sleep(0)  # the pass ends, and what was appended in it is handed over
            with pytest.raises(OwnershipLost, match=rf"^{name}: another owner took this run over$"):
                await settle(former)
            assert [entry.path for entry in await made.entries(name)] == ["new"]
            await former.close(former.info)


async def test_an_opening_that_is_cancelled_leaves_the_run_to_who_took_it(tmp_path: Path) -> None:
    """A run that was taken over while its first opening was given up stays with its new owner."""
    async with SqliteJournal(tmp_path / "runs.db") as made, SqliteJournal(made.path) as other:
        first = asyncio.ensure_future(made.open(info()))
        second = asyncio.ensure_future(made.open(info(), takeover=True))
        await asyncio.sleep(0)
        first.cancel()
        log = await second
        await asyncio.wait({first})
        assert first.cancelled()
        await record(log, rounds(1))
        assert (await other.find("run-1")).status == "running"
        with pytest.raises(RunLocked):
            await other.open(info())
        assert await other.cancel("run-1") is True
        await log.close(log.info)
        assert shown(await made.entries("run-1")) == shown(rounds_seen(rounds(1)))


async def test_an_opening_that_is_cancelled_and_refused_changes_nothing(tmp_path: Path) -> None:
    """Who gives up opening a run that another one owns leaves that one alone."""
    async with SqliteJournal(tmp_path / "runs.db") as made, SqliteJournal(made.path) as other:
        log = await made.open(info())
        opening = asyncio.ensure_future(other.open(info()))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening})
        assert opening.cancelled()
        await record(log, rounds(1))
        assert (await other.find("run-1")).status == "running"
        await log.close(replace(log.info, status="satisfied"))
        assert (await other.find("run-1")).status == "satisfied"


async def test_a_cancelled_run_disturbs_none_that_shares_its_commit(tmp_path: Path) -> None:
    """A run that is cancelled while a commit is on its way keeps its entries, as the others do."""
    async with SqliteJournal(tmp_path / "runs.db") as made:
        logs = [await made.open(info(name)) for name in ("a", "b")]
        tasks = [asyncio.ensure_future(record(log, rounds(1))) for log in logs]
        await asyncio.sleep(0)
        tasks[0].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, type(None)]
        for name in ("a", "b"):
            assert shown(await made.entries(name)) == shown(rounds_seen(rounds(1)))


async def test_an_entry_that_cannot_be_is_nothing_to_write(tmp_path: Path) -> None:
    """A pass in which a run only appended what no journal can hold writes nothing and goes on."""
    async with SqliteJournal(tmp_path / "runs.db") as made:
        log = await made.open(info())
        with pytest.raises(TypeError):
            log.append(Entry("finished", "a", 1.0, {1j}))
        await settle(log)
        assert await made.entries("run-1") == []
        await record(log, rounds(1))
        assert shown(await made.entries("run-1")) == shown(rounds_seen(rounds(1)))


async def test_a_wish_to_cancel_a_run_that_was_lost_hides_no_other(tmp_path: Path) -> None:
    """A run whose opening failed after its commit may be asked to stop; those that run still hear."""
    failing: list[Exception] = []

    def point(position: str, _: int) -> None:
        if position == "after" and failing:
            raise failing.pop()

    heard = asyncio.Event()
    async with (
        SqliteJournal(tmp_path / "runs.db", on_point=point) as made,
        SqliteJournal(made.path) as other,
    ):
        failing.append(OSError("the acknowledgement was lost"))
        with pytest.raises(JournalUnavailable):
            await made.open(info("lost"))
        log = await made.open(info("held"))
        log.on_cancel = heard.set
        assert await other.cancel("lost") is True
        assert await other.cancel("held") is True
        await asyncio.wait_for(heard.wait(), 5)
        taken = await other.open(info("lost"), takeover=True)
        assert taken.info.epoch == 2


# No room.


@pytest.mark.parametrize("before", [0, 1])
async def test_an_opening_without_room_is_no_opening(tmp_path: Path, before: int) -> None:
    """Where the disk takes no more a run is refused; once there is room the same journal opens it."""
    path = tmp_path / "runs.db"
    async with SqliteJournal(path) as made:
        for number in range(before):
            await recorded(made, info(f"before-{number}"), rounds(1))
        wal = tmp_path / "runs.db-wal"
        with quota(wal.stat().st_size if before else 4096), pytest.raises(JournalError) as caught:
            await made.open(info(input="word " * 40_000))
        assert str(caught.value).startswith(f"{path}: the disk ")
        log = await made.open(info(input="word " * 40_000))
        assert log.info.epoch == 1
        await record(log, rounds(1))
        assert len(await made.runs()) == before + 1


async def test_an_effect_without_room_ends_its_run_alone(tmp_path: Path) -> None:
    """A run whose effect cannot be kept is told so, and with room it resumes after what was kept."""
    path = tmp_path / "runs.db"
    async with SqliteJournal(path, synchronous="normal") as made:
        for turn in range(OFTEN):
            log = await made.open(info(f"run-{turn}"))
            await record(log, rounds(1))
            with quota(1024), pytest.raises(JournalError) as caught:
                await record(log, rounds(1, start=2))
            assert str(caught.value).startswith(f"{path}: the disk ")
            with pytest.raises(JournalError):
                await log.close(replace(log.info, status="satisfied"))
            assert (await made.find(log.info.run_id)).status == "interrupted"
            again = await made.open(info(log.info.run_id), resume=True)
            assert shown(again.recorded) == shown(rounds_seen(rounds(1)))
            await record(again, rounds(1, start=2))
            await again.close(again.info)


async def test_an_older_journal_is_brought_forward_whole_or_not_at_all(tmp_path: Path) -> None:
    """Where there is no room for newer tables the older ones stay, and with room nothing is missing."""
    path = tmp_path / "runs.db"
    async with SqliteJournal(path, synchronous="normal") as made:
        row = info(reason="max_iterations")
        logs = await asyncio.gather(*(made.open(replace(row, run_id=f"r{i}")) for i in range(1500)))
        await asyncio.gather(*(log.close(replace(row, run_id=log.info.run_id)) for log in logs))
    with closing(sqlite3.connect(path)) as db, db:
        for statement in (
            "DROP INDEX runs_by_end",
            *(
                f"ALTER TABLE runs DROP COLUMN {column}"
                for column in ("queue", "priority", "wake_at", "deliveries", "tags")
            ),
            "DROP TABLE inbox",
            "DROP TABLE events",
            "DROP TABLE waits",
            "CREATE INDEX runs_by_status ON runs(status)",
            "CREATE INDEX runs_by_reason ON runs(reason)",
            "PRAGMA user_version=2",
        ):
            db.execute(statement)
    async with SqliteJournal(path) as made:
        with quota(33_000), pytest.raises(JournalError, match="the disk "):
            await made.open(info())
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema")]
        assert "runs_by_status" in names and "runs_by_end" not in names
    async with SqliteJournal(path) as made:
        await made.open(info())
        assert len(await made.runs(limit=2000)) == 1501


# Reading.


async def test_a_journal_that_is_dropped_after_a_look_leaves_no_files(tmp_path: Path) -> None:
    """A journal that nobody holds any more lets go of what it read with too."""
    made = SqliteJournal(tmp_path / "runs.db")
    await recorded(made, info(), rounds(1))
    assert len(await made.entries("run-1")) == 3
    thread = next(t for t in threading.enumerate() if t.name == "journal runs.db")
    del made
    assert ended(thread)
    assert not (tmp_path / "runs.db-wal").exists()


@contextmanager
def only_read(fill: Callable[[Path], None]) -> Iterator[Path]:
    """Yield the path of a journal in a folder that may only be read, as somebody else."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        (folder / "runs.db").chmod(0o444)
        folder.chmod(0o555)
        try:
            with nobody():
                yield folder / "runs.db"
        finally:
            folder.chmod(0o755)


async def test_a_folder_that_may_only_be_read_shows_its_runs(tmp_path: Path) -> None:
    """A journal that was closed needs no file beside it to be read."""
    async with SqliteJournal(tmp_path / "runs.db") as made:
        await recorded(made, info(), rounds(2))

    def copied(folder: Path) -> None:
        (folder / "runs.db").write_bytes((tmp_path / "runs.db").read_bytes())

    with only_read(copied) as path:
        db, version = connect_reader(path)
        assert version > 0
        assert db.execute("SELECT run_id, status FROM runs").fetchall() == [
            (b"run-1", b"satisfied")
        ]
        db.close()
        reader = SqliteJournal(path)
        assert shown(await reader.entries("run-1")) == shown(rounds_seen(rounds(2)))
        await reader.close()


async def test_what_cannot_be_read_whole_is_not_shown(tmp_path: Path) -> None:
    """A copy whose latest commits are in a log that cannot be followed is refused, not shown old."""
    made = SqliteJournal(tmp_path / "runs.db")
    log = await made.open(info())
    await record(log, rounds(2))

    def copied(folder: Path) -> None:
        for name in ("runs.db", "runs.db-wal"):
            (folder / name).write_bytes((tmp_path / name).read_bytes())
            (folder / name).chmod(0o444)

    with only_read(copied) as path:
        reader = SqliteJournal(path)
        with pytest.raises(JournalUnavailable) as caught:
            await reader.entries("run-1")
        assert str(caught.value).startswith(f"{path}: ")
        await reader.close()
    await made.close()
