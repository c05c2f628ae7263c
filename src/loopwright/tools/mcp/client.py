"""The client library of the Model Context Protocol, the only module that imports it.

Imported when a server is first started; importing it takes seconds. The library keeps the protocol;
the process, the deadlines and what a death means are ours.

What a tool of an MCP server answered, as JSON that a journal and a prompt can hold.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage

from ...errors import StepError, without_validation
from ...records.codec import Json
from ...records.excerpts import cut
from ..base import HARD_LIMIT
from ..process import passed
from .server_process import ServerProcess
from .settings import VARIABLE, ServerSettings

__all__ = ["Connection", "connect", "output_of"]


def output_of(result: Any) -> Json:
    """Return what a tool answered: its texts, its structure where there is no text, or a list.

    Binary content is described by its type, size and digest, as no prompt can hold it.

    Raises:
        StepError: `tool_error` with its text.
    """
    blocks = [_block(block) for block in result.content]
    texts = [block["text"] for block in blocks if block.keys() == {"type", "text"}]
    text = "\n".join(str(one) for one in texts)
    if result.is_error:
        raise StepError(text or "the tool failed and did not say why", kind="tool_error")
    if len(texts) == len(blocks):
        if not blocks and result.structured_content is not None:
            return result.structured_content
        return text
    return list(blocks)


def _block(block: Any) -> dict[str, Json]:
    data = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    data.pop("_meta", None)
    data.pop("annotations", None)
    inner = data.get("resource", data)
    for key in ("data", "blob"):
        if isinstance(inner.get(key), str):
            raw = _decoded(inner.pop(key))
            inner |= {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    found: dict[str, Json] = data
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=False)
    except ValueError:
        return text.encode()


PAGES = 100  # of a list of tools
DAY = 86_400.0  # seconds
END = 3.0  # seconds that a connection gets to close
_MODERN = (types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION)
T = TypeVar("T")

# What the library would print of a server's output: what matters of it is in our errors.
logging.getLogger("mcp").addHandler(logging.NullHandler())


class Connection:
    """One connection to a server, kept by a task of its own; `open`, use, `close`."""

    def __init__(self, server: ServerSettings, token: str = "") -> None:
        self.server = server
        self.token = token  # names the run in the environment of the process
        self._child: ServerProcess | None = None
        self._flood: StepError | None = None
        self._done: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def alive(self) -> bool:
        """Whether it can still be used."""
        return not self._lost.done()

    async def open(self, mode: str) -> None:
        """Start the server and shake hands in the library's `mode`, within the server's own time.

        Raises:
            StepError: `server_timeout`, `server_died`, `server_error` or `cannot_start`.
            MCPError: for an answer that says that this is not how the server shakes hands.
        """
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep(ready, mode))
        try:
            limit = self.server.start_timeout
            self._client = await self._within(ready, limit, "initialize")
        except BaseException as error:
            await self.close()
            if isinstance(error, MCPError) and error.code not in _MODERN:
                raise self._error(error, "initialize") from None
            raise

    async def _keep(self, ready: asyncio.Future[Client], mode: str) -> None:
        """Hold the library's client open until `close`, in the one task that may enter and leave it."""
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
        except BaseException as error:  # whatever ends it is the connection's end
            if not ready.done():
                ready.set_exception(_first(error))
        finally:
            if not ready.done():
                ready.cancel()
            self._lose()

    def _lose(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    @contextlib.asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        """The transport of the library over HTTP, with the headers that were declared."""
        headers = _filled(self.server.headers)
        if self.server.token_env:
            token = os.environ.get(self.server.token_env, "")
            if not token:
                raise StepError(
                    f"the server {self.server.name} needs the token in {self.server.token_env}, "
                    "which is not set; set it in the environment",
                    kind="cannot_start",
                    retryable=False,
                )
            headers["Authorization"] = f"Bearer {token}"
        async with (
            create_mcp_http_client(headers) as http,
            streamable_http_client(self.server.url, http_client=http) as streams,
        ):
            yield streams

    @contextlib.asynccontextmanager
    async def _stdio(self) -> AsyncIterator[Any]:
        """The transport of the library over a child process of ours."""
        given = passed(self.server.pass_env)
        words, env = list(self.server.command), {**given, **_filled(self.server.env)}
        child = ServerProcess(
            words, env=env, cwd=self.server.cwd, limit=HARD_LIMIT, token=self.token
        )
        self._child = child
        try:
            await child.started()
        except BaseException:
            await child.end()
            raise
        to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, from_us = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [
            asyncio.create_task(self._reading(child, to_us)),
            asyncio.create_task(self._writing(child, from_us, to_us)),
        ]
        try:
            yield read, write
        finally:
            try:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            finally:
                await child.end()
                for stream in (to_us, read, write, from_us):
                    stream.close()

    async def _reading(self, child: ServerProcess, to_us: Any) -> None:
        try:
            async for line in child.lines():
                if not line.strip():
                    continue
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    continue  # servers print what they should not; no answer is lost by it
                await to_us.send(SessionMessage(message))
        except StepError as error:
            self._flood = error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass  # the session is gone, or the child is
        finally:
            to_us.close()
            self._lose()

    async def _writing(self, child: ServerProcess, from_us: Any, to_us: Any) -> None:
        try:
            async for sent in from_us:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await child.write(text.encode() + b"\n")
        except (anyio.ClosedResourceError, OSError):
            to_us.close()
            self._lose()

    async def close(self) -> None:
        """End the connection and the server's process; it raises nothing."""
        self._done.set()
        self._lose()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=END)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=END)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # seen

    async def list_tools(self) -> list[dict[str, Json]]:
        """Return the server's tools as `{"name", "description", "schema"}`, all pages of them.

        Raises:
            StepError: as `open` does.
        """
        limit = self.server.start_timeout
        return await self._asked(self._pages(), limit, "list_tools")

    async def _pages(self) -> list[dict[str, Json]]:
        found: list[types.Tool] = []
        cursor = None
        for _ in range(PAGES):
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
        return [
            {"name": t.name, "description": t.description or "", "schema": t.input_schema}
            for t in found
        ]

    async def call(self, name: str, arguments: dict[str, Json], timeout: float | None) -> Json:
        """Call a tool and return its output: text, or JSON where it is more than text.

        Raises:
            StepError: `tool_error` if the tool says that it failed; else as `open` does.
        """
        # Without a limit of its own a call would get that of the handshake.
        limit = DAY if timeout is None else timeout
        calling = self._client.call_tool(name, arguments, read_timeout_seconds=limit)
        return output_of(await self._asked(calling, timeout, f"call of {name}"))

    async def _asked(self, work: Coroutine[Any, Any, T], timeout: float | None, what: str) -> T:
        try:
            return await self._within(asyncio.ensure_future(work), timeout, what)
        except MCPError as error:
            raise self._error(error, what) from None

    async def _within(self, work: asyncio.Future[T], timeout: float | None, what: str) -> T:
        """Wait for an answer, a death or the end of time, whichever is first.

        The library is told to stop but not waited for: it may take seconds to say so to a server
        that does not read.
        """
        try:
            ends: set[Any] = {work, self._lost}
            await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and self._lost.done():
                await asyncio.wait({work}, timeout=0.1)  # an answer that was read is an answer
        finally:
            if not work.done():
                work.cancel()
                work.add_done_callback(_seen)
        if work.done() and not work.cancelled():
            error = work.exception()
            if error is None:
                return work.result()
            if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
                raise await self._death(what)
            raise error if isinstance(error, MCPError) else self._error(error, what)
        if self._lost.done():
            raise await self._death(what)
        after = f"{self.server.name}: no answer to {what} within {timeout:g} s"
        raise StepError(after, kind="server_timeout")

    async def _death(self, what: str) -> StepError:
        if self._flood is not None:
            return self._flood
        if self._child is None:
            return self._died(f"the connection was lost during {what}")
        await asyncio.wait({self._child.exited}, timeout=0.5)
        ending = self._child.ending or "closed the connection"
        return self._died(f"{ending} (during {what})")

    def _died(self, how: str) -> StepError:
        return StepError(f"the server {self.server.name} {how}", kind="server_died")

    def _error(self, error: BaseException, what: str) -> BaseException:
        """Return an error of the library as one of ours."""
        if isinstance(error, StepError):
            return error
        said = cut(" ".join(without_validation(str(error)).split()), 2000) or type(error).__name__
        if isinstance(error, MCPError) and error.code == types.REQUEST_TIMEOUT:
            return StepError(f"{self.server.name}: {said}", kind="server_timeout")
        if isinstance(error, OSError) or type(error).__module__.startswith(("httpx", "httpcore")):
            return self._died(f"cannot be reached: {type(error).__name__}: {said}")
        return StepError(f"{self.server.name}: {what}: {said}", kind="server_error")


async def connect(server: ServerSettings, token: str = "") -> Connection:
    """Start a server and return the connection to it; a modern one is asked in its own way.

    `token` names the run for which it is started.

    Raises:
        StepError: see Connection.open.
    """
    try:
        made = Connection(server, token)
        await made.open("legacy")
    except MCPError:
        made = Connection(server, token)
        try:
            await made.open("auto")
        except MCPError as error:
            raise StepError(
                f"{server.name}: initialize: {without_validation(str(error))}", kind="server_error"
            ) from None
    return made


def _filled(given: Mapping[str, str]) -> dict[str, str]:
    """Return values with `${NAME}` read from our environment, empty where it is not set."""
    return {
        name: VARIABLE.sub(lambda found: os.environ.get(found[1], ""), value)
        for name, value in given.items()
    }


def _first(error: BaseException) -> BaseException:
    """Return what went wrong in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _seen(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
