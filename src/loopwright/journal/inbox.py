"""Runs without a process: answers that people post to them, and their cancellation.

A submitted run without a process waits for a worker. An interrupted run of a process waits for nothing, so only a
submitted one is cancelled.

The process that opens a run moves the answers from its inbox to its entries, where the run reads
them.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from dataclasses import replace

from ..errors import RunLocked
from ..records import Reason, Stop, Usage
from ..records.codec import Json
from ..records.result import ended_entry
from .entries import Entry
from .protocol import Journal, Posted, RunInfo, RunLog
from .replay import RecordedRun
from .results import recorded_result
from .tunes import tuned_entries

SCHEDULE = "cron"  # of the source of a run: the times of its schedule, and the schedule's name
_MANY = 1000  # runs that contain the name of a schedule

_DETAILS = {
    "queued": "cancelled by a person before it started",
    "suspended": "cancelled by a person while it waited for an answer",
    "interrupted": "cancelled by a person while it waited for a worker",
}


async def take_up(store: Journal, log: RunLog) -> None:
    """Move the open answers and new limits in the inbox of an open run to its entries."""
    appended = []
    inbox = await store.inbox(log.info.run_id)
    answers = [
        Entry("answered", answer.path, log.info.active, answer.value)
        for answer in unread_answers(log.recorded, inbox)
    ]
    for entry in (*answers, *tuned_entries(log.recorded, inbox, log.info.active)):
        log.append(entry)
        appended.append(entry)
    if appended and (written := log.sync()) is not None:
        await written
    log.recorded = [*log.recorded, *appended]


def unread_answers(recorded: Sequence[Entry], answers: Sequence[Posted]) -> list[Posted]:
    """Return the answers of an inbox whose questions have no answer in the surviving entries."""
    # By the number of the question: a repeated attempt asks again at the same path.
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
        # Entries that a person added while no process ran do not change the status.
        if entry.kind not in ("answered", "accepted", "tuned"):
            return "suspended" if entry.kind == "suspended" else "interrupted"
    return "interrupted"


async def runs_of_schedule(journal: Journal, name: str, *, status: str = "") -> list[RunInfo]:
    """Return the runs of a schedule, latest first. The queued one is that of its next time; without one it has ended."""
    rows = await journal.runs(status=status, text=name, limit=_MANY)
    return [row for row in rows if schedule_of(row) == name]


def schedule_of(row: RunInfo) -> str:
    """Return the name of the schedule of a run; "" without one."""
    return str(row.source.get(SCHEDULE, {}).get("name", ""))


async def cancel_waiting(journal: Journal, run_id: str) -> bool:
    """End a queued or suspended run, or a submitted interrupted one, as cancelled, with its present output.

    Returns:
        Whether the run was waiting; False leaves it unchanged.

    Raises:
        RunNotFound: if there is no such run.
    """
    info = await journal.find(run_id)
    if info.status not in _DETAILS or (info.status == "interrupted" and not info.queue):
        return False
    try:
        log = await journal.open(info, resume=True)
    except RunLocked:  # a process has just opened it, and can be asked to cancel
        return False
    row = replace(log.info, status=info.status)
    ending = _ending(info, log.recorded)
    try:
        if ending is not None:
            stop = Stop(Reason.CANCELLED, _DETAILS[info.status])
            value = {**ending, "stop": stop.to_json(), "request": None}
            log.append(Entry("ended", "", log.info.active, value))
            if (written := log.sync()) is not None:
                await written
            status, reason = stop.reason.status.value, stop.reason.value
            row = replace(
                row, status=status, reason=reason, detail=stop.detail, updated=time.time(),
                # A process that was killed left the row as it was when it opened the run.
                iterations=max(row.iterations, ending["iterations"]),
                usage=Usage.from_json(ending["usage"]),
            )  # fmt: skip
    finally:
        await log.close(row)
    return ending is not None


def _ending(info: RunInfo, entries: Sequence[Entry]) -> dict[str, Json] | None:
    """Return the state with which a waiting run ends; None if it does not wait any more."""
    if info.status == "suspended":
        return next((e.value for e in reversed(entries) if e.kind == "suspended"), None)
    replay = RecordedRun(entries)
    # A worker took it, or ended between the last entry and the row.
    if "" in replay.ended or (entries and info.status == "queued"):
        return None
    steps = {n: one.output for n, one in replay.outcomes().items() if one.status is not None}
    result = replace(recorded_result(info, entries), steps=steps, warnings=tuple(replay.warnings))
    return ended_entry(result)


def user_name() -> str:
    """Return the name of the user of this process, as records of people's acts name it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without user names
        return "someone"
