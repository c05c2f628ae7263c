"""MCP servers as sets of tools: declared as data, started when a run first needs them, ended with the run.

The Model Context Protocol is specified at https://modelcontextprotocol.io/specification. Declaring a
server does not import the client library. Starting one needs `loopwright[mcp]`.

1. The tools of a server are those it listed when the run first asked. The list is recorded. A server
   that lists other tools after a restart, of its own or of the run, is refused.
2. A server's death fails the calls in progress at once. The next call restarts the server after a
   pause, at most three times in a run.
3. Replaying a finished run starts no server.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from .._extras import needs
from ..engine.context import Context
from ..engine.run_state import Run
from ..engine.step import FunctionStep, digest_of
from ..errors import ConfigurationError, StepError, listed, nearest
from ..records import codec
from ..records.codec import Json
from .base import HARD_LIMIT, NAME, Tool

if TYPE_CHECKING:
    from .mcp_client import McpConnection

__all__ = [
    "VARIABLE",
    "McpServer",
    "McpTool",
    "Selection",
    "ServerSettings",
    "mcp_server",
]

VARIABLE = re.compile(r"\$\{(\w+)\}")  # in values of `env` and `headers`

Selection = bool | tuple[str, ...]  # all tools, none, or those with these names


@dataclass(frozen=True)
class ServerSettings:
    """The settings of an MCP server. See `mcp_server`."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    cwd: str | Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    token_env: str = ""
    only: tuple[str, ...] = ()
    idempotent: Selection = False
    approve: Selection = False
    timeout: float | None = 60.0
    start_timeout: float = 30.0

    def __post_init__(self) -> None:
        where = f"server {self.name}"
        # The name is a part of paths in the journal.
        if not NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"server: {self.name!r} is not a valid name. Use 1 to 64 letters, digits, - and _."
            )
        if bool(self.command) == bool(self.url):
            raise ConfigurationError(f"{where}: specify either command, a list of words, or url.")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"{where}: url: {self.url!r} is not an http or https URL.")
        if self.timeout is not None:
            codec.number(f"{where}: timeout", self.timeout, minimum=0, above=True)
        codec.number(f"{where}: start_timeout", self.start_timeout, minimum=0, above=True)

    @property
    def fingerprint(self) -> str:
        """A digest of the command and the usable tools, without values of the environment."""
        # The path of a program differs between machines; its name does not.
        program = [Path(self.command[0]).name, *self.command[1:]] if self.command else []
        identity = (
            program, self.url, sorted(self.env), self.only, self.idempotent, self.approve
        )  # fmt: skip
        return digest_of("mcp", self.name, repr(identity))


DESCRIPTION = (
    4_000  # characters of a third party's description that a model receives, at its user's cost
)
RESTARTS = 3  # of a server in one run; one that dies more often is broken
PAUSE = 0.25  # seconds before the first restart; each next pause is twice as long
FOLDER = "servers"  # the path of the recorded lists of tools, also in older journals
_INVALID = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class McpServer(ServerSettings):
    """An MCP server and its usable tools. See `mcp_server`."""

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        """Return the tools, as the run first listed them.

        Raises:
            StepError: `server_timeout`, `server_died`, `server_error`, `cannot_start`.
            ConfigurationError: Without `loopwright[mcp]`, or if an option names a tool that the server
                does not have.
        """
        session = _session(ctx.run, self)
        if session.tools is None:
            listing = await session.listing(ctx)
            if not all(isinstance(entry, Mapping) and "name" in entry for entry in listing):
                raise StepError(
                    f"server {self.name}: its list of tools is not a list of objects with a name",
                    path=ctx.path,
                    kind="server_error",
                    retryable=False,
                )
            offered = [str(entry["name"]) for entry in listing]
            for name in (*self.only, *_names(self.idempotent), *_names(self.approve)):
                if name not in offered:
                    hint = nearest(name, offered[:200]) or listed(name, offered, lead="it has")
                    raise ConfigurationError(f"server {self.name}: it has no tool {name!r}{hint}")
            session.tools = [
                McpTool(self, entry)
                for entry in listing
                if not self.only or entry["name"] in self.only
            ]
        return session.tools


