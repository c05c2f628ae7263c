"""Answers that need more than a list of pieces: they stall, reset, trickle and never end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from faulty_server import DONE, Turn, delta, sse, usage


async def stalls_before_headers(turn: Turn) -> None:
    await turn.hang()


async def stalls_after_headers(turn: Turn) -> None:
    await turn.head()
    await turn.hang()


async def stalls_after_text(turn: Turn) -> None:
    await turn.head()
    await turn.chunk(sse(delta("half of")))
    await turn.hang()


async def only_keep_alives(turn: Turn) -> None:
    await turn.head()
    for _ in range(400):
        await turn.chunk(b": keep-alive\n\n")
        await _pause(0.02)


async def keep_alives_after_text(turn: Turn) -> None:
    await turn.head()
    await turn.chunk(sse(delta("half")))
    for _ in range(400):
        await turn.chunk(b": keep-alive\n\n")
        await turn.chunk(sse(delta()))
        await turn.chunk(sse(delta("")))
        await _pause(0.02)


async def trickles(turn: Turn) -> None:
    await turn.head()
    for _ in range(400):
        await turn.chunk(sse(delta("x")))
        await _pause(0.02)


async def stalls_in_an_error(turn: Turn) -> None:
    await turn.head(429, "application/json", Retry_After="2")
    await turn.hang()


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def resets_before_an_answer(turn: Turn) -> None:
    turn.reset()


async def closes_before_an_answer(turn: Turn) -> None:
    turn.writer.close()


async def resets_in_the_text(turn: Turn) -> None:
    await turn.head()
    await turn.chunk(sse(delta("half of")))
    await _pause(0.02)
    turn.reset()


async def closes_in_a_chunk(turn: Turn) -> None:
    await turn.head()
    await turn.chunk(sse(delta("half of")))
    await turn.raw(b"ff\r\ndata: {")
    turn.writer.close()


async def closes_without_the_last_chunk(turn: Turn) -> None:
    await turn.head()
    await turn.chunk(sse(delta("half of")))
    turn.writer.close()


async def no_http(turn: Turn) -> None:
    await turn.raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    turn.writer.close()


async def endless(turn: Turn) -> None:
    await turn.head()
    piece = sse(delta("x" * 4000))
    for _ in range(2000):
        await turn.chunk(piece)


async def endless_line(turn: Turn) -> None:
    await turn.head()
    await turn.chunk(b'data: {"a": "')
    for _ in range(2000):
        await turn.chunk(b"x" * 4000)


async def endless_error(turn: Turn) -> None:
    await turn.head(500, "text/plain")
    for _ in range(2000):
        await turn.chunk(b"oops " * 800)
    await turn.end()


def compressed(encoding: str) -> Callable[[Turn], Awaitable[None]]:
    """An answer whose encoding nobody asked for, and whose bytes would not be read."""

    async def answer(turn: Turn) -> None:
        await turn.head(200, "text/event-stream", Content_Encoding=encoding)
        await turn.chunk(b"\x1f\x8b\x08\x00")
        await turn.end()

    return answer


async def large_line(turn: Turn) -> None:
    await turn.head()
    await turn.chunk(b'data: {"a": [')
    for _ in range(2000):
        await turn.chunk(b"{}," * 1700)


async def no_content_type(turn: Turn) -> None:
    await turn.head(200, None)
    for piece in (delta("fine"), delta(finish="stop"), usage()):
        await turn.chunk(sse(piece))
    await turn.chunk(DONE)
    await turn.end()


async def split_bytes(turn: Turn) -> None:
    await turn.head()
    body = (
        b"".join(sse(p) for p in (_raw("gr"), _raw("ün 💚"), delta(finish="stop"), usage())) + DONE
    )
    for byte in body:
        await turn.chunk(bytes([byte]))
    await turn.end()


def _raw(text: str) -> bytes:
    return json.dumps(delta(text), ensure_ascii=False).encode()
