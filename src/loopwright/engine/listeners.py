"""Who hears the entries of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..journal import Entry, RunInfo, RunLog
from ..records.codec import error_line

__all__ = ["Listener", "RunObserver", "hearing"]


class RunObserver(Protocol):
    """A listener for any number of runs, such as telemetry."""

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Return what hears the entries of a run, given its row and what is on record of it."""


Listener = Callable[[Entry], None] | RunObserver


def hearing(
    listeners: Sequence[Listener], log: RunLog
) -> tuple[list[Callable[[Entry], None]], tuple[str, ...]]:
    """Return what hears the entries of a run, and sentences on listeners that could not begin."""
    found: list[Callable[[Entry], None]] = []
    failed = []
    for listener in listeners:
        try:
            if hasattr(listener, "opened"):
                found.append(listener.opened(log.info.view(), [e.view() for e in log.recorded]))
            else:
                found.append(listener)
        except BaseException as error:  # a listener watches; it never steers
            failed.append(f"a listener could not begin: {error_line(error)}")
    return found, tuple(failed)
