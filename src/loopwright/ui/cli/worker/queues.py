"""`worker queues`: the queues of a journal; pause one, or let it continue."""

from __future__ import annotations

from typing import Annotated

import typer

from ....errors import ConfigurationError, nearest
from ....journal import Journal
from ...cluster_state import ClusterState, read_cluster, shared_runs
from ...journals import DEFAULT, command_line, reading
from .. import completion
from ..options import AsJson, JournalUrl
from ..output import Output


def worker_queues(
    queue: Annotated[
        str,
        typer.Argument(metavar="QUEUE", help="Only this queue.", autocompletion=completion.queues),
    ] = "",
    pause: Annotated[bool, typer.Option("--pause", help="Start none of its runs.")] = False,
    proceed: Annotated[bool, typer.Option("--continue", help="Start its runs again.")] = False,
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List the queues with open runs, pause a queue, or let it continue.

    Runs in progress go on while their queue is paused.

    Examples:
        loopwright worker queues
        loopwright worker queues nightly --pause
        loopwright worker queues nightly --continue
    """
    with Output(as_json=as_json) as output:
        if pause and proceed:
            raise ConfigurationError("--pause and --continue exclude each other. Use one of them.")
        if (pause or proceed) and not queue:
            raise ConfigurationError("Name the queue: loopwright worker queues QUEUE --pause")
        state = reading(journal, read_cluster)
        names = {*(one.name for one in state.queues), *state.served}
        if queue and queue not in names:
            hint = (
                nearest(queue, names)
                or f"; list them with: {command_line('worker queues', '', journal)}"
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
            write_queues(state, output, queue)
    return 0


async def _pause(store: Journal, queue: str, *, on: bool) -> bool:
    async with shared_runs(store) as runs:
        return await runs.pause_queue(queue, on=on)


def write_queues(state: ClusterState, output: Output, only: str = "") -> None:
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
