"""A server that speaks as little HTTP as it takes to be wrong in every way, byte by byte.

It is written on sockets alone, so that it shares no assumption with any client. A script of answers
is given; the last one repeats. Every request is kept, so that what a client counts can be compared.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[["Turn"], Awaitable[None]]

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@dataclass
class Seen:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Turn:
    """One answer while it is given."""

    seen: Seen
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(
        self, status: int = 200, kind: str | None = "text/event-stream", **headers: str
    ) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", "Transfer-Encoding: chunked"]
        if kind is not None:
            lines.append(f"Content-Type: {kind}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, data: bytes | str) -> None:
        data = data.encode() if isinstance(data, str) else data
        if data:
            await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        """Cut the connection with a reset instead of a goodbye."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def hang(self) -> None:
        """Say nothing more until the client is gone."""
        await self.reader.read()


@dataclass
class FaultyServer:
    """A server with a script of answers; the last one repeats."""

    answers: list[Answer]
    requests: list[Seen] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = 0
    tls: ssl.SSLContext | None = None
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests = []
        self._tasks = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> FaultyServer:
        self._server = await asyncio.start_server(
            self._serve, self.host, 0, limit=2**26, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                seen = await _request(reader)
                answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
                self.requests.append(seen)
                await answer(Turn(seen, reader, writer))
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = [line.split(":", 1) for line in head[1:] if line]
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Seen(head[0], headers, body)


# What a right answer is made of.


def sse(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    piece = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": {"role": "assistant", **piece, **more}, "finish_reason": finish}
    return {
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-1",
        "choices": [choice],
    }  # fmt: skip


def usage(figures: dict[str, Any] = USAGE) -> dict[str, Any]:
    return {**delta(), "choices": [], "usage": figures}


DONE = sse(b"[DONE]")


def streamed(*pieces: Any, done: bool = True) -> Answer:
    """An answer that streams these pieces: JSON values as events, bytes as they are."""

    async def answer(turn: Turn) -> None:
        await turn.head()
        for piece in pieces:
            await turn.chunk(piece if isinstance(piece, bytes) else sse(piece))
        if done:
            await turn.chunk(DONE)
        await turn.end()

    return answer


def says(text: str, finish: str = "stop", figures: dict[str, Any] | None = USAGE) -> Answer:
    """A right answer in two pieces."""
    half = len(text) // 2
    pieces = [delta(text[:half]), delta(text[half:]), delta(finish=finish)]
    return streamed(*pieces, *([usage(figures)] if figures else []))


def whole(
    body: Any, status: int = 200, kind: str | None = "application/json", **headers: str
) -> Answer:
    """An answer in one piece, with a length."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def answer(turn: Turn) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(data)}"]
        if kind is not None:
            lines.append(f"Content-Type: {kind}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await turn.raw("\r\n".join([*lines, "", ""]).encode() + data)

    return answer


def error(status: int, message: str = "", code: str = "", **headers: str) -> Answer:
    """An error as OpenAI words it."""
    return whole({"error": {"message": message, "code": code, "type": code}}, status, **headers)


def completion(message: Any, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    """A whole chat completion, as servers send it that cannot stream."""
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {
        "id": "c1", "object": "chat.completion", "created": 1, "model": "m-1",
        "choices": [choice], "usage": USAGE, **more,
    }  # fmt: skip
