"""Programs under a supervisor, which ends each of them together with every process below it, or in a process group.

1. The supervisor (`supervisor`) is a separate process. It also ends processes that started their own
   session, and processes whose parents have ended.
2. It ends them on request, and when our process ends, even by `kill -9`.
3. Ending means an interrupt, a grace period, then SIGSTOP and SIGKILL until no process is left. The
   processes that had to be ended are reported.
4. The environment of each program names its run (TOKEN), so that `engine.run` can identify it, and its
   command (COMMAND): without its supervisor, its processes cannot be identified otherwise.

The supervisor forks, and Windows cannot. There a program has a process group and is ended with its processes;
processes that left the group are not ended, and nothing is ended if our process is killed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .._platform import KILLED, end_group, new_group
from ..engine.run import COMMAND, TOKEN, end_leftovers, title_of
from ..records.codec import Json

__all__ = [
    "CAN_SUPERVISE",
    "EndedProcess",
    "ProcessGroup",
    "Supervised",
    "settle",
]

PROGRAM = Path(__file__).absolute().with_name("supervisor.py")
# The supervisor forks, and receives open files at a socket.
CAN_SUPERVISE = hasattr(os, "fork") and hasattr(socket, "send_fds")

PATIENCE = 10.0  # seconds until the server accepts a request, on a machine under full load
NEEDED = ("PATH", "HOME", "TMPDIR", "LC_", "LANG", "LD_", "DYLD_")  # to start Python


@dataclass(frozen=True, slots=True)
class EndedProcess:
    """A process that a supervisor had to end.

    Args:
        pid: The process ID.
        how: `asked` (it ended after the interrupt), `killed`, or `left` (it cannot be killed).
        name: The name of the program.
    """

    pid: int
    how: str
    name: str


class Supervised:
    """A program under a supervisor. Create it inside an event loop, and always call `end`.

    `started`, `exited` and `gone` are futures: the program runs (or an OSError says why it does not), the
    program has ended, and no process of its tree is left. `pid` is the ID of the program and its group.

    Args:
        words: The program and its arguments.
        env: The complete environment.
        cwd: The working directory. Default: that of this process.
        stdin: Whether the program has a standard input.
        interrupt: The signal that asks the program to end.
        grace: Seconds between the interrupt and SIGKILL if our process ends first.
        linger: Seconds that the processes below the program may outlive it.

    Raises:
        OSError: If no supervisor can be started.
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
        self.ended: tuple[EndedProcess, ...] = ()
        self._line = b""
        self._token, self._orphans = secrets.token_hex(8), False
        files = _Files(stdin)
        request = {
            "words": list(words), "env": {**env, COMMAND: self._token}, "cwd": str(cwd or Path.cwd()),
            "interrupt": int(interrupt), "grace": grace, "linger": linger,
            "title": title_of(env.get(TOKEN, "")),
        }  # fmt: skip
        try:
            _server.send(request, files.theirs)
        except BaseException:
            files.close(files.ours)
            raise
        finally:
            files.close(files.theirs)
        stdin_end, stdout_end, stderr_end, control, status = files.ours
        self._control: int | None = control
        self._status: int | None = status
        self.stdin: IO[bytes] | None = os.fdopen(stdin_end, "wb", 0) if stdin else None
        self.stdout: IO[bytes] = os.fdopen(stdout_end, "rb", 0)
        self.stderr: IO[bytes] = os.fdopen(stderr_end, "rb", 0)
        # The event loop reads it, and must never wait for the supervisor.
        os.set_blocking(status, False)
        self._loop.add_reader(status, self._read_status)

    def _request_end(self, grace: float) -> None:
        """Ask the supervisor to end the tree. Of several requests the shortest grace period counts."""
        if self._control is not None:
            with contextlib.suppress(OSError):  # the supervisor has ended
                os.write(self._control, b"end %f\n" % grace)

    async def end(self, grace: float) -> bool:
        """End the tree: interrupt, `grace` seconds, SIGKILL. Return whether no process is left.

        If this call is cancelled, the tree is killed at once.
        """
        try:
            if not self.gone.done():
                self._request_end(grace)
                await asyncio.wait({self.gone}, timeout=grace + SETTLE)
        # A second cancellation has no time for a grace period.
        except asyncio.CancelledError:
            self._request_end(0.0)
            await asyncio.wait({self.gone}, timeout=SETTLE)
            raise
        finally:
            self._release()
        if self._orphans:
            self._orphans = bool(await end_leftovers(self._token, name=COMMAND))
        return self.gone.done() and not self._orphans

    def close_pipes(self) -> None:
        """Close the standard streams."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    def _read_status(self) -> None:
        assert self._status is not None
        try:
            data = os.read(self._status, 65536)
        except BlockingIOError:
            return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            event, number, *more = line.decode("utf-8", "replace").split(" ", 3)
            if event == "started":
                self.pid = int(number)
                settle(self.started)
            elif event == "exited":
                self.returncode = int(number)
                settle(self.exited)
            elif event == "failed":
                self._fail(OSError(int(number), os.strerror(int(number))))
            elif event == "ended":
                self.ended += (EndedProcess(int(number), more[0], more[1]),)
        if data:
            return
        # The supervisor and the tree are gone. The supervisor would have reported the exit code, so without
        # one it was killed, and the tree is killed here.
        self._release()
        if self.returncode is None and self.pid:
            end_group(self.pid, kill=True)
            self.returncode = KILLED
            # Those in other groups have no parent to be found by; `end` finds them by their environment.
            self._orphans = True
        self._fail(OSError("its supervisor was ended"))
        for future in (self.exited, self.gone):
            settle(future)

    def _fail(self, error: OSError) -> None:
        if not self.started.done():
            self.started.set_exception(error)
            self.started.exception()  # a program that is ended before its start is not awaited

    def _release(self) -> None:
        """Close the connection to the supervisor, which continues if it still works."""
        if self._status is not None:
            self._loop.remove_reader(self._status)
            os.close(self._status)
            self._status = None
        if self._control is not None:
            os.close(self._control)
            self._control = None


_NONE = -1  # in place of our end of a standard input that the program does not have


class _Files:
    """The pipes to a program and its supervisor, with our end and their end of each."""

    def __init__(self, stdin: bool) -> None:
        self.ours: list[int] = []
        self.theirs: list[int] = []
        try:
            if stdin:
                self._add(*reversed(os.pipe()))
            else:
                self._add(_NONE, os.open(os.devnull, os.O_RDONLY))
            self._add(*os.pipe())
            self._add(*os.pipe())
            self._add(*reversed(os.pipe()))
            self._add(*os.pipe())
        except BaseException:
            self.close([*self.ours, *self.theirs])
            raise

    def _add(self, ours: int, theirs: int) -> None:
        self.ours.append(ours)
        self.theirs.append(theirs)

    @staticmethod
    def close(numbers: Iterable[int]) -> None:
        for number in numbers:
            if number != _NONE:
                os.close(number)


class _Server:
    """The process that forks supervisors. It starts with the first program and ends with our process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # a forked process starts its own server

    def send(self, request: Mapping[str, Json], files: list[int]) -> None:
        """Request the start of a program. Raises OSError."""
        data = json.dumps(request).encode()
        with self._lock:
            # After a fork both processes would write to one socket, and their requests would mix.
            if self._socket is None or self._owner != os.getpid():
                self._start()
            try:
                self._send(data, files)
            except OSError:  # it was ended: start another one
                self._start()
                self._send(data, files)

    def _send(self, data: bytes, files: list[int]) -> None:
        assert self._socket is not None
        socket.send_fds(self._socket, [len(data).to_bytes(8, "big")], files)
        self._socket.sendall(data)

    def _start(self) -> None:
        self.close()
        # Ours, or in a frozen program the one on PATH.
        own = "" if getattr(sys, "frozen", False) else sys.executable
        interpreter = own or shutil.which("python3") or "python3"
        ours, theirs = socket.socketpair()
        with theirs:
            ours.settimeout(PATIENCE)
            # -I and -S: the supervisor must not run code from the environment or from site packages.
            self._process = subprocess.Popen(
                [interpreter, "-I", "-S", "-X", "utf8", str(PROGRAM), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # It lives as long as this process and needs no keys.
                env={k: v for k, v in os.environ.items() if k.startswith(NEEDED)},
                cwd="/",  # so that it keeps no folder busy
                pass_fds=(theirs.fileno(),),
                **new_group(),
            )
        self._socket, self._owner = ours, os.getpid()

    def close(self) -> None:
        """Disconnect from the server. Supervisors end the programs that still run."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None and self._owner == os.getpid():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
        self._process = None


_server = _Server()  # belongs to the process, as threads do, and holds no state of a run
atexit.register(_server.close)


def settle(future: asyncio.Future[None]) -> None:
    """Set the result of a future that may already have one."""
    if not future.done():
        future.set_result(None)


SETTLE = 0.25  # seconds until the system reports the end of a killed program


class ProcessGroup(asyncio.SubprocessProtocol):
    """A program in a new group. Create it inside an event loop, and always call `end`.

    Args:
        words: The program and its arguments.
        env: The complete environment.
        cwd: The working directory. Default: that of this process.
        stdin: Whether the program has a standard input.
        limit: The buffer size of its output streams in bytes.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        stdin: bool = True,
        limit: int,
    ) -> None:
        self._words, self._env, self._cwd, self._has_input = words, env, cwd, stdin
        self._transport: asyncio.SubprocessTransport | None = None
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stdin: asyncio.WriteTransport | None = None
        self.stdout, self.stderr = asyncio.StreamReader(limit), asyncio.StreamReader(limit)

    async def start(self) -> None:
        """Start the program. Raises OSError."""
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self, *self._words, env=self._env, cwd=self._cwd,
            stdin=asyncio.subprocess.PIPE if self._has_input else asyncio.subprocess.DEVNULL,
            **new_group(),
        )  # fmt: skip
        self._transport = transport
        pipe = transport.get_pipe_transport(0)
        self.stdin = pipe if isinstance(pipe, asyncio.WriteTransport) else None

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.stdout if fd == 1 else self.stderr).feed_data(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd > 0:
            (self.stdout if fd == 1 else self.stderr).feed_eof()

    def process_exited(self) -> None:
        settle(self.exited)

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while the program runs."""
        return KILLED if self._transport is None else self._transport.get_returncode()

    async def end(self, grace: float) -> None:
        """End the group: a request to end, `grace` seconds, then by force.

        If this call is cancelled, the group is ended by force at once.
        """
        if self._transport is None:
            return
        pid = self._transport.get_pid()
        try:
            if not self.exited.done():
                await asyncio.to_thread(end_group, pid, kill=False)  # a program on Windows
                await asyncio.wait({self.exited}, timeout=grace)
        finally:
            end_group(pid, kill=True)  # also the processes that the program left running
        await asyncio.wait({self.exited}, timeout=SETTLE)

    def close_pipes(self) -> None:
        """Close the standard streams."""
        if self._transport is not None:
            self._transport.close()
