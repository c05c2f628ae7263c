"""Runs without a process: answers that people post to them, and their cancellation.

The process that opens a run moves the answers from its inbox to its entries, where the run reads
them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ..errors import RunLocked
from ..records import Reason, Stop
from .entries import Entry
from .protocol import Journal, Posted, RunLog

_DETAIL = "cancelled by a person while it waited for an answer"


async def take_up(store: Journal, log: RunLog) -> None:
    """Move the open answers in the inbox of an open run to its entries."""
    taken = []
    for answer in unheeded(log.recorded, await store.inbox(log.info.run_id)):
        entry = Entry("answered", answer.path, log.info.active, answer.value)
        log.append(entry)
        taken.append(entry)
    if taken and (written := log.sync()) is not None:
        await written
    log.recorded = [*log.recorded, *taken]


def unheeded(recorded: Sequence[Entry], answers: Sequence[Posted]) -> list[Posted]:
    """Return the answers of an inbox whose questions have no answer in the surviving entries."""
    open_ = {}
    for entry in recorded:
        if entry.kind == "asked":
            open_[entry.path] = entry.seq
        elif entry.kind == "answered":
            open_.pop(entry.path, None)
    return [answer for answer in answers if open_.get(answer.path) == answer.asked]


def status_of(recorded: Sequence[Entry]) -> str:
    """Return the status of a run without a process, from its surviving entries.

    It is the status of its end, or the one that it had before it was answered.
    """
    for entry in reversed(recorded):
        if entry.kind == "ended" and not entry.path:
            return Stop.from_json(entry.value["stop"]).reason.status.value
        if entry.kind not in ("answered", "accepted"):
            return "suspended" if entry.kind == "suspended" else "interrupted"
    return "interrupted"


async def cancel_suspended(journal: Journal, run_id: str) -> bool:
    """End a suspended run as cancelled, with its present output.

    Returns:
        Whether the run was suspended; False leaves it unchanged.

    Raises:
        RunNotFound: if there is no such run.
    """
    info = await journal.find(run_id)
    if info.status != "suspended":
        return False
    try:
        log = await journal.open(info, resume=True)
    except RunLocked:  # a process has just resumed it, and can be asked to cancel
        return False
    row = replace(log.info, status="suspended")
    try:
        suspended = next((e for e in reversed(log.recorded) if e.kind == "suspended"), None)
        if suspended is not None:
            stop = Stop(Reason.CANCELLED, _DETAIL)
            value = {**suspended.value, "stop": stop.to_json(), "request": None}
            log.append(Entry("ended", "", log.info.active, value))
            if (written := log.sync()) is not None:
                await written
            status, reason = stop.reason.status.value, stop.reason.value
            row = replace(row, status=status, reason=reason, detail=_DETAIL, updated=time.time())
    finally:
        await log.close(row)
    return suspended is not None
