"""The client library of the Model Context Protocol. No other module imports it.

It is imported when a server is first started, because the import takes seconds. The library implements
the protocol. The process, the timeouts and the reaction to a server's death are ours, because the
library's stdio transport reads lines of any length, ends only one process group, and leaves servers
running when this process is killed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import TypeVar, cast

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage

from ..errors import StepError, without_validation
from ..models.providers.transport import is_compressed
from ..records.codec import Json
from ..records.display import cut
from .base import HARD_LIMIT
from .mcp import VARIABLE, ServerSettings
from .process import READ, ChildProcess, CommandResult, inherited, tail

__all__ = [
    "McpConnection",
    "connect",
]

PAGES = 100  # of a list of tools; a server may return a next page for ever
DAY = 86_400.0  # seconds
END = 3.0  # seconds that a connection gets to close
EOF_GRACE = 0.3  # seconds that a server gets to end after the end of its input
GRACE = 0.5  # seconds between SIGTERM and SIGKILL
ORPHAN_GRACE = 2.0  # the same when our process was killed; the server's input ends then too
DRAIN = 0.2  # seconds to read the remaining output of an ended server
STDERR_BYTES = 8_000  # bytes of the end of standard error for messages
# With these errors a server that has only the newer handshake answers `initialize`.
_MODERN = (types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION)
T = TypeVar("T")

# The library would print parts of a server's output. Our errors contain the relevant ones.
logging.getLogger("mcp").addHandler(logging.NullHandler())


def _output_of(result: types.CallToolResult) -> Json:
    """Return the answer of a tool: its texts, its structure if it has no text, or a list of blocks.

    Binary content is described by type, size and digest, because a prompt cannot hold it.

    Raises:
        StepError: `tool_error` with the text of the answer.
    """
    blocks = [_block(block) for block in result.content]
    texts = [block["text"] for block in blocks if block.keys() == {"type", "text"}]
    text = "\n".join(str(one) for one in texts)
    if result.is_error:
        raise StepError(text or "the tool failed without a message", kind="tool_error")
    if len(texts) < len(blocks):
        return list(blocks)
    if not blocks and result.structured_content is not None:
        return result.structured_content
    return text


def _block(block: types.ContentBlock) -> dict[str, Json]:
    data: dict[str, Json] = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    # Hints for user interfaces, which would cost tokens.
    data.pop("_meta", None)
    data.pop("annotations", None)
    inner = data.get("resource", data)
    for key in ("data", "blob"):
        if isinstance(inner.get(key), str):
            text = inner.pop(key)
            try:
                raw = base64.b64decode(text, validate=False)
            except ValueError:
                raw = text.encode()
            inner |= {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    return data


class _ServerProcess(ChildProcess):
    """A server that exchanges lines over its standard streams."""

    def __init__(self, server: ServerSettings, token: str) -> None:
        env = {**inherited(server.pass_env), **_expanded(server.env)}
        super().__init__(
            server.command, env=env, cwd=server.cwd, token=token, grace=ORPHAN_GRACE, linger=GRACE
        )
        self._errors = bytearray()
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._listening = asyncio.create_task(self._read_errors())

    async def _read_errors(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self.stderr.read(READ):
                self._errors += data
                del self._errors[:-STDERR_BYTES]

    @property
    def ending(self) -> str:
        """How the server ended, with the end of its standard error; "" while it runs."""
        if self.exit_code is None:
            return ""
        return f"{CommandResult(self.exit_code).ending}{self.last_output}"

    @property
    def last_output(self) -> str:
        """The end of its standard error, for a message; "" without one."""
        last = tail(self._errors.decode(errors="replace"), 500)
        return f"; its last output: {last}" if last else ""

    async def lines(self) -> AsyncIterator[bytes]:
        """Iterate over the lines of the output until the server ends or closes it.

        Raises:
            StepError: `output_too_large` for a line of more than 64 MiB.
        """
        # Each byte is searched once: a message of 64 MiB arrives in hundreds of chunks.
        rest, searched = bytearray(), 0
        while data := await self._read():
            rest += data
            begin = 0
            while (end := rest.find(b"\n", max(begin, searched))) >= 0:
                yield bytes(rest[begin:end])
                begin = searched = end + 1
            del rest[:begin]
            searched = len(rest)
            if searched > HARD_LIMIT:
                raise StepError(
                    f"a message of the server has more than {HARD_LIMIT:,} bytes",
                    kind="output_too_large",
                    retryable=False,
                )

    async def _read(self) -> bytes:
        """Return the next output. After the server's end another process may still hold its pipe."""
        reading = asyncio.ensure_future(self.stdout.read(READ))
        try:
            ends: set[asyncio.Future[bytes] | asyncio.Future[None]] = {reading, self.exited}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=DRAIN)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    async def write(self, data: bytes) -> None:
        """Write data, waiting while the server does not read.

        Raises:
            OSError: If the server has ended.
        """
        self.stdin.write(data)
        await self.stdin.drain()

    async def stop(self) -> None:
        """End the server and every process that it started."""
        try:
            if self._listening is not None:
                # The specification asks clients to close the input first, so that a server can end by itself.
                self.stdin.close()
                await asyncio.wait({self.exited}, timeout=EOF_GRACE)
        finally:
            try:
                await self.end(GRACE)
            finally:
                if self._listening is not None:
                    self._listening.cancel()
                self.close()


