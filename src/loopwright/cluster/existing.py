"""Keys and schedules that a journal has already: a key has one run, and a schedule one run that waits."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ReplayMismatch, RunNotFound
from ..journal import Journal, RunInfo
from ..journal.inbox import SCHEDULE, runs_of_schedule
from ..records import codec
from .schedule import again_at_tick
from .source_keys import CARRIED, SUBMITTED_AS

__all__ = ["check_keys", "replaced"]


async def check_keys(store: Journal, rows: Sequence[RunInfo]) -> None:
    """Compare the runs of keys with those that the journal has, before anything is created.

    Raises:
        ReplayMismatch: if a run of the same key has another input, document, step or queue.
    """
    seen: dict[str, RunInfo] = {}
    for row in rows:
        # Without a key, the ID is new.
        if SUBMITTED_AS not in row.source or SCHEDULE in row.source:
            continue
        recorded = seen.get(row.run_id) or await _row(store, row.run_id)
        seen[row.run_id] = row
        if recorded is not None and (change := _difference(recorded, row)):
            what, before, now = change
            raise ReplayMismatch(
                f"the key {row.source[SUBMITTED_AS]!r} has a run with another {what}, {row.run_id}; nothing was "
                "submitted. Use another key for another run.",
                path="",
                recorded=before,
                now=now,
            )


async def _row(store: Journal, run_id: str) -> RunInfo | None:
    try:
        row = await store.find(run_id)
    except RunNotFound:
        return None
    return row if row.run_id == run_id else None


def _difference(recorded: RunInfo, row: RunInfo) -> tuple[str, str, str] | None:
    """Return what differs and its two values; None for the same run."""
    before, now = codec.digest(recorded.input), codec.digest(row.input)
    if before != now:
        return "input", before, now
    if recorded.name != row.name:
        return "step", recorded.name, row.name
    before, now = _digest(recorded), _digest(row)
    if before and now and before != now:
        return "document", before, now
    # A submission of unpinned Python has no fingerprint.
    if recorded.fingerprint and row.fingerprint and recorded.fingerprint != row.fingerprint:
        return "version of the step", recorded.fingerprint, row.fingerprint
    if recorded.queue != row.queue:
        return f"queue ({recorded.queue})", recorded.queue, row.queue
    return None


def _digest(row: RunInfo) -> str:
    carried = row.source.get(CARRIED)
    return str(carried["digest"]) if isinstance(carried, dict) else ""


async def replaced(store: Journal, row: RunInfo) -> RunInfo:
    """Return the run that a schedule queues, after the one that waits was cancelled.

    The run that waits is returned if it is the same, as a submission is idempotent.
    """
    rule = row.source[SCHEDULE]
    for waiting in await runs_of_schedule(store, rule["name"], status="queued"):
        if waiting.source[SCHEDULE] == rule and _difference(waiting, row) is None:
            return waiting
        await store.cancel(waiting.run_id)
    # The ID of this time is used if its run was cancelled, here or by a person.
    number = 2
    while (taken := await _row(store, row.run_id)) is not None and taken.status == "cancelled":
        row = again_at_tick(row, number)
        number += 1
    return row
