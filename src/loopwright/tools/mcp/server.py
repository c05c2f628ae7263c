"""MCP servers as sets of tools: declared here, started when a run first needs one.

The Model Context Protocol is specified at https://modelcontextprotocol.io/specification. Declaring a
server imports nothing; starting one needs `loopwright[mcp]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engine.context import Context
from ...errors import ConfigurationError, nearest
from ...errors import listed as listing
from ...records.codec import Json
from ..base import HARD_LIMIT, Tool
from .sessions import session_of
from .settings import VARIABLE, ServerSettings, Some

__all__ = ["VARIABLE", "McpServer", "McpTool", "mcp_server"]

DESCRIPTION = 4_000  # characters of a description that a model is shown: a stranger wrote it
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class McpServer(ServerSettings):
    """An MCP server and what of it may be used; see `mcp_server`."""

    async def tools(self, ctx: Context) -> Sequence[Tool]:
        """Return its tools, as they were when the run first saw them.

        Raises:
            StepError: `server_timeout`, `server_died`, `server_error`, `cannot_start`.
            ConfigurationError: without `loopwright[mcp]`, or if `only` names a tool that it lacks.
        """
        session = session_of(ctx.run, self)
        if session.tools is None:
            session.tools = self._made(await session.listing(ctx))
        return session.tools

    def _made(self, listed: Sequence[Mapping[str, Any]]) -> list[Tool]:
        offered = [str(one["name"]) for one in listed]
        for wanted in (*self.only, *_named(self.idempotent), *_named(self.approve)):
            if wanted not in offered:
                hint = nearest(wanted, offered[:200]) or listing(wanted, offered, lead="it has")
                raise ConfigurationError(f"server {self.name}: it has no tool {wanted!r}{hint}")
        return [McpTool(self, one) for one in listed if not self.only or one["name"] in self.only]


class McpTool(Tool):
    """One tool of an MCP server."""

    def __init__(self, server: McpServer, listed: Mapping[str, Any]) -> None:
        self.server = server
        self.remote = str(listed["name"])
        super().__init__(
            _OTHER.sub("_", self.remote)[:64] or "tool",
            description=str(listed.get("description") or "")[:DESCRIPTION],
            schema=listed.get("schema") or None,
            idempotent=_is_in(self.remote, server.idempotent),
            approve=_is_in(self.remote, server.approve),
            timeout=server.timeout,
            limit=HARD_LIMIT,
        )

    def meaning(self) -> str:
        return f"{self.server.fingerprint} {self.remote}"

    def problem_with(self, arguments: Json) -> str:
        try:
            return super().problem_with(arguments)
        except Exception:  # a schema that is none: the server itself will judge
            return ""

    async def invoke(self, arguments: dict[str, Json], ctx: Context) -> Json:
        session = session_of(ctx.run, self.server)
        return await session.call(self.remote, arguments, self.timeout, ctx)


def _named(some: Some) -> tuple[str, ...]:
    return () if isinstance(some, bool) else some


def _is_in(name: str, some: Some) -> bool:
    return some if isinstance(some, bool) else name in some


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
    """Declare an MCP server: a program that speaks over its standard streams, or an address.

    A run starts it when it first needs it, watches it, starts it again up to three times when it
    dies, refuses it if its tools changed since the run first saw them, and ends it with the run.

    Args:
        name: what it is called, in the journal too.
        command: the program and its arguments, for stdio.
        url: its address, for streamable HTTP; in place of `command`.
        env: variables of its environment, beside HOME, PATH and the like; `${NAME}` in a value is
            read from ours when it starts.
        pass_env: names of variables that are handed on to it, for keys.
        cwd: the folder in which it runs.
        headers: sent with every request over HTTP; `${NAME}` as in `env`.
        token_env: the variable that holds the bearer token for HTTP.
        only: the tools that may be used; default: all.
        idempotent: whether calls may run twice if the process dies under them, for all or by name.
        approve: whether a person must agree to each call, for all or by name.
        timeout: seconds that one call may take; None for no limit but the loop's own.
        start_timeout: seconds for the handshake, and again for the list of tools.

    Raises:
        ConfigurationError: if it could not mean anything.

    >>> mcp_server("files", ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]).name
    'files'
    """
    if isinstance(command, str):
        raise ConfigurationError(
            f"server {name}: command: {command!r} is a text; give a list of words"
        )
    return McpServer(
        name=name,
        command=tuple(command),
        url=url,
        env=dict(env or {}),
        pass_env=tuple(pass_env),
        cwd=cwd,
        headers=dict(headers or {}),
        token_env=token_env,
        only=tuple(only),
        idempotent=idempotent if isinstance(idempotent, bool) else tuple(idempotent),
        approve=approve if isinstance(approve, bool) else tuple(approve),
        timeout=timeout,
        start_timeout=start_timeout,
    )
