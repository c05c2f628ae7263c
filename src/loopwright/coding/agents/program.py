"""One call of an agent's program, from its start to its end, and the sessions that its calls continue.

1. Output is read line by line, with a limit for one line and for all of it, so that no program can fill the memory.
2. To stop a program, Loopwright sends its interrupt, waits for a grace period in which it may report what it spent,
   and kills it with every process below it.
3. Loopwright decides the reason of the end: a program that it stopped counts as stopped, whatever it reports.

Sessions say which conversation a call continues, and what it cost so far:

1. A session belongs to a key: the chain of a loop, the step in the run, or a name that several steps share.
2. Where the program lets us choose the ID, it is chosen before the start and recorded with it.
3. The state is rebuilt from the recorded calls when a run resumes; nothing else is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from ..._platform import KILLED
from ...engine.context import Context
from ...engine.run_state import Run
from ...errors import ConfigurationError
from ...records import NOTHING, Usage
from ...tools.process import CUT_GRACE, DRAIN, PIPES, READ, ChildProcess
from ...tools.supervised import settle

__all__ = [
    "LINE_BYTES",
    "MODES",
    "TOTAL_BYTES",
    "AgentProcess",
    "Ended",
    "Lines",
    "RawStream",
    "Session",
    "Sessions",
    "StreamMode",
    "checked_mode",
    "new_id",
    "session_key",
    "sessions_of",
]

LINE_BYTES = 16 * 1024 * 1024  # of one line; a longer one is left out
TOTAL_BYTES = 256 * 1024 * 1024  # of both streams; more ends the program
TAIL_BYTES = 1024 * 1024  # of the raw stream that is kept by default
ERROR_BYTES = 64 * 1024  # of standard error that are kept
GRACE = 2.0  # seconds between the interrupt and SIGKILL

Stop = Literal["", "timeout", "idle", "max_usd", "too_large", "steered"]
StreamMode = Literal["full", "tail", "off"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended.

    Args:
        exit_code: its exit code, or the negative number of a signal.
        stop: why it was told to end, "" if it ended by itself.
        stderr: the end of standard error.
        seconds: the duration.
        skipped: the number of lines that were longer than the limit.
    """

    exit_code: int
    stop: Stop = ""
    stderr: str = ""
    seconds: float = 0.0
    skipped: int = 0


