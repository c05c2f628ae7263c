"""How a run is opened: its id, its row, its journal, and whether it is still the same run."""

from __future__ import annotations

import functools
import os
import re
import time
from typing import Any

from . import codec
from .codec import Json
from .errors import ConfigurationError, ReplayMismatch, StepError
from .journal import Journal, RunInfo, RunLog

__all__ = ["fresh_row", "journal_of", "new_run_id", "open_log"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_PAIRS = [a + b for a in _LETTERS for b in _LETTERS]
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def new_run_id() -> str:
    """Return a fresh run id that sorts by time: date, time and 6 random letters and digits."""
    first, rest = divmod(int.from_bytes(os.urandom(8), "big"), len(_PAIRS))
    second, third = divmod(first, len(_PAIRS))
    letters = _PAIRS[rest] + _PAIRS[third] + _PAIRS[second % len(_PAIRS)]
    return _stamp(int(time.time())) + letters


@functools.lru_cache(maxsize=1)  # of a thousand runs at once, most begin in the same second
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(second))


def journal_of(given: Journal | str | None) -> tuple[Journal | None, bool]:
    """Return the journal that is meant, and whether it was opened here."""
    if isinstance(given, str):
        # Only who asks for a store by its URL pays for loading it.
        from .stores import open_journal

        return open_journal(given), True
    if given is not None and not hasattr(given, "open"):
        raise ConfigurationError(
            f"journal: {given!r} is no journal; give one, a URL such as sqlite:runs.db, or None"
        )
    return given, False


def fresh_row(step: Any, value: Json, run_id: str) -> RunInfo:
    """Return the row of a run that begins now.

    Raises:
        ConfigurationError: for an id or an input that cannot be.
    """
    if run_id and not (isinstance(run_id, str) and _ID.fullmatch(run_id)):
        raise ConfigurationError(
            f"run_id: {run_id!r} is not an id; use 1 to 64 letters, digits, - and _"
        )
    try:
        given = codec.normalise(value, what="input")
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    now = time.time()
    return RunInfo(run_id or new_run_id(), step.name, given, created=now, updated=now)


async def open_log(
    store: Journal,
    step: Any,
    fresh: RunInfo,
    value: Json,
    accept_changes: bool,
    takeover: bool,
) -> RunLog:
    """Open the journal of a run.

    Raises:
        JournalError: if it cannot be opened, or holds another run under this id.
    """
    log = await store.open(fresh, takeover=takeover)
    try:
        _check_same(step, fresh, log.info, value, log, accept_changes)
    except ReplayMismatch:
        await log.close(log.info.altered(status="interrupted"))
        raise
    return log


def _check_same(
    step: Any, fresh: RunInfo, info: RunInfo, value: Json, log: RunLog, accept_changes: bool
) -> None:
    if (
        not log.recorded
        or accept_changes
        or any(e.kind == "ended" and not e.path for e in log.recorded)
    ):
        return
    if value is not None and codec.digest(fresh.input) != codec.digest(info.input):
        raise ReplayMismatch(
            f"{info.run_id}: its input was {codec.digest(info.input)} when it was recorded, now it is "
            f"{codec.digest(fresh.input)}; resume without an input, or use another run id",
            path="", recorded=codec.digest(info.input), now=codec.digest(fresh.input),
        )  # fmt: skip
    if info.name != step.name:
        raise ReplayMismatch(
            f"{info.run_id}: it was recorded as {info.name!r}, not as {step.name!r}; "
            "resume with the step of that name, or use another run id",
            path="", recorded=info.name, now=step.name,
        )  # fmt: skip
    if info.fingerprint and step.fingerprint != info.fingerprint:
        raise ReplayMismatch(
            f"{info.run_id}: {step.name} changed since the run was recorded ({info.fingerprint} then, "
            f"{step.fingerprint} now); resume with the old version, or give accept_changes",
            path="", recorded=info.fingerprint, now=step.fingerprint,
        )  # fmt: skip
