"""Submitted runs: why one waits for a worker, and when it starts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ..errors import ConfigurationError
from ..journal import Journal, RunInfo
from ..records.codec import Json
from . import formatting as texts

Returns = Mapping[str, tuple[str, int]]
"""Why runs went back to their queues, and how often, by run."""

_WAITING = ("queued", "interrupted")


def is_for_workers(info: RunInfo, url: str) -> bool:
    """Return whether workers continue a run: it was submitted, and its journal is one that they share."""
    return bool(info.queue) and url.startswith(("postgres:", "postgresql:"))


async def returns_of(store: Journal, rows: Sequence[RunInfo]) -> Returns:
    """Return why waiting runs among these went back to their queues."""
    waiting = [row.run_id for row in rows if _may_be_returned(row)]
    if not waiting:
        return {}
    # The package of workers takes a third of a second to load, which other runs do not need.
    from ..cluster.shared_runs import open_runs

    try:
        runs = open_runs(store)
    except ConfigurationError:  # a journal of one machine, to which the run was copied
        return {}
    try:
        return await runs.returns(waiting)
    finally:
        await runs.close()


def waiting_text(info: RunInfo, returns: Returns) -> str:
    """Return why a submitted run waits: a reason of workers or its start time; else ""."""
    if not info.queue or info.status not in _WAITING:
        return ""
    from ..cluster.shared_runs import delay_text

    reason, attempts = returns.get(info.run_id, ("", 0))
    if text := delay_text(texts.one_line(reason), attempts, info.deliveries):
        return text
    return f"it starts at {texts.start(info.wake_at)}" if info.wake_at > time.time() else ""


def submitted_json(info: RunInfo, returns: Returns) -> dict[str, Json]:
    """Return the facts of a submitted run that `show --json` adds; none for another run."""
    if not info.queue:
        return {}
    row = info.to_json()
    data = {key: row[key] for key in ("queue", "priority", "wake_at", "deliveries", "owner")}
    if info.run_id in returns:
        reason, attempts = returns[info.run_id]
        data["returned"] = {"reason": reason, "attempts": attempts}
    return data


def _may_be_returned(row: RunInfo) -> bool:
    # A worker clears the time of a run that it takes, so an earlier return is not in force then.
    return bool(row.queue) and (
        row.status == "queued" or (row.status == "interrupted" and row.wake_at > 0)
    )
