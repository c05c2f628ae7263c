"""The keys, packages, servers, programs, folders and files of lists that a document needs and this machine lacks.

Rules:

1. Only the models of its prompts and judges, and its MCP servers, are checked.
2. Keys are looked up in the environment of the caller; their values are not used.
3. Only servers on this machine are contacted, each once, for at most TIMEOUT; nothing is sent.
4. If several models can replace each other, one that is available is enough.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..._extras import missing as missing_extra
from ..._extras import sentence
from ...coding.agents.calls import is_missing
from ...coding.workspace.store import problem_with_git
from ...errors import ConfigurationError, Problem
from ...models.protocol import Message, Request
from ...models.providers.endpoints import Endpoint, endpoint_of, is_loopback_name
from ...models.registry import split_model
from ...prompts.settings import PromptSettings

if TYPE_CHECKING:
    from ..project import LoadedDocument, LocalNeed
from ..project import Sent
from ..schema.tools import ServerSpec
from ..schema.traverse import commands_in, functions_in, parts

__all__ = ["missing"]

_LIST = re.compile(r"steps\[(\d+)\]\.each\.items")
TIMEOUT = 1.0  # seconds that a server on this machine may take to answer


def missing(
    loaded: LoadedDocument, environ: Mapping[str, str], *, offline: bool = False
) -> list[Problem]:
    """Return what a document needs and this machine lacks, each with its place and a remedy.

    `offline` contacts nothing.
    """
    servers = _Servers(offline=offline)
    result: list[Problem] = []
    for place, prompt_settings in loaded.asks:
        result += [
            replace(place, message=words)
            for words in _missing_for_models(prompt_settings, environ, servers)
        ]
    for file, document in loaded.documents.items():
        source = loaded.sources[file]
        for name, server in document.servers.items():
            at = ("servers", name)
            result += [
                source.problem(at, words) for words in _missing_for_server(server, environ, servers)
            ]
    for place, need in loaded.needs:
        if isinstance(need, Sent) and _may_be_written(loaded, place):
            continue
        if words := _missing_here(need):
            result.append(replace(place, message=words))
    return list(dict.fromkeys(result))


def _missing_here(need: LocalNeed) -> str:
    """Return the problem of a program, a folder, a file or git, or ""."""
    if need == "git":
        return problem_with_git()
    if isinstance(need, Path):
        return "" if need.is_dir() else f"there is no folder {str(need)!r}"
    if isinstance(need, Sent):
        there = need.path is None or need.folder or need.path.is_file()
        return "" if there else f"there is no file {need.written}"
    program = need.program[0]
    if not is_missing(program, {}):
        return ""
    hint = f"; install it with: {need.install}" if need.install else ""
    return f"there is no program {program!r} on PATH{hint}"


def _may_be_written(loaded: LoadedDocument, place: Problem) -> bool:
    """Return whether another step of the run may write the file of the list at a place."""
    (document, *called), step = loaded.documents.values(), _LIST.fullmatch(place.path)
    if called or step is None:
        return True
    others = [one for i, one in enumerate(document.steps) if i != int(step[1])]
    rest = document.model_copy(update={"steps": others})
    acts = any(
        getattr(part, "tools", None) or getattr(part, "tool", None) for part in parts(others)
    )
    return acts or any(commands_in(rest)) or any(functions_in(rest))


class _Servers:
    """The servers of this machine, each contacted once."""

    def __init__(self, *, offline: bool) -> None:
        self.offline = offline
        self._results: dict[tuple[str, int], bool] = {}

    def unreachable(self, url: str) -> bool:
        """Return whether no server answers at the address of a server on this machine."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        # A check must not contact hosts on the network: that could cost time, or reveal the project.
        if self.offline or not is_loopback_name(host):
            return False
        address = host, parts.port or (443 if parts.scheme == "https" else 80)
        if address not in self._results:
            self._results[address] = _connects(*address)
        return not self._results[address]


def _connects(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), TIMEOUT):
        return True
    return False


def _missing_for_models(
    prompt_settings: PromptSettings, environ: Mapping[str, str], servers: _Servers
) -> list[str]:
    """Return a problem for each model; none if one of them is available."""
    result = []
    for name in prompt_settings.models:
        words = _missing_for_model(name, prompt_settings, environ, servers)
        # Models of a list replace each other (rule 4).
        if not words:
            return []
        result.append(f"{name}: {words}")
    return result


def _missing_for_model(
    name: str, prompt_settings: PromptSettings, environ: Mapping[str, str], servers: _Servers
) -> str:
    provider, model = split_model(name)
    # The endpoint does not depend on the messages, but a request needs one.
    messages = (Message("user", "?"),)
    request = Request(
        messages,
        model,
        provider,
        base_url=prompt_settings.base_url,
        api_key_env=prompt_settings.api_key_env,
    )
    try:
        endpoint = endpoint_of(request, environ)
    except ConfigurationError as error:
        return str(error)
    if words := _missing_package(endpoint):
        return words
    if servers.unreachable(endpoint.base_url):
        return f"no server answers at {endpoint.base_url}; start it, or check with --offline"
    return ""


def _missing_package(endpoint: Endpoint) -> str:
    if not missing_extra(endpoint.extra):
        return ""
    return sentence(f"the provider {endpoint.provider}", endpoint.extra)


def _missing_for_server(
    server: ServerSpec, environ: Mapping[str, str], servers: _Servers
) -> Iterator[str]:
    if missing_extra("mcp"):
        yield sentence("an MCP server", "mcp")
    if server.token_env and not environ.get(server.token_env, "").strip():
        yield f"the server needs the token in {server.token_env}, which is not set in the environment"
    if server.url and servers.unreachable(server.url):
        yield f"no server answers at {server.url}; start it, or check with --offline"
