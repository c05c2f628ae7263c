"""A RabbitMQ server for tests: Debian's package, started on free ports with its data in a temporary folder.

`LOOPWRIGHT_TEST_RABBITMQ` is the URL of a running server to use instead.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from postgres_server import free_port


class BrokerMissing(Exception):
    """No RabbitMQ server can be started on this machine."""


def program() -> Path:
    """Return RabbitMQ's own start script, which any user may run. Raises BrokerMissing."""
    own = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if own and shutil.which("erl"):
        return own[-1]
    raise BrokerMissing("RabbitMQ is not installed; install it with: make rabbitmq")


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
        self._mapper = subprocess.Popen(
            ["epmd", "-port", str(mapper), "-address", "127.0.0.1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [str(start)], env=environment, stdout=output, stderr=output, start_new_session=True
            )
        until = time.monotonic() + 90
        while not _accepts(self.port):
            if self._process.poll() is not None or time.monotonic() > until:
                text = (self._folder / "output").read_text(errors="replace")
                self.close()
                raise BrokerMissing(f"rabbitmq-server did not start: {text[-500:]}")
            time.sleep(0.1)

    @property
    def url(self) -> str:
        """The address of the broker."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def close(self) -> None:
        """Stop the broker and delete its data."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=30)
        self._mapper.kill()
        self._mapper.wait(timeout=10)
        shutil.rmtree(self._folder, ignore_errors=True)


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
    """Return the broker of `LOOPWRIGHT_TEST_RABBITMQ`, or a new one. Raises BrokerMissing."""
    url = os.environ.get("LOOPWRIGHT_TEST_RABBITMQ")
    return RunningBroker(url) if url else RabbitServer()
