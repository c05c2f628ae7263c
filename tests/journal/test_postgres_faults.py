"""The PostgreSQL journal: restarts, lost answers, cut networks, stopped processes, clocks, races of owners."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from loopwright.errors import JournalUnavailable, OwnershipLost, RunLocked
from loopwright.journal import Entry, Posted
from loopwright.journal.postgres.connection import Server, is_transient
from loopwright.journal.postgres.journal import PostgresJournal
from loopwright.journal.recorded.writer import Writer
from loopwright.memory import entry
from postgres_server import GUEST, PASSWORD, PostgresServer, ServerMissing

from .postgres_stores import query
from .proxy import Proxy
from .recording import LONG, info, record, recorded, rounds, rounds_seen, settle, shown


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that tests restart."""
    try:
        server = PostgresServer()
    except ServerMissing as missing:
        pytest.fail(str(missing)) if os.environ.get("CI") else pytest.skip(f"NOT TESTED: {missing}")
    yield server
    server.close()


@pytest.fixture
def own_url(own_server: PostgresServer) -> str:
    """A fresh database on the server that tests restart."""
    return own_server.url_of(own_server.create_database())


_NAMED = """
CREATE FUNCTION named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF NEW.backend IS NULL OR NEW.backend_start IS NULL THEN RAISE 'no session'; END IF; RETURN NEW; END $$;
CREATE TRIGGER named BEFORE INSERT ON loopwright.owners FOR EACH ROW EXECUTE FUNCTION named();
"""


async def test_an_owner_names_a_session_before_its_first_beat(own_url: str) -> None:
    """A process that dies at once is missed as soon as its session is gone, and not after its lease."""
    async with PostgresJournal(own_url) as journal:
        await journal.runs()
        query(own_url, _NAMED)
        log = await journal.open(info())
        await log.close(replace(log.info, status="satisfied"))


async def test_a_database_that_only_reads_for_a_while_is_waited_for(
    own_server: PostgresServer, own_url: str
) -> None:
    """A session that begins meanwhile keeps that setting, so it is not used again; the run goes on without a gap."""
    name = own_url.rsplit("/", 1)[-1].partition("?")[0]
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname=%s AND pid<>pg_backend_pid()"
    async with PostgresJournal(own_url) as journal:
        log = await journal.open(info())
        await record(log, rounds(1))
        query(own_server.url, f"ALTER DATABASE {name} SET default_transaction_read_only=on")
        query(own_server.url, ends, (name,))
        waiting = asyncio.ensure_future(record(log, rounds(1, start=2)))
        reading = "SELECT count(*) FROM pg_stat_activity WHERE datname=%s AND application_name='loopwright writer'"
        async with asyncio.timeout(30):
            while query(own_server.url, reading, (name,)) != [(1,)]:
                await asyncio.sleep(0.01)
        query(own_server.url, f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await asyncio.wait_for(waiting, 30)
        await log.close(replace(log.info, status="satisfied"))
        assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))


async def test_a_restart_of_the_database_is_waited_for(
    own_server: PostgresServer, own_url: str
) -> None:
    """Runs stall while the database is killed and started again; nothing is lost or there twice."""
    async with PostgresJournal(own_url) as journal:
        logs = [await journal.open(info(f"run-{i}", input=LONG)) for i in range(8)]

        async def write(log: Any) -> None:
            for entry in rounds(12):
                await record(log, [entry])
            await log.close(replace(log.info, status="satisfied"))

        def restart() -> None:
            for _ in range(3):
                time.sleep(0.05)
                own_server.restart(immediate=True)

        await asyncio.gather(*map(write, logs), asyncio.to_thread(restart))
        for log in logs:
            row = await journal.find(log.info.run_id)
            assert (row.status, row.epoch) == ("satisfied", 1)
            assert shown(await journal.entries(row.run_id)) == shown(rounds_seen(rounds(12)))


