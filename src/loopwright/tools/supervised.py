"""Programs that end with everything they started, however they, or we, end.

Rules:

1. A program runs under a supervisor (`supervisor`, a process of its own), which ends every process
   below the program: those with sessions of their own and those whose parents are gone too.
2. The supervisor ends them when it is told to, and when we are gone, by `kill -9` too.
3. How it ends is an interrupt, a grace, then SIGSTOP and SIGKILL until nothing is left. What had to
   be ended is reported.
4. The environment of each program names its run (TOKEN), so that `engine.leftovers` finds it later.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..engine.leftovers import TOKEN, title_of

__all__ = ["Ended", "Supervised"]

PROGRAM = Path(__file__).absolute().with_name("supervisor.py")
SETTLE = 0.25  # seconds beyond the grace in which a tree is gone
PATIENCE = 10.0  # seconds in which a request is taken
NEEDED = ("PATH", "HOME", "TMPDIR", "LC_", "LANG", "LD_", "DYLD_")  # by the start of Python


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that a supervisor had to end.

    `how` is `asked` (it ended after the interrupt), `killed`, or `left` (it cannot be killed).
    """

    pid: int
    how: str
    name: str


class Supervised:
    """A program under a supervisor; made inside an event loop, to be ended with `end`.

    `started`, `exited` and `gone` are futures: the program runs (or an OSError says why not), it has
    exited, and nothing of its tree is left. `pid` is the program's, which is its group's too.

    Args:
        words: the program and its arguments.
        env: its whole environment.
        cwd: its folder.
        stdin: whether it has a pipe to read from; else there is nothing to read.
        interrupt: the signal that asks it to end.
        grace: seconds between the interrupt and SIGKILL when we are gone.
        linger: seconds that its children may outlive it, unless `end` comes first.

    Raises:
        OSError: if no supervisor can be started.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        stdin: bool = True,
        interrupt: int = signal.SIGTERM,
        grace: float = 0.5,
        linger: float = 1.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = self._loop.create_future()
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.pid = 0
        self.returncode: int | None = None
        self.ended: tuple[Ended, ...] = ()
        self._said = b""
        files = _Files(stdin)
        request = {
            "words": list(words), "env": dict(env), "cwd": str(cwd or Path.cwd()),
            "interrupt": int(interrupt), "grace": grace, "linger": linger,
            "title": title_of(env.get(TOKEN, "")),
        }  # fmt: skip
        try:
            _server.ask(request, files.theirs)
        except BaseException:
            files.close(files.ours)
            raise
        finally:
            files.close(files.theirs)
        given, said, told, self._control, self._status = files.ours
        self.stdin: IO[bytes] | None = os.fdopen(given, "wb", 0) if given is not None else None
        self.stdout: IO[bytes] = os.fdopen(said, "rb", 0)
        self.stderr: IO[bytes] = os.fdopen(told, "rb", 0)
        os.set_blocking(self._status, False)
        self._loop.add_reader(self._status, self._hear)

    def tell(self, grace: float) -> None:
        """Tell the supervisor to end the tree; told again, the shorter grace holds."""
        if self._control is not None:
            with contextlib.suppress(OSError):  # it is gone
                os.write(self._control, b"end %f\n" % grace)

    async def end(self, grace: float) -> bool:
        """End the tree: interrupt, `grace` seconds, SIGKILL; return whether nothing of it is left.

        Cancelled, it kills without a grace and waits a moment longer.
        """
        try:
            if not self.gone.done():
                self.tell(grace)
                await asyncio.wait({self.gone}, timeout=grace + SETTLE)
        except asyncio.CancelledError:
            self.tell(0.0)
            await asyncio.wait({self.gone}, timeout=SETTLE)
            raise
        finally:
            self._release()
        return self.gone.done()

    def _hear(self) -> None:
        assert self._status is not None
        try:
            data = os.read(self._status, 65536)
        except BlockingIOError:
            return
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            self._take(*line.decode("utf-8", "replace").split(" ", 3))
        if not data:
            self._over()

    def _take(self, what: str, first: str, *more: str) -> None:
        if what == "started":
            self.pid = int(first)
            _settle(self.started)
        elif what == "exited":
            self.returncode = int(first)
            _settle(self.exited)
        elif what == "failed" and not self.started.done():
            self.started.set_exception(OSError(int(first), os.strerror(int(first))))
            self.started.exception()  # seen: who ends it before it started does not ask
        elif what == "ended":
            self.ended += (Ended(int(first), more[0], more[1]),)

    def _over(self) -> None:
        """The supervisor is gone, and with it the tree; one that was killed leaves that to us."""
        self._release()
        if self.returncode is None and self.pid:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self.returncode = -signal.SIGKILL
        if not self.started.done():
            self.started.set_exception(OSError("its supervisor was ended"))
            self.started.exception()
        for future in (self.exited, self.gone):
            _settle(future)

    def _release(self) -> None:
        """Give back what is open; a supervisor that still works goes on without us."""
        if self._status is not None:
            self._loop.remove_reader(self._status)
            os.close(self._status)
            self._status = None
        if self._control is not None:
            os.close(self._control)
            self._control = None


class _Files:
    """The pipes between us and a program with its supervisor, each end once."""

    def __init__(self, stdin: bool) -> None:
        self.ours: list[Any] = []
        self.theirs: list[int] = []
        try:
            if stdin:
                self._add(*reversed(os.pipe()))
            else:
                self._add(None, os.open(os.devnull, os.O_RDONLY))
            self._add(*os.pipe())
            self._add(*os.pipe())
            self._add(*reversed(os.pipe()))
            self._add(*os.pipe())
        except BaseException:
            self.close([*self.ours, *self.theirs])
            raise

    def _add(self, ours: int | None, theirs: int) -> None:
        self.ours.append(ours)
        self.theirs.append(theirs)

    @staticmethod
    def close(numbers: list[Any]) -> None:
        for number in numbers:
            if number is not None:
                os.close(number)


class _Server:
    """The process that forks supervisors for us: started at the first program, ended with us."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # a fork of ours has a server of its own

    def ask(self, request: dict[str, Any], files: list[int]) -> None:
        """Have a program started. Raises OSError."""
        data = json.dumps(request).encode()
        with self._lock:
            if self._socket is None or self._owner != os.getpid():
                self._start()
            try:
                self._send(data, files)
            except OSError:  # somebody ended it; a new one takes its place
                self._start()
                self._send(data, files)

    def _send(self, data: bytes, files: list[int]) -> None:
        assert self._socket is not None
        socket.send_fds(self._socket, [len(data).to_bytes(8, "big")], files)
        self._socket.sendall(data)

    def _start(self) -> None:
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.settimeout(PATIENCE)
            self._process = subprocess.Popen(
                [_interpreter(), "-I", "-S", "-X", "utf8", str(PROGRAM), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={k: v for k, v in os.environ.items() if k.startswith(NEEDED)},
                cwd="/",  # so that it holds no folder of the user's
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        self._socket, self._owner = ours, os.getpid()

    def close(self) -> None:
        """Let the server go; programs that still run are ended by their supervisors."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None and self._owner == os.getpid():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
        self._process = None


_server = _Server()  # of the process, as its threads are; no state of a run
atexit.register(_server.close)


def _interpreter() -> str:
    """Return the Python that runs the supervisor: ours, but of a frozen program that on PATH."""
    own = "" if getattr(sys, "frozen", False) else sys.executable
    return own or shutil.which("python3") or "python3"


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
