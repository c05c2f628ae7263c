"""Schedules that are paused, continue and are backfilled, in memory and in PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest

from loopwright import Loop, MaxIterations
from loopwright.cluster import InMemoryDeliverer, Submission
from loopwright.cluster.schedules import at_tick, backfill, pause, proceed, schedules
from loopwright.cluster.shared_runs import SharedRuns, open_runs
from loopwright.cluster.submit import place
from loopwright.cluster.sweeper import Sweeper
from loopwright.journal import Journal, MemoryJournal, RunInfo, open_journal
from loopwright.journal.postgres.connection import STEPS, Server, migrate
from loopwright.journal.postgres.journal import run_terms
from loopwright.journal.questions import PAUSED, runs_of_schedule
from loopwright.journal.views import Wanted

DAY = 24 * 3600.0
count = Loop(lambda n: n + 1, until=MaxIterations(1), name="count")


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Journal]:
    """A journal that workers share."""
    memory = request.param == "memory"
    journal = MemoryJournal() if memory else open_journal(request.getfixturevalue("postgres_url"))
    yield journal
    await journal.close()


@pytest.fixture
async def runs(store: Journal) -> AsyncIterator[SharedRuns]:
    """Its shared state, with a worker of the queue `default`."""
    await store.runs(limit=1)
    shared = open_runs(store)
    await shared.prepare()
    await shared.enter({"default": 1})
    await shared.beat(0)
    yield shared
    await shared.close()


def nightly(value: int, now: float) -> RunInfo:
    """The run of the schedule at its next time after a moment."""
    return at_tick(Submission(count).row(value, "nightly"), "0 6 * * *", "nightly", now)


async def test_a_paused_schedule_starts_nothing_and_continues_with_its_next_time(
    store: Journal, runs: SharedRuns
) -> None:
    """A run whose time passed meanwhile is cancelled, so the ID of each run is that of its time."""
    passed = nightly(1, runs.now() - 2 * DAY)
    await store.create([passed])
    assert await pause(runs, "nightly")
    assert not await pause(runs, "nightly")
    engine = InMemoryDeliverer()
    assert await Sweeper(store, runs, engine).sweep() == 0
    [paused] = await schedules(store, runs)
    assert (paused.run_id, paused.paused, paused.next) == (passed.run_id, True, 0.0)
    following = await proceed(store, runs, "nightly")
    assert following is not None
    assert await proceed(store, runs, "nightly") is None
    [continued] = await schedules(store, runs)
    assert (continued.run_id, continued.paused) == (following.run_id, False)
    assert runs.now() < continued.next <= runs.now() + DAY
    assert (await store.find(passed.run_id)).status == "cancelled"
    assert following.run_id == nightly(1, runs.now()).run_id


async def test_a_run_that_was_returned_does_not_create_the_next_one_of_a_paused_schedule(
    store: Journal, runs: SharedRuns
) -> None:
    """A sweep meets the returned run of a time that has passed: it waits too, and no other run is created."""
    returned = nightly(1, runs.now() - 3 * DAY)
    await store.create([returned])
    await runs.put_back(returned.run_id, delay=0.0, reason="this worker has no such step")
    await store.create([nightly(1, runs.now())])
    for _, run_id, _ in await runs.timed("nightly"):
        if run_id != returned.run_id:
            await runs.start_at(run_id, PAUSED)
    assert await Sweeper(store, runs, InMemoryDeliverer()).sweep() == 0
    assert [start for _, _, start in await runs.timed("nightly")] == [PAUSED, PAUSED]
    # A worker that enters lets returned runs start, but not those of a paused schedule.
    await runs.enter({"default": 1})
    assert [start for _, _, start in await runs.timed("nightly")] == [PAUSED, PAUSED]


async def test_times_are_backfilled_once_by_the_clock_of_the_store(
    store: Journal, runs: SharedRuns
) -> None:
    """Runs of passed times wait at once, a cancelled one is created anew, and the schedule goes on beside them."""
    await store.create([nightly(1, runs.now())])
    first = runs.now() - 3 * DAY
    created, existed = await backfill(store, runs, "nightly", first)
    assert (len(created), existed) == (3, [])
    assert (await backfill(store, runs, "nightly", first)).existed == created
    await store.cancel(created[0])
    anew, kept = await backfill(store, runs, "nightly", first)
    assert (len(anew), kept) == (1, created[1:])
    assert (await backfill(store, runs, "nightly", first)).created == []
    rows = await runs_of_schedule(store, "nightly", status="queued")
    assert [row.wake_at > 0 for row in rows] == [True, False, False, False]
    assert len(await schedules(store, runs)) == 1


async def test_a_schedule_that_ended_beside_its_backfilled_runs_is_created_anew(
    store: Journal, runs: SharedRuns
) -> None:
    """The same submission creates its next run again, and leaves what was backfilled."""
    submission, engine = Submission(count, cron="0 6 * * *"), InMemoryDeliverer()
    [(first, _)] = await place(submission, [(1, "nightly")], journal=store, deliverer=engine)
    created, _ = await backfill(store, runs, "nightly", runs.now() - 2 * DAY)
    await store.cancel(first.run_id)
    [(second, new)] = await place(submission, [(1, "nightly")], journal=store, deliverer=engine)
    assert new
    assert (second.wake_at, second.run_id != first.run_id) == (first.wake_at, True)
    assert [(await store.find(run_id)).status for run_id in created] == ["queued", "queued"]
    changed = Submission(count, cron="0 7 * * *")
    await place(changed, [(1, "nightly")], journal=store, deliverer=engine)
    assert [(await store.find(run_id)).status for run_id in created] == ["cancelled", "cancelled"]


def _damage(url: str, run_id: str, change: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"UPDATE loopwright.runs SET {change} WHERE run_id = %s", (run_id,))


async def test_a_schedule_goes_on_after_a_run_whose_row_is_damaged(postgres_url: str) -> None:
    """The run of the next time is created once, with the input of the run before the damaged one."""
    async with open_journal(postgres_url) as journal:
        await journal.runs(limit=1)
        runs = open_runs(journal)
        await runs.prepare()
        await runs.enter({"default": 1})
        await runs.beat(0)
        passed = [nightly(1, runs.now() - days * DAY) for days in (3, 2)]
        before, damaged = await journal.create(passed)
        await runs.handed_over([before])
        _damage(postgres_url, damaged, "input = '2'")
        await Sweeper(journal, runs, InMemoryDeliverer()).sweep()
        [_, (_, following, start)] = await runs.timed("nightly")
        assert runs.now() < start <= runs.now() + DAY
        assert (await journal.find(following)).input == 1
        [listed] = await schedules(journal, runs)
        assert (listed.run_id, listed.expression) == (following, "0 6 * * *")
        # Its worker returns it, and it does not create another one, also not for another sweeper.
        await runs.put_back(damaged, delay=0.0, reason="its row is damaged")
        await journal.cancel(following)
        await Sweeper(journal, runs, InMemoryDeliverer()).sweep()
        assert [run_id for _, run_id, _ in await runs.timed("nightly")] == [damaged]
        await runs.close()


async def test_a_schedule_that_may_have_been_submitted_anew_ends_with_its_damaged_run(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The run before it was cancelled, so it does not say how the schedule goes on; a submission creates it again."""
    engine = InMemoryDeliverer()
    async with open_journal(postgres_url) as journal:
        await journal.runs(limit=1)
        runs = open_runs(journal)
        await runs.prepare()
        await runs.enter({"default": 1})
        await runs.beat(0)
        submission = Submission(count, cron="0 6 * * *")
        await place(submission, [(1, "nightly")], journal=journal, deliverer=engine)
        [(damaged, _)] = await place(
            submission, [(2, "nightly")], journal=journal, deliverer=engine
        )
        _damage(postgres_url, damaged.run_id, "wake_at = 1, input = '3'")
        assert [one.expression for one in await schedules(journal, runs)] == ["damaged"]
        await Sweeper(journal, runs, engine).sweep()
        assert "the schedule nightly has ended" in caplog.text
        assert [run_id for _, run_id, _ in await runs.timed("nightly")] == [damaged.run_id]
        [(anew, new)] = await place(submission, [(2, "nightly")], journal=journal, deliverer=engine)
        assert new
        assert [one.run_id for one in await schedules(journal, runs)] == [anew.run_id]
        await pause(runs, "nightly")
        assert await proceed(journal, runs, "nightly") is not None
        await runs.close()


