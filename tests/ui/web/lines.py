"""A line that drops, and a terminal: what real followers of a run have."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from loopwright.ui import formatting as texts
from warm_python import WarmProcess, warm_python

from .conftest import Server, environ

EVERY = 1.0  # seconds after which a line drops, again and again


@contextmanager
def program(server: Server, *words: str) -> Iterator[WarmProcess]:
    """Run the command line in a server's folder, the run that --run-id names begun; whoever leaves
    it early ends it."""
    process = warm_python().start(
        ["-m", "loopwright", *words], cwd=server.folder, env=environ(server.folder),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    run_id = words[words.index("--run-id") + 1]
    try:
        while server.ask(f"/runs/{run_id}")[0] != 200 and process.poll() is None:
            pass
        yield process
    finally:
        process.kill()
        process.wait()


class Dropping:
    """A loopback line to a server: once it began to drop, it does so every second, with all on it."""

    def __init__(self, base: str) -> None:
        self._to = base.removeprefix("http://")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._at = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.base = f"http://{self._at}"
        self.drops = 0
        self._open: set[socket.socket] = set()
        self._begun, self._ended = threading.Event(), threading.Event()

    def begin(self) -> None:
        """Drop from now on."""
        self._begun.set()

    def __enter__(self) -> Self:
        for work in (self._accept, self._drop):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        self._begun.set()
        self._listener.close()
        self._cut()

    def _accept(self) -> None:
        host, _, port = self._to.partition(":")
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((host, int(port)))
                self._open |= {near, far}
                # The server answers to its own address only, and so should it.
                names = (self._at.encode(), self._to.encode())
                for source, sink, change in ((near, far, names), (far, near, (b"", b""))):
                    threading.Thread(
                        target=self._carry, args=(source, sink, change), daemon=True
                    ).start()

    def _carry(
        self, source: socket.socket, sink: socket.socket, change: tuple[bytes, bytes]
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                sink.sendall(piece.replace(*change) if change[0] else piece)
        self._end(source, sink)

    def _drop(self) -> None:
        self._begun.wait()
        while not self._ended.wait(EVERY):
            self.drops += bool(self._open)
            self._cut()

    def _cut(self) -> None:
        self._end(*self._open)

    def _end(self, *sockets: socket.socket) -> None:
        for one in sockets:
            self._open.discard(one)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class Terminal:
    """The command line in a terminal of its own, and what it wrote there."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loopwright", *words], cwd=folder, stdin=slave, stdout=slave,
            stderr=slave, env={**environ(folder), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        )  # fmt: skip
        os.close(slave)
        self._said = b""
        self._news = threading.Condition()
        self._over = False
        self._reading = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reading.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join(20)
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # what a terminal that nobody writes to any more gives
            while piece := os.read(self._master, 65536):
                with self._news:
                    self._said += piece
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    @property
    def text(self) -> str:
        """What it wrote, without what a terminal obeys."""
        return texts.clean(self._said.decode("utf-8", "replace"))

    def wait_for(self, words: str) -> None:
        """Wait until it has written some words, for a minute at most."""
        with self._news:
            found = self._news.wait_for(lambda: words in self.text or self._over, 60)
        assert found, self.text
        assert words in self.text

    def end(self) -> None:
        """Wait for its end, for a minute at most."""
        self.process.wait(60)
        self._reading.join(20)

    def rounds(self, name: str) -> list[int]:
        """Return the numbers of the rounds of a loop that it has a line for, in their order."""
        return [int(number) for number in re.findall(rf"{name} (\d+) ", self.text)]
