"""A TCP proxy between a journal and its database, with the faults of a network."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType


class Proxy:
    """Forwards loopback connections to a port, until a fault is set.

    `delay` is the seconds by which each message is late. `frozen` keeps all messages back without closing
    a connection. `drop_reply` is asked about each message of a client: from one for which it returns True on,
    that client's messages arrive, and the answers are lost with the connection. `rewrite` changes the answers.
    `one_way` drops what the server (`"from server"`) or the client (`"to server"`) of open connections sends, and
    `"half open"` ends their server sessions, while the client's side stays open without a word.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.delay = 0.0
        self.frozen = False
        self.refusing = False
        self.one_way = ""
        self.drop_reply: Callable[[bytes], bool] = lambda _: False
        self.rewrite: Callable[[bytes], bytes] = lambda data: data
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
            else:
                self._start(self._forward, client)

    def _forward(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:  # the server is away
            client.close()
            return
        with client, server:
            losing = False
            while not self._closed:
                if self.one_way == "half open":
                    server.close()
                    self._hold(client)
                    return
                if self.one_way == "silent":
                    self._hold(client)
                    return
                ready, _, _ = select.select([client, server], [], [], 0.02)
                if self.frozen:
                    time.sleep(0.02)
                    continue
                for source in ready:
                    try:
                        data = source.recv(1 << 16)
                    except OSError:
                        return
                    if not data or self.refusing:
                        return
                    if self.one_way == ("to server" if source is client else "from server"):
                        continue
                    time.sleep(self.delay)
                    try:
                        if source is client:
                            losing = losing or self.drop_reply(data)
                            server.sendall(data)
                        elif losing:
                            return  # the server did the work; its answer is lost
                        else:
                            client.sendall(self.rewrite(data))
                    except OSError:  # the other side is gone
                        return

    def _hold(self, client: socket.socket) -> None:
        """Keep a client's connection open without an answer until it closes."""
        while not self._closed:
            ready, _, _ = select.select([client], [], [], 0.02)
            try:
                if ready and not client.recv(1 << 16):
                    return
            except OSError:
                return
