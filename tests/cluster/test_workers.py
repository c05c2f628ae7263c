"""Workers of one process, with a journal and deliveries in memory."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from loopwright import Loop, MaxIterations, step
from loopwright.cluster import (
    Cap,
    Delivery,
    InMemoryDeliverer,
    Rate,
    Submission,
    Worker,
    requeue,
    submit,
    submit_all,
)
from loopwright.cluster.delivery import Handle
from loopwright.cluster.schedules import next_tick
from loopwright.cluster.shared_runs import Beat, MemoryRuns, open_runs, run_id_of
from loopwright.cluster.sweeper import Sweeper
from loopwright.errors import (
    ConfigurationError,
    JournalUnavailable,
    ReplayMismatch,
    RunNotFound,
    Suspended,
)
from loopwright.journal import Entry, MemoryJournal, Posted
from loopwright.journal.questions import answer, pending
from loopwright.journal.replay import request
from loopwright.records import Reason
from loopwright.records.result import Stop
from loopwright.ui.journals import find_run

from .waiting import serving, until, until_status


def plus_one(number: int) -> int:
    return number + 1


count = Loop(plus_one, until=MaxIterations(3), name="count")


class Gate:
    """A step that waits until it is opened, and counts its calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.opened = asyncio.Event()
        self.step = step(self.pass_through, name="gate", idempotent=True, fingerprint="gate/1")

    async def pass_through(self, value: object) -> object:
        self.calls.append(value)
        await self.opened.wait()
        return value


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def deliverer() -> InMemoryDeliverer:
    return InMemoryDeliverer()