class McpTool(Tool):
    """One tool of an MCP server. See `mcp_server`."""

    def __init__(self, server: McpServer, entry: Mapping[str, Json]) -> None:
        self.server = server
        self.remote = str(entry["name"])
        super().__init__(
            # Servers may use any characters; providers accept only letters, digits, - and _.
            _INVALID.sub("_", self.remote)[:64] or "tool",
            description=str(entry.get("description") or "")[:DESCRIPTION],
            schema=entry.get("schema") or None,
            idempotent=_includes(server.idempotent, self.remote),
            approve=_includes(server.approve, self.remote),
            timeout=server.timeout,
            limit=HARD_LIMIT,
        )

    def meaning(self) -> str:
        return f"{self.server.fingerprint} {self.remote}"

    def problem_with(self, arguments: Json) -> str:
        try:
            return super().problem_with(arguments)
        except Exception:  # an invalid schema: the server itself checks the arguments
            return ""

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Json:
        return await _session(ctx.run, self.server).call(self.remote, arguments, self.timeout)


def _names(selection: Selection) -> tuple[str, ...]:
    return () if isinstance(selection, bool) else selection


def _includes(selection: Selection, name: str) -> bool:
    return selection if isinstance(selection, bool) else name in selection


def mcp_server(
    name: str,
    command: Sequence[str] = (),
    *,
    url: str = "",
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = (),
    cwd: str | Path | None = None,
    headers: Mapping[str, str] | None = None,
    token_env: str = "",
    only: Sequence[str] = (),
    idempotent: bool | Sequence[str] = False,
    approve: bool | Sequence[str] = False,
    timeout: float | None = 60.0,
    start_timeout: float = 30.0,
) -> McpServer:
    """Declare an MCP server: a program that communicates over its standard streams, or a URL.

    A run starts the server when it first needs it, restarts it up to three times if it dies, refuses it
    if its tools have changed, and ends it with the run. Transports and messages follow
    https://modelcontextprotocol.io/specification.

    Args:
        name: The name of the server, also in the journal.
        command: The program and its arguments, for stdio.
        url: The URL for streamable HTTP, instead of `command`.
        env: Environment variables besides HOME, PATH and the like. `${NAME}` in a value is replaced
            from our environment when the server starts.
        pass_env: Names of our variables, such as API keys, that are passed on.
        cwd: The working directory. Default: that of this process.
        headers: Headers of every HTTP request, with `${NAME}` as in `env`.
        token_env: The name of the variable that holds the bearer token for HTTP.
        only: The usable tools. Default: all.
        idempotent: Whether calls may run twice after a crash, for all tools or by name.
        approve: Whether a person must approve each call, for all tools or by name.
        timeout: Seconds for one call. None: no limit except that of the loop.
        start_timeout: Seconds for the handshake, and again for the list of tools.

    Returns:
        A set of tools for `prompt(tools=...)`, agents and `tool_step`.

    Raises:
        ConfigurationError: For an invalid name, command, URL or timeout.

    Example:
        >>> mcp_server("files", ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]).name
        'files'
    """
    if isinstance(command, str):
        raise ConfigurationError(
            f"server {name}: command: {command!r} is a text. Use a list of words."
        )
    return McpServer(
        name=name, command=tuple(command), url=url, env=dict(env or {}), pass_env=tuple(pass_env),
        cwd=cwd, headers=dict(headers or {}), token_env=token_env, only=tuple(only),
        idempotent=idempotent if isinstance(idempotent, bool) else tuple(idempotent),
        approve=approve if isinstance(approve, bool) else tuple(approve),
        timeout=timeout, start_timeout=start_timeout,
    )  # fmt: skip


def _session(run: Run, server: ServerSettings) -> _Session:
    """Return the run's session with a server. The run ends the session.

    Raises:
        ConfigurationError: If another server of the run has the same name.
    """
    key = f"mcp {server.name}"
    if key not in run.owned:
        run.owned[key] = _Session(run, server)
    session = cast("_Session", run.owned[key])
    if session.server != server:
        raise ConfigurationError(
            f"server {server.name}: another server of this run has the same name. Rename one of them."
        )
    return session


