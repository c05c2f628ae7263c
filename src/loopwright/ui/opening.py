"""The signal by which a `loopwright` process reports to the page that it has opened its run.

The page passes the writing end of a pipe to the process and its number in VARIABLE. The process writes
one byte once the run is open and accepted. A process that refuses ends without a byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from ..journal import Entry, RunInfo

VARIABLE = "LOOPWRIGHT_OPENED_FD"


class OpeningPipe:
    """The page's side: a pipe for one process."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_writer()
        os.close(self._reader)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variable for the process, which must inherit `writer`."""
        return {VARIABLE: str(self.writer)}

    def close_writer(self) -> None:
        """Close the writing end of this process, so that only the other one holds it."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    async def wait(self, ended: asyncio.Task[int]) -> bool:
        """Wait until the process has opened its run, or until it has ended; return whether it opened it."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._reader, readable.set)
        waiting = asyncio.ensure_future(readable.wait())
        try:
            await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(self._reader)
            waiting.cancel()
        try:
            opened = os.read(self._reader, 1) != b""
        except BlockingIOError:  # the process ended, and one that it started still holds the pipe
            opened = False
        if not opened:
            await asyncio.wait({ended})
        return opened


class OpeningReport:
    """The process's side: a listener that reports once that its run is open."""

    def __init__(self, writer: int) -> None:
        self._writer = writer

    def opened(self, info: RunInfo, recorded: Sequence[Entry], /) -> Callable[[Entry], None]:
        """Report that the run is open. The engine calls this after it has accepted the run."""
        del info, recorded
        with contextlib.suppress(OSError):  # the page may have ended
            os.write(self._writer, b"1")
            os.close(self._writer)
        return _ignore


def opening_report() -> OpeningReport | None:
    """Return the report for the page that started this process; None if no page did.

    The variable is removed: programs that the run starts do not inherit the pipe.
    """
    number = os.environ.pop(VARIABLE, "")
    return OpeningReport(int(number)) if number.isdecimal() else None


def _ignore(entry: Entry) -> None:
    del entry
