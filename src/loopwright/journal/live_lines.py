"""The last lines of agents that are running, for readers in other processes.

They are no records: each call has a small file beside the journal, which is replaced while the call runs
and deleted at its end. A reader shows the files of the calls that the journal has in flight, so the
file of a process that died is not shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LINES", "LiveCall", "LiveLines", "LiveWriter"]

LINES = 8  # lines of a call that are kept
GAP = 0.25  # seconds between two writes of a call; faster changes cannot be read
_READ = 4_000  # characters of a line before it is cleaned
_FILE = 64 * 1024  # bytes of a file that are read


@dataclass(frozen=True, slots=True)
class LiveCall:
    """What a running call of an agent did last.

    Args:
        agent: the name of the agent.
        session: the ID of its session, "" while it is unknown.
        lines: its last lines, the latest at the end.
    """

    agent: str
    session: str
    lines: tuple[str, ...]


class LiveWriter:
    """The lines of one call, written to its file.

    Args:
        file: the file, or None to keep nothing.
        agent: the name of the agent.
        clean: makes a line printable and removes secrets. It is called for lines that are written only.
    """

    def __init__(self, file: Path | None, agent: str, clean: Callable[[str], str]) -> None:
        self._file, self._agent, self._clean = file, agent, clean
        self._lines: deque[str] = deque(maxlen=LINES)
        self._session = ""
        self._next = 0.0  # the time at which the file may be written again
        self._later: asyncio.TimerHandle | None = None

    def add(self, line: str, session: str) -> None:
        """Add a line; the file follows at once, or after a short pause since its last change."""
        if self._file is None:
            return
        self._lines.append(line[:_READ])
        self._session = session
        wait = self._next - time.monotonic()
        if wait <= 0:
            self._write()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(wait, self._write)

    def _write(self) -> None:
        assert self._file is not None
        self._cancel()
        self._next = time.monotonic() + GAP
        lines = [self._clean(line).strip() for line in self._lines]
        data = {"agent": self._agent, "session": self._session, "lines": lines}
        partial = self._file.with_suffix(".part")
        # A full disk must not end a call.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(data), encoding="utf-8")
            partial.replace(self._file)

    def _cancel(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def close(self) -> None:
        """Delete the file, and the folders if they are empty."""
        self._cancel()
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            self._file.with_suffix(".part").unlink(missing_ok=True)
            self._file.unlink(missing_ok=True)
            self._file.parent.rmdir()
            self._file.parent.parent.rmdir()


class LiveLines:
    """The last lines of the running calls of a journal.

    Args:
        folder: the folder beside the journal. Default: nothing is kept.

    Example:
        >>> LiveLines().read("run", "task/1/execute/call-1") is None
        True
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def writer(
        self, run_id: str, path: str, agent: str, clean: Callable[[str], str]
    ) -> Iterator[LiveWriter]:
        """Make the writer of a call, whose lines are deleted at the end."""
        writer = LiveWriter(self._file(run_id, path), agent, clean)
        try:
            yield writer
        finally:
            writer.close()

    def read(self, run_id: str, path: str) -> LiveCall | None:
        """Return the last lines of the call at a path, if it has any."""
        file = self._file(run_id, path)
        if file is None:
            return None
        try:
            with file.open("rb") as opened:
                data = json.loads(opened.read(_FILE))
            lines = tuple(str(line) for line in data["lines"][-LINES:])
            return LiveCall(str(data["agent"]), str(data["session"]), lines)
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def version(self, run_id: str) -> int:
        """Return a number that changes with the lines of a run, at a cost of microseconds."""
        folder = self._of_run(run_id)
        try:
            return 0 if folder is None else folder.stat().st_mtime_ns
        except OSError:
            return 0

    def _of_run(self, run_id: str) -> Path | None:
        # A digest, because the ID may be a text of the user.
        return None if self._folder is None else self._folder / _digest(run_id)

    def _file(self, run_id: str, path: str) -> Path | None:
        folder = self._of_run(run_id)
        return None if folder is None else folder / f"{_digest(path)}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