async def test_a_submitted_run_is_queued_until_a_worker_runs_it(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """The row is durable at once; the worker runs it with its recorded input."""
    run_id = await submit(count, 5, journal=journal, deliverer=deliverer)
    row = await journal.find(run_id)
    assert (row.status, row.input, row.queue) == ("queued", 5, "default")
    async with serving(Worker(journal=journal, steps=[count], deliverer=deliverer)) as worker:
        await until_status(journal, run_id, "exhausted")
        assert worker.finished == 1


async def test_a_key_has_one_run(journal: MemoryJournal, deliverer: InMemoryDeliverer) -> None:
    """Submitting a key again changes nothing, also when its run has ended."""
    first = await submit(count, 1, journal=journal, id="order 17", deliverer=deliverer)
    again = await submit(count, 1, journal=journal, id="order 17", deliverer=deliverer)
    assert first == again == run_id_of("order 17")
    assert (await journal.find(first)).input == 1


@pytest.mark.parametrize(
    ("inputs", "queue", "difference"),
    [
        ([(7, "new"), (2, "order 17")], "default", "another input"),
        ([(7, "new"), (1, "order 17")], "slow", "another queue"),
        ([(7, "new"), (8, "new")], "default", "another input"),
    ],
)
async def test_a_key_with_another_run_is_refused_before_anything_is_queued(
    journal: MemoryJournal,
    deliverer: InMemoryDeliverer,
    inputs: list[tuple[int, str]],
    queue: str,
    difference: str,
) -> None:
    """A key stands for one input on one queue; the other inputs of a refused submission are not queued."""
    await submit(count, 1, journal=journal, id="order 17", deliverer=deliverer)
    with pytest.raises(ReplayMismatch, match=difference):
        await submit_all(
            Submission(count, queue=queue), inputs, journal=journal, deliverer=deliverer
        )
    assert len(await journal.runs()) == 1


async def test_a_schedule_is_replaced_under_its_key(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """A key has one schedule: other times or another input replace it, also after it was cancelled."""
    for cron, value in (("0 6 * * *", 1), ("0 7 * * *", 1), ("0 7 * * *", 2), ("0 7 * * *", 2)):
        schedule = Submission(count, cron=cron)
        await submit_all(schedule, [(value, "morning")], journal=journal, deliverer=deliverer)
    [queued] = await journal.runs(status="queued")
    assert (queued.source["cron"]["expression"], queued.input) == ("0 7 * * *", 2)
    assert len(await journal.runs(status="cancelled")) == 2
    assert (await find_run(journal, "morning")).run_id == queued.run_id


async def test_a_repeated_delivery_joins_the_run_in_progress(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """Two deliveries of one run in one process are one run."""
    gate = Gate()
    handles: list[Handle] = []

    class Twice(InMemoryDeliverer):
        async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
            handles.append(handle)
            await super().serve(handle, queues=queues)

    twice = Twice()
    run_id = await submit(gate.step, 1, journal=journal, deliverer=twice)
    async with serving(Worker(journal=journal, steps=[gate.step], deliverer=twice)):
        await until(lambda: _true(len(gate.calls) == 1))
        second = asyncio.create_task(handles[0](run_id))
        await asyncio.sleep(0)
        gate.opened.set()
        assert await second is True
        await until_status(journal, run_id, "satisfied")
    assert gate.calls == [1]


async def test_a_delivery_of_an_ended_run_is_acknowledged(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """A late delivery does nothing, and the engine does not hold it any more."""
    run_id = await submit(count, 1, journal=journal, deliverer=deliverer)
    async with serving(Worker(journal=journal, steps=[count], deliverer=deliverer)):
        await until_status(journal, run_id, "exhausted")
        entries = len(await journal.entries(run_id))
        await deliverer.enqueue([Delivery(run_id), Delivery("missing")])
        await until(lambda: _empty(deliverer, run_id, "missing"))
        assert len(await journal.entries(run_id)) == entries


async def test_a_run_that_a_worker_lacks_goes_back_with_a_reason(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """Versions route themselves: the worker with the submitted version runs it."""
    run_id = await submit(count, 1, journal=journal, deliverer=deliverer)
    other = Loop(lambda n: n + 2, until=MaxIterations(3), name="count")
    runs = open_runs(journal)
    async with Worker(journal=journal, steps=[other], deliverer=deliverer) as worker:
        task = asyncio.create_task(worker.serve())
        await until(lambda: _has_returned(worker, run_id))
        assert worker.runs is not None
        reason, times = (await worker.runs.returns([run_id]))[run_id]
        assert "another version" in reason
        assert times == 1
        row = await journal.find(run_id)
        assert row.status == "queued"
        assert row.wake_at > time.time()
        worker.stop()
        await task
    assert await runs.wake(run_id)
    async with serving(Worker(journal=journal, steps=[count], deliverer=deliverer)):
        await until_status(journal, run_id, "exhausted")


async def test_a_reason_is_logged_once(
    journal: MemoryJournal, deliverer: InMemoryDeliverer, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that no worker can run is counted as waiting, and its worker logs the reason at the first attempt."""
    run_id = await submit(count, 1, journal=journal, deliverer=deliverer)
    async with serving(Worker(journal=journal, deliverer=deliverer)) as worker:
        await until(lambda: _has_returned(worker, run_id))
        assert worker.runs is not None
        await worker.runs.wake(run_id)

        async def again() -> bool:
            assert worker.runs is not None
            return (await worker.runs.returns([run_id]))[run_id][1] == 2

        await until(again)
        [queue] = await worker.runs.queues()
        assert (queue.waiting, queue.scheduled) == (1, 0)
        [delayed] = await worker.runs.delayed()
        assert (delayed.run_id, delayed.attempts) == (run_id, 2)
        assert "no such step" in delayed.reason
    assert [text for text in caplog.messages if "goes back" in text] == [
        f"{run_id} goes back to its queue: {delayed.reason}"
    ]


async def test_the_sweeper_brings_back_what_the_engine_lost(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """A job that vanished is enqueued again; a run that the engine holds is not."""
    lost, held = await submit_all(
        Submission(count), [(1, ""), (2, "")], journal=journal, deliverer=deliverer
    )
    await deliverer.remove([lost])
    for run_id in (lost, held):
        journal.change(replace(await journal.find(run_id), updated=0.0))
    sweeper = Sweeper(journal, open_runs(journal), deliverer)
    assert await sweeper.sweep() == 1
    assert await deliverer.waiting([Delivery(lost)]) == {lost}
    assert await sweeper.sweep() == 0


class LosesConnection(MemoryRuns):
    """Shared state whose first wait for changes ends with the loss of its connection."""

    def __init__(self, journal: MemoryJournal) -> None:
        super().__init__(journal)
        self.beats = 0

    async def beat(self, finished: int, *, swept: bool = False) -> Beat:
        self.beats += 1
        return await super().beat(finished, swept=swept)

    async def changed(self, timeout: float) -> bool:
        if self.beats == 1:
            raise ConnectionError("the server restarts")
        return await super().changed(timeout)


async def test_the_sweeper_survives_a_loss_of_its_connection(
    journal: MemoryJournal,
    deliverer: InMemoryDeliverer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A database that restarts while the sweeper waits for changes does not end it, and is logged once."""
    monkeypatch.setattr("loopwright.cluster.sweeper._INTERVAL", 0.01)
    runs = LosesConnection(journal)
    sweeping = asyncio.create_task(Sweeper(journal, runs, deliverer).serve())
    await until(lambda: _true(runs.beats > 2 or sweeping.done()))
    assert not sweeping.done()
    sweeping.cancel()
    assert caplog.messages == [
        "sweeping failed and is tried again: ConnectionError: the server restarts"
    ]


async def test_each_wait_of_a_run_has_its_own_pauses(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """The pause between two attempts doubles while a run waits, and begins anew once it was opened; the sweeper
    sweeps again when it is over, also while the engine has not taken the run."""
    run_id = await submit(count, 1, journal=journal, deliverer=deliverer)
    sweeper = Sweeper(journal, open_runs(journal), deliverer)
    pauses = []
    for _ in range(8):  # eight approvals in a row
        log = await journal.open(await journal.find(run_id), resume=True)
        await log.close(replace(log.info, status="suspended"))
        assert await open_runs(journal).wake(run_id)
        assert await sweeper.sweep() == 1
        pauses.append(sweeper._attempts[run_id].pause)
        sweeper._attempts[run_id] = sweeper._attempts[run_id]._replace(next=0.0)
        assert await sweeper.sweep() == 1
        assert sweeper._attempts[run_id].pause == 2 * pauses[-1]
        assert await sweeper.sweep() == 0  # too early
        assert sweeper._pause == pytest.approx(2 * pauses[-1], abs=0.05)
    assert set(pauses) == {0.05}


@pytest.mark.parametrize("reason", [Reason.THROTTLED, Reason.QUOTA])
async def test_a_run_continues_at_the_time_that_its_provider_named(
    journal: MemoryJournal, deliverer: InMemoryDeliverer, reason: Reason
) -> None:
    """The recorded time is one of the clock; the run waits for what is left of it, and wakes by itself."""
    until_then = time.time() + 1000

    async def throttled(value: int, ctx: object) -> int:
        if time.time() < until_then:
            raise Suspended(Stop(reason, "later"), path="throttled", request={"until": until_then})
        return value

    calling = step(throttled, name="throttled", fingerprint="throttled/1", idempotent=True)
    run_id = await submit(calling, 1, journal=journal, deliverer=deliverer)
    async with serving(Worker(journal=journal, steps=[calling], deliverer=deliverer)):
        await until_status(journal, run_id, "suspended")

        async def timed() -> bool:
            return (await journal.find(run_id)).wake_at > 0

        await until(timed)
        assert (await journal.find(run_id)).wake_at == pytest.approx(until_then, abs=60)
        until_then = 0.0
        journal.change(replace(await journal.find(run_id), wake_at=1.0))
        await until_status(journal, run_id, "satisfied")


class InboxAway(MemoryJournal):
    """A journal whose inbox cannot be read for a while."""

    away = True

    async def inbox(self, run_id: str) -> list[Posted]:
        if self.away:
            raise JournalUnavailable("the database is away")
        return await super().inbox(run_id)


async def test_a_run_that_cannot_be_opened_is_not_kept() -> None:
    """A failure between the opening and the first effect releases the run, so that it is delivered again."""
    journal, deliverer = InboxAway(), InMemoryDeliverer()
    run_id = await submit(count, 1, journal=journal, deliverer=deliverer)
    change = {"loop": "count", "key": "max_iterations", "old": 3, "new": 5}
    await journal.post(
        run_id, request([change], reason="", who="Ann", at=1.0)
    )  # a reason to read it
    async with serving(Worker(journal=journal, steps=[count], deliverer=deliverer)):
        await until_status(journal, run_id, "interrupted")
        journal.away = False
        await until_status(journal, run_id, "exhausted")


async def test_a_run_that_is_due_later_waits(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """A run with a start time reaches the engine when its time has come."""
    run_id = await submit(count, 1, journal=journal, at=time.time() + 3600, deliverer=deliverer)
    sweeper = Sweeper(journal, open_runs(journal), deliverer)
    assert await sweeper.sweep() == 0
    journal.change(replace(await journal.find(run_id), wake_at=1.0))
    assert await sweeper.sweep() == 1
    async with serving(Worker(journal=journal, steps=[count], deliverer=deliverer)):
        await until_status(journal, run_id, "exhausted")
    assert (await journal.find(run_id)).wake_at == 0.0


async def test_two_schedulers_make_one_run(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """The id of a scheduled run follows from its name and time, so each time has one run."""
    nightly = Submission(count, cron="0 6 * * *")
    for _ in range(2):
        await submit_all(nightly, [(1, "nightly")], journal=journal, deliverer=deliverer)
    [row] = await journal.runs()
    assert row.wake_at > time.time()
    journal.change(replace(row, wake_at=1.0))
    for _ in range(2):
        await Sweeper(journal, open_runs(journal), deliverer).sweep()
        await journal.create([next_tick(row, time.time())])
    rows = await journal.runs()
    assert len(rows) == 2
    assert len({run.run_id for run in rows}) == 2


async def test_a_poison_run_is_suspended(
    journal: MemoryJournal, deliverer: InMemoryDeliverer, caplog: pytest.LogCaptureFixture
) -> None:
    """After five deliveries without a result the run waits for a person, who can start it again.

    The detail and the log of the worker say that workers ended, and how to start it again.
    """
    gate = Gate()
    run_id = await submit(gate.step, 1, journal=journal, deliverer=deliverer)
    for _ in range(6):  # each process dies while the step is in progress
        log = await journal.open(await journal.find(run_id), resume=True)
        log.append(Entry("started", "gate", 0.0, fingerprint="gate/1"))
        journal.crash()
        row = await journal.find(run_id)
        journal.change(replace(row, status="interrupted", deliveries=row.deliveries + 1))
    other = await submit(count, 1, journal=journal, deliverer=deliverer)
    async with serving(Worker(journal=journal, steps=[gate.step, count], deliverer=deliverer)):
        await until_status(journal, run_id, "suspended")
        await until_status(journal, other, "exhausted")
        row = await journal.find(run_id)
        assert row.reason == "needs_attention"
        assert row.detail.startswith("it started 5 times without a new result")
        assert "loopwright submit --again" in row.detail
        assert f"{run_id}: {row.detail}" in caplog.messages
        assert gate.calls == []
        gate.opened.set()
        await requeue(run_id, journal=journal)
        await until_status(journal, run_id, "satisfied")


async def test_a_module_that_kills_its_workers_is_not_imported_again(
    journal: MemoryJournal, deliverer: InMemoryDeliverer, tmp_path: Path
) -> None:
    """Loading counts as a delivery: after five without a result the run is suspended before its code is loaded."""
    (tmp_path / "deadly.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"
    )
    submission = Submission(plus_one, source={"python": "deadly:step"}, pinned=False)
    [run_id] = await submit_all(submission, [(1, "")], journal=journal, deliverer=deliverer)
    journal.change(replace(await journal.find(run_id), deliveries=5))
    async with serving(Worker(journal=journal, root=tmp_path, deliverer=deliverer)):
        await until_status(journal, run_id, "suspended")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("module", "rooted", "advice"),
    [
        ("missing_module", True, "no folder of --root has the module missing_module. Start the"),
        ("missing.inner", False, "--root FOLDER, the folder of the module missing.inner"),
        ("importing", True, "its module imports missing_package, which is not installed"),
    ],
)
async def test_a_run_whose_module_is_missing_goes_back_with_advice(
    journal: MemoryJournal,
    deliverer: InMemoryDeliverer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    rooted: bool,
    advice: str,
) -> None:
    """The reason names the option of the worker; the delivery does not count as one that killed its worker."""
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "importing.py").write_text("import missing_package\n")
    submission = Submission(plus_one, source={"python": f"{module}:step"}, pinned=False)
    [run_id] = await submit_all(submission, [(1, "")], journal=journal, deliverer=deliverer)

    async def returned() -> bool:
        assert worker.runs is not None
        return run_id in await worker.runs.returns([run_id])

    root = [tmp_path] if rooted else []
    async with serving(Worker(journal=journal, root=root, deliverer=deliverer)) as worker:
        await until(returned)
        assert worker.runs is not None
        assert advice in (await worker.runs.returns([run_id]))[run_id][0]
    assert (await journal.find(run_id)).deliveries == 0


async def test_an_answer_wakes_a_run(journal: MemoryJournal, deliverer: InMemoryDeliverer) -> None:
    """A suspended run holds no slot; its answer brings it back to a worker."""

    async def ask(value: str, ctx: object) -> object:
        return ctx.ask("publish", {}, "Publish it?")  # type: ignore[attr-defined]

    asking = step(ask, name="asking", fingerprint="ask/1")
    run_id = await submit(asking, "draft", journal=journal, deliverer=deliverer)
    worker = Worker(journal=journal, steps=[asking], queues={"default": 1}, deliverer=deliverer)
    async with serving(worker):
        await until_status(journal, run_id, "suspended")
        await until(lambda: _empty(deliverer, run_id))
        [question] = await pending(journal, run_id)
        await answer(journal, run_id, question.path, "yes")
        await until_status(journal, run_id, "satisfied")
    assert worker.held == []


@pytest.mark.parametrize("later", [True, False])
async def test_a_queued_run_is_cancelled_where_it_is(
    journal: MemoryJournal, deliverer: InMemoryDeliverer, later: bool
) -> None:
    """No worker runs a run that was cancelled before it began."""
    at = time.time() + 3600 if later else None
    run_id = await submit(count, 1, journal=journal, at=at, deliverer=deliverer)
    assert await journal.cancel(run_id)
    async with serving(Worker(journal=journal, steps=[count], deliverer=deliverer)):
        await until_status(journal, run_id, "cancelled")
        assert (await journal.find(run_id)).iterations == 0


async def test_an_engine_that_ends_is_started_again(journal: MemoryJournal) -> None:
    """Runs in progress continue while the engine's worker fails, and new ones are delivered after it."""
    gate = Gate()

    class Failing(InMemoryDeliverer):
        failures = 0

        async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
            if self.failures == 0:
                [delivery] = [one[2] for one in self._waiting]
                asyncio.get_running_loop().create_task(_ignored(handle, delivery.run_id))
                await until(lambda: _true(bool(gate.calls)))
                Failing.failures += 1
                raise ConnectionError("the server restarts")
            await super().serve(handle, queues=queues)

    deliverer = Failing()
    run_id = await submit(gate.step, 1, journal=journal, deliverer=deliverer)
    async with serving(Worker(journal=journal, steps=[gate.step, count], deliverer=deliverer)):
        await until(lambda: _true(deliverer.failures == 1))
        other = await submit(count, 1, journal=journal, deliverer=deliverer)
        await until_status(journal, other, "exhausted")
        gate.opened.set()
        await until_status(journal, run_id, "satisfied")
    assert gate.calls == [1]


async def test_slots_count_the_runs_that_continue_while_an_engine_is_started_again(
    journal: MemoryJournal,
) -> None:
    """An engine that was started again has all its slots free; the worker still runs no more than it may."""
    gate = Gate()

    class Failing(InMemoryDeliverer):
        failing = asyncio.Event()
        delivered: ClassVar[list[str]] = []

        async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
            async def fail() -> None:
                await self.failing.wait()
                self.failing.clear()
                raise ConnectionError("the server restarts")

            async def counted(run_id: str) -> bool:
                self.delivered.append(run_id)
                return await handle(run_id)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
                tasks.create_task(super().serve(counted, queues=queues))

    deliverer = Failing()
    first = [await submit(gate.step, n, journal=journal, deliverer=deliverer) for n in (1, 2)]
    queues = {"default": 2, "other": 1}
    worker = Worker(journal=journal, steps=[gate.step], queues=queues, deliverer=deliverer)
    async with serving(worker):
        await until(lambda: _true(len(gate.calls) == 2))
        # Delivered first, because they have a higher priority than the two that continue.
        more = [
            await submit(gate.step, n, journal=journal, deliverer=deliverer, priority=5)
            for n in (3, 4)
        ]
        aside = await submit(gate.step, 5, journal=journal, deliverer=deliverer, queue="other")
        deliverer.failing.set()
        await until(lambda: _true(len(gate.calls) >= 3 and {*more} <= {*deliverer.delivered}))
        assert sorted(gate.calls) == [1, 2, 5]
        assert set(worker.held) == {*first, aside}
        worker.stop()
        gate.opened.set()
        for run_id in (*first, aside):
            await until_status(journal, run_id, "satisfied")
    assert sorted(gate.calls) == [
        1,
        2,
        5,
    ]  # what waited for a slot did not begin while the worker ended
    async with serving(Worker(journal=journal, steps=[gate.step], deliverer=deliverer)):
        for run_id in more:
            await until_status(journal, run_id, "satisfied")


async def test_a_worker_that_stops_returns_its_runs(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """After the seconds of `drain` a run goes back, and another worker continues it."""
    gate = Gate()
    run_id = await submit(gate.step, 1, journal=journal, deliverer=deliverer)
    async with serving(Worker(journal=journal, steps=[gate.step], deliverer=deliverer, drain=0.0)):
        await until(lambda: _true(len(gate.calls) == 1))
    assert (await journal.find(run_id)).status == "interrupted"
    gate.opened.set()
    async with serving(Worker(journal=journal, steps=[gate.step], deliverer=deliverer)):
        await until_status(journal, run_id, "satisfied")
    assert gate.calls == [1, 1]


async def test_a_worker_that_stops_lets_runs_end(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """Runs in progress may end within the seconds of `drain`, and no new run is taken."""
    gate = Gate()
    ids = await submit_all(
        Submission(gate.step), [(n, "") for n in range(2)], journal=journal, deliverer=deliverer
    )
    worker = Worker(
        journal=journal, steps=[gate.step], queues={"default": 1}, deliverer=deliverer, drain=30.0
    )
    async with worker:
        task = asyncio.create_task(worker.serve())
        await until(lambda: _true(len(gate.calls) == 1))
        worker.stop()
        gate.opened.set()
        await task
    assert [(await journal.find(run_id)).status for run_id in ids] == ["satisfied", "queued"]


async def test_a_cap_holds_calls_back(journal: MemoryJournal, deliverer: InMemoryDeliverer) -> None:
    """At most so many calls of a step are in progress over all runs and workers."""
    running: list[int] = []
    most: list[int] = []

    async def call(value: int) -> int:
        running.append(value)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(value)
        return value

    limited = step(call, name="call", fingerprint="call/1")
    ids = await submit_all(
        Submission(limited), [(n, "") for n in range(12)], journal=journal, deliverer=deliverer
    )
    worker = Worker(
        journal=journal, steps=[limited], deliverer=deliverer, limits={"call": Cap(2) & Rate(1000)}
    )
    async with serving(worker):
        for run_id in ids:
            await until_status(journal, run_id, "satisfied")
    assert len(most) == 12
    assert max(most) <= 2


def test_two_rates_are_refused() -> None:
    """A limit has one cap and one rate."""
    assert (Cap(3) & Cap(2)).cap == 2
    with pytest.raises(ConfigurationError):
        _ = Rate(1) & Cap(2) & Rate(2)


def test_a_journal_of_one_machine_is_refused(tmp_path: object) -> None:
    """Workers need a journal that several machines can open."""
    from loopwright.journal import open_journal

    with pytest.raises(ConfigurationError, match="postgres://"):
        open_runs(open_journal(f"sqlite:{tmp_path}/runs.db"))


async def test_only_a_waiting_run_starts_again(
    journal: MemoryJournal, deliverer: InMemoryDeliverer
) -> None:
    """A run that has ended is not started again."""
    run_id = await submit(count, 1, journal=journal, deliverer=deliverer)
    await journal.cancel(run_id)
    with pytest.raises(RunNotFound):
        await requeue(run_id, journal=journal)


async def _true(value: bool) -> bool:
    return value


async def _ignored(handle: Handle, run_id: str) -> None:
    await handle(run_id)


async def _empty(deliverer: InMemoryDeliverer, *run_ids: str) -> bool:
    return not await deliverer.waiting([Delivery(run_id) for run_id in run_ids])


async def _has_returned(worker: Worker, run_id: str) -> bool:
    assert worker.runs is not None
    return run_id in await worker.runs.returns([run_id])


async def test_modules_may_be_in_several_folders(
    journal: MemoryJournal,
    deliverer: InMemoryDeliverer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker looks for a module in each folder of `root`, in their order."""
    monkeypatch.setattr("sys.path", list(sys.path))
    ids = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"steps_in_{name}.py").write_text(
            "from loopwright import step\n@step\ndef shout(text):\n    return text.upper()\n"
        )
        reference = f"steps_in_{name}:shout"
        submission = Submission(str.upper, source={"python": reference}, pinned=False)
        ids.append(await submit(submission, name, journal=journal, deliverer=deliverer))
    roots = [tmp_path / "first", tmp_path / "second"]
    async with serving(Worker(journal=journal, root=roots, deliverer=deliverer)):
        for run_id in ids:
            await until_status(journal, run_id, "satisfied")
