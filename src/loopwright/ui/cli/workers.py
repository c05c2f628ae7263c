"""`workers`: the workers of a journal with the runs that they hold, and the queues."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ...cluster import QueueInfo, WorkerInfo
from ...cluster.shared_runs import DelayedRun, delay_text, open_runs
from ...journal import Journal
from ...journal.protocol import shown_url
from ...records import Usage
from ...records.codec import Json
from ...records.display import duration
from ...records.display import spent as spent_text
from .. import formatting as texts
from ..journals import DEFAULT, reading
from .options import AsJson, JournalUrl
from .output import Output

_MOST_HELD = 5  # runs that a line names


class ClusterState(NamedTuple):
    """The workers and queues of a journal, and what its submitted runs wait for and spent."""

    workers: list[WorkerInfo]
    queues: list[QueueInfo]
    delayed: list[DelayedRun]
    pinned: dict[str, list[str]]
    spent: dict[str, Usage]


def workers(journal: JournalUrl = DEFAULT, as_json: AsJson = False) -> int:
    """List the workers of a journal with the runs that they hold, and the queues.

    Runs that no worker could run, or that ended their workers, are listed with the reason.
    """
    with Output(as_json=as_json) as output:
        state = reading(journal, read_cluster)
        if as_json:
            data: dict[str, Json] = {
                "workers": [worker.to_json() for worker in state.workers],
                "queues": [queue.to_json() for queue in state.queues],
            }
            if state.delayed:
                data["delayed"] = [run.to_json() for run in state.delayed]
            if state.pinned:
                data["pinned"] = state.pinned
            if state.spent:
                data["spent"] = {name: usage.to_json() for name, usage in state.spent.items()}
            output.write_json(data)
            return 0
        _write(state.workers, state.queues, output, shown_url(journal))
        _write_delayed(state.delayed, output)
        hosts = {worker.host for worker in state.workers if worker.alive}
        for host, run_ids in state.pinned.items():
            waits = "" if host in hosts else "; they wait for a worker there"
            count = texts.plural(len(run_ids), "run")
            output.write((host, "bold"), f"  has the workspaces of {count}{waits}")
            _write_ids(run_ids, output)
        for name, usage in state.spent.items():
            output.write((name, "bold"), f"  {spent_text(usage)}")
    return 0


async def read_cluster(store: Journal) -> ClusterState:
    """Return the state of the workers and queues of a journal."""
    runs = open_runs(store)
    try:
        await store.runs(limit=1)  # the first use creates the tables of a journal
        await runs.prepare()
        return ClusterState(
            await runs.workers(),
            await runs.queues(),
            await runs.delayed(),
            pinned=await runs.pinned(),
            spent=await runs.spent(),
        )
    finally:
        await runs.close()


def _write_delayed(delayed: Sequence[DelayedRun], output: Output) -> None:
    """Write why runs do not continue; runs with the same reason share a line."""
    by_reason: dict[str, list[DelayedRun]] = {}
    for run in delayed:
        reason = run.reason or delay_text("", 0, run.deliveries)
        by_reason.setdefault(texts.one_line(reason), []).append(run)
    for reason, runs in by_reason.items():
        attempts = max(run.attempts for run in runs)
        tried = f"no worker could run {'it' if len(runs) == 1 else 'them'} in {texts.plural(attempts, 'attempt')}: "
        output.write(
            (texts.plural(len(runs), "run"), "bold"),
            f"  {tried if attempts else ''}{reason}",
            wrap=True,
        )
        _write_ids([run.run_id for run in runs], output)


def _write_ids(run_ids: Sequence[str], output: Output) -> None:
    more = len(run_ids) - _MOST_HELD
    tail = f" and {more} more" if more > 0 else ""
    output.write((f"  {', '.join(run_ids[:_MOST_HELD])}{tail}", "dim"))


def _write(
    active: Sequence[WorkerInfo], queues: Sequence[QueueInfo], output: Output, url: str
) -> None:
    now = time.time()
    if not active:
        output.note(f"no worker serves {url}")
    for worker in active:
        state = "active" if worker.alive else f"silent for {duration(max(0.0, now - worker.beat))}"
        output.write(
            (worker.owner, "bold"),
            f"  {state}, since {texts.when(worker.since)}, {worker.queues}, "
            f"{texts.plural(len(worker.held), 'run')} in progress, {worker.finished} ended",
        )
        if worker.held:
            _write_ids(worker.held, output)
    for queue in queues:
        oldest = (
            f", the oldest for {duration(max(0.0, now - queue.oldest))}" if queue.oldest else ""
        )
        # Without any worker the note above is enough.
        served = not active or any(worker.alive and worker.serves(queue.name) for worker in active)
        output.write(
            (queue.name, "bold"),
            f"  {queue.waiting} waiting{oldest}, {queue.running} running, {queue.scheduled} scheduled, "
            f"{queue.suspended} suspended{'' if served else '; no worker serves it'}",
        )