class _Session:
    """What one run has of one server: its process, its recorded list of tools, its restarts."""

    def __init__(self, run: Run, server: ServerSettings) -> None:
        self.run = run
        self.server = server
        self.starts = 0
        self.tools: list[Tool] | None = None
        self._listings = 0
        self._listing: list[dict[str, Json]] | None = None
        self._refused: StepError | None = None
        self._connection: McpConnection | None = None
        self._lock = asyncio.Lock()

    async def listing(self, ctx: Context) -> Sequence[dict[str, Json]]:
        """Return the server's list of tools, which is requested once and recorded."""
        async with self._lock:
            if self._listing is None:
                self._listings += 1
                at = Context(self.run, FOLDER, ctx.gate, ctx.account, None)
                # A request that failed is repeated under another name.
                name = f"{self.server.name}/tools-{self._listings}"
                replay = self.run.replay
                stubbed = self.run.stubs is not None
                if not stubbed and (replay is None or at.below(name) not in replay.finished):
                    _connect()  # a missing library is not a failure of the server
                step = FunctionStep(self._list, name="tools", fingerprint=self.server.fingerprint)
                step.stub = "MCP server"
                self._listing = cast("list[dict[str, Json]]", await at.call(name, step, None))
            return self._listing

    async def _list(self, _: Json) -> Json:
        while True:
            try:
                connection = await self._open()
                return [dict(entry) for entry in await connection.list_tools()]
            except StepError as error:
                if error.kind != "server_died" or self.starts > RESTARTS:
                    raise

    async def call(self, name: str, arguments: dict[str, Json], timeout: float | None) -> Json:
        """Call a tool of the server, which is started if it does not run.

        Raises:
            StepError: `server_died`, `server_gone`, `server_timeout`, `tools_changed`, `tool_error`.
        """
        async with self._lock:
            connection = await self._ready()
        return await connection.call(name, arguments, timeout)

    async def _ready(self) -> McpConnection:
        """Return a connection to a server that has the recorded tools."""
        if self._refused is not None:
            raise self._refused
        if self._connection is not None and self._connection.alive:
            return self._connection
        connection = await self._open()
        if self._listing is not None:
            current = codec.normalise(await connection.list_tools())
            # A server could show harmless tools to the person who approves, and others later.
            if _digest(current) != _digest(self._listing):
                await connection.close()
                old = {str(entry["name"]): entry for entry in self._listing}
                new = {str(entry["name"]): entry for entry in current}
                changes = [f"{name} is new" for name in new if name not in old]
                changes += [f"{name} is gone" for name in old if name not in new]
                changes += [
                    f"{name} changed" for name in new if name in old and new[name] != old[name]
                ]
                self._refused = StepError(
                    f"the server {self.server.name} is refused because its tools differ from those at the "
                    f"start of the run: {', '.join(changes[:5])}. Start a new run to use them.",
                    kind="tools_changed",
                    retryable=False,
                )
                raise self._refused
        return connection

    async def _open(self) -> McpConnection:
        """Start the server, unless it runs or has been restarted too often."""
        if self._connection is not None and self._connection.alive:
            return self._connection
        if self.starts > RESTARTS:
            raise StepError(
                f"the server {self.server.name} ended {self.starts} times in this run and is not "
                "restarted. Read its last output, and resume the run.",
                kind="server_gone",
                retryable=False,
            )
        await self.aclose()
        if self.starts:
            await self.run.clock.sleep(PAUSE * 2 ** (self.starts - 1) * (1 + self.run.random()))
        self.starts += 1
        self._connection = await _connect()(self.server, self.run.token)
        return self._connection

    async def aclose(self) -> None:
        """End the server and every process that it started."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _digest(listing: Sequence[Mapping[str, Json]]) -> str:
    """Return a digest of a list of tools that does not depend on their order."""
    return codec.digest(cast("Json", sorted(listing, key=lambda entry: str(entry["name"]))))


class _Connect(Protocol):
    def __call__(self, server: ServerSettings, token: str) -> Awaitable[McpConnection]: ...


def _connect() -> _Connect:
    # The client library is optional, and importing it takes seconds.
    with needs("an MCP server", "mcp"):
        from .mcp_client import connect
    return connect
