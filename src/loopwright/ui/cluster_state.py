"""The state of workers and queues at one moment, as commands and the page show it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ..cluster import QueueInfo, WorkerInfo
from ..cluster.shared_runs import DelayedRun, SharedRuns, SweepInfo, delay_text, open_runs
from ..journal import Journal
from ..records import Usage
from ..records.display import duration, spent

_LATE = 15.0  # seconds, of which another worker needs 3 to sweep when the one that did is lost


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The workers and queues of a journal, and what its submitted runs wait for and spent."""

    workers: Sequence[WorkerInfo]
    queues: Sequence[QueueInfo]
    delayed: Sequence[DelayedRun]
    pinned: Mapping[str, Sequence[str]]
    spent: Mapping[str, Usage]
    sweep: SweepInfo
    now: float

    @property
    def is_sweep_late(self) -> bool:
        """Whether no worker has swept for too long, although workers are alive."""
        return self.sweep.lag > _LATE and any(worker.alive for worker in self.workers)

    @property
    def sweep_text(self) -> str:
        """When the latest sweep was, and who sweeps; empty without a worker."""
        if not self.workers:
            return ""
        by = f" by {self.sweep.worker}" if self.sweep.worker else ""
        if not self.is_sweep_late:
            return f"swept {self.sweep.lag:.1f} s ago{by}"
        return (
            f"no worker has swept for {duration(self.sweep.lag)}{by and f', last{by}'}: scheduled runs and the runs of "
            "lost workers do not start; the logs of the workers have the reason"
        )

    @property
    def served(self) -> set[str]:
        """The queues that an active worker runs."""
        return {name for worker in self.workers if worker.alive for name in worker.queue_names}

    def has_worker(self, host: str) -> bool:
        """Return whether a host has an active worker."""
        return any(worker.alive and worker.host == host for worker in self.workers)

    def is_served(self, queue: str) -> bool:
        """Return whether an active worker runs a queue; without any worker a list says so once."""
        return not self.workers or any(
            worker.alive and worker.serves(queue) for worker in self.workers
        )

    def state(self, worker: WorkerInfo) -> str:
        """Return whether a worker is active, ends or is silent."""
        if not worker.alive:
            return f"silent for {self.age(worker.beat)}"
        return "ends" if worker.draining else "active"

    def reason(self, run: DelayedRun) -> str:
        """Return why a run does not continue."""
        return run.reason or delay_text("", run.attempts, run.deliveries)

    def cost(self, usage: Usage) -> str:
        """Return what the runs of an account spent."""
        return spent(usage)

    def age(self, moment: float) -> str:
        """Return the time since a moment."""
        return duration(max(0.0, self.now - moment))


@asynccontextmanager
async def shared_runs(store: Journal) -> AsyncIterator[SharedRuns]:
    """Yield what the workers of a journal share, with its tables, and close it.

    Raises:
        ConfigurationError: if the journal belongs to one machine.
    """
    runs = open_runs(store)
    try:
        await store.runs(limit=1)  # the first use creates the tables of a journal
        await runs.prepare()
        yield runs
    finally:
        await runs.close()


async def read_cluster(store: Journal, most: int = 1000) -> ClusterState:
    """Return the state of the workers and queues of a journal, with at most `most` delayed runs.

    Raises:
        ConfigurationError: if the journal belongs to one machine.
    """
    async with shared_runs(store) as runs:
        return ClusterState(
            await runs.workers(),
            await runs.queues(),
            await runs.delayed(most),
            pinned=await runs.pinned(),
            spent=await runs.spent(),
            sweep=await runs.sweep_info(),
            now=time.time(),
        )
