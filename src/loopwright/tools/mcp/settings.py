"""The declaration of an MCP server as data: how to start or reach it, and which tools may be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...engine.step import digest_of
from ...errors import ConfigurationError
from ...records import codec
from ..base import NAME

__all__ = ["VARIABLE", "Selection", "ServerSettings"]

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