async def test_reading_waits_for_a_restart_too(own_server: PostgresServer, own_url: str) -> None:
    """A run that is resumed while the database starts again is read once it is back."""
    async with PostgresJournal(own_url) as journal:
        await recorded(journal, info(), rounds(3))
        await journal.find("run-1")
        own_server.stop(immediate=True)
        reading = asyncio.ensure_future(journal.entries("run-1"))
        await asyncio.to_thread(own_server.start)
        assert len(await reading) == 9
        log = await journal.open(info(), resume=True)
        assert len(log.recorded) == 9


async def test_a_database_that_stays_away_fails_the_runs(
    own_server: PostgresServer, own_url: str
) -> None:
    """After `patience` seconds the runs fail; once the database is back they can be resumed."""
    async with PostgresJournal(own_url, patience=0.5) as journal:
        log = await journal.open(info())
        await record(log, rounds(1))
        own_server.stop(immediate=True)
        try:
            with pytest.raises(JournalUnavailable, match=r"did not answer for 0\.5 seconds"):
                await record(log, rounds(1, start=2))
            with pytest.raises(JournalUnavailable):
                await log.close(replace(log.info, status="satisfied"))
        finally:
            own_server.start()
        again = await journal.open(info(), takeover=True)
        assert shown(again.recorded) == shown(rounds_seen(rounds(1)))
        await record(again, rounds(1, start=2))
        await again.close(again.info)


async def _interrupted(journal: Any, run_id: str = "run-1") -> None:
    """Wait until nobody owns a run."""
    async with asyncio.timeout(30):
        while (await journal.find(run_id)).status != "interrupted":
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("written", [True, False], ids=["nothing is lost", "an entry is lost"])
async def test_a_run_that_was_given_up_is_released_once_the_database_answers(
    own_server: PostgresServer, own_url: str, written: bool
) -> None:
    """Its process lives on, and another one can take the run without its help."""
    async with PostgresJournal(own_url, patience=0.3) as journal, PostgresJournal(own_url) as other:
        log = await journal.open(info())
        await record(log, rounds(1))
        own_server.stop(immediate=True)
        try:
            if not written:
                with pytest.raises(JournalUnavailable):
                    await record(log, rounds(1, start=2))
            with pytest.raises(JournalUnavailable):
                await log.close(replace(log.info, status="interrupted"))
        finally:
            own_server.start()
        await _interrupted(other)
        again = await other.open(info(), resume=True)
        assert shown(again.recorded) == shown(rounds_seen(rounds(1)))
        await again.close(replace(again.info, status="satisfied"))
        assert (await journal.find("run-1")).status == "satisfied"


