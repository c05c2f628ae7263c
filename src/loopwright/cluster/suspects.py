"""Suspects: runs that were delivered again and again without a result, because their workers may have died of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from ..engine.run_record import row_of
from ..errors import JournalError
from ..journal import Entry, Journal, RunInfo
from ..records import Reason, Result, Status
from ..records.result import ended_entry
from .shared_runs import MAX_DELIVERIES, SUSPECT, SharedRuns

__all__ = ["RunProgress", "is_poison", "suspend"]

_LOG = logging.getLogger("loopwright.cluster")
_LONGEST_PAUSE = 16.0  # seconds before a suspect starts
_RESULTS = frozenset({"finished", "iteration", "ended", "asked", "answered", "reported", "step"})
"""The kinds of entries that prove that a delivery made progress; the start of an effect is not one."""


async def is_poison(row: RunInfo, runs: SharedRuns, journal: Journal) -> bool:
    """Count a repeated delivery; suspend a run that was delivered too often without a result.

    A suspect starts after a random pause, so that a run that kills its workers does not share each of its
    deliveries with the same others, which would be suspects as well.
    """
    if row.deliveries > 1:
        await asyncio.sleep(random.random() * min(_LONGEST_PAUSE, 2.0**row.deliveries))
    count = await runs.counted(row.run_id)
    if count <= MAX_DELIVERIES:
        if count > SUSPECT:
            _LOG.warning(
                "%s: it started %s times without a new result; after %s it is suspended",
                row.run_id, count - 1, MAX_DELIVERIES,
            )  # fmt: skip
        return False
    detail = (
        f"it started {MAX_DELIVERIES} times without a new result, and each time its worker ended"
        f"{f' (the last one: {row.owner})' if row.owner else ''}. Repair its cause, then start it again with "
        "loopwright submit --again, or run it on this machine with loopwright resume."
    )
    await suspend(journal, row, detail)
    _LOG.error("%s: %s", row.run_id, detail)
    return True


class RunProgress:
    """Clears the time of a run at its first entry, and its count of deliveries at its first result.

    Until then a suspended run keeps its time, because nothing else would wake it if its opening fails.
    """

    def __init__(self, runs: SharedRuns, run_id: str, *, timed: bool) -> None:
        self.runs = runs
        self._run_id = run_id
        self._timed = timed
        self._counted = True
        self._tasks: list[asyncio.Task[None]] = []

    def note(self, entry: Entry) -> None:
        """Receive an entry of the run."""
        if self._timed:
            self._timed = False
            self._tasks.append(
                asyncio.create_task(self._clear(self.runs.handed_over([self._run_id])))
            )
        if self._counted and entry.kind in _RESULTS:
            self._counted = False
            self._tasks.append(asyncio.create_task(self._clear(self.runs.progressed(self._run_id))))

    async def _clear(self, change: Coroutine[Any, Any, None]) -> None:
        try:
            await change
        except JournalError as error:  # both only let the run start once more
            _LOG.info("%s: its progress could not be noted: %s", self._run_id, error)

    async def close(self) -> None:
        """Wait for the statements in progress."""
        if self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(asyncio.wait(self._tasks))


async def suspend(journal: Journal, row: RunInfo, detail: str) -> None:
    """Suspend a run without an owner, so that a person decides."""
    # As its owner, so that a worker that still runs it stops this by RunLocked.
    log = await journal.open(row, resume=True)
    result: Result = Result(
        Status.SUSPENDED, Reason.NEEDS_ATTENTION, detail, None, run_id=row.run_id, name=row.name
    )
    closing = replace(log.info, status=row.status)
    try:
        log.append(Entry("suspended", "", log.info.active, ended_entry(result)))
        if (written := log.sync()) is not None:
            await written
        closing = replace(row_of(log.info, result, log.info.active), usage=log.info.usage)
    finally:
        await log.close(closing)
