"""The sessions of a run with its MCP servers: opened when needed, watched, ended with the run.

Rules:

1. The tools of a server are what it listed when the run first asked: that list is on record, and a
   server that lists others after a restart, of its own or of the run, is refused.
2. A death fails the calls in flight at once; the next call starts the server again, after a pause,
   three times in a run at most.
3. A finished run that is replayed starts no server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ...engine.context import Context
from ...engine.run_state import Run
from ...engine.step import FunctionStep
from ...errors import ConfigurationError, StepError
from ...records import codec
from ...records.codec import Json
from ..base import Tool
from .settings import ServerSettings

if TYPE_CHECKING:
    from .client import Connection

__all__ = ["RESTARTS", "Session", "session_of"]

RESTARTS = 3  # of a server in one run
PAUSE = 0.25  # seconds before the first restart; twice as long before each next one
FOLDER = "servers"  # where in the journal the lists of tools are


def session_of(run: Run, server: ServerSettings) -> Session:
    """Return the run's session with a server; the run ends it.

    Raises:
        ConfigurationError: if another server of the run has its name.
    """
    key = f"mcp {server.name}"
    found = run.owned.get(key)
    if found is None:
        found = run.owned[key] = Session(run, server)
    if found.server != server:
        raise ConfigurationError(
            f"server {server.name}: another one of this run has that name; give it another"
        )
    return cast("Session", found)


class Session:
    """What one run has with one server."""

    def __init__(self, run: Run, server: ServerSettings) -> None:
        self.run = run
        self.server = server
        self.starts = 0
        self.tools: list[Tool] | None = None  # as they were listed, made once
        self._listings = 0
        self._listed: list[dict[str, Json]] | None = None
        self._refused: StepError | None = None
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def listing(self, ctx: Context) -> Sequence[dict[str, Json]]:
        """Return the tools of the server as this run knows them; asked once, and on record."""
        async with self._lock:
            if self._listed is None:
                self._listings += 1
                at = Context(self.run, FOLDER, ctx.gate, ctx.account, None)
                # A list that could not be had is asked for again, under another name.
                name = f"{self.server.name}/tools-{self._listings}"
                replay = self.run.replay
                if replay is None or at.below(name) not in replay.finished:
                    _library()  # that it is missing is no failure of the server's
                self._listed = cast("Any", await at.call(name, self._step(), None))
            return self._listed

    def _step(self) -> FunctionStep:
        async def ask(_: Json) -> Json:
            while True:
                try:
                    connection = await self._open()
                    return [dict(one) for one in await connection.list_tools()]
                except StepError as error:
                    if error.kind != "server_died" or self.starts > RESTARTS:
                        raise

        return FunctionStep(ask, name="tools", fingerprint=self.server.fingerprint)

    async def call(
        self, name: str, arguments: dict[str, Json], timeout: float | None, ctx: Context
    ) -> Json:
        """Call a tool of the server, which is started if it does not run.

        Raises:
            StepError: `server_died`, `server_gone`, `server_timeout`, `tools_changed`, `tool_error`.
        """
        async with self._lock:
            connection = await self._ready()
        return await connection.call(name, arguments, timeout)

    async def _ready(self) -> Connection:
        """Return a connection whose server has the tools that are on record."""
        if self._refused is not None:
            raise self._refused
        if self._connection is not None and self._connection.alive:
            return self._connection
        connection = await self._open()
        if self._listed is not None:
            live = codec.normalise(await connection.list_tools())
            if pin(live) != pin(self._listed):
                await connection.close()
                self._refused = self._changed(live)
                raise self._refused
        return connection

    async def _open(self) -> Connection:
        """Start the server, as often as that is allowed."""
        if self._connection is not None and self._connection.alive:
            return self._connection
        if self.starts > RESTARTS:
            raise StepError(
                f"the server {self.server.name} ended {self.starts} times in this run and is not "
                "started again; look at what it last said, and resume the run",
                kind="server_gone",
                retryable=False,
            )
        await self._end()
        if self.starts:
            await self.run.clock.sleep(PAUSE * 2 ** (self.starts - 1) * (1 + self.run.random()))
        self.starts += 1
        self._connection = await _library()(self.server, self.run.token)
        return cast("Connection", self._connection)

    def _changed(self, live: Sequence[dict[str, Any]]) -> StepError:
        was = {str(one["name"]): one for one in self._listed or ()}
        now = {str(one["name"]): one for one in live}
        news = [f"{name} is new" for name in now if name not in was]
        news += [f"{name} is gone" for name in was if name not in now]
        news += [f"{name} changed" for name in now if name in was and now[name] != was[name]]
        return StepError(
            f"the server {self.server.name} is refused, its tools are not those that the run began "
            f"with: {', '.join(news[:5])}; begin a new run if that is right",
            kind="tools_changed",
            retryable=False,
        )

    async def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def aclose(self) -> None:
        """End the server with all that it started."""
        await self._end()


def pin(listed: Sequence[dict[str, Any]]) -> str:
    """Return the digest of a list of tools, in whatever order they were listed."""
    return codec.digest(cast("Json", sorted(listed, key=lambda one: str(one["name"]))))


def _library() -> Any:
    try:
        from .client import connect
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio", "httpx2"):
            raise
        raise ConfigurationError(
            f"MCP servers need a package that is not installed ({error.name}); install loopwright[mcp]"
        ) from None
    return connect
