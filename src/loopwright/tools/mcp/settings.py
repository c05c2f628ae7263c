"""What is declared of an MCP server, as data: how it is started or reached, and what of it may be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...engine.step import digest_of
from ...errors import ConfigurationError
from ...records import codec
from ..base import NAME

__all__ = ["VARIABLE", "ServerSettings", "Some"]

VARIABLE = re.compile(r"\$\{(\w+)\}")  # in a value of `env` or `headers`: read from our environment

Some = bool | tuple[str, ...]


@dataclass(frozen=True)
class ServerSettings:
    """An MCP server and what of it may be used; see `mcp_server`."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    cwd: str | Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    token_env: str = ""
    only: tuple[str, ...] = ()
    idempotent: Some = False
    approve: Some = False
    timeout: float | None = 60.0
    start_timeout: float = 30.0

    def __post_init__(self) -> None:
        where = f"server {self.name}"
        if not NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"server: name: {self.name!r} cannot be one; use 1 to 64 letters, digits, - and _"
            )
        if bool(self.command) == bool(self.url):
            raise ConfigurationError(f"{where}: give either command, a list of words, or url")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"{where}: url: {self.url!r} is no http or https address")
        if self.timeout is not None:
            codec.number(f"{where}: timeout", self.timeout, least=0, above=True)
        codec.number(f"{where}: start_timeout", self.start_timeout, least=0, above=True)

    @property
    def fingerprint(self) -> str:
        """A digest of what is started and what of it may be used; no values of the environment."""
        # The path of a program is another on each machine; what it is called is not.
        program = [Path(self.command[0]).name, *self.command[1:]] if self.command else []
        shown = (program, self.url, sorted(self.env), self.only, self.idempotent, self.approve)
        return digest_of("mcp", self.name, repr(shown))
