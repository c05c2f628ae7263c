"""Queues and workers as filters of the list of runs: unknown names are reported with the nearest one."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import ConfigurationError, nearest
from ..journal import Journal

_LATEST = 500  # runs whose queues are names for a hint
_MOST_NAMES = 10  # names that a message lists


async def check_filters(store: Journal, *, queue: str, worker: str) -> None:
    """Check the filters of a list without runs. Raises ConfigurationError for an unknown name.

    A queue is known if a run was submitted to it or a worker serves it, a worker if it is listed by
    `loopwright workers` or holds a run.
    """
    # A list can be empty because of another filter, such as a status.
    queue = "" if queue and await store.runs(limit=1, queue=queue) else queue
    worker = "" if worker and await store.runs(limit=1, worker=worker) else worker
    if not queue and not worker:
        return
    queues, workers = await _names(store)
    if queue and queue not in queues:
        raise _unknown("queue", queue, queues)
    if worker and worker not in workers:
        raise _unknown("worker", worker, workers)


async def _names(store: Journal) -> tuple[set[str], set[str]]:
    """Return the names of queues and of workers."""
    # The package of workers takes a third of a second to load, which other lists do not need.
    from ..cluster.shared_runs import open_runs

    # The latest runs only: queues have no index, and a journal may have millions of runs.
    queues = {row.queue for row in await store.runs(limit=_LATEST)}
    workers = {row.owner for row in await store.runs(limit=_LATEST, status="running")}
    try:
        shared = open_runs(store)
    except ConfigurationError:  # a journal of one machine has no list of workers
        return queues - {""}, workers - {""}
    try:
        await shared.prepare()
        queues |= {one.name for one in await shared.queues()}
        for one in await shared.workers():
            workers.add(one.owner)
            queues |= {served.rpartition("=")[0] for served in one.queues.split()}
    finally:
        await shared.close()
    return queues - {""}, workers - {""}


def _unknown(kind: str, name: str, names: Collection[str]) -> ConfigurationError:
    valid = f"; use one of {', '.join(sorted(names)[:_MOST_NAMES])}" if names else ""
    hint = nearest(name, names) or valid or f"; it has no {kind}s"
    return ConfigurationError(f"--{kind}: {name!r} is not a {kind} of this journal{hint}")
