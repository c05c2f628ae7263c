"""`workers`: the workers of a journal with the runs that they hold, and the queues."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ...cluster import QueueInfo, WorkerInfo
from ...cluster.shared_runs import open_runs
from ...journal import Journal
from ...journal.urls import shown_url
from ...records import Usage
from ...records.figures import duration
from ...records.figures import spent as spent_text
from .. import formatting as texts
from ..journals import DEFAULT, reading
from .options import AsJson, JournalUrl
from .output import Output

_MOST_HELD = 5  # runs that a line names


def workers(journal: JournalUrl = DEFAULT, as_json: AsJson = False) -> int:
    """List the workers of a journal with the runs that they hold, and the queues."""
    with Output(as_json=as_json) as output:
        active, queues, pinned, spent = reading(journal, read_cluster)
        if as_json:
            output.write_json(
                {
                    "workers": [worker.to_json() for worker in active],
                    "queues": [queue.to_json() for queue in queues],
                    **({"pinned": pinned} if pinned else {}),
                    **(
                        {"spent": {name: usage.to_json() for name, usage in spent.items()}}
                        if spent
                        else {}
                    ),
                }
            )
            return 0
        _write(active, queues, output, shown_url(journal))
        _write_pinned(pinned, active, output)
        for name, usage in spent.items():
            output.write((name, "bold"), f"  {spent_text(usage)}")
    return 0


async def read_cluster(
    store: Journal,
) -> tuple[list[WorkerInfo], list[QueueInfo], dict[str, list[str]], dict[str, Usage]]:
    """Return the workers and queues of a journal, the runs that are pinned to a host, and what accounts spent."""
    runs = open_runs(store)
    try:
        await store.runs(limit=1)  # the first use creates the tables of a journal
        await runs.prepare()
        return (
            await runs.workers(),
            await runs.queues(),
            await runs.pinned(),
            await runs.spent(),
        )
    finally:
        await runs.close()


def _write_pinned(
    pinned: Mapping[str, Sequence[str]], active: Sequence[WorkerInfo], output: Output
) -> None:
    """Write which runs have their workspace on a host, and whether the host has a worker."""
    hosts = {worker.owner.rpartition(":")[0] for worker in active if worker.alive}
    for host, run_ids in pinned.items():
        waits = "" if host in hosts else "; they wait for a worker there"
        more = f" and {len(run_ids) - _MOST_HELD} more" if len(run_ids) > _MOST_HELD else ""
        output.write(
            (host, "bold"),
            f"  has the workspaces of {texts.plural(len(run_ids), 'run')}{waits}",
        )
        output.write((f"  {', '.join(run_ids[:_MOST_HELD])}{more}", "dim"))


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
            more = len(worker.held) - _MOST_HELD
            tail = f" and {more} more" if more > 0 else ""
            output.write((f"  {', '.join(worker.held[:_MOST_HELD])}{tail}", "dim"))
    for queue in queues:
        oldest = (
            f", the oldest for {duration(max(0.0, now - queue.oldest))}" if queue.oldest else ""
        )
        output.write(
            (queue.name, "bold"),
            f"  {queue.waiting} waiting{oldest}, {queue.running} running, {queue.scheduled} scheduled, "
            f"{queue.suspended} suspended",
        )
