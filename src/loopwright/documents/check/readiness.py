"""What a document needs on this machine and does not find: keys, packages, servers.

Rules:

1. Only what would be asked is looked for: the models of its prompts and judges, its MCP servers.
2. Keys are looked up in the environment that the caller hands in; their values go nowhere.
3. Only servers on this machine are contacted, each once, for as long as TIMEOUT; nothing is sent.
4. Of several models that stand in for each other, one that can be asked is enough.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...errors import ConfigurationError, Problem
from ...models.endpoints import Endpoint, endpoint_of, is_loopback_name
from ...models.protocol import Message, Request
from ...prompts.prompt import PromptSettings, split_model

if TYPE_CHECKING:
    from ..project import LoadedDocument
from ..schema.tools import ServerSpec

__all__ = ["missing"]

TIMEOUT = 1.0  # seconds that a server on this machine may take to answer
_PACKAGES = {"anthropic": ("anthropic", "anthropic"), "gemini": ("google.genai", "google")}
_MCP = "mcp"


def missing(
    loaded: LoadedDocument, environ: Mapping[str, str], *, offline: bool = False
) -> list[Problem]:
    """Return what is missing here for a document to run, each with its place and what to do.

    `offline` contacts nothing.
    """
    doors = _Doors(offline=offline)
    found: list[Problem] = []
    for place, asking in loaded.asks:
        found += [replace(place, message=words) for words in _of_models(asking, environ, doors)]
    for file, document in loaded.documents.items():
        source = loaded.sources[file]
        for name, server in document.servers.items():
            at = ("servers", name)
            found += [source.problem(at, words) for words in _of_server(server, environ, doors)]
    return list(dict.fromkeys(found))


class _Doors:
    """The servers of this machine: whether something answers there, asked once each."""

    def __init__(self, *, offline: bool) -> None:
        self.offline = offline
        self._known: dict[tuple[str, int], bool] = {}

    def closed(self, url: str) -> bool:
        """Return whether nothing answers at the address of a server on this machine."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if self.offline or not is_loopback_name(host):
            return False
        door = host, parts.port or (443 if parts.scheme == "https" else 80)
        if door not in self._known:
            self._known[door] = _answers(*door)
        return not self._known[door]


def _answers(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), TIMEOUT):
        return True
    return False


def _of_models(asking: PromptSettings, environ: Mapping[str, str], doors: _Doors) -> list[str]:
    """Return what keeps every one of the models from being asked; nothing if one can be."""
    found = []
    for name in asking.models:
        words = _of_model(name, asking, environ, doors)
        if not words:
            return []
        found.append(f"{name}: {words}")
    return found


def _of_model(name: str, asking: PromptSettings, environ: Mapping[str, str], doors: _Doors) -> str:
    provider, model = split_model(name)
    asked = (Message("user", "?"),)  # what is asked has no part in where
    request = Request(
        asked, model, provider, base_url=asking.base_url, api_key_env=asking.api_key_env
    )
    try:
        endpoint = endpoint_of(request, environ)
    except ConfigurationError as error:
        return str(error)
    if words := _of_package(endpoint):
        return words
    if doors.closed(endpoint.base_url):
        return f"nothing answers at {endpoint.base_url}; start the server, or check with --offline"
    return ""


def _of_package(endpoint: Endpoint) -> str:
    package, extra = _PACKAGES.get(endpoint.api, ("", ""))
    if not package or _installed(package):
        return ""
    return f"the package {package} is not installed; install loopwright[{extra}]"


def _of_server(server: ServerSpec, environ: Mapping[str, str], doors: _Doors) -> Iterator[str]:
    if not _installed(_MCP):
        yield "MCP servers need a package that is not installed; install loopwright[mcp]"
    if server.token_env and not environ.get(server.token_env, "").strip():
        yield f"the server needs the token in {server.token_env}, which is not set in the environment"
    if server.url and doors.closed(server.url):
        yield f"nothing answers at {server.url}; start the server, or check with --offline"


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # a package above it is not there
        return False