class _Refusing:
    """A store that refuses the first transactions."""

    name = "refusing"

    def __init__(self, times: int) -> None:
        self.logs = {1: None}
        self.committed = threading.Event()
        self._times = times

    def commit(self, batches: Any, operations: Any) -> None:
        if self._times:
            self._times -= 1
            raise JournalUnavailable("the database is away")
        for operation in operations:
            operation.run(None)
        self.committed.set()

    def journal_error(self, error: Exception) -> Exception:
        return error

    def beat(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


async def test_a_release_is_repeated_beside_its_caller() -> None:
    """The caller fails at the first refusal, however late its event loop reads it."""
    store, released = _Refusing(3), []
    writer = Writer(store, beat=0.001)
    caller = writer.give_back(lambda log, _info, _db: log, released.append, "log", "info")
    assert store.committed.wait(30)  # this event loop reads nothing meanwhile
    with pytest.raises(JournalUnavailable):
        await caller
    await writer.stop()
    assert released == ["log"]


async def test_a_run_that_its_owner_does_not_claim_is_taken_over(postgres_url: str) -> None:
    """A live process keeps the runs that it names at its beats; one that it lost sight of is free after a lease."""
    async with (
        PostgresJournal(postgres_url, lease=1.0, beat=0.1) as journal,
        PostgresJournal(postgres_url) as other,
    ):
        lost, kept = [await journal.open(info(name)) for name in ("lost", "kept")]
        # As after an answer that was lost: the row names this store, which does not have the run.
        journal._database.release(lost)
        await _interrupted(other, "lost")
        again = await other.open(info("lost"), resume=True)
        with pytest.raises(RunLocked):
            await other.open(info("kept"), resume=True)
        assert (await other.find("kept")).status == "running"
        await record(kept, rounds(1))
        lost.append(Entry("started", "late", 0.0))
        with pytest.raises(OwnershipLost):
            await lost.sync()  # type: ignore[misc]
        await again.close(again.info)
        await kept.close(kept.info)


@pytest.mark.parametrize("statement", [b"INSERT INTO loopwright.entries", b"COMMIT"])
async def test_an_answer_that_is_lost_repeats_nothing(
    postgres_server: PostgresServer, postgres_url: str, statement: bytes
) -> None:
    """A commit that the server acknowledged is there once, although the acknowledgement was lost."""
    database = postgres_url.rpartition("/")[2]
    lost: list[bytes] = []

    def drop(data: bytes) -> bool:
        if statement in data and not lost:
            lost.append(data)
            return True
        return False

    with Proxy(postgres_server.port) as proxy:
        url = postgres_server.url_of(database, port=proxy.port)
        async with PostgresJournal(url) as journal:
            await journal.runs()
            proxy.drop_reply = drop
            log = await journal.open(info(input=LONG))
            await record(log, rounds(2))
            await journal.memory.append(*_notes())
            await log.close(replace(log.info, status="satisfied"))
            assert await journal.create([info("run-2")]) == ["run-2"]
            assert lost
            assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))
            row = await journal.find("run-1")
            assert (row.status, row.epoch) == ("satisfied", 1)
            assert len(await journal.memory.entries("s")) == 2


def _notes() -> list[Any]:
    return [entry("s", "note", number, at=1.0) for number in range(2)]


