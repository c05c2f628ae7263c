"""The inbox of a run: answers of people, posted while no process or another one runs it.

Whoever opens the run moves them to its entries, where the run reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Stop
from .entries import Entry
from .protocol import Journal, Posted, RunLog

__all__ = ["status_of", "take_up", "unheeded"]


async def take_up(store: Journal, log: RunLog) -> None:
    """Move the answers in the inbox of a run that is open here to its entries."""
    taken = []
    for answer in unheeded(log.recorded, await store.inbox(log.info.run_id)):
        entry = Entry("answered", answer.path, log.info.active, answer.value)
        log.append(entry)
        taken.append(entry)
    if taken and (written := log.sync()) is not None:
        await written
    log.recorded = [*log.recorded, *taken]


def unheeded(recorded: Sequence[Entry], answers: Sequence[Posted]) -> list[Posted]:
    """Return the answers of an inbox whose questions stand without one in the entries that survived."""
    open_ = {}
    for entry in recorded:
        if entry.kind == "asked":
            open_[entry.path] = entry.seq
        elif entry.kind == "answered":
            open_.pop(entry.path, None)
    return [answer for answer in answers if open_.get(answer.path) == answer.asked]


def status_of(recorded: Sequence[Entry]) -> str:
    """Return the status of a run that nobody runs, from its surviving entries: how it ended, or how it was before
    someone answered."""
    for entry in reversed(recorded):
        if entry.kind == "ended" and not entry.path:
            return Stop.from_json(entry.value["stop"]).reason.status.value
        if entry.kind not in ("answered", "accepted"):
            return "suspended" if entry.kind == "suspended" else "interrupted"
    return "interrupted"
