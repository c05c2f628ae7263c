"""The sweeper: brings runs to the engine that the engine does not hold, and suspends those that end their workers.

Each worker has one, and one of them works at a time. It enqueues runs that are queued, interrupted or owned by a dead
worker and that no engine holds, and runs whose time has come. A run that stays missing is enqueued again after pauses
that double. A run that was delivered again and again without a result is suspended, because its workers may have died
of it. With telemetry, a worker counts the runs of lost workers that it continues, and the one that sweeps measures its
lag and what waits in each queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..engine.run_record import row_of
from ..errors import JournalDamaged, JournalError
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.questions import PAUSED, schedule_of, unread_answers
from ..records import Reason, Result, Status
from ..records.result import ended_entry
from ..telemetry import Telemetry
from ..telemetry.trace import OLDEST, QUEUE, SWEEP_LAG, TAKEOVERS, WAITING
from .delivery import Deliverer, Delivery, sentence_of
from .schedules import next_tick, repeated
from .shared_runs import MAX_DELIVERIES, SUSPECT, Beat, SharedRuns

__all__ = [
    "RunOpening",
    "SweepMetrics",
    "Sweeper",
    "TakeoverCounter",
    "is_poison",
    "may_continue",
    "suspend",
]

_LOG = logging.getLogger("loopwright.cluster")
_LONGEST_PAUSE = 16.0  # seconds before a suspect starts
_RESULTS = frozenset({"finished", "iteration", "ended", "asked", "answered", "reported", "step"})
"""The kinds of entries that prove that a delivery made progress; the start of an effect is not one."""


async def is_poison(row: RunInfo, runs: SharedRuns, journal: Journal) -> bool:
    """Count a repeated delivery; suspend a run that was delivered too often without a result.

    A suspect starts after a random pause, so that a run that kills its workers does not share each of its
    deliveries with the same others, which would be suspects as well.
    """
    if row.deliveries > 1:
        await asyncio.sleep(random.random() * min(_LONGEST_PAUSE, 2.0**row.deliveries))
    count = await runs.counted(row.run_id)
    if count <= MAX_DELIVERIES:
        if count > SUSPECT:
            _LOG.warning(
                "%s: it started %s times without a new result; after %s it is suspended",
                row.run_id, count - 1, MAX_DELIVERIES,
            )  # fmt: skip
        return False
    detail = (
        f"it started {MAX_DELIVERIES} times without a new result, and each time its worker ended"
        f"{f' (the last one: {row.owner})' if row.owner else ''}. Repair its cause, then start it again with "
        "loopwright submit --again, or run it on this machine with loopwright resume."
    )
    await suspend(journal, row, detail)
    _LOG.error("%s: %s", row.run_id, detail)
    return True


class RunOpening:
    """Clears the time of a run at its first entry, and its count of deliveries at its first result.

    Until then a suspended run keeps its time, because nothing else would wake it if its opening fails.
    """

    def __init__(self, runs: SharedRuns, run_id: str, *, timed: bool) -> None:
        self.runs = runs
        self._run_id = run_id
        self._timed = timed
        self._counted = True
        self._tasks: list[asyncio.Task[None]] = []

    def note(self, entry: Entry) -> None:
        """Receive an entry of the run."""
        if self._timed:
            self._timed = False
            self._tasks.append(
                asyncio.create_task(self._clear(self.runs.handed_over([self._run_id])))
            )
        if self._counted and entry.kind in _RESULTS:
            self._counted = False
            self._tasks.append(asyncio.create_task(self._clear(self.runs.progressed(self._run_id))))

    async def _clear(self, change: Coroutine[Any, Any, None]) -> None:
        try:
            await change
        except JournalError as error:  # both only let the run start once more
            _LOG.info("%s: its progress could not be noted: %s", self._run_id, error)

    async def close(self) -> None:
        """Wait for the statements in progress."""
        if self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(asyncio.wait(self._tasks))


async def suspend(journal: Journal, row: RunInfo, detail: str) -> None:
    """Suspend a run without an owner, so that a person decides."""
    # As its owner, so that a worker that still runs it stops this by RunLocked.
    log = await journal.open(row, resume=True)
    result: Result = Result(
        Status.SUSPENDED, Reason.NEEDS_ATTENTION, detail, None, run_id=row.run_id, name=row.name
    )
    closing = replace(log.info, status=row.status)
    try:
        log.append(Entry("suspended", "", log.info.active, ended_entry(result)))
        if (written := log.sync()) is not None:
            await written
        closing = replace(row_of(log.info, result, log.info.active), usage=log.info.usage)
    finally:
        await log.close(closing)


_INTERVAL = 1.0  # seconds between two sweeps
_PARTS = 5  # beats between two looks at what waits, if nothing is due
_AGAIN = 0.05  # seconds until a due run is enqueued again
_GRACE = 2.0  # seconds in which a submitted run may reach the engine by itself
_LONGEST = 60.0  # seconds between two attempts for one run
# An engine may hold a delivery whose worker died without its notice.
_LOST = 600.0  # seconds after which an engine's word that it holds a run is not taken any more
_BETWEEN_REMOVALS = 60.0  # seconds between two removals of old runs
_KEPT = 10_000  # runs whose pauses are remembered


class _Attempt(NamedTuple):
    """An attempt to enqueue a run: for which wait, when the first one was, when the next one is, and the pause."""

    wait: tuple[int, float]
    first: float
    next: float
    pause: float


class Sweeper:
    """Enqueues what no engine holds.

    Args:
        journal: the journal of the runs.
        runs: its shared state.
        deliverer: the engine.
        prune: deletes the runs that ended before a time. Default: all are kept.
        retain: after how many seconds ended runs are deleted.
        metrics: sends what a sweep measures. Default: nothing is measured.
    """

    def __init__(
        self,
        journal: Journal,
        runs: SharedRuns,
        deliverer: Deliverer,
        *,
        prune: Callable[[float], Awaitable[int]] | None = None,
        retain: float = 0.0,
        metrics: SweepMetrics | None = None,
    ) -> None:
        self._journal = journal
        self._runs = runs
        self._deliverer = deliverer
        self._pause = _INTERVAL  # until a run that is due may have to be enqueued again
        self._answered: dict[str, str] = {}  # what was read of suspended runs with answers
        self._attempts: dict[str, _Attempt] = {}  # the latest of each run
        self._prune = prune
        self._retain = retain
        self._metrics = metrics
        self._pruned = -_BETWEEN_REMOVALS  # when old runs were deleted
        self._pruning: asyncio.Task[None] | None = None
        self._unpruned = ""  # why old runs could not be deleted, as the log has it

    async def serve(
        self, finished: Callable[[], int] = int, heard: Callable[[Beat], None] = lambda _: None
    ) -> None:
        """Beat and sweep until cancelled; an unavailable store or engine is tried again.

        Args:
            finished: returns the number of runs that ended in this worker.
            heard: is called after each beat.
        """
        try:
            await self._serve(finished, heard)
        finally:
            if self._pruning is not None:
                self._pruning.cancel()

    async def _serve(self, finished: Callable[[], int], heard: Callable[[Beat], None]) -> None:
        failing = announced = swept = False
        for beats in itertools.count():
            try:
                beat = await self._runs.beat(finished(), swept=swept)
                heard(beat)
                # Without something due, a sweep only asks the engine for a part of what waits.
                if beat.sweeps and (beat.due or beats % _PARTS == 0):
                    await self.sweep(answered=beat.due)
                if beat.sweeps:
                    if self._metrics is not None:
                        await self._metrics.measure()
                    self._prune_soon()
                swept = beat.sweeps
                # An answer is announced before the run is given back: a second sweep follows soon.
                announced = await self._runs.changed(_AGAIN if announced else self._pause)
            except Exception as error:  # of a database or an engine, which may come back
                # Once for a loss: the database may be away for minutes.
                level = logging.DEBUG if failing else logging.WARNING
                _LOG.log(level, "sweeping failed and is tried again: %s", sentence_of(error))
                failing, swept = True, False
                await asyncio.sleep(_INTERVAL)
            else:
                failing = False

    def _prune_soon(self) -> None:
        """Delete old runs in the background: many may take longer than a sweep may."""
        now = time.monotonic()
        if self._prune is None or now - self._pruned < _BETWEEN_REMOVALS:
            return
        if self._pruning is None or self._pruning.done():
            self._pruned = now
            self._pruning = asyncio.create_task(
                self._delete(self._prune(self._runs.now() - self._retain))
            )

    async def _delete(self, pruned: Awaitable[int]) -> None:
        reason = ""
        try:
            if count := await pruned:
                _LOG.info("deleted %s old runs", count)
        except Exception as error:  # it is tried again
            reason = sentence_of(error)
            # Once for a reason: a role without the right to delete stays without it.
            level = logging.DEBUG if reason == self._unpruned else logging.WARNING
            _LOG.log(level, "old runs could not be deleted: %s", reason)
        self._unpruned = reason

    async def sweep(self, *, answered: bool = True) -> int:
        """Enqueue what is missing now, and return the number of runs; `answered` is whether a run may have an answer."""
        if answered:
            await self._wake_answered()
        rows = await self._runs.due()
        now = time.monotonic()
        # A worker clears the time when it takes the run: the engine may skip a run whose last delivery it has not
        # acknowledged yet, so such a run is enqueued again after a short pause.
        timed = [row for row in rows if row.wake_at]
        due = await self._ticked([row for row in timed if self._may_try(row, now)])
        # Before an engine is asked what it holds of the others: that can take longer than these may wait.
        await self._enqueue(due, now, first=_AGAIN)
        others = [row for row in rows if not row.wake_at and self._may_try(row, now)]
        held = (
            await self._deliverer.waiting([_delivery(row) for row in others]) if others else set()
        )
        for row in others:
            if row.run_id in held:
                self._wait(row, now)
        missing = [row for row in others if row.run_id not in held or self._is_lost(row, now)]
        await self._enqueue(missing, now)
        latest = [attempt for row in timed if (attempt := self._latest(row)) is not None]
        soonest = min((attempt.next for attempt in latest), default=now + _INTERVAL)
        self._pause = min(_INTERVAL, max(_AGAIN, soonest - now))
        return len(due) + len(missing)

    async def _enqueue(
        self, rows: Sequence[RunInfo], now: float, *, first: float = 2 * _INTERVAL
    ) -> None:
        if rows:
            await self._deliverer.enqueue([_delivery(row) for row in rows])
        for row in rows:
            self._wait(row, now, first=first)

    async def _ticked(self, due: Sequence[RunInfo]) -> list[RunInfo]:
        """Create the next runs of the schedules of due runs; return the due runs without those of paused schedules."""
        # Before the due ones are enqueued: a crash after this repeats a tick, whose run ID is the same.
        first = [row for row in due if row.status == "queued" and row.run_id not in self._attempts]
        ticking = []
        for row in first:
            try:
                ticking.append(await self._journal.find(row.run_id))
            except JournalDamaged:  # the worker that takes it says so
                if (ticked := await repeated(self._journal, self._runs, row)) is not None:
                    ticking.append(ticked)
        scheduled = [row for row in ticking if schedule_of(row)]
        # A worker may have returned a run, or created the one of the next time, while a person paused the schedule.
        paused = {row.run_id for row in scheduled if await self._is_paused(schedule_of(row))}
        for run_id in paused:
            await self._runs.start_at(run_id, PAUSED)
        following = [
            next_tick(row, self._runs.now()) for row in scheduled if row.run_id not in paused
        ]
        if following:
            await self._journal.create(following)
        return [row for row in due if row.run_id not in paused]

    async def _is_paused(self, schedule: str) -> bool:
        return any(start == PAUSED for _, _, start in await self._runs.timed(schedule))

    async def _wake_answered(self) -> None:
        """Let suspended runs continue whose questions have an answer now."""
        answered = await self._runs.answered()
        for run_id, state in answered.items():
            # A run with an answer to another question stays suspended; its entries need not be read each second.
            if self._answered.get(run_id) == state:
                continue
            self._answered[run_id] = state
            with contextlib.suppress(JournalDamaged):  # it stays suspended
                if await may_continue(self._journal, run_id):
                    await self._runs.wake(run_id)
        self._answered = {run_id: self._answered[run_id] for run_id in answered}

    def _may_try(self, row: RunInfo, now: float) -> bool:
        # A time in the future is that of a machine whose clock is wrong.
        waited = self._runs.now() - row.updated
        if row.status == "queued" and not row.wake_at and 0 <= waited < _GRACE:
            return False
        latest = self._latest(row)
        return latest is None or latest.next <= now

    def _is_lost(self, row: RunInfo, now: float) -> bool:
        latest = self._latest(row)
        return latest is not None and now - latest.first > _LOST

    def _latest(self, row: RunInfo) -> _Attempt | None:
        """Return the latest attempt for this wait of a run: once it was opened, or has another time, it waits anew."""
        latest = self._attempts.get(row.run_id)
        return latest if latest is not None and latest.wait == (row.epoch, row.wake_at) else None

    def _wait(self, row: RunInfo, now: float, *, first: float = 2 * _INTERVAL) -> None:
        """Let a run have a longer pause after each attempt."""
        if len(self._attempts) > _KEPT:  # of runs that ended long ago
            self._attempts.clear()
        latest = self._latest(row)
        pause = first if latest is None else min(_LONGEST, 2 * latest.pause)
        began = now if latest is None else latest.first
        wait = (row.epoch, row.wake_at)
        self._attempts[row.run_id] = _Attempt(wait, began, now + pause, pause)


async def may_continue(journal: Journal, run_id: str) -> bool:
    """Return whether a suspended run has an answer that it has not read yet."""
    entries = surviving(await journal.entries(run_id))
    if unread_answers(entries, await journal.inbox(run_id)):
        return True
    # The process that answers may move the answer to the entries.
    kinds = [entry.kind for entry in entries if entry.kind in ("suspended", "answered", "accepted")]
    return bool(kinds) and kinds[-1] != "suspended"


def _delivery(row: RunInfo) -> Delivery:
    """Return the delivery of a row; runs that have begun or whose time has come go first, as somebody waits for them."""
    first = row.status != "queued" or row.wake_at > 0
    return Delivery(row.run_id, row.queue, row.priority + (1 if first else 0))


_OF_PEOPLE = ("answered", "accepted", "tuned")  # entries that are added while no process runs
_BETWEEN_MEASUREMENTS = 10.0  # seconds: to count what waits takes longer than to sweep


class TakeoverCounter:
    """Counts the runs whose worker was lost when this one opened them; a listener of runs, see RunObserver.

    Args:
        telemetry: receives the metric.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def opened(self, info: RunInfo, recorded: Sequence[Entry]) -> Callable[[Entry], None]:
        """Count a run that was opened before, and whose entries do not end with a pause."""
        kinds = (entry.kind for entry in reversed(recorded) if entry.kind not in _OF_PEOPLE)
        if info.epoch > 1 and next(kinds, "") not in ("interrupted", "suspended"):
            self._telemetry.measure(TAKEOVERS, 1, {QUEUE: info.queue})
        return lambda _: None


class SweepMetrics:
    """Sends the metrics of a sweep.

    Args:
        runs: the state of the queues.
        telemetry: receives the metrics.
    """

    def __init__(self, runs: SharedRuns, telemetry: Telemetry) -> None:
        self._runs = runs
        self._telemetry = telemetry
        self._measured = -_BETWEEN_MEASUREMENTS  # when
        self._names: set[str] = set()  # of queues in which runs waited, whose gauges return to 0

    async def measure(self) -> None:
        """Measure, after a sweep and before it is recorded, unless this was done a moment ago."""
        if time.monotonic() - self._measured < _BETWEEN_MEASUREMENTS:
            return
        self._measured = time.monotonic()
        self._telemetry.measure(SWEEP_LAG, (await self._runs.sweep_info()).lag, {})
        queues = {queue.name: queue for queue in await self._runs.queues()}
        for name in self._names | set(queues):
            waiting, age = 0, 0.0
            if name in queues and queues[name].waiting:
                waiting = queues[name].waiting
                age = max(0.0, self._runs.now() - queues[name].oldest)
            self._telemetry.measure(WAITING, waiting, {QUEUE: name})
            self._telemetry.measure(OLDEST, age, {QUEUE: name})
        self._names = set(queues)