class Lines:
    """Splits bytes into lines of at most `limit` bytes. Longer lines are counted and left out."""

    def __init__(self, limit: int = LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.skipped = 0

    def feed(self, data: bytes) -> Iterator[str]:
        """Iterate over the lines that end in `data`."""
        *complete, rest = data.split(b"\n")
        for part in complete:
            line = self._line(part)
            if line is not None:
                yield line
        self._keep(rest)

    def rest(self) -> Iterator[str]:
        """Iterate over the last line, if it has no end."""
        line = self._line(b"") if self._size else None
        if line:
            yield line

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        # The size goes on counting, so the end of the line still knows that it was too long.
        if self._size > self._limit:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _line(self, part: bytes) -> str | None:
        self._keep(part)
        parts, size = self._parts, self._size
        self._parts, self._size = [], 0
        if size > self._limit:
            self.skipped += 1
            return None
        return b"".join(parts).decode("utf-8", "replace").removesuffix("\r")


class Bytes(Protocol):
    """A store of contents, such as the one beside the journal."""

    def put(self, content: bytes) -> str:
        """Store a content and return its digest."""


class RawStream:
    """The raw output of a call: all of it, its end, or nothing."""

    def __init__(self, mode: StreamMode) -> None:
        self._mode = mode
        self._tail = bytearray()
        # In a file, because a long output must not stay in the memory.
        self._file = tempfile.SpooledTemporaryFile(max_size=READ) if mode == "full" else None  # noqa: SIM115
        self.omitted = 0

    def feed(self, data: bytes) -> None:
        """Keep a piece of output."""
        if self._file is not None:
            self._file.write(data)
        elif self._mode == "tail":
            self._tail += data
            # At twice the size, because each cut moves all bytes.
            if len(self._tail) > 2 * TAIL_BYTES:
                self._trim()

    def _trim(self) -> None:
        over = max(0, len(self._tail) - TAIL_BYTES)
        self.omitted += over
        del self._tail[:over]

    def store(self, store: Bytes, clean: Callable[[str], str]) -> str:
        """Store what was kept, without secrets, and return its digest; "" if nothing was kept."""
        if self._file is not None:
            self._file.seek(0)
            content = self._file.read()
        else:
            self._trim()
            content = bytes(self._tail)
        if not content:
            return ""
        text = content.decode("utf-8", "replace")
        if self.omitted:
            # The first line is a part of one, and may begin inside of a secret.
            text = text.partition("\n")[2]
        return store.put(clean(text).encode())

    def close(self) -> None:
        """Remove what was kept."""
        if self._file is not None:
            self._file.close()


class AgentProcess:
    """One call of a program.

    Args:
        words: the program and its arguments.
        env: variables besides PATH, HOME and the like.
        cwd: the working folder.
        interrupt: `INT` or `TERM`.
        token: names the run in the environment.
        on_line: receives each line of standard output; it returns whether the program must end, because
            it spent its limit.
        raw: receives the raw output.

    Attributes:
        stop: why it was told to end, "" if it was not.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        interrupt: Literal["INT", "TERM"],
        token: str,
        on_line: Callable[[str], bool],
        raw: RawStream,
        has_input: bool,
    ) -> None:
        number = signal.SIGINT if interrupt == "INT" else signal.SIGTERM
        self._child = ChildProcess(
            words,
            env=env,
            cwd=cwd,
            stdin=has_input,
            token=token,
            grace=GRACE,
            linger=0.5,
            interrupt=number,
        )
        self._on_line, self._raw = on_line, raw
        self._lines = Lines()
        self._left = TOTAL_BYTES
        self._stderr = bytearray()
        self.stop: Stop = ""
        loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._active = loop.time()

    async def run(self, stdin: bytes | None, *, timeout: float | None, idle: float | None) -> Ended:
        """Run it to its end.

        Args:
            stdin: standard input; None is none at all.
            timeout: seconds until the program is stopped. None: no limit.
            idle: seconds without output until the program is stopped. None: no limit.

        Raises:
            StepError: `cannot_start` or `bad_argument`.
        """
        began, grace, tasks = time.monotonic(), GRACE, list[asyncio.Task[None]]()
        try:
            await self._child.start()
            tasks = [asyncio.create_task(task) for task in (self._read(), self._read_errors())]
            if stdin is not None:
                tasks.append(asyncio.create_task(self._write(stdin)))
            await self._wait(timeout, idle)
            # A process below it may hold the pipes open, so their end is not waited for without a limit.
            if self._child.exited.done():
                await asyncio.wait(tasks[:2], timeout=PIPES)
        except asyncio.CancelledError:
            # The engine abandons a cancelled call after half a second; the tree must be gone by then.
            grace = CUT_GRACE
            raise
        finally:
            await self._end(tasks, grace)
        code = self._child.exit_code
        return Ended(
            exit_code=KILLED if code is None else code,
            stop=self.stop,
            stderr=self._stderr.decode("utf-8", "replace"),
            seconds=time.monotonic() - began,
            skipped=self._lines.skipped,
        )

    async def _end(self, tasks: list[asyncio.Task[None]], grace: float) -> None:
        try:
            # The streams are still read: the last event may report what the call spent.
            await self._child.end(grace)
            if tasks:
                await asyncio.wait(tasks[:2], timeout=DRAIN)
        finally:
            for task in tasks:
                task.cancel()
            self._child.close()
        # A killed program may leave its last event without a line end.
        for line in self._lines.rest():
            self._on_line(line)

    async def _wait(self, timeout: float | None, idle: float | None) -> None:
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while not (self._child.exited.done() or self._stopped.done()):
            limits = [("timeout", end), ("idle", None if idle is None else self._active + idle)]
            name, due = min(
                ((n, d) for n, d in limits if d is not None),
                key=lambda pair: pair[1],
                default=("", None),
            )
            if due is not None and loop.time() >= due:
                self.tell(name)  # type: ignore[arg-type]
                return
            left = None if due is None else due - loop.time()
            await asyncio.wait(
                {self._child.exited, self._stopped},
                timeout=left,
                return_when=asyncio.FIRST_COMPLETED,
            )

    def tell(self, stop: Stop) -> None:
        """Tell the program to end; the first reason counts."""
        self.stop = self.stop or stop
        settle(self._stopped)

    async def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._child.stdout.read(READ):
                if not self._take(data):
                    return
                self._raw.feed(data)
                for line in self._lines.feed(data):
                    if self._on_line(line):
                        self.tell("max_usd")

    async def _read_errors(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._child.stderr.read(READ):
                if not self._take(data):
                    return
                self._stderr += data
                del self._stderr[: max(0, len(self._stderr) - ERROR_BYTES)]

    def _take(self, data: bytes) -> bool:
        """Count output, and return whether it is within the limit."""
        self._active = asyncio.get_running_loop().time()
        self._left -= len(data)
        if self._left < 0:
            self.tell("too_large")
        return self._left >= 0

    async def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._child.stdin.write(data)
            await self._child.stdin.drain()
        self._child.stdin.close()


MODES = ("fresh", "loop", "run")
_OWNED = "coding sessions"
_NUMBER = re.compile(r"(?<=/)[0-9]+(?=/)")
_CALL = re.compile(r"/call-[0-9]+$")
_KEY = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation that a later call may continue.

    Args:
        id: the ID that the program uses; "" before the first call.
        usage: what the program reported for the session, for a program that counts per session.
    """

    id: str = ""
    usage: Usage = NOTHING


@dataclass
class Sessions:
    """The sessions of one run by key."""

    by_key: dict[str, Session] = field(default_factory=dict)
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # by program, asked once in a run

    def get(self, key: str) -> Session:
        """Return the session of a key; a new one has no ID."""
        return self.by_key.get(key, Session()) if key else Session()

    def put(self, key: str, session: Session) -> None:
        """Keep the session of a key for its next call."""
        if key:
            self.by_key[key] = session

    def lock(self, key: str) -> asyncio.Lock:
        """Return the lock of a key: two calls of one session must not run at the same time."""
        return self.locks.setdefault(key, asyncio.Lock())

    async def aclose(self) -> None:
        """Forget the sessions at the end of the run."""
        self.by_key.clear()


def sessions_of(run: Run) -> Sessions:
    """Return the sessions of a run; those of its earlier processes are read from the journal."""
    sessions = run.owned.get(_OWNED)
    if sessions is None:
        sessions = run.owned[_OWNED] = Sessions()
        # A recorded iteration is not run again, so its calls cannot keep their sessions themselves.
        for entry in run.replay.finished.values() if run.replay is not None else ():
            record = entry.value
            if _CALL.search(entry.path) and isinstance(record, dict) and "session_key" in record:
                usage = Usage.from_json(record["session_usage"])
                sessions.put(record["session_key"], Session(record["session"], usage))
    assert isinstance(sessions, Sessions)
    return sessions


def session_key(mode: str, ctx: Context, owner: str) -> str:
    """Return the key of the session that a call continues, "" for a fresh one.

    Args:
        mode: `fresh`, `loop`, `run`, or a name that several steps share.
        ctx: the context of the step.
        owner: the program and its working folder; steps of others never share a session.
    """
    if mode == "fresh":
        return ""
    if mode == "run":
        return f"{_NUMBER.sub('*', f'/{ctx.path}/')} {owner}".lstrip("/")
    if mode != "loop":
        return f"key:{mode} {owner}"
    # The number of the nearest loop only: each iteration of an outer loop has its own chain.
    number = f"/{ctx.iteration}/"
    head, found, tail = f"{ctx.path}/".rpartition(number)
    # A conversation must not remember files that were put back, nor an approach that stalled.
    begun = 1 if ctx.scope is None else ctx.scope.begun
    after = f" {begun}" if begun > 1 else ""
    return f"{head}/*/{tail} {owner}{after}" if found else f"{ctx.path} {owner}"


def new_id(run: Run) -> str:
    """Return the ID of a new session.

    It is random: programs refuse an ID that an attempt before a crash or a rewind already used.
    """
    bits = "".join(f"{int(run.random() * 65536):04x}" for _ in range(8))
    return str(uuid.UUID(hex=bits, version=4))


def checked_mode(name: str, mode: str) -> str:
    """Return a session mode, checked."""
    if not isinstance(mode, str) or not _KEY.fullmatch(mode):
        raise ConfigurationError(
            f"{name}: session: {mode!r:.60} is not valid. Use fresh, loop, run, or a name of letters, digits, - and _."
        )
    return mode
