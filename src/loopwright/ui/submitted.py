"""Submitted runs: why one waits for a worker, and when it starts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import ConfigurationError
from ..journal import Journal, RunInfo
from ..records.codec import Json
from . import formatting as texts


@dataclass(frozen=True)
class Wait:
    """Why a run waits for a worker: the text, and the reason and number of its returns to the queue."""

    text: str
    reason: str = ""
    attempts: int = 0


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
    finally:
        await runs.close()
    waits = {}
    for row in waiting:
        reason, attempts = returned.get(row.run_id, ("", 0))
        if text := delay_text(texts.one_line(reason), attempts, row.deliveries):
            waits[row.run_id] = Wait(text, reason, attempts)
    return waits


def waiting_text(info: RunInfo, returns: Returns) -> str:
    """Return why a submitted run waits: a reason of workers or its start time; else ""."""
    if not info.queue or info.status not in _WAITING:
        return ""
    if info.run_id in returns:
        return returns[info.run_id].text
    return f"it starts at {texts.start(info.wake_at)}" if info.wake_at > time.time() else ""


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


def _may_be_returned(row: RunInfo) -> bool:
    # A worker clears the time of a run that it takes, so an earlier return is not in force then.
    return bool(row.queue) and (
        row.status == "queued" or (row.status == "interrupted" and row.wake_at > 0)
    )
