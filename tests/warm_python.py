"""Python processes for tests, forked from one that has imported the library.

Importing takes most of the time of a short command. Each command is a process of its own, with its own
folder, environment and streams, and may be killed; only the start of the interpreter is left out. Tests of
that start, and of the imports of a command, start Python themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

# What most commands import. None of it may start a thread: a fork would not have it.
PRELOADED = (
    "sqlite3", "loopwright.documents", "loopwright.engine.run", "loopwright.journal.sqlite", "loopwright.models",
    "loopwright.prompts.prompt", "loopwright.evaluators", "loopwright.agents", "loopwright.tools.process",
    "loopwright.coding.until", "loopwright.coding.workspace.workspace", "loopwright.coding.agents.step",
    "loopwright.coding.sealed.evaluators", "loopwright.memory.space", "loopwright.ui.cli.run", "loopwright.ui.cli.until",
    "loopwright.ui.cli.check", "loopwright.ui.cli.show", "loopwright.ui.web.app", "loopwright.cluster.worker",
    "loopwright.journal.postgres.journal",
)  # fmt: skip
_LARGEST = 1 << 20  # bytes of a request


class WarmProcess:
    """A started process, with the members of `subprocess.Popen` that tests use."""

    def __init__(self, connection: socket.socket, streams: Mapping[str, IO[str] | None]) -> None:
        self._connection = connection
        self.stdin, self.stdout, self.stderr = (
            streams.get(name) for name in ("stdin", "stdout", "stderr")
        )
        self.returncode: int | None = None
        # One line with the process ID, and one with the exit code at the end.
        self._answers = connection.makefile("rb", buffering=0)
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code, negative for a signal."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("python", timeout or 0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read its streams to their end, wait for its end, and return them."""
        texts = []
        for stream in (self.stdout, self.stderr):
            texts.append(stream.read() if stream is not None else "")
            if stream is not None:
                stream.close()
        self.wait(timeout)
        return texts[0], texts[1]


class WarmPython:
    """A process that forks the others."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        self._place = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._place)
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno())],
                pass_fds=[listener.fileno()],
                # Its end is the end of this process.
                stdin=subprocess.PIPE,
            )

    def start(
        self,
        words: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.PIPE,
        stderr: int | IO[Any] = subprocess.PIPE,
    ) -> WarmProcess:
        """Start `python WORDS`.

        Args:
            words: `-m` and a module, `-c` and code, or a script; then its arguments.
            cwd: the working folder. Default: that of this process.
            env: the environment. Default: that of this process.
            stdin: a file, DEVNULL or PIPE.
            stdout: a file, DEVNULL or PIPE.
            stderr: a file, DEVNULL, PIPE or STDOUT.
        """
        request = {
            "words": [str(word) for word in words],
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        data = json.dumps(request).encode() + b"\n"
        ours: dict[str, IO[str] | None] = {}
        theirs: list[int] = []
        with contextlib.ExitStack() as opened:
            for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
                if stream == subprocess.STDOUT:
                    theirs.append(theirs[1])
                elif stream == subprocess.PIPE:
                    ends = os.pipe()
                    inner, outer = ends if name == "stdin" else ends[::-1]
                    opened.callback(os.close, inner)
                    mode = "w" if name == "stdin" else "r"
                    ours[name] = os.fdopen(outer, mode, encoding="utf-8")
                    theirs.append(inner)
                elif stream == subprocess.DEVNULL:
                    theirs.append(os.open(os.devnull, os.O_RDWR))
                    opened.callback(os.close, theirs[-1])
                else:
                    theirs.append(stream if isinstance(stream, int) else stream.fileno())
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self._place)
            sent = socket.send_fds(connection, [data], theirs)
            connection.sendall(data[sent:])
        return WarmProcess(connection, ours)

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str = "",
        timeout: float = 60,
        merged: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run `python WORDS` to its end, as `subprocess.run` with captured streams does.

        Args:
            words: as for `start`.
            cwd: as for `start`.
            env: as for `start`.
            input: the standard input.
            timeout: seconds after which it is killed, which fails the test.
            merged: whether standard error goes to standard output.
        """
        with contextlib.ExitStack() as opened:
            given, out, err = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            given.write(input.encode())
            given.seek(0)
            process = self.start(
                words,
                cwd=cwd,
                env=env,
                stdin=given,
                stdout=out,
                stderr=subprocess.STDOUT if merged else err,
            )
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(list(words), code, *texts)

    def close(self) -> None:
        """End the process; those that it started go on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


@functools.cache
def warm_python() -> WarmPython:
    """Return the process of this process of tests, which ends with it."""
    made = WarmPython()
    atexit.register(made.close)
    return made


def serve(listener: socket.socket) -> None:
    """Start a program for each connection, until standard input ends. Returns also in each program."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    # The system reaps the monitors.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            return
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _monitor(connection)
            return  # the interpreter ends as that of any program
        connection.close()


def _monitor(connection: socket.socket) -> None:
    """Start one program, and send its process ID and its exit code. Returns in the program only."""
    data, streams, _, _ = socket.recv_fds(connection, _LARGEST, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(_LARGEST)
    pid = os.fork()
    if not pid:
        connection.close()
        _become(json.loads(data), streams)
        return
    # Its own ends of the streams would keep them open.
    for stream in {*streams, 0, 1, 2}:
        os.close(stream)
    connection.sendall(b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):  # the test has ended
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(request: Mapping[str, object], streams: Sequence[int]) -> None:
    """Take over the streams, the folder and the environment of a request, and run its program."""
    # As of a process at a terminal: nohup and the background of a shell ignore them, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    words, cwd, env = request["words"], request["cwd"], request["env"]
    assert isinstance(words, list)
    assert isinstance(env, dict)
    os.chdir(str(cwd))
    os.environ.clear()
    os.environ.update(env)
    places = env.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in places if place and place not in sys.path]
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        sys.path.insert(0, str(cwd))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(kind).absolute().parent))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    serve(socket.socket(fileno=int(sys.argv[1])))