async def test_a_commit_after_a_takeover_is_refused(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Cut off by the network, an owner loses its run, commits nothing, and learns of it."""
    database = postgres_url.rpartition("/")[2]
    with Proxy(postgres_server.port) as proxy:
        url = postgres_server.url_of(database, port=proxy.port)
        async with PostgresJournal(url, lease=1.0, beat=0.1) as cut:
            former = await cut.open(info())
            await record(former, rounds(1))
            lost = asyncio.Event()
            former.on_lost = lost.set
            proxy.frozen = True
            former.append(Entry("finished", "refine/9/execute", 9.0, "late"))
            late = asyncio.ensure_future(settle(former))
            async with PostgresJournal(postgres_url) as journal:
                owner = await _taken(journal)
                assert shown(owner.recorded) == shown(rounds_seen(rounds(1)))
                proxy.frozen = False
                await asyncio.wait_for(lost.wait(), 10)
                with pytest.raises(OwnershipLost):
                    await late
                await record(owner, rounds(1, start=2))
                assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))


async def test_a_run_whose_opening_hangs_is_opened_by_another_before_the_lease_ends(
    postgres_url: str,
) -> None:
    """A process stops inside the transaction that opens a run: the others wait three seconds for it, not its lease."""
    hangs, continues = threading.Event(), threading.Event()

    def hang(position: str, _: int) -> None:
        if position == "in_txn" and not hangs.is_set():
            hangs.set()
            continues.wait(60)

    async with (
        PostgresJournal(postgres_url) as journal,
        PostgresJournal(postgres_url, on_point=hang) as hung,
    ):
        await journal.create([info()])
        await hung.runs()
        opening = asyncio.ensure_future(hung.open(info(), resume=True))
        await asyncio.to_thread(hangs.wait, 60)
        try:
            owner = await asyncio.wait_for(journal.open(info(), resume=True), 8)
        finally:
            continues.set()
        with pytest.raises(RunLocked):
            await opening
        await owner.close(replace(owner.info, status="satisfied"))


async def _taken(journal: PostgresJournal) -> Any:
    """Open the run as soon as its owner counts as dead."""
    until = time.monotonic() + 60
    while True:
        try:
            return await journal.open(info())
        except RunLocked:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)


async def test_a_slow_network_costs_only_time(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """With 50 ms on each message all is recorded, and the lease is kept."""
    database = postgres_url.rpartition("/")[2]
    with Proxy(postgres_server.port) as proxy:
        proxy.delay = 0.05
        url = postgres_server.url_of(database, port=proxy.port)
        async with PostgresJournal(url) as journal:
            await recorded(journal, info(), rounds(3))
            assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(3)))


WORKER = """
import asyncio, os, sys
from loopwright.errors import OwnershipLost
from loopwright.journal import Entry, RunInfo
from loopwright.journal.postgres.journal import PostgresJournal

async def main():
    journal = PostgresJournal(sys.argv[1], lease=1.0, beat=0.1)
    log = await journal.open(RunInfo("run-1", "refine"))
    number = 0
    try:
        while True:
            number += 1
            log.append(Entry("finished", f"step-{number}", number, "x"))
            if (pending := log.sync()) is not None:
                await pending
            os.write(1, b"+")
            await asyncio.sleep(0.01)
    except OwnershipLost as error:
        os.write(1, f"lost {number}".encode())
    await journal.close()

asyncio.run(main())
"""


def _started(url: str) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    assert worker.stdout.read(3) == b"+++"
    return worker


async def test_a_killed_process_is_known_to_be_dead_before_its_lease_ends(
    postgres_url: str,
) -> None:
    """The session of a killed process is gone: its runs are taken after four beats, not after the lease."""
    worker = _started(postgres_url)
    query(postgres_url, "UPDATE loopwright.owners SET lease=3600")
    # Before its first beat the session of a process is unknown, and the lease decides.
    while query(postgres_url, "SELECT backend FROM loopwright.owners") == [(None,)]:
        await asyncio.sleep(0.01)
    worker.kill()
    worker.communicate()
    async with PostgresJournal(postgres_url) as journal:
        log = await _taken(journal)
        assert (log.info.epoch, len(log.recorded) >= 3) == (2, True)


async def test_a_stopped_process_commits_nothing_after_it_continues(postgres_url: str) -> None:
    """A process that was stopped for longer than its lease loses its run, and no entry is missing."""
    worker = _started(postgres_url)
    worker.send_signal(signal.SIGSTOP)
    try:
        async with PostgresJournal(postgres_url) as journal:
            log = await _taken(journal)
            count = len(log.recorded)
            worker.send_signal(signal.SIGCONT)
            out, _ = await asyncio.to_thread(worker.communicate, None, 20)
            assert out.endswith(b"lost %d" % (out.count(b"+") + 4))
            await record(log, [Entry("finished", "more", 99.0)])
            entries = await journal.entries("run-1")
            assert [entry.seq for entry in entries] == list(range(1, count + 2))
            # Every acknowledged entry is there, and at most the one on its way besides.
            assert count - (out.count(b"+") + 3) in (0, 1)
    finally:
        worker.kill()
        worker.communicate()


async def test_an_event_loop_that_is_blocked_keeps_its_runs(postgres_url: str) -> None:
    """The beats have a thread of their own: a step that blocks the event loop loses no run."""
    async with PostgresJournal(postgres_url, lease=0.6, beat=0.1) as journal:
        await journal.open(info())
        locked: list[BaseException] = []

        def try_it() -> None:
            async def attempt() -> None:
                async with PostgresJournal(postgres_url) as other:
                    for _ in range(10):
                        with pytest.raises(RunLocked) as caught:
                            await other.open(info())
                        locked.append(caught.value)
                        await asyncio.sleep(0.1)

            asyncio.run(attempt())

        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()  # the event loop does nothing meanwhile
        assert len(locked) == 10


@pytest.mark.parametrize("hours", [-1, 1])
async def test_the_clock_of_the_database_may_jump(postgres_url: str, hours: int) -> None:
    """By beats that seem an hour old or ahead, a live owner keeps its run and a dead one loses it."""
    past = f"interval '{hours} hours'"
    jump = f"UPDATE loopwright.owners SET beat=beat - {past}, since=since - {past}"
    async with PostgresJournal(postgres_url) as journal:
        await journal.open(info())
        async with PostgresJournal(postgres_url) as other:
            if hours < 0:  # set back: until the next beat only the session tells
                query(postgres_url, jump)
            with pytest.raises(RunLocked):
                await other.open(info())
    worker = _started(postgres_url)
    worker.kill()
    worker.communicate()
    query(postgres_url, jump)
    async with PostgresJournal(postgres_url) as journal:
        await asyncio.sleep(0)
        assert (await _taken(journal)).info.epoch == 3


async def test_clocks_of_workers_do_not_matter(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases are in the time of the database, whatever the clock of a worker shows."""
    async with PostgresJournal(postgres_url) as journal:
        await journal.open(info())
        wall = time.time
        monkeypatch.setattr(time, "time", lambda: wall() + 3600)
        async with PostgresJournal(postgres_url) as other:
            with pytest.raises(RunLocked):
                await other.open(info())
            assert (await other.find("run-1")).status == "running"


RACER = """
import asyncio, sys
from loopwright.errors import JournalError, OwnershipLost, RunLocked
from loopwright.journal import Entry, RunInfo
from loopwright.journal.postgres.journal import PostgresJournal

async def main():
    journal = PostgresJournal(sys.argv[1])
    acknowledged = []
    for turn in range(int(sys.argv[3])):
        log = await journal.open(RunInfo("run-1", "race"), takeover=True)
        try:
            for number in range(5):
                log.append(Entry("finished", f"{sys.argv[2]}-{turn}-{number}", 1.0))
                if (pending := log.sync()) is not None:
                    await pending
                acknowledged.append(f"{sys.argv[2]}-{turn}-{number}")
        except OwnershipLost:
            pass
    await journal.close()
    print("\\n".join(acknowledged))

asyncio.run(main())
"""


async def test_owners_that_race_break_no_chain(postgres_url: str) -> None:
    """Three processes that take a run from each other lose no acknowledged entry, and the chain holds."""
    async with PostgresJournal(postgres_url) as journal:
        await journal.runs()
    command = [sys.executable, "-c", RACER, postgres_url]
    racers = [
        subprocess.Popen([*command, name, "40"], stdout=subprocess.PIPE, text=True)
        for name in ("a", "b", "c")
    ]
    acknowledged = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    async with PostgresJournal(postgres_url) as journal:
        entries = await journal.entries("run-1")  # checks the chain
    paths = [entry.path for entry in entries]
    assert len(paths) == len(set(paths))
    assert {path for mine in acknowledged for path in mine} <= set(paths)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))


