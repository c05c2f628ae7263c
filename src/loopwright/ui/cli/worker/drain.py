"""`worker drain`: let a worker end."""

from __future__ import annotations

from typing import Annotated

import typer

from ....errors import ConfigurationError, nearest
from ....journal import Journal
from ...cluster_state import shared_runs
from ...journals import DEFAULT, command_line, reading
from ..options import AsJson, JournalUrl
from ..output import Output


def worker_drain(
    worker: Annotated[
        str, typer.Argument(metavar="HOST:PID", help="Worker, as `worker list` names it.")
    ],
    journal: JournalUrl = DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Let a worker end as after SIGTERM, wherever it runs.

    It takes no new runs. Those in progress continue for its --drain seconds, and then return to their queues.

    Examples:
        loopwright worker drain build-7:4711
        loopwright worker drain build-7:4711 --journal postgres:///runs
    """
    with Output(as_json=as_json) as output:
        reading(journal, lambda store: _drain(store, worker, journal))
        if as_json:
            output.write_json({"draining": worker})
        else:
            output.write(
                f"{worker} takes no new runs, and ends after those in progress, or after its --drain seconds"
            )
    return 0


async def _drain(store: Journal, worker: str, url: str) -> None:
    async with shared_runs(store) as runs:
        if not await runs.drain(worker):
            names = [one.owner for one in await runs.workers() if one.alive]
            hint = (
                nearest(worker, names)
                or f"; list them with: {command_line('worker list', '', url)}"
            )
            raise ConfigurationError(f"no worker {worker!r} is active{hint}")
