"""A RabbitMQ server for tests: Debian's package, started on free ports with its data in a temporary folder.

`LOOPWRIGHT_TEST_RABBITMQ` is the URL of a running server to use instead.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from servers import GuardedProcess, ServerMissing, free_port


def program() -> Path:
    """Return RabbitMQ's own start script, which any user may run. Raises ServerMissing."""
    own = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if own and shutil.which("erl"):
        return own[-1]
    raise ServerMissing("RabbitMQ is not installed; install it with: make rabbitmq")


class RabbitServer:
    """A broker with its own Erlang port mapper, so that it meets no other broker of the machine."""

    def __init__(self) -> None:
        start = program()
        self._folder = Path(tempfile.mkdtemp(prefix="lw-mq-"))
        self.port, mapper, distribution = free_port(), free_port(), free_port()
        config = self._folder / "rabbitmq.conf"
        config.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nloopback_users.guest = true\n"
            "log.console = false\nvm_memory_high_watermark.relative = 0.6\ndisk_free_limit.absolute = 10MB\n"
        )
        (self._folder / "plugins").write_text("[].")
        environment = {
            **os.environ,
            "HOME": str(self._folder),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_NODENAME": f"lw{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }
        self._mapper = GuardedProcess(["epmd", "-port", str(mapper), "-address", "127.0.0.1"])
        output = self._folder / "output"
        self._server = GuardedProcess(
            [str(start)], folder=self._folder, environment=environment, output=output
        )
        until = time.monotonic() + 90
        while not _accepts(self.port):
            if self._server.ended or time.monotonic() > until:
                text = output.read_text(errors="replace") if output.exists() else ""
                self.close()
                raise ServerMissing(f"rabbitmq-server did not start: {text[-500:]}")
            time.sleep(0.1)

    @property
    def url(self) -> str:
        """The address of the broker."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def close(self) -> None:
        """Stop the broker and delete its data."""
        self._server.close()
        self._mapper.close()


class RunningBroker:
    """A broker that runs already."""

    def __init__(self, url: str) -> None:
        self.url = url

    def close(self) -> None:
        """Leave the broker as it is."""


def _accepts(port: int) -> bool:
    """Return whether the broker speaks AMQP at a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            return probe.recv(1) == b"\x01"
    except OSError:
        return False


def start_broker() -> RabbitServer | RunningBroker:
    """Return the broker of `LOOPWRIGHT_TEST_RABBITMQ`, or a new one. Raises ServerMissing."""
    url = os.environ.get("LOOPWRIGHT_TEST_RABBITMQ")
    return RunningBroker(url) if url else RabbitServer()
