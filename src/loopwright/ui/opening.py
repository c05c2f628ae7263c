"""The signal by which a `loopwright` process reports to the page that it has opened its run.

The page creates an empty file for the process and passes its path in VARIABLE. The process writes one byte
once the run is open and accepted. A process that refuses ends without a byte. A file works on all
platforms; a pipe could not be inherited on Windows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..journal import Entry, RunInfo

# In the environment, because the command line of the process is shown in lists of processes.
VARIABLE = "LOOPWRIGHT_OPENED_FILE"


class OpeningReport:
    """A listener that reports once that its run is open."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Report that the run is open. The engine calls this after it has accepted the run."""
        del info, recorded
        # "r+": a file that the page has removed meanwhile is not created again.
        with contextlib.suppress(OSError), self._file.open("r+b") as file:
            file.write(b"1")
        return _ignore


def opening_report() -> OpeningReport | None:
    """Return the report for the page that started this process; None if no page did.

    The variable is removed, so that programs that the run starts do not report in its place.
    """
    file = os.environ.pop(VARIABLE, "")
    return OpeningReport(Path(file)) if file else None


def _ignore(entry: Entry) -> None:
    del entry
