"""The SQLite journal: locks and leases, processes that are gone, takeovers and cancelling."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from loopwright.errors import JournalUnavailable, OwnershipLost, RunLocked
from loopwright.journal import Entry
from loopwright.journal.recorded.ownership import RewindPlan
from loopwright.journal.recorded.writer import Transaction
from loopwright.journal.sqlite import Clocks, SqliteJournal, tables
from loopwright.journal.sqlite.database import SideLock
from loopwright.journal.sqlite.ownership import LeaseOwner, place, register, started

from .recording import LONG, info, record, recorded, rounds, rounds_seen, settle, shown
from .sqlite_files import child, query


async def test_a_locked_run_names_its_owner(journal: SqliteJournal) -> None:
    """The error for a run that someone runs names the process and how to stop it."""
    await journal.open(info())
    async with SqliteJournal(journal.path) as other:
        with pytest.raises(RunLocked) as caught:
            await other.open(info())
        pid, host = os.getpid(), os.uname().nodename
        assert str(caught.value) == (
            f"run-1: process {pid} on {host} is running it; wait for it, "
            "or stop it with: loopwright cancel run-1"
        )
        assert (await other.find("run-1")).status == "running"


KILLED = """
import asyncio, os, signal, sys
from loopwright.journal import Entry, RunInfo
from loopwright.journal.sqlite import SqliteJournal

position, number = sys.argv[2], int(sys.argv[3])

def point(where, count):
    if where == position and count == number:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    journal = SqliteJournal(sys.argv[1], on_point=point)
    log = await journal.open(RunInfo("run-1", "refine"))
    for i in range(1, 4):
        log.append(Entry("finished", f"step-{i}", i, "x" * 2000))
        log.append(Entry("started", f"step-{i + 1}", i))
        if (pending := log.sync()) is not None:
            await pending
        os.write(1, b"+")
    await journal.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("position", ["before", "in_txn", "after"])
def test_a_killed_process_loses_nothing_acknowledged(tmp_path: Path, position: str) -> None:
    """Killed at any point of any commit, a run can be resumed at once with all acknowledged."""

    async def check(path: Path, acknowledged: int) -> None:
        async with SqliteJournal(path) as made:
            rows = await made.runs()
            assert [row.status for row in rows] in ([], ["interrupted"])
            log = await made.open(info())
            count = len(log.recorded)
            assert count in (2 * acknowledged, 2 * acknowledged + 2)
            assert [e.seq for e in log.recorded] == list(range(1, count + 1))
            await record(log, [Entry("finished", "more", 9.0)])

    for number in (1, 3):
        path = tmp_path / f"{number}.db"
        done = child(KILLED, path, position, number)
        assert done.returncode == -signal.SIGKILL, done.stderr
        asyncio.run(check(path, len(done.stdout)))


async def test_a_process_that_is_gone_owns_nothing(tmp_path: Path) -> None:
    """A run of a dead process shows as interrupted, in lists too, and is taken without waiting."""
    path = tmp_path / "runs.db"
    assert child(KILLED, path, "after", 3).returncode == -signal.SIGKILL
    async with SqliteJournal(path) as made:
        other = await made.open(info("run-2"))
        assert (await made.find("run-1")).status == "interrupted"
        assert [r.run_id for r in await made.runs(status="interrupted")] == ["run-1"]
        assert [r.run_id for r in await made.runs(status="running")] == ["run-2"]
        assert await made.cancel("run-1") is False
        assert (await made.open(info())).info.epoch == 2
        await other.close(other.info)