class _Limited(httpx2.AsyncByteStream):
    """The body of a response, up to the limit of a message."""

    def __init__(
        self, response: httpx2.Response, refused: Callable[[str], httpx2.StreamError]
    ) -> None:
        self._stream = cast("httpx2.AsyncByteStream", response.stream)
        self._refused = refused

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for chunk in self._stream:
            received += len(chunk)
            if received > HARD_LIMIT:
                raise self._refused(f"sent a message of more than {HARD_LIMIT:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class McpConnection:
    """One connection to a server, held open by a separate task. Call `open`, use it, call `close`.

    Args:
        server: The settings of the server.
        token: Names the run in the environment of the server's process.
    """

    def __init__(self, server: ServerSettings, token: str = "") -> None:
        self.server = server
        self.token = token
        self._child: _ServerProcess | None = None
        self._flood: StepError | None = None
        self._done: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def alive(self) -> bool:
        """Whether the connection can be used."""
        return not self._lost.done()

    async def open(self, mode: str) -> None:
        """Start the server and shake hands in the library's `mode`, within `start_timeout`.

        Raises:
            StepError: `server_timeout`, `server_died`, `server_error` or `cannot_start`.
            MCPError: For an answer that shows that the server uses another handshake.
        """
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(ready, mode))
        try:
            self._client = await self._within(ready, self.server.start_timeout, "initialize")
        except BaseException as error:
            await self.close()
            if isinstance(error, MCPError) and error.code not in _MODERN:
                raise self._error(error, "initialize") from None
            raise

    async def _hold(self, ready: asyncio.Future[Client], mode: str) -> None:
        """Hold the library's client open until `close`: one task must enter and leave it."""
        transport = self._stdio() if self.server.command else self._http()
        limit = self.server.start_timeout
        try:
            async with Client(
                transport, mode=mode, cache=None, read_timeout_seconds=limit
            ) as client:
                if not ready.done():
                    ready.set_result(client)
                await self._done.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # any error ends the connection
            if not ready.done():
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                ready.set_exception(error)
        finally:
            if not ready.done():
                ready.cancel()
            self._lose()

    def _lose(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    @contextlib.asynccontextmanager
    async def _http(self) -> AsyncIterator[TransportStreams]:
        """The library's transport over HTTP, with the declared headers."""
        headers = _expanded(self.server.headers)
        if self.server.token_env:
            token = os.environ.get(self.server.token_env, "")
            if not token:
                raise StepError(
                    f"server {self.server.name}: the environment variable {self.server.token_env} is "
                    "not set. Set it to the bearer token of the server.",
                    kind="cannot_start",
                    retryable=False,
                )
            headers["Authorization"] = f"Bearer {token}"
        headers["Accept-Encoding"] = "identity"
        http = create_mcp_http_client(headers)
        http.event_hooks = {"response": [self._limit]}
        async with (
            http,
            streamable_http_client(self.server.url, http_client=http) as streams,
        ):
            yield streams

    async def _limit(self, response: httpx2.Response) -> None:
        """Refuse a compressed response, and limit the size of a response that is one message."""
        if is_compressed(response.headers):
            raise self._refused("compressed its response although the request forbids it")
        # The library limits each event of a stream, which may stay open for days.
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Limited(response, self._refused)

    def _refused(self, why: str) -> httpx2.StreamError:
        """End the connection for a response that is not read, and return the error for the library."""
        self._flood = StepError(
            f"the server {self.server.name} {why}", kind="output_too_large", retryable=False
        )
        self._lose()
        return httpx2.StreamError(why)

    @contextlib.asynccontextmanager
    async def _stdio(self) -> AsyncIterator[TransportStreams]:
        """A transport over a supervised child process."""
        child = self._child = _ServerProcess(self.server, self.token)
        try:
            await child.start()
        except BaseException:
            await child.stop()
            raise
        # Without a buffer, a server that writes faster than it is read has to wait.
        received, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._receive(child, received)),
            asyncio.create_task(self._send(child, to_send, received)),
        ]
        try:
            yield read, write
        finally:
            try:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            finally:
                await child.stop()
                for stream in (received, read, write, to_send):
                    stream.close()

    async def _receive(
        self,
        child: _ServerProcess,
        received: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        try:
            async for line in child.lines():
                if not line.strip():
                    continue
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    continue  # servers print other text too; no answer is lost by skipping it
                await received.send(SessionMessage(message))
        except StepError as error:
            self._flood = error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass  # the session or the server has ended
        finally:
            received.close()
            self._lose()

    async def _send(
        self,
        child: _ServerProcess,
        to_send: MemoryObjectReceiveStream[SessionMessage],
        received: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        try:
            async for sent in to_send:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await child.write(text.encode() + b"\n")
        except (anyio.ClosedResourceError, OSError):
            received.close()
            self._lose()

    async def close(self) -> None:
        """End the connection and the server's process. Raises nothing."""
        self._done.set()
        self._lose()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=END)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=END)
        if self._task.done():
            _retrieve(self._task)

    async def list_tools(self) -> list[dict[str, Json]]:
        """Return all tools of the server as `{"name", "description", "schema"}`.

        Raises:
            StepError: See `open`.
        """
        return await self._request(self._pages(), self.server.start_timeout, "list_tools")

    async def _pages(self) -> list[dict[str, Json]]:
        tools: list[types.Tool] = []
        cursor = None
        for _ in range(PAGES):
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return [
            {"name": t.name, "description": t.description or "", "schema": t.input_schema}
            for t in tools
        ]

    async def call(self, name: str, arguments: dict[str, Json], timeout: float | None) -> Json:
        """Call a tool and return its output: text, or JSON if the answer is more than text.

        Raises:
            StepError: `tool_error` if the tool reports a failure; otherwise see `open`.
        """
        # Without an explicit limit a call would get that of the handshake.
        limit = DAY if timeout is None else timeout
        calling = self._client.call_tool(name, arguments, read_timeout_seconds=limit)
        return _output_of(await self._request(calling, timeout, f"call of {name}"))

    async def _request(
        self, work: Coroutine[object, None, T], timeout: float | None, name: str
    ) -> T:
        try:
            return await self._within(asyncio.ensure_future(work), timeout, name)
        except MCPError as error:
            raise self._error(error, name) from None

    async def _within(self, work: asyncio.Future[T], timeout: float | None, name: str) -> T:
        """Wait for an answer, the server's death or the timeout, whichever is first.

        The library's request is cancelled but not awaited: it may take seconds to send the
        cancellation to a server that does not read.
        """
        try:
            ends: set[asyncio.Future[T] | asyncio.Future[None]] = {work, self._lost}
            await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and self._lost.done():
                await asyncio.wait({work}, timeout=0.1)  # an answer that was received counts
        finally:
            if not work.done():
                work.cancel()
                work.add_done_callback(_retrieve)
        if work.done() and not work.cancelled():
            error = work.exception()
            if error is None:
                return work.result()
            if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
                raise await self._death(name)
            raise error if isinstance(error, MCPError) else self._error(error, name)
        if self._lost.done():
            raise await self._death(name)
        after = f"{self.server.name}: no answer to {name} within {timeout:g} s"
        if name == "initialize" and self._child is not None:
            after += f"; is the program an MCP server over standard input and output?{self._child.last_output}"
        raise StepError(after, kind="server_timeout")

    async def _death(self, name: str) -> StepError:
        if self._flood is not None:
            return self._flood
        if self._child is None:
            return self._died(f"lost the connection during {name}")
        await asyncio.wait({self._child.exited}, timeout=0.5)
        ending = self._child.ending or "closed the connection"
        return self._died(f"{ending} (during {name})")

    def _died(self, how: str) -> StepError:
        return StepError(f"the server {self.server.name} {how}", kind="server_died")

    def _error(self, error: BaseException, name: str) -> BaseException:
        """Return an error of the library as a StepError."""
        if isinstance(error, StepError):
            return error
        text = cut(" ".join(without_validation(str(error)).split()), 2000) or type(error).__name__
        if isinstance(error, MCPError) and error.code == types.REQUEST_TIMEOUT:
            return StepError(f"{self.server.name}: {text}", kind="server_timeout")
        if isinstance(error, OSError) or type(error).__module__.startswith(("httpx", "httpcore")):
            return self._died(f"cannot be reached: {type(error).__name__}: {text}")
        return StepError(f"{self.server.name}: {name}: {text}", kind="server_error")


async def connect(server: ServerSettings, token: str = "") -> McpConnection:
    """Start a server and return the connection, with the older handshake or else the modern one.

    Args:
        server: The settings of the server.
        token: Names the run in the environment of the server's process.

    Raises:
        StepError: See McpConnection.open.
    """
    connection = McpConnection(server, token)
    try:
        await connection.open("legacy")
    except MCPError:
        connection = McpConnection(server, token)
        try:
            await connection.open("auto")
        except MCPError as error:
            raise StepError(
                f"{server.name}: initialize: {without_validation(str(error))}", kind="server_error"
            ) from None
    return connection


def _expanded(values: Mapping[str, str]) -> dict[str, str]:
    """Return values in which `${NAME}` is replaced from our environment, by nothing if it is not set."""
    return {
        name: VARIABLE.sub(lambda match: os.environ.get(match[1], ""), value)
        for name, value in values.items()
    }


def _retrieve(task: asyncio.Future[T]) -> None:
    """Retrieve the error of a future, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
