"""A run that waits for a person, and is cancelled instead: nobody runs it, so its end is written here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..errors import RunLocked
from ..records import Reason, Stop
from .entries import Entry

if TYPE_CHECKING:
    from .protocol import Journal

__all__ = ["cancel_suspended"]

_DETAIL = "cancelled by a person while it waited for one"


async def cancel_suspended(journal: Journal, run_id: str) -> bool:
    """End a suspended run as cancelled, with what it had; return False if it is not suspended.

    Raises:
        RunNotFound: if there is no such run.
    """
    info = await journal.find(run_id)
    if info.status != "suspended":
        return False
    try:
        log = await journal.open(info, resume=True)
    except RunLocked:  # someone goes on with it at this very moment, and is to be asked
        return False
    row = log.info.altered(status="suspended")
    try:
        left = next((e for e in reversed(log.recorded) if e.kind == "suspended"), None)
        if left is not None:
            stop = Stop(Reason.CANCELLED, _DETAIL)
            value = {**left.value, "stop": stop.to_json(), "request": None}
            log.append(Entry("ended", "", log.info.active, value))
            if (written := log.sync()) is not None:
                await written
            row = row.altered(
                status=stop.reason.status.value, reason=stop.reason.value, detail=_DETAIL,
                updated=time.time(),
            )  # fmt: skip
    finally:
        await log.close(row)
    return left is not None
