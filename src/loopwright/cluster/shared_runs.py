"""The state that workers share beside the journal: deliveries, pauses, workers, queues, who sweeps.

The keys of the source of a submitted run are here; that of its schedule is in `journal.questions`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, Protocol

from ..engine.budgets import MemoryPermits, SharedPermits
from ..errors import ConfigurationError, RunNotFound
from ..journal import Journal, MemoryJournal, RunInfo
from ..journal.questions import PAUSED, schedule_of
from ..journal.replay import UNASKED
from ..records import NOTHING, Usage
from ..records.codec import Json
from ..records.display import plural

__all__ = [
    "CARRIED",
    "MAX_DELIVERIES",
    "MAX_DOUBLINGS",
    "SUBMITTED_AS",
    "DelayedRun",
    "MemoryRuns",
    "QueueInfo",
    "SharedRuns",
    "SweepInfo",
    "WorkerInfo",
    "delay_text",
    "exact_run",
    "is_over",
    "open_runs",
    "run_id_of",
]

_OUTSIDE = re.compile(r"[^A-Za-z0-9_-]+")


def run_id_of(given: str) -> str:
    """Return the run ID that belongs to an id of a caller.

    Example:
        >>> run_id_of("order 17")
        'order-17-0bcc920e3938'
    """
    digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = _OUTSIDE.sub("-", given).strip("-")[:48]
    return f"{name}-{digest}" if name else digest


async def exact_run(journal: Journal, run_id: str) -> RunInfo | None:
    """Return the run with exactly this ID, or None."""
    try:
        row = await journal.find(run_id)
    except RunNotFound:
        return None
    return row if row.run_id == run_id else None


MAX_DELIVERIES = 5  # without a new result
SUSPECT = 2  # deliveries without a new result after which lists show a run
MAX_DOUBLINGS = 16  # of a delay, so that no count of returns overflows it
_ALL = 1_000_000_000
_OPEN = ("queued", "running", "suspended", "interrupted")


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker, as `loopwright worker list` lists it.

    Args:
        owner: its name, `HOST:PID`.
        since: when it started, in seconds since the epoch.
        beat: when it was last active, in seconds since the epoch.
        alive: whether it is active.
        held: the runs that it holds, oldest first.
        queues: its queues with their slots, such as `default=50`.
        finished: the number of runs that ended there.
        draining: whether it takes no new runs and ends.
    """

    owner: str
    since: float = 0.0
    beat: float = 0.0
    alive: bool = True
    held: tuple[str, ...] = ()
    queues: str = ""
    finished: int = 0
    draining: bool = False

    @property
    def host(self) -> str:
        """The name of its machine."""
        return self.owner.rpartition(":")[0]

    @property
    def queue_names(self) -> list[str]:
        """The names of its queues."""
        return [one.rpartition("=")[0] for one in self.queues.split()]

    def serves(self, queue: str) -> bool:
        """Return whether it runs the runs of a queue.

        Args:
            queue: the name of the queue.

        Example:
            >>> WorkerInfo("host:1", queues="default=50").serves("nightly")
            False
        """
        # A journal in memory does not know the queues of its worker.
        return not self.queues or queue in self.queue_names

    def to_json(self) -> dict[str, Json]:
        """Return the worker as a JSON object."""
        return {
            "owner": self.owner,
            "since": self.since,
            "beat": self.beat,
            "alive": self.alive,
            "held": list(self.held),
            "queues": self.queues,
            "finished": self.finished,
            "draining": self.draining,
        }


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, as `loopwright worker list` lists it.

    Args:
        name: the name of the queue.
        waiting: the number of runs that wait for a worker now.
        scheduled: the number of runs that wait for a later time.
        running: the number of runs that a worker holds.
        suspended: the number of runs that wait for a person or a limit.
        oldest: when the oldest waiting run was created, in seconds since the epoch; 0 without one.
        paused: whether workers take none of its runs.
    """

    name: str
    waiting: int = 0
    scheduled: int = 0
    running: int = 0
    suspended: int = 0
    oldest: float = 0.0
    paused: bool = False

    def to_json(self) -> dict[str, Json]:
        """Return the queue as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SweepInfo:
    """The latest sweep: the search for runs that no engine holds and that should continue.

    Args:
        worker: the worker that sweeps, as `HOST:PID`; empty without one.
        lag: seconds since its latest sweep ended, which is about one while a worker sweeps.
    """

    worker: str = ""
    lag: float = 0.0

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {"worker": self.worker, "lag": round(self.lag, 3)}


