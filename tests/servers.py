"""What the servers of the tests share: a free port, the error without a program, and an end with the test run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class ServerMissing(Exception):
    """A server cannot be started on this machine."""


def free_port() -> int:
    """Return a port of the loopback device that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# It waits for the end of its input, which comes with the end of the process that started it, however that
# ended. Then it kills the server with all processes of it, and deletes the folder.
_GUARD = """
import os, shutil, signal, subprocess, sys, threading
folder, *command = sys.argv[1:]
server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
def end():
    server.wait()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)
thread = threading.Thread(target=end, daemon=True)
thread.start()
sys.stdin.read()
try:
    os.killpg(server.pid, signal.SIGKILL)
except ProcessLookupError:
    pass
thread.join()
"""


class GuardedProcess:
    """A server that ends with this process, also if this process is killed.

    Args:
        command: the program and its arguments.
        folder: deleted after the end of the server.
        environment: its environment variables (default: ours).
        output: receives its output (default: nothing does).
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> None:
        with (output or Path(os.devnull)).open("wb") as sink:
            # A session of its own: Ctrl-C ends the tests, and the end of the tests ends the server.
            self._guard = subprocess.Popen(
                [sys.executable, "-c", _GUARD, str(folder or ""), *command],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=sink,
                env=environment,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether the server has ended."""
        return self._guard.poll() is not None

    def close(self) -> None:
        """Kill the server."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(timeout=30)
