"""Schedules: list them, pause them, let them continue, and create the runs of times that have passed.

There is no scheduler to operate: a schedule is the queued run of its next time, and a run whose time has come creates
the run of the next time. The ID of a run follows from the name of the schedule and its time, so two schedulers create
one run. Times that pass while no worker serves are skipped, except the one that was queued.

A paused schedule is one whose queued run has a start time that does not come. The name of the schedule is in the source
of its runs (`journal.questions`).
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from .._extras import needs
from ..errors import ConfigurationError, JournalDamaged, RunNotFound, nearest
from ..journal import Journal, RunInfo
from ..journal.protocol import DAMAGED
from ..journal.questions import PAUSED, SCHEDULE, schedule_of
from ..records.codec import Json
from .shared_runs import SharedRuns, exact_run, run_id_of

__all__ = [
    "MOST_BACKFILLED",
    "Backfilled",
    "ScheduleInfo",
    "at_tick",
    "backfill",
    "free_row",
    "next_tick",
    "pause",
    "proceed",
    "repeated",
    "schedules",
]

_LOG = logging.getLogger("loopwright.cluster")
MOST_BACKFILLED = 1000
_LATEST = 20  # runs of a schedule of which the latest sound one is taken
_BATCH = 500  # rows per transaction


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule, as `loopwright worker schedules` lists it.

    Args:
        name: its name.
        expression: its times, as five fields of cron in UTC; `damaged` if the row of its run is.
        run_id: the run of its next time.
        queue: the queue of its runs.
        next: its next time, in seconds since the epoch; 0 while it is paused.
        paused: whether its runs do not start.
    """

    name: str
    expression: str
    run_id: str
    queue: str
    next: float
    paused: bool

    def to_json(self) -> dict[str, Json]:
        """Return the schedule as a JSON object."""
        return asdict(self)


class Backfilled(NamedTuple):
    """The IDs of runs that were created for times that have passed, and of those that exist, in the order of the times."""

    created: Sequence[str]
    existed: Sequence[str]


def at_tick(row: RunInfo, expression: str, name: str, now: float) -> RunInfo:
    """Return the run of a schedule at its next time.

    Args:
        row: the run to repeat.
        expression: the times, as five fields of cron in UTC.
        name: the name of the schedule.
        now: seconds since the epoch.

    Raises:
        ConfigurationError: for an expression that is not valid.
    """
    tick = next(_ticks(expression, now))
    rule: dict[str, Json] = {"expression": expression, "name": name}
    return replace(
        row,
        run_id=run_id_of(_at(name, tick)),
        wake_at=tick,
        created=now,
        updated=now,
        source={**row.source, SCHEDULE: rule},
    )


def _at(name: str, tick: float) -> str:
    return f"{name}@{dt.datetime.fromtimestamp(tick, dt.UTC):%Y-%m-%dT%H:%MZ}"


def next_tick(row: RunInfo, now: float) -> RunInfo:
    """Return the run that follows a run of a schedule."""
    # The one that waits in a paused schedule has no time of its own.
    after = max(now, row.wake_at) if row.wake_at < PAUSED else now
    rule = row.source[SCHEDULE]
    return at_tick(_fresh(row), rule["expression"], rule["name"], after)


def _fresh(row: RunInfo) -> RunInfo:
    """Return a run that repeats another one."""
    return RunInfo(
        "", row.name, row.input, row.fingerprint, dict(row.source), queue=row.queue, priority=row.priority,
        tags=row.tags,
    )  # fmt: skip


def _ticks(expression: str, after: float) -> Iterator[float]:
    """Yield the times after a moment."""
    with needs("a schedule", "pgqueuer"):
        from croniter import CroniterBadCronError, croniter
    try:
        if len(expression.split()) != 5:
            raise CroniterBadCronError(f"{len(expression.split())} fields, not 5")
        times = croniter(expression, after)
        while True:
            yield float(times.get_next(float))
    except (CroniterBadCronError, ValueError) as error:
        raise ConfigurationError(
            f"cron: {expression!r} is not a schedule: {error}. Use five fields, such as '0 6 * * *'."
        ) from None


async def free_row(journal: Journal, row: RunInfo) -> tuple[RunInfo, RunInfo | None]:
    """Return the run of a schedule with an ID that no cancelled run has, and the run that has it already, if one does."""
    number, first, taken = 2, row, None
    while True:
        with suppress(JournalDamaged):
            taken = await exact_run(journal, row.run_id)
            if taken is None or taken.status != "cancelled":
                break
        # A cancelled run keeps its ID, here of the same time, and so does one whose row is damaged.
        key = f"{_at(schedule_of(first), first.wake_at)}#{number}"
        row = replace(first, run_id=run_id_of(key))
        number += 1
    return row, taken


async def schedules(journal: Journal, runs: SharedRuns) -> list[ScheduleInfo]:
    """Return the schedules that have not ended, by name."""
    waiting: dict[str, dict[str, float]] = defaultdict(dict)
    for name, run_id, start in await runs.timed():
        waiting[name][run_id] = start
    listed = []
    for name, starts in sorted(waiting.items()):
        try:
            row = await _latest(journal, list(starts))
            expression = row.source[SCHEDULE]["expression"]
        except JournalDamaged:
            row, expression = RunInfo(list(starts)[-1], ""), DAMAGED
        start = starts[row.run_id]
        paused = start == PAUSED
        listed.append(
            ScheduleInfo(name, expression, row.run_id, row.queue, 0.0 if paused else start, paused)
        )
    return listed


