"""`workers` and `queues`: the workers of a journal with the runs that they hold, and its queues; pause a queue or drain a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ...cluster.shared_runs import DelayedRun, delay_text
from ...errors import ConfigurationError, nearest
from ...journal import Journal
from ...journal.protocol import shown_url
from ...records.codec import Json
from ...records.display import spent as spent_text
from .. import formatting as texts
from ..cluster_state import ClusterState, read_cluster, shared_runs
from ..journals import DEFAULT, command_line, reading
from .options import AsJson, JournalUrl
from .output import Output

_MOST_HELD = 5  # runs that a line names


def workers(
    journal: JournalUrl = DEFAULT,
    drain: Annotated[
        str,
        typer.Option(
            "--drain",
            metavar="HOST:PID",
            help="Let a worker end as after SIGTERM, wherever it runs.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> int:
    """List the workers of a journal with the runs that they hold, and the queues.

    Runs that no worker could run, or that ended their workers, are listed with the reason. One of the workers
    sweeps: it starts scheduled runs and the runs of lost workers.
    """
    with Output(as_json=as_json) as output:
        if drain:
            reading(journal, lambda store: _drain(store, drain, journal))
            if as_json:
                output.write_json({"draining": drain})
            else:
                output.write(
                    f"{drain} takes no new runs, and ends after those in progress, or after its --drain seconds"
                )
            return 0
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
        _write_queues(state, output)
        _write_delayed(state.delayed, output)
        for host, run_ids in state.pinned.items():
            waits = "" if state.has_worker(host) else "; they wait for a worker there"
            count = texts.plural(len(run_ids), "run")
            output.write((host, "bold"), f"  has the workspaces of {count}{waits}")
            _write_ids(run_ids, output)
        for name, usage in state.spent.items():
            output.write((name, "bold"), f"  {spent_text(usage)}")
    return 0


def queues(
    queue: Annotated[str, typer.Argument(metavar="[QUEUE]", help="Only this queue.")] = "",
    pause: Annotated[
        bool, typer.Option("--pause", help="Let workers take none of its runs.")
    ] = False,
    proceed: Annotated[
        bool, typer.Option("--continue", help="Let workers take its runs again.")
    ] = False,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List the queues with open runs, pause a queue, or let it continue.

    Runs in progress go on while their queue is paused.
    """
    with Output(as_json=as_json) as output:
        if pause and proceed:
            raise ConfigurationError("--pause and --continue exclude each other. Use one of them.")
        if (pause or proceed) and not queue:
            raise ConfigurationError("Name the queue: loopwright queues QUEUE --pause")
        state = reading(journal, read_cluster)
        names = {*(one.name for one in state.queues), *state.served}
        if queue and queue not in names:
            hint = (
                nearest(queue, names) or f"; list them with: {command_line('queues', '', journal)}"
            )
            raise ConfigurationError(f"no queue {queue!r} has runs or a worker{hint}")
        if pause or proceed:
            changed = reading(journal, lambda store: _pause(store, queue, on=pause))
            if as_json:
                output.write_json({"queue": queue, "paused": pause, "changed": changed})
            else:
                now = "is paused: workers take none of its runs" if pause else "continues"
                already = "is paused already" if pause else "was not paused"
                output.write(f"{queue} {now if changed else already}")
        elif as_json:
            shown = [one.to_json() for one in state.queues if queue in ("", one.name)]
            output.write_json({"queues": shown})
        else:
            if not (state.queues or queue):
                output.note("no submitted run is open")
            _write_queues(state, output, queue)
    return 0


async def _drain(store: Journal, worker: str, url: str) -> None:
    async with shared_runs(store) as runs:
        if not await runs.drain(worker):
            names = [one.owner for one in await runs.workers() if one.alive]
            hint = nearest(worker, names) or f"; list them with: {command_line('workers', '', url)}"
            raise ConfigurationError(f"--drain: no worker {worker!r} is active{hint}")


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


async def _pause(store: Journal, queue: str, *, on: bool) -> bool:
    async with shared_runs(store) as runs:
        return await runs.pause_queue(queue, on=on)


def _write_queues(state: ClusterState, output: Output, only: str = "") -> None:
    """Write a line for each queue, or for one."""
    for queue in state.queues:
        if only not in ("", queue.name):
            continue
        oldest = f", the oldest for {state.age(queue.oldest)}" if queue.oldest else ""
        states = "; paused" if queue.paused else ""
        # Without any worker the list of workers says so.
        states += "" if state.is_served(queue.name) else "; no worker serves it"
        output.write(
            (queue.name, "bold"),
            f"  {queue.waiting} waiting{oldest}, {queue.running} running, {queue.scheduled} scheduled, "
            f"{queue.suspended} suspended{states}",
        )