async def test_two_answers_leave_one(postgres_url: str) -> None:
    """Of answers that people post at once to one question, one wins and all callers receive it."""
    async with PostgresJournal(postgres_url) as one, PostgresJournal(postgres_url) as two:
        await recorded(one, info(), rounds(1))
        answers = [Posted("refine/1", 3, number, f"p{number}", 1.0) for number in range(10)]
        stored = await asyncio.gather(
            *((one, two)[number % 2].post("run-1", answer) for number, answer in enumerate(answers))
        )
        assert len({answer.who for answer in stored}) == 1
        assert await one.inbox("run-1") == [stored[0]]


async def test_an_owner_whose_row_is_gone_comes_back(postgres_url: str) -> None:
    """A row of an owner that others deleted is written again by its next beat."""
    async with PostgresJournal(postgres_url, beat=0.05) as journal:
        log = await journal.open(info())
        query(postgres_url, "DELETE FROM loopwright.owners")
        until = time.monotonic() + 10
        while (await journal.find("run-1")).status != "running":
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        await record(log, rounds(1))


async def test_behind_a_pooler_only_the_lease_counts(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """A connection pooler is recognised by the process number that it hides, and `check` says so."""
    database = postgres_url.rpartition("/")[2]
    key = re.compile(rb"K\x00\x00\x00\x0c.{4}", re.DOTALL)  # the process number of the server
    with Proxy(postgres_server.port) as proxy:
        proxy.rewrite = lambda data: key.sub(b"K\x00\x00\x00\x0c\x00\x00\x00\x01", data, count=1)
        url = postgres_server.url_of(database, port=proxy.port)
        async with PostgresJournal(url, lease=0.6, beat=0.1) as journal:
            log = await journal.open(info())
            await record(log, rounds(1))
            notes = await journal.notes()
            assert (
                "a connection pooler is between: a process that died is noticed after" in notes[1]
            )
            assert query(postgres_url, "SELECT backend FROM loopwright.owners") == [(None,)]
            async with PostgresJournal(postgres_url) as other:
                for _ in range(10):  # the lease is renewed
                    with pytest.raises(RunLocked):
                        await other.open(info())
                    await asyncio.sleep(0.1)
                cancelled = asyncio.Event()
                log.on_cancel = cancelled.set
                assert await other.cancel("run-1")
                await asyncio.wait_for(cancelled.wait(), 5)
            await log.close(log.info)


async def test_the_sweep_of_dead_owners_keeps_those_with_runs(postgres_url: str) -> None:
    """A store that opens deletes the rows of owners that ended long ago, unless a run names them."""
    async with PostgresJournal(postgres_url) as one:
        await one.open(info())
        async with PostgresJournal(postgres_url) as two:
            await recorded(two, info("run-2"), [])
        query(
            postgres_url,
            "UPDATE loopwright.owners SET closed=true, beat=beat - interval '1 hour'",
        )
        async with PostgresJournal(postgres_url) as three:
            await three.open(info("run-3"))
            owners = query(postgres_url, "SELECT id FROM loopwright.owners ORDER BY id")
            assert [key for (key,) in owners] == [1, 3]


async def test_too_many_connections_are_waited_for(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that accepts no connection now stalls the runs, and no run fails."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    async with PostgresJournal(postgres_url) as owner:
        await owner.prepare()
    query(postgres_url, f"GRANT USAGE ON SCHEMA loopwright TO {GUEST}")
    query(postgres_url, f"GRANT ALL ON ALL TABLES IN SCHEMA loopwright TO {GUEST}")
    name = postgres_url.rpartition("/")[2]
    async with PostgresJournal(postgres_server.url_of(name, user=GUEST)) as journal:
        log = await journal.open(info())
        await record(log, rounds(1))
        query(postgres_url, f"ALTER ROLE {GUEST} CONNECTION LIMIT 0")
        try:
            query(
                postgres_url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename=%s",
                (GUEST,),
            )
            waiting = asyncio.ensure_future(record(log, rounds(1, start=2)))
            done, _ = await asyncio.wait({waiting}, timeout=0.3)
            assert not done
        finally:
            query(postgres_url, f"ALTER ROLE {GUEST} CONNECTION LIMIT -1")
        await waiting
        await log.close(replace(log.info, status="satisfied"))
        assert shown(await journal.entries("run-1")) == shown(rounds_seen(rounds(2)))


@pytest.mark.parametrize(
    ("kind", "message", "transient"),
    [
        (psycopg.errors.DiskFull, "the disk of the server is full", True),
        (psycopg.errors.UndefinedTable, "cannot be read as a journal", False),
        (psycopg.errors.SyntaxError, "report this", False),
    ],
)
def test_errors_of_the_server_are_errors_of_the_journal(
    kind: type[psycopg.Error], message: str, transient: bool
) -> None:
    """Errors that pass are waited for; each error is one sentence that names the journal."""
    server = Server("postgres://me:secret@db/runs")
    error = server.error(kind("something"))
    assert str(error).startswith("postgres://me:***@db/runs: ")
    assert message in str(error)
    assert is_transient(kind("something")) is transient
