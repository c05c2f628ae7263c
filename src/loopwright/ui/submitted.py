"""Submitted runs: why one waits, and when it starts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import ConfigurationError
from ..journal import Journal, RunInfo
from ..records.codec import Json
from . import formatting as texts

if TYPE_CHECKING:
    from ..cluster.shared_runs import SharedRuns


@dataclass(frozen=True)
class Wait:
    """Why a run waits for a worker: the text, and the reason and number of its returns to the queue."""

    text: str
    reason: str = ""
    attempts: int = 0

    @property
    def cause(self) -> str:
        """The part that another attempt with the same result leaves unchanged."""
        return self.reason or self.text


Returns = Mapping[str, Wait]
"""Why runs wait, by run."""

_WAITING = ("queued", "interrupted")


def is_for_workers(info: RunInfo, url: str) -> bool:
    """Return whether workers continue a run: it was submitted, and its journal is one that they share."""
    return bool(info.queue) and url.startswith(("postgres:", "postgresql:"))


async def returns_of(store: Journal, rows: Sequence[RunInfo]) -> Returns:
    """Return why submitted runs among these have not continued; runs that only wait are left out."""
    waiting = [row for row in rows if row.queue and row.status in _WAITING]
    if not waiting:
        return {}
    # The package of workers takes a third of a second to load, which other runs do not need.
    from ..cluster.shared_runs import delay_text, open_runs

    try:
        runs = open_runs(store)
    except ConfigurationError:  # a journal of one machine, to which the run was copied
        return {}
    try:
        returned = await runs.returns([row.run_id for row in waiting if _may_be_returned(row)])
        waits = {}
        for row in waiting:
            reason, attempts = returned.get(row.run_id, ("", 0))
            if text := delay_text(texts.one_line(reason), attempts, row.deliveries):
                waits[row.run_id] = Wait(text, reason, attempts)
        others = [row for row in waiting if row.run_id not in waits and not _is_later(row)]
        return waits | await _without_worker(runs, others)
    finally:
        await runs.close()


async def _without_worker(runs: SharedRuns, rows: Sequence[RunInfo]) -> dict[str, Wait]:
    """Return the runs among these that no active worker can take."""
    if not rows:
        return {}
    active = [worker for worker in await runs.workers() if worker.alive]
    hosts = {run_id: host for host, ids in (await runs.pinned()).items() for run_id in ids}
    waits = {}
    for row in rows:
        able = [worker for worker in active if worker.serves(row.queue)]
        host = hosts.get(row.run_id, "")
        if not able:
            waits[row.run_id] = Wait(f"no worker serves the queue {row.queue}")
        elif host and host not in {worker.host for worker in able}:
            waits[row.run_id] = Wait(f"its workspace is on {host}; it waits for a worker there")
    return waits


async def wait_of(store: Journal, info: RunInfo) -> Wait | None:
    """Return what a submitted run waits for that is not a person; None for a run that does not wait."""
    if info.status == "suspended" and info.wake_at:
        return Wait(
            f"suspended: {texts.one_line(info.detail)}; it starts at {texts.start(info.wake_at)}"
        )
    if info.status not in _WAITING:
        return None
    returns = await returns_of(store, [info])
    if text := waiting_text(info, returns):
        return replace(returns.get(info.run_id, Wait(text)), text=f"{info.status}: {text}")
    if info.status == "interrupted":
        return Wait("its worker ended; waiting for another worker")
    return Wait("waiting for a worker")


def waiting_text(info: RunInfo, returns: Returns) -> str:
    """Return why a submitted run waits: a reason of workers or its start time; else ""."""
    if not info.queue or info.status not in _WAITING:
        return ""
    if info.run_id in returns:
        return returns[info.run_id].text
    return f"it starts at {texts.start(info.wake_at)}" if _is_later(info) else ""


def submitted_json(info: RunInfo, returns: Returns) -> dict[str, Json]:
    """Return the facts of a submitted run that `show --json` adds; none for another run."""
    if not info.queue:
        return {}
    row = info.to_json()
    data = {key: row[key] for key in ("queue", "priority", "wake_at", "deliveries", "owner")}
    wait = returns.get(info.run_id)
    if wait is not None and wait.attempts:
        data["returned"] = {"reason": wait.reason, "attempts": wait.attempts}
    return data


def _is_later(row: RunInfo) -> bool:
    return row.wake_at > time.time()


def _may_be_returned(row: RunInfo) -> bool:
    # A worker clears the time of a run that it takes, so an earlier return is not in force then.
    return bool(row.queue) and (
        row.status == "queued" or (row.status == "interrupted" and row.wake_at > 0)
    )
