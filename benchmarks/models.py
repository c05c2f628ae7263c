"""Model calls: what a call costs beside the bare client library, and the journal's part of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopwright import run
from loopwright.engine.step import CompositeStep
from loopwright.journal.sqlite import SqliteJournal
from loopwright.models import Message, Models, ProviderModel, Request, call_model
from loopwright.records import Reason, Result, Status

from .measuring import Row

CALLS, AT_ONCE, LATENCY = 400, 200, 0.02
ROUNDS = 7
NAME = "openai_compatible"

# A server in a process of its own, so that its work is not counted as ours.
SERVER = textwrap.dedent(
    """
    import asyncio, json, sys
    piece = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    def event(delta, finish=None, **more):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({**piece, "choices": [choice], **more}).encode() + b"\\n\\n"
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    body = b"".join(event({"role": "assistant", "content": w}) for w in ("one ", "two ", "three"))
    body += event({}, "stop") + event({}, usage=usage).replace(b'"choices": [{"index": 0, '
        b'"delta": {}, "finish_reason": null}]', b'"choices": []') + b"data: [DONE]\\n\\n"
    head = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nContent-Length: %d\\r\\n\\r\\n"
    answer = head % len(body) + body
    async def serve(reader, writer):
        try:
            while True:
                asked = (await reader.readuntil(b"\\r\\n\\r\\n")).lower()
                length = int(asked.split(b"content-length:")[1].split(b"\\r\\n")[0])
                await reader.readexactly(length)
                await asyncio.sleep(LATENCY)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()
    asyncio.run(main())
    """
)


class Fan(CompositeStep):
    """A step that makes all calls, so many at once."""

    required, name, fingerprint = False, "fan", "fan"

    def __init__(self, url: str) -> None:
        self.request = Request((Message("user", "hello"),), "m", NAME, base_url=url)

    async def run(self, value: Any, ctx: Any) -> Result:
        del value

        async def one(number: int) -> None:
            await call_model(ctx, f"call-{number}", self.request)

        await _at_once(one)
        return Result(Status.SATISFIED, Reason.COMPLETED, "", None, name=self.name)


async def _at_once(one: Any) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def held(number: int) -> None:
        async with room:
            await one(number)

    await asyncio.gather(*(held(number) for number in range(CALLS)))


async def _bare(url: str) -> float:
    """Return the CPU seconds of the library alone: its model, streaming, its own connections."""
    from openai import AsyncOpenAI
    from pydantic_ai.messages import ModelRequest, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
    model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
    asked = [ModelRequest(parts=[UserPromptPart("hello")])]
    parameters = ModelRequestParameters()

    async def one(_: int) -> None:
        async with model.request_stream(asked, None, parameters) as stream:
            async for _ in stream:
                pass
            stream.get()

    await one(0)
    start = time.process_time()
    await _at_once(one)
    taken = time.process_time() - start
    await client.close()
    return taken


async def _ours(url: str, journal: Any = None) -> float:
    """Return the CPU seconds of our client under `call_model`."""
    async with ProviderModel({}) as model:
        resources = {"models": Models(model, known_prices=False)}
        await model.complete(Fan(url).request)
        start = time.process_time()
        await run(Fan(url), None, resources=resources, journal=journal)
        return time.process_time() - start


async def _kept(url: str, path: Path) -> float:
    journal = SqliteJournal(path)
    try:
        return await _ours(url, journal)
    finally:
        await journal.close()


def rows() -> Iterator[Row]:
    """Measure and yield the figures."""
    source = SERVER.replace("LATENCY", str(LATENCY))
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", ".")) as scratch,
        subprocess.Popen(
            [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True
        ) as server,
    ):
        assert server.stdout is not None
        try:
            url = f"http://127.0.0.1:{json.loads(server.stdout.readline())}"
            yield from _rows(url, Path(scratch))
        finally:
            server.kill()


def _rows(url: str, scratch: Path) -> Iterator[Row]:
    triples = [
        (
            asyncio.run(_bare(url)),
            asyncio.run(_ours(url)),
            asyncio.run(_kept(url, scratch / f"{number}.db")),
        )
        for number in range(ROUNDS)
    ]
    # The least of each: others on the machine can only add to the CPU time of the same work.
    bare, ours, kept = (min(column) for column in zip(*triples, strict=True))
    each = 1000 / CALLS
    note = f"{AT_ONCE} at once, {LATENCY * 1000:g} ms; CPU per call: bare {bare * each:.2f} ms"
    told = f"{note}, ours {ours * each:.2f} ms"
    yield Row("a model call to the bare library's", ours / bare, 1.3, note=told)
    told = f"with a journal {kept * each:.2f} ms per call, SQLite FULL"
    share = 100 * (kept - ours) / kept
    yield Row("the journal's part of a model call", share, 15, "%", told)


if __name__ == "__main__":
    for row in rows():
        print(row)