@dataclass(frozen=True, slots=True)
class DelayedRun:
    """A waiting run that workers returned to its queue, or that may have ended its workers.

    Args:
        run_id: the run.
        name: its name.
        queue: its queue.
        reason: why the latest worker returned it; empty if none did.
        attempts: how many times workers returned it.
        deliveries: the number of deliveries without a new result.
    """

    run_id: str
    name: str
    queue: str
    reason: str = ""
    attempts: int = 0
    deliveries: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return the run as a JSON object."""
        return asdict(self)


def delay_text(reason: str, attempts: int, deliveries: int) -> str:
    """Return why a waiting run has not continued, or "" if it only waits.

    Example:
        >>> delay_text("this worker has no such step", 2, 0)
        'no worker could run it in 2 attempts: this worker has no such step'
    """
    if reason:
        return f"no worker could run it in {plural(attempts, 'attempt')}: {reason}"
    if deliveries > MAX_DELIVERIES:
        return f"it is suspended after {MAX_DELIVERIES} starts without a new result; use submit --again to start it"
    if deliveries >= SUSPECT:
        return (
            # Not "workers": an engine may deliver a run again before the death of its worker is noticed.
            f"it started {deliveries} times without a new result; after {MAX_DELIVERIES} it is suspended"
        )
    return ""


class Beat(NamedTuple):
    """What a worker hears at each beat: whether it sweeps and finds something, paused queues, and whether it is to end."""

    sweeps: bool
    due: bool
    paused: frozenset[str]
    drains: bool


class SharedRuns(Protocol):
    """The rows of submitted runs, as workers change them; times are those of the store."""

    permits: SharedPermits

    async def prepare(self) -> None:
        """Create the tables unless they exist, and read the clock."""

    async def enter(self, queues: Mapping[str, int]) -> None:
        """Register this process as a worker of some queues, and let the returned runs of these start now.

        It may have the step or the trust that the other workers lack.
        """

    def now(self) -> float:
        """Return the time of the store in seconds since the epoch, as of the latest beat or `prepare`."""

    async def beat(self, finished: int, *, swept: bool = False) -> Beat:
        """Say that this worker is alive, how many runs ended here, and whether it has swept; return what it is to do."""

    async def pause_queue(self, queue: str, *, on: bool) -> bool:
        """Let workers take no run of a queue, or take them again; return whether that is a change."""

    async def paused_queues(self) -> frozenset[str]:
        """Return the queues of which workers take no runs."""

    async def drain(self, worker: str) -> bool:
        """Let a worker end as after SIGTERM; return whether it is alive."""

    async def counted(self, run_id: str) -> int:
        """Count a delivery of a run, and return how many there were without a new result."""

    async def progressed(self, run_id: str) -> None:
        """Set the count of deliveries of a run to zero."""

    async def put_back(
        self,
        run_id: str,
        *,
        delay: float,
        reason: str,
        counted: bool = False,
        longest: float = 0.0,
    ) -> None:
        """Delay a run without an owner by `delay` seconds; its row shows the reason.

        `counted` takes the latest delivery out of the count. The delay doubles with each earlier return of the run,
        up to `longest` seconds; by default it does not grow.
        """

    async def returns(self, run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return why runs went back to their queues, and how often."""

    async def delayed(self, limit: int = 1000) -> list[DelayedRun]:
        """Return the waiting runs that workers returned, or that may have ended their workers."""

    async def wake(self, run_id: str) -> bool:
        """Let a waiting or suspended run start now; return whether there is one."""

    async def pin(self, run_id: str, host: str) -> str:
        """Let only workers of a host continue a run; return the host, which is the first one."""

    async def unpin(self, run_id: str) -> None:
        """Let workers of every host continue a run."""

    async def pinned(self) -> dict[str, list[str]]:
        """Return the runs that have not ended and that only one host can continue, by host."""

    async def answered(self) -> dict[str, str]:
        """Return the suspended runs with answers, each with a text that a further answer changes."""

    async def due(self, limit: int = 500) -> list[RunInfo]:
        """Return the rows of runs that an engine should hold, those that have begun first.

        Only queues that a live worker serves are read, each for itself: first what has begun and what has a time, then
        a part of what waits, which begins where the part before ended. A run that is pinned to a host without a
        worker is left out.

        Args:
            limit: the most rows of each queue and kind. Default: 500.
        """

    async def spend(self, reports: Sequence[tuple[str, str, Usage]]) -> None:
        """Record what runs have spent, by account and run; a lower amount than before is left out."""

    async def spent(self) -> dict[str, Usage]:
        """Return what the runs of each account have spent, by name."""

    async def spending(self) -> list[tuple[str, str, Usage]]:
        """Return what each run has spent of each account."""

    async def timed(self, schedule: str = "") -> list[tuple[str, str, float]]:
        """Return the queued runs of a schedule, or of all, that wait for their time: schedule, run ID and start.

        The latest start is the last one.
        """

    async def start_at(self, run_id: str, moment: float) -> bool:
        """Give a queued run that waits for its time another one; return whether it waits."""

    async def handed_over(self, run_ids: Sequence[str]) -> None:
        """Clear the time at which these runs were to start: an engine has them."""

    async def changed(self, timeout: float) -> bool:
        """Wait until a run may have become due, and return True; False after `timeout` seconds."""

    async def sweep_info(self) -> SweepInfo:
        """Return who sweeps, and when the latest sweep was."""

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers, those that died within the last minutes too."""

    async def queues(self) -> list[QueueInfo]:
        """Return the queues with open runs, and the paused ones, by name."""

    async def close(self) -> None:
        """Close all connections."""


def is_over(status: str) -> bool:
    """Return whether a run of this status has ended."""
    return status not in _OPEN


def open_runs(journal: Journal) -> SharedRuns:
    """Return the shared state of a journal.

    Raises:
        ConfigurationError: if the journal belongs to one machine.
    """
    if isinstance(journal, MemoryJournal):
        return MemoryRuns(journal)
    url = getattr(journal, "url", "")
    if str(url).startswith(("postgres:", "postgresql:")):
        from .postgres import PATIENCE, PostgresSharedRuns  # psycopg comes with an extra

        return PostgresSharedRuns(str(url), getattr(journal, "patience", PATIENCE))
    raise ConfigurationError(
        "journal: workers need a journal that several machines can open. Use postgres://HOST/DATABASE."
    )


class MemoryRuns:
    """The shared state of a journal in memory, for the workers of one process."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        self._since = self._swept = time.time()
        self._woken = asyncio.Event()
        self._queues = ""
        self._paused: set[str] = set()
        self._draining = False
        self._finished = 0
        self._returned: dict[str, tuple[str, int]] = {}
        self._hosts: dict[str, str] = {}
        self._spent: dict[str, dict[str, Usage]] = {}  # by account and run
        self.permits: SharedPermits = MemoryPermits()

    async def prepare(self) -> None:
        """Do nothing: there are no tables."""

    async def enter(self, queues: Mapping[str, int]) -> None:
        self._queues = " ".join(f"{name}={slots}" for name, slots in queues.items())
        for run_id in self._returned:
            row = await self._journal.find(run_id)
            waits = row.status in ("queued", "interrupted") and row.wake_at < PAUSED
            if row.queue in queues and waits:
                self._journal.change(replace(row, wake_at=min(row.wake_at, time.time())))
        self._woken.set()

    def now(self) -> float:
        return time.time()

    async def beat(self, finished: int, *, swept: bool = False) -> Beat:
        self._finished = finished
        self._swept = time.time() if swept else self._swept
        return Beat(True, True, frozenset(self._paused), self._draining)

    async def pause_queue(self, queue: str, *, on: bool) -> bool:
        changed = (queue in self._paused) is not on
        self._paused ^= {queue} if changed else set()
        self._woken.set()
        return changed

    async def paused_queues(self) -> frozenset[str]:
        return frozenset(self._paused)

    async def drain(self, worker: str) -> bool:
        self._draining = [worker] == [one.owner for one in await self.workers()]
        self._woken.set()
        return self._draining

    async def returns(self, run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
        return {run_id: self._returned[run_id] for run_id in run_ids if run_id in self._returned}

    async def delayed(self, limit: int = 1000) -> list[DelayedRun]:
        # A worker clears the time of a run that it takes: a return before the latest start no longer counts.
        rows = [
            DelayedRun(
                row.run_id,
                row.name,
                row.queue,
                *(
                    self._returned.get(row.run_id, ("", 0))
                    if row.status == "queued" or row.wake_at > 0
                    else ("", 0)
                ),
                deliveries=row.deliveries,
            )
            for row in await self._journal.runs(limit=_ALL)
            if row.queue
            and (
                row.status in ("queued", "interrupted")
                or (row.status == "suspended" and row.deliveries > MAX_DELIVERIES)
            )
        ]
        return [row for row in rows if row.reason or row.deliveries >= SUSPECT][:limit]

    async def counted(self, run_id: str) -> int:
        row = await self._journal.find(run_id)
        self._journal.change(replace(row, deliveries=row.deliveries + 1))
        return row.deliveries + 1

    async def progressed(self, run_id: str) -> None:
        self._journal.change(replace(await self._journal.find(run_id), deliveries=0))

    async def put_back(
        self,
        run_id: str,
        *,
        delay: float,
        reason: str,
        counted: bool = False,
        longest: float = 0.0,
    ) -> None:
        row = await self._journal.find(run_id)
        deliveries = max(0, row.deliveries - counted)
        times = self._returned.get(run_id, ("", 0))[1]
        delay = min(max(delay, longest), delay * 2.0 ** min(times, MAX_DOUBLINGS))
        self._journal.change(replace(row, wake_at=time.time() + delay, deliveries=deliveries))
        self._returned[run_id] = (reason, times + 1)

    async def wake(self, run_id: str) -> bool:
        row = await self._journal.find(run_id)
        if row.status not in ("queued", "suspended", "interrupted"):
            return False
        # A person lets it start, so earlier deliveries no longer count against it.
        self._journal.change(replace(row, wake_at=time.time(), deliveries=0))
        self._woken.set()
        return True

    async def pin(self, run_id: str, host: str) -> str:
        return self._hosts.setdefault(run_id, host)

    async def unpin(self, run_id: str) -> None:
        self._hosts.pop(run_id, None)

    async def pinned(self) -> dict[str, list[str]]:
        result: dict[str, list[str]] = {}
        for run_id, host in self._hosts.items():
            if not is_over((await self._journal.find(run_id)).status):
                result.setdefault(host, []).append(run_id)
        return result

    async def answered(self) -> dict[str, str]:
        result = {}
        for row in await self._journal.runs(limit=_ALL, status="suspended"):
            inbox = await self._journal.inbox(row.run_id) if row.queue else []
            # New limits do not let a suspended run continue.
            if answers := [one for one in inbox if one.asked != UNASKED]:
                result[row.run_id] = f"{len(answers)} {row.updated}"
        return result

    async def due(self, limit: int = 500) -> list[RunInfo]:
        now, here = time.time(), socket.gethostname()
        rows = [
            row
            for row in await self._journal.runs(limit=_ALL)
            if row.queue
            and row.queue not in self._paused
            and self._hosts.get(row.run_id, here) == here
        ]
        rows = [
            row
            for row in rows
            if (row.status in ("queued", "interrupted") and row.wake_at <= now)
            # A suspended run without a time waits for a person.
            or (row.status == "suspended" and 0 < row.wake_at <= now)
        ]
        rows.sort(key=lambda row: (row.status == "queued", -row.priority, row.created))
        return rows[:limit]

    async def spend(self, reports: Sequence[tuple[str, str, Usage]]) -> None:
        for account, run_id, usage in reports:
            self._spent.setdefault(account, {})[run_id] = usage

    async def spent(self) -> dict[str, Usage]:
        return {name: sum(runs.values(), NOTHING) for name, runs in sorted(self._spent.items())}

    async def spending(self) -> list[tuple[str, str, Usage]]:
        return [
            (name, run_id, usage)
            for name, runs in self._spent.items()
            for run_id, usage in runs.items()
        ]

    async def timed(self, schedule: str = "") -> list[tuple[str, str, float]]:
        rows = await self._journal.runs(limit=_ALL, status="queued", schedule=schedule)
        waiting = [(name, row) for row in rows if row.wake_at and (name := schedule_of(row))]
        return sorted(
            ((name, row.run_id, row.wake_at) for name, row in waiting), key=lambda one: one[2]
        )

    async def start_at(self, run_id: str, moment: float) -> bool:
        row = await self._journal.find(run_id)
        if waits := row.status == "queued" and row.wake_at > 0:
            self._journal.change(replace(row, wake_at=moment))
            self._woken.set()
        return waits

    async def handed_over(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            row = await self._journal.find(run_id)
            if row.wake_at:
                self._journal.change(replace(row, wake_at=0.0))

    async def sweep_info(self) -> SweepInfo:
        [worker] = await self.workers()
        return SweepInfo(worker.owner, time.time() - self._swept)

    async def changed(self, timeout: float) -> bool:
        self._woken.clear()
        try:
            return await asyncio.wait_for(self._woken.wait(), timeout)
        except TimeoutError:
            return False

    async def workers(self) -> list[WorkerInfo]:
        held = tuple(row.run_id for row in await self._journal.runs(limit=_ALL, status="running"))
        owner = f"{socket.gethostname()}:{os.getpid()}"
        return [
            WorkerInfo(
                owner,
                since=self._since,
                beat=time.time(),
                held=held,
                queues=self._queues,
                finished=self._finished,
            )
        ]

    async def queues(self) -> list[QueueInfo]:
        # A returned run has no start time of its own: it waits for a worker that can run it.
        rows = [
            replace(row, wake_at=0.0) if row.run_id in self._returned else row
            for row in await self._journal.runs(limit=_ALL)
            if row.queue
        ]
        open_ = {queue.name: queue for queue in summed(rows, time.time())}
        names = sorted({*open_, *self._paused})
        return [
            replace(open_.get(name, QueueInfo(name)), paused=name in self._paused) for name in names
        ]

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def summed(rows: Sequence[RunInfo], now: float) -> list[QueueInfo]:
    """Return the queues of some rows."""
    queues: dict[str, QueueInfo] = {}
    for row in rows:
        queue = queues.get(row.queue, QueueInfo(row.queue))
        if row.status == "running":
            queue = replace(queue, running=queue.running + 1)
        elif row.status == "suspended":
            queue = replace(queue, suspended=queue.suspended + 1)
        elif row.status in ("queued", "interrupted") and row.wake_at > now:
            queue = replace(queue, scheduled=queue.scheduled + 1)
        elif row.status in ("queued", "interrupted"):
            oldest = min(queue.oldest or row.created, row.created)
            queue = replace(queue, waiting=queue.waiting + 1, oldest=oldest)
        else:
            continue
        queues[row.queue] = queue
    return [queues[name] for name in sorted(queues)]


CARRIED = "carried"
"""The documents of the run, with their digest."""
SUBMITTED_AS = "submitted_as"
"""The id with which it was submitted."""
