"""Python processes for tests, forked from one that has imported the library.

Importing takes most of the time of a short command. Each command is a process of its own, with its own
folder, environment and streams, and may be killed; only the start of the interpreter is left out. Tests of
that start, and of the imports of a command, start Python themselves.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

# What most commands import. None of it may start a thread: a fork would not have it.
PRELOADED = (
    "sqlite3", "loopwright.documents", "loopwright.engine.run", "loopwright.journal.sqlite", "loopwright.models",
    "loopwright.prompts.prompt", "loopwright.evaluators", "loopwright.agents", "loopwright.tools.process",
    "loopwright.coding.until", "loopwright.coding.workspace.workspace", "loopwright.coding.agents.step",
    "loopwright.coding.sealed.evaluator", "loopwright.memory.space", "loopwright.ui.cli.run", "loopwright.ui.cli.until",
    "loopwright.ui.cli.check", "loopwright.ui.cli.show",
)  # fmt: skip
_LARGEST = 1 << 20  # bytes of a request


class WarmPython:
    """A process that forks one for each command. One command runs at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

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
        """Run `python WORDS`, as `subprocess.run` with captured streams does.

        Args:
            words: `-m` and a module, `-c` and code, or a script; then its arguments.
            cwd: the working folder. Default: that of this process.
            env: the environment. Default: that of this process.
            input: the standard input.
            timeout: seconds after which it is killed, which fails the test.
            merged: whether standard error goes to standard output.
        """
        request = {
            "words": [str(word) for word in words],
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        with (
            self._lock,
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(input.encode())
            given.seek(0)
            code = self._answer(request, (given, out, out if merged else err), timeout)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode())
        return subprocess.CompletedProcess(list(words), code, *texts)

    def _answer(
        self, request: Mapping[str, object], streams: Sequence[io.BufferedRandom], timeout: float
    ) -> int:
        connection = self._connection()
        connection.settimeout(timeout)
        data = json.dumps(request).encode() + b"\n"
        assert len(data) < _LARGEST
        try:
            sent = socket.send_fds(connection, [data], [stream.fileno() for stream in streams])
            connection.sendall(data[sent:])
            answer = connection.recv(100)
        except TimeoutError:
            self.close()
            raise
        assert answer, "the process of the commands ended"
        return int(answer)

    def _connection(self) -> socket.socket:
        if self._socket is None:
            self._socket, inner = socket.socketpair()
            # A group of its own, which a command that takes too long is killed with.
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(inner.fileno())],
                pass_fds=[inner.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
            inner.close()
        return self._socket

    def close(self) -> None:
        """End the process, and the command in progress."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            os.killpg(self._process.pid, 9)
            self._process.wait()
            self._socket = self._process = None


@functools.cache
def warm_python() -> WarmPython:
    """Return the process of this process of tests, which ends with it."""
    made = WarmPython()
    atexit.register(made.close)
    return made


def serve(connection: socket.socket) -> None:
    """Run each request in a fork, and answer with its exit code, as `subprocess` shows it."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    while True:
        data, streams, _, _ = socket.recv_fds(connection, _LARGEST, 3)
        if not data:
            return
        while not data.endswith(b"\n"):
            data += connection.recv(_LARGEST)
        pid = os.fork()
        if not pid:
            connection.close()
            _become(json.loads(data), streams)
            return  # the interpreter ends as that of any program
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(pid, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: Mapping[str, object], streams: Sequence[int]) -> None:
    """Take over the streams, the folder and the environment of a request, and run its program."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
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