def test_an_owner_lives_while_its_process_does() -> None:
    """It ends with its process where that can be seen from here, else with its lease."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        tables.migrate(db, 0)
        me = register(db, 100.0)
    assert me.alive(109.0)
    assert me.alive(4000.0)  # by a clock that is an hour ahead
    assert not replace(me, until=0.0).alive(1.0)  # its store was closed
    assert not replace(me, place="elsewhere").alive(110.0)
    assert not replace(me, started="1").alive(101.0)  # another process got the number
    assert not replace(me, pid=2**22 + 1).alive(101.0)
    assert replace(me, pid=2**22 + 1, place="elsewhere").alive(101.0)
    assert me.place == place()
    assert isinstance(me, LeaseOwner)


def test_a_system_without_proc_is_asked_for_signals(tmp_path: Path) -> None:
    """Where the system does not list processes, one lives while it could be signalled."""
    assert started(os.getpid(), tmp_path) == started(os.getpid(), tmp_path) != ""
    assert started(1, tmp_path) != ""
    assert started(2**22 + 1, tmp_path) == ""
    assert started(2**22 + 1) == ""
    assert place(tmp_path) == os.uname().nodename


async def test_a_clock_that_is_ahead_takes_no_live_run(journal: SqliteJournal) -> None:
    """A live owner on this machine keeps its run, is seen as running and hears that it should end."""
    log = await journal.open(info())
    heard = asyncio.Event()
    log.on_cancel = heard.set
    clocks = Clocks(wall=lambda: time.time() + 3600.0)
    async with SqliteJournal(journal.path, clocks=clocks) as ahead:
        with pytest.raises(RunLocked):
            await ahead.open(info())
        await ahead.open(info("run-2"))  # which drops the rows of stores that are gone
        assert [row.status for row in await ahead.runs()] == ["running", "running"]
        assert await ahead.cancel("run-1") is True
        await asyncio.wait_for(heard.wait(), 10)
    await record(log, rounds(1))


async def test_the_active_time_of_a_lost_run_counts_to_its_last_beat(tmp_path: Path) -> None:
    """A run whose process ended has been active until its store was last alive."""
    now = [0.0]
    made = SqliteJournal(tmp_path / "runs.db", clocks=Clocks(steady=lambda: now[0]))
    now[0] = 2.0
    log = await made.open(info(active=10.0))
    now[0] = 5.5
    await made.close()
    with pytest.raises(JournalUnavailable, match=r"was closed while this run was open$"):
        await settle(log)
    async with SqliteJournal(tmp_path / "runs.db") as later:
        found = await later.find("run-1")
        assert (found.status, found.active) == ("interrupted", 13.5)
        assert (await later.open(info())).info.active == 13.5


async def test_the_active_time_is_never_before_the_last_entry(tmp_path: Path) -> None:
    """A run that is opened again has been active at least until its last entry."""
    async with SqliteJournal(tmp_path / "runs.db") as made:
        await record(await made.open(info()), [Entry("started", "a", 77.0)])
    async with SqliteJournal(tmp_path / "runs.db") as later:
        assert (await later.open(info())).info.active == 77.0


async def test_a_wish_to_cancel_crosses_processes(journal: SqliteJournal) -> None:
    """A run is cancelled through another opening of the file, before or after it can hear."""
    late, early = await journal.open(info("late")), await journal.open(info("early"))
    heard = asyncio.Event()
    early.on_cancel = heard.set
    async with SqliteJournal(journal.path) as other:
        assert await other.cancel("late") is True
        assert await other.cancel("early") is True
        await asyncio.wait_for(heard.wait(), 5)
        await settle(late)
        calls: list[str] = []
        late.on_cancel = lambda: calls.append("late")
        assert calls == ["late"]
        await early.close(early.info)
        assert await other.cancel("early") is False


async def test_stores_share_a_file(tmp_path: Path) -> None:
    """Several stores write different runs to one file at once, and none misses a takeover."""
    path = tmp_path / "runs.db"
    stores = [SqliteJournal(path, synchronous="normal") for _ in range(3)]

    async def work(made: SqliteJournal, name: str) -> None:
        log = await made.open(info(name))
        for entry in rounds(5, name):
            await record(log, [entry])
        await log.close(log.info)

    names = [f"run-{i}" for i in range(9)]
    await asyncio.gather(*(work(stores[i % 3], name) for i, name in enumerate(names)))
    for name in names:
        expected = shown(rounds_seen(rounds(5, name)))
        assert shown(await stores[0].entries(name)) == expected
    mine, kept = await stores[0].open(info("mine")), await stores[0].open(info("kept"))
    taken = await stores[1].open(info("mine"), takeover=True)
    mine.append(Entry("started", "a", 1.0))
    kept.append(Entry("started", "a", 1.0))
    waiting = [log.sync() for log in (mine, kept)]
    outcomes = await asyncio.gather(*(w for w in waiting if w), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OwnershipLost, type(None)]
    await record(taken, [Entry("started", "b", 1.0)])
    assert [e.path for e in await stores[2].entries("mine")] == ["b"]
    assert [e.path for e in await stores[2].entries("kept")] == ["a"]
    for made in stores:
        await made.close()


def test_the_side_lock_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """A lock that another process keeps gives an error that names the lock."""
    held, other = SideLock(tmp_path / "lock"), SideLock(tmp_path / "lock", patience=0.01)
    with held, pytest.raises(JournalUnavailable) as caught, other:
        pass
    assert str(caught.value) == (
        f"{tmp_path / 'lock'}: another process has held this lock for 0.01 seconds; "
        "end that process or let it continue"
    )
    released = threading.Event()

    def hold() -> None:
        with held:
            released.wait(5)

    thread = threading.Thread(target=hold)
    thread.start()
    threading.Timer(0.01, released.set).start()
    with SideLock(tmp_path / "lock"):
        pass
    thread.join()


async def test_an_owner_that_missed_a_takeover_changes_nothing(tmp_path: Path) -> None:
    """Closing a run that another store took over meanwhile leaves it to its owner."""
    async with SqliteJournal(tmp_path / "runs.db") as one, SqliteJournal(one.path) as two:
        former = await one.open(info())
        owner = await two.open(info(), takeover=True)
        await former.close(replace(former.info, status="failed"))
        assert (await two.find("run-1")).status == "running"
        await owner.close(replace(owner.info, source={"document": LONG}, status="satisfied"))
        found = await one.find("run-1")
        assert (found.status, found.source) == ("satisfied", {"document": LONG})


async def test_a_rewind_gives_way_to_who_wrote_meanwhile(journal: SqliteJournal) -> None:
    """A rewind that was planned on entries that are no longer the last is refused."""
    await recorded(journal, info(), rounds(1))
    row = await journal._read(lambda reader: reader.row("run-1"))
    how = Entry("rewound", "refine/1", 1.0)
    plan = RewindPlan(row, how, replace(row.info, status="interrupted"), 3, b"old", [1], [])
    stale = Transaction(lambda db: journal._database.rewind(db, plan))
    with pytest.raises(RunLocked, match=r"^run-1: it is running; cancel it before you rewind it$"):
        await journal._writer.perform(stale)
    assert len(await journal.entries("run-1")) == 3


async def test_a_beat_that_fails_waits_for_the_next(journal: SqliteJournal) -> None:
    """A lease that cannot be renewed disturbs no run."""
    log = await journal.open(info())
    assert log.on_cancel is None
    query(journal.path, "ALTER TABLE owners RENAME TO kept")
    journal._database.beat()
    query(journal.path, "ALTER TABLE kept RENAME TO owners")
    journal._database.beat()
    await record(log, rounds(1))
    assert len(await journal.entries("run-1")) == 3


async def test_an_opening_that_is_cancelled_locks_nothing(journal: SqliteJournal) -> None:
    """A task that is cancelled while it opens a run leaves the run to others."""
    await recorded(journal, info("known"), rounds(1))
    for name in ("known", "new"):
        for turns in range(4):
            opening = asyncio.ensure_future(journal.open(info(name)))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        log = await journal.open(info(name))
        await record(log, rounds(1))
        asking = asyncio.ensure_future(journal.cancel(name))
        await asyncio.sleep(0)
        asking.cancel()
        await log.close(log.info)
