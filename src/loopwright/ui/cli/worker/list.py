"""`worker list`: the workers of a journal with the runs that they hold, and the queues."""

from __future__ import annotations

from collections.abc import Sequence

from ....cluster.shared_runs import DelayedRun, delay_text
from ....journal.protocol import shown_url
from ....records.codec import Json
from ....records.display import spent as spent_text
from ... import formatting as texts
from ...cluster_state import ClusterState, read_cluster
from ...journals import DEFAULT, reading
from ..options import AsJson, JournalUrl
from ..output import Output
from .queues import write_queues

_MOST_HELD = 5  # runs that a line names


def worker_list(
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List the workers of a journal with the runs that they hold, and the queues.

    Runs that no worker could run, or that ended their workers, are listed with the reason. One of the workers
    sweeps: it starts scheduled runs and the runs of lost workers.

    Examples:
        loopwright worker list
        loopwright worker list --json --journal postgres:///runs
    """
    with Output(as_json=as_json) as output:
        state = reading(journal, read_cluster)
        if as_json:
            data: dict[str, Json] = {
                "workers": [worker.to_json() for worker in state.workers],
                "queues": [queue.to_json() for queue in state.queues],
                "sweep": state.sweep.to_json(),
            }
            if state.delayed:
                data["delayed"] = [run.to_json() for run in state.delayed]
            if state.pinned:
                data["pinned"] = {host: list(run_ids) for host, run_ids in state.pinned.items()}
            if state.spent:
                data["spent"] = {name: usage.to_json() for name, usage in state.spent.items()}
            output.write_json(data)
            return 0
        _write_workers(state, output, shown_url(journal))
        write_queues(state, output)
        _write_delayed(state.delayed, output)
        for host, run_ids in state.pinned.items():
            waits = "" if state.has_worker(host) else "; they wait for a worker there"
            count = texts.plural(len(run_ids), "run")
            output.write((host, "bold"), f"  has the workspaces of {count}{waits}")
            _write_ids(run_ids, output)
        for name, usage in state.spent.items():
            output.write((name, "bold"), f"  {spent_text(usage)}")
    return 0


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


def _write_workers(state: ClusterState, output: Output, url: str) -> None:
    if not state.workers:
        output.note(f"no worker serves {url}")
    for worker in state.workers:
        output.write(
            (worker.owner, "bold"),
            f"  {state.state(worker)}, since {texts.when(worker.since)}, {worker.queues}, "
            f"{texts.plural(len(worker.held), 'run')} in progress, {worker.finished} ended",
        )
        if worker.held:
            _write_ids(worker.held, output)
    if state.sweep_text:
        output.write((state.sweep_text, "red" if state.is_sweep_late else "dim"), wrap=True)
