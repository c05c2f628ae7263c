"""The page of workers and queues of a shared journal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ...cluster.shared_runs import DelayedRun, QueueInfo, WorkerInfo, delay_text, open_runs
from ...errors import ConfigurationError
from ...records import Usage
from ...records.display import duration, spent
from .page import Page
from .render import render

MOST_HELD = 5  # runs that a row names
MOST_DELAYED = 20  # runs that do not continue


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of workers and queues at one moment."""

    workers: Sequence[WorkerInfo]
    queues: Sequence[QueueInfo]
    delayed: Sequence[DelayedRun]
    pinned: Mapping[str, Sequence[str]]
    spent: Mapping[str, Usage]
    now: float

    def has_worker(self, host: str) -> bool:
        """Return whether a host has an active worker."""
        return any(worker.alive and worker.host == host for worker in self.workers)

    def is_served(self, queue: str) -> bool:
        """Return whether an active worker runs a queue; without any worker the page says so once."""
        return not self.workers or any(
            worker.alive and worker.serves(queue) for worker in self.workers
        )

    def reason(self, run: DelayedRun) -> str:
        """Return why a run does not continue."""
        return run.reason or delay_text("", run.attempts, run.deliveries)

    def cost(self, usage: Usage) -> str:
        """Return what the runs of an account spent."""
        return spent(usage)

    def age(self, moment: float) -> str:
        """Return the time since a moment."""
        return duration(max(0.0, self.now - moment))


async def workers(page: Page, request: Request) -> Response:
    """The page of workers and queues."""
    del request
    try:
        view = await _view(page)
    except ConfigurationError:
        return HTMLResponse(render("workers.html", view=None, most=MOST_HELD))
    return HTMLResponse(render("workers.html", view=view, most=MOST_HELD))


async def tables(page: Page, request: Request) -> Response:
    """The tables alone, which the page fetches again."""
    del request
    return HTMLResponse(render("cluster.html", view=await _view(page), most=MOST_HELD))


async def _view(page: Page) -> ClusterView:
    journal = page.records.journal
    runs = open_runs(journal)
    try:
        await runs.prepare()
        return ClusterView(
            await runs.workers(),
            await runs.queues(),
            await runs.delayed(MOST_DELAYED),
            pinned=await runs.pinned(),
            spent=await runs.spent(),
            now=time.time(),
        )
    finally:
        await runs.close()