async def test_a_submission_starts_by_the_clock_of_the_store(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the submitter is a day wrong: a delay and a schedule count from the time of the database."""
    right = time.time()
    wrong = time.time
    async with open_journal(postgres_url) as journal:
        monkeypatch.setattr(time, "time", lambda: wrong() + 26 * 3600)
        later = Submission(count, delay=600.0)
        [(delayed, _)] = await place(
            later, [(1, "")], journal=journal, deliverer=InMemoryDeliverer()
        )
        ticking = Submission(count, cron="* * * * *")
        [(ticks, _)] = await place(
            ticking, [(1, "minutely")], journal=journal, deliverer=InMemoryDeliverer()
        )
    assert right + 600 <= delayed.wake_at < right + 660
    assert right < ticks.wake_at < right + 120


async def test_the_runs_of_a_schedule_are_found_by_an_index(postgres_url: str) -> None:
    """Whatever is beside them, no other row is read."""
    async with open_journal(postgres_url) as journal:
        await journal.create([nightly(1, time.time())])
        others = [Submission(count).row(number, "") for number in range(3000)]
        await journal.create(others)
        assert len(await journal.runs(schedule="nightly")) == 1
    terms, values = run_terms(Wanted(status="queued", schedule="nightly"), [])
    query = f"SELECT run_id FROM loopwright.runs WHERE {' AND '.join(terms)} ORDER BY id DESC"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("ANALYZE loopwright.runs")
        [(plan,)] = db.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", values).fetchall()
    assert "runs_of_schedules" in str(plan)
    assert "Rows Removed by Filter" not in str(plan)


@pytest.mark.parametrize("size", [0, 20_000])
def test_the_schedules_of_an_older_journal_are_found_after_its_migration(
    postgres_url: str, size: int
) -> None:
    """The name is read from the source of the waiting run, which is a content if it is long."""
    server = Server(postgres_url)

    async def create() -> str:
        async with open_journal(postgres_url) as journal:
            row = nightly(1, time.time())
            row.source["documents"] = "x" * size
            return (await journal.create([row]))[0]

    run_id = asyncio.run(create())
    with psycopg.connect(postgres_url, autocommit=True) as old:
        old.execute("ALTER TABLE loopwright.runs DROP COLUMN schedule, DROP COLUMN tags")
        old.execute("CREATE INDEX runs_by_end ON loopwright.runs(status, reason, id)")
        old.execute("ALTER TABLE loopwright.inbox DROP COLUMN role")
        old.execute(
            "DROP INDEX loopwright.runs_timed, loopwright.runs_waiting, loopwright.runs_by_queue, loopwright.runs_suspect"
        )
        old.execute("DROP TABLE loopwright.events, loopwright.waits, loopwright.calls")
        old.execute("UPDATE loopwright.format SET version = 4")
    db = server.connect("test")
    assert migrate(db, server) == 4
    assert len(STEPS) == 8
    db.close()

    async def found() -> list[str]:
        async with open_journal(postgres_url) as journal:
            return [row.run_id for row in await runs_of_schedule(journal, "nightly")]

    assert asyncio.run(found()) == [run_id]