async def _latest(journal: Journal, run_ids: Sequence[str]) -> RunInfo:
    """Return the last of some runs whose row is sound. Raises JournalDamaged if no row is."""
    for run_id in reversed(run_ids[1:]):
        with suppress(JournalDamaged):
            return await journal.find(run_id)
    return await journal.find(run_ids[0])


async def repeated(journal: Journal, runs: SharedRuns, damaged: RunInfo) -> RunInfo | None:
    """Return what a run of a schedule whose row is damaged was created from: the run before it, at its time.

    None if it belongs to no schedule, if it was delivered before, or if no run before it says how the schedule goes on.
    """
    names = [name for name, run_id, _ in await runs.timed() if run_id == damaged.run_id]
    # Who takes such a run returns it, and the next one was created before that.
    if not names or await runs.returns([damaged.run_id]):
        return None
    others = [
        row
        for row in await journal.runs(schedule=names[0], limit=_LATEST)
        if row.run_id != damaged.run_id and row.status != DAMAGED
    ]
    # After one that was cancelled, the schedule has ended or was submitted anew.
    if not others or others[0].status == "cancelled":
        _LOG.error(
            "the schedule %s has ended: the row of its run %s is damaged, and no run before it says how it goes on; "
            "submit it again",
            names[0], damaged.run_id,
        )  # fmt: skip
        return None
    _LOG.warning(
        "the row of %s is damaged; its schedule %s goes on as %s says",
        damaged.run_id, names[0], others[0].run_id,
    )  # fmt: skip
    before = await journal.find(others[0].run_id)
    return replace(before, run_id=damaged.run_id, wake_at=damaged.wake_at)


async def _waiting(runs: SharedRuns, name: str) -> list[tuple[str, float]]:
    """Return the IDs and starts of the queued runs of a schedule, the latest start last.

    Raises:
        RunNotFound: if there is no such schedule.
    """
    waiting = [(run_id, start) for _, run_id, start in await runs.timed(name)]
    if not waiting:
        hint = nearest(name, {one for one, _, _ in await runs.timed()})
        raise RunNotFound(
            f"no schedule {name!r} has a next run{hint or '; list them with: loopwright worker schedules'}"
        )
    return waiting


async def pause(runs: SharedRuns, name: str) -> bool:
    """Let no queued run of a schedule start; return whether that is a change.

    Raises:
        RunNotFound: if there is no such schedule.
    """
    waiting = await _waiting(runs, name)
    changed = [await runs.start_at(run_id, PAUSED) for run_id, start in waiting if start != PAUSED]
    return any(changed)


async def proceed(journal: Journal, runs: SharedRuns, name: str) -> RunInfo | None:
    """Let a paused schedule continue with its next time; return the run of that time, None if it was not paused.

    The queued run of a time that has passed meanwhile is cancelled.

    Raises:
        RunNotFound: if there is no such schedule.
    """
    waiting = [run_id for run_id, start in await _waiting(runs, name) if start == PAUSED]
    if not waiting:
        return None
    latest = await _latest(journal, waiting)
    following, _ = await free_row(journal, next_tick(latest, runs.now()))
    if following.run_id in waiting:
        await runs.start_at(following.run_id, following.wake_at)
    else:
        await journal.create([following])
    for run_id in waiting:
        if run_id != following.run_id:
            with suppress(JournalDamaged):
                await journal.cancel(run_id)
    return following


async def backfill(
    journal: Journal, runs: SharedRuns, name: str, first: float, last: float | None = None
) -> Backfilled:
    """Create the runs of the times of a schedule that have passed, which workers then start at once.

    Args:
        journal: the journal of the schedule.
        runs: its shared state.
        name: the name of the schedule.
        first: the first moment, in seconds since the epoch.
        last: the last moment. Default: now.

    Raises:
        RunNotFound: if there is no such schedule.
        ConfigurationError: if the moments are in the wrong order or have not come, or for more than 1,000 times.
    """
    now = runs.now()
    until = now if last is None else last
    # A run of a time to come would take the place of the one that its schedule will queue.
    if not first <= until <= now:
        raise ConfigurationError(
            "backfill: the first moment must come before the last one, and neither may be later than now"
        )
    row = await _latest(journal, [run_id for run_id, _ in await _waiting(runs, name)])
    ticks: list[float] = []
    for tick in _ticks(row.source[SCHEDULE]["expression"], first - 1.0):
        if tick > until:
            break
        if len(ticks) == MOST_BACKFILLED:
            raise ConfigurationError(
                f"backfill: {name} has more than {MOST_BACKFILLED:,} times between these moments; take some of them at a time"
            )
        ticks.append(tick)
    rows, existed = [], []
    for tick in ticks:
        one = replace(
            _fresh(row), run_id=run_id_of(_at(name, tick)), wake_at=tick, created=now, updated=now
        )
        one, taken = await free_row(journal, one)
        if taken is None:
            rows.append(replace(one, wake_at=0.0))
        else:
            existed.append(taken.run_id)
    created: list[str] = []
    for begin in range(0, len(rows), _BATCH):
        created += await journal.create(rows[begin : begin + _BATCH])
    return Backfilled(created, existed)
