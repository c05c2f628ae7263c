"""The SQLite journal: what is one commit, how durable it is, and threads and loops that end."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from loopwright.errors import JournalUnavailable
from loopwright.journal import Entry
from loopwright.journal.recorded.writer import Transaction
from loopwright.journal.sqlite import SqliteJournal, tables

from .recording import info, record, recorded, rounds, rounds_seen, settle, shown
from .sqlite_files import ended, query


async def test_what_runs_append_at_once_is_one_commit(tmp_path: Path) -> None:
    """Entries that many runs append in one pass of the event loop share one transaction."""
    count = [0]

    def point(position: str, number: int) -> None:
        count[0] = number

    async with SqliteJournal(tmp_path / "runs.db", on_point=point) as made:
        logs = await asyncio.gather(*(made.open(info(f"run-{i}")) for i in range(100)))
        before = count[0]
        await asyncio.gather(*(record(log, rounds(1)) for log in logs))
        assert count[0] == before + 1


@pytest.mark.parametrize("others", [0, 1])
async def test_an_effect_is_one_row_and_one_commit(tmp_path: Path, others: int) -> None:
    """In a sequential run the end of an effect and the beginning of the next are one commit."""
    count = [0]

    def point(position: str, number: int) -> None:
        count[0] = number

    path = tmp_path / "runs.db"
    async with SqliteJournal(path, on_point=point) as made:
        for i in range(others):
            await made.open(info(f"other-{i}"))
        log = await made.open(info())
        before = count[0]
        for i in range(20):
            log.append(Entry("finished", f"step-{i}", i, "x"))
            log.append(Entry("started", f"step-{i + 1}", i))
            await settle(log)
        assert count[0] == before + 20
        assert query(path, "SELECT count(*) FROM entries") == [(20,)]


async def test_batches_are_cut_between_runs(tmp_path: Path) -> None:
    """More runs than a batch holds, and more rows than a transaction, are all kept."""
    async with SqliteJournal(tmp_path / "runs.db", synchronous="normal") as made:
        logs = await asyncio.gather(*(made.open(info(f"run-{i:04}")) for i in range(520)))
        await asyncio.gather(*(record(log, rounds(1, log.info.run_id)) for log in logs))
        await asyncio.gather(*(log.close(log.info) for log in logs))
        for log in (logs[0], logs[511], logs[512], logs[519]):
            name = log.info.run_id
            assert shown(await made.entries(name)) == shown(rounds_seen(rounds(1, name)))


async def test_many_entries_of_one_pass_are_several_rows(journal: SqliteJournal) -> None:
    """A run that appends much without waiting is cut into rows, at most one iteration in each."""
    log = await journal.open(info())
    await record(log, [Entry("started", f"step-{i}", i) for i in range(200)])
    await record(log, rounds(3))
    rows = query(journal.path, "SELECT body, mark FROM entries ORDER BY first")
    assert all(len(json.loads(body)) <= 64 for body, _ in rows)
    assert [mark for _, mark in rows if mark] == [203, 206, 209]
    assert len(await journal.entries("run-1")) == 209


def test_a_journal_outlives_its_event_loop(tmp_path: Path) -> None:
    """One journal serves one event loop after the other, and loops of several threads at once."""
    made = SqliteJournal(tmp_path / "runs.db", synchronous="normal")

    async def work(name: str) -> None:
        await recorded(made, info(name), rounds(2, name))

    asyncio.run(work("run-1"))
    asyncio.run(work("run-2"))
    threads = [threading.Thread(target=asyncio.run, args=(work(f"run-{i}"),)) for i in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def check() -> None:
        for i in range(1, 6):
            name = f"run-{i}"
            assert shown(await made.entries(name)) == shown(rounds_seen(rounds(2, name)))
        await made.close()

    asyncio.run(check())


def test_an_event_loop_that_ends_leaves_its_runs(tmp_path: Path) -> None:
    """A loop that is closed while commits are on their way disturbs nobody."""
    made = SqliteJournal(tmp_path / "runs.db")

    async def leave() -> None:
        log = await made.open(info())
        log.append(Entry("started", "a", 1.0))
        log.sync()

    async def later() -> None:
        assert await made.cancel("run-1") is True
        assert [e.path for e in await made.entries("run-1")] == ["a"]
        await made.close()

    asyncio.run(leave())
    asyncio.run(later())


async def test_a_journal_that_is_dropped_ends_its_thread(tmp_path: Path) -> None:
    """A journal that nobody holds any more closes its database by itself."""
    made = SqliteJournal(tmp_path / "runs.db")
    await recorded(made, info(), rounds(1))
    thread = next(t for t in threading.enumerate() if t.name == "journal runs.db")
    del made
    assert ended(thread)
    assert not (tmp_path / "runs.db-wal").exists()


async def test_work_after_the_end_is_refused(tmp_path: Path) -> None:
    """What reaches a store after it was closed is refused, not lost in silence."""
    made = SqliteJournal(tmp_path / "runs.db")
    log = await made.open(info())
    writer = made._writer
    writer.stop_soon()
    for _ in range(3):
        with pytest.raises(JournalUnavailable, match=r"the journal is closed; open it again$"):
            await writer.perform(Transaction(lambda _: None))
    log.append(Entry("started", "a", 1.0))
    with pytest.raises(JournalUnavailable, match=r"was closed while this run was open$"):
        await settle(log)
    with pytest.raises(JournalUnavailable):
        await log.close(log.info)


def test_a_commit_is_as_durable_as_asked(tmp_path: Path) -> None:
    """Commits are synchronous=FULL in WAL mode, NORMAL only on request."""
    for word, level in (("full", 2), ("normal", 1)):
        db = tables.connect_writer(tmp_path / f"{word}.db", word)
        assert db.execute("PRAGMA synchronous").fetchone() == (level,)
        assert db.execute("PRAGMA journal_mode").fetchone() == (b"wal",)
        assert db.execute("PRAGMA page_size").fetchone() == (tables.PAGE_SIZE,)
        db.close()
