"""Try providers with their keys: one request for the list of models, which costs nothing.

Importing this module loads the HTTP client.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import httpx2

from ...errors import ConfigurationError, ModelError
from ..protocol import Message, Request
from .endpoints import ALIASES, PLACES, PROVIDERS, Allowed, Endpoint, endpoint_of
from .transport import EXCHANGE, ResponseTrace, Transport

__all__ = ["ProviderReport", "try_providers"]

SECONDS = 10.0  # for one provider; a slower list of models is of no use to a person who waits
MAX_MODEL_LIST = 16 * 1024 * 1024  # a list of models has a few MB
_LISTS = {"anthropic": "/v1/models", "gemini": "/v1beta/models"}
_VERSIONS = {"anthropic": {"anthropic-version": "2023-06-01"}}

State = Literal["ready", "no key", "refused", "unreachable", "error", "not tried"]


@dataclass(frozen=True, slots=True)
class ProviderReport:
    """The state of one provider here.

    Args:
        provider: the name of the provider.
        state: `ready`, `no key`, `refused` (the key), `unreachable`, `error`, or `not tried`.
        detail: the reason, and a remedy.
        url: the address; default "".
        account: the environment variable with the key; default "".

    Example:

    >>> ProviderReport("ollama", "unreachable", "start the server").ok
    False
    """

    provider: str
    state: State
    detail: str
    url: str = ""
    account: str = ""

    @property
    def ok(self) -> bool:
        """Whether the provider answered."""
        return self.state == "ready"


async def try_providers(
    names: Sequence[str],
    environ: Mapping[str, str],
    *,
    base_url: str = "",
    api_key_env: str = "",
    allowed: Allowed | None = None,
) -> list[ProviderReport]:
    """Ask each provider for its models, all at once, and report the answers.

    Args:
        names: the providers.
        environ: the environment with the keys and addresses.
        base_url: the address of another server; default: the provider's own.
        api_key_env: the environment variable with the key for `base_url`; default: no key.
        allowed: private hosts that may be called; default none.

    Returns:
        A report for each provider, in order.
    """
    tls = httpx2.create_ssl_context(trust_env=False)
    reports = []
    for name in names:
        # The endpoint does not depend on the messages and the model.
        request = Request(
            (Message("user", "?"),), "any", name, base_url=base_url, api_key_env=api_key_env
        )
        reports.append(_try(name, request, environ, allowed=allowed or Allowed(), tls=tls))
    return list(await asyncio.gather(*reports))


async def _try(
    name: str,
    request: Request,
    environ: Mapping[str, str],
    *,
    allowed: Allowed,
    tls: ssl.SSLContext,
) -> ProviderReport:
    places = {place: environ[place] for place in PLACES if environ.get(place)}
    try:
        endpoint = endpoint_of(request, environ, places)
    except ConfigurationError as error:
        provider = PROVIDERS.get(ALIASES.get(name, name))
        lacks = provider is not None and not any(environ.get(key) for key in provider.keys)
        return ProviderReport(
            name, "no key" if lacks else "error", str(error).removeprefix(f"{name}: ")
        )
    # These have no key to send, and signing a request loads the provider's library.
    if endpoint.api in ("bedrock", "vertex"):
        detail = "its library signs requests with the credentials of this machine; run a prompt to try it"
        return ProviderReport(name, "not tried", detail, endpoint.base_url, endpoint.account)
    try:
        async with asyncio.timeout(SECONDS):
            status = await _endpoint_status(endpoint, allowed, tls)
    except (ModelError, httpx2.HTTPError, OSError, TimeoutError) as error:
        why = str(error) or f"no answer within {SECONDS:g} s"
        detail = f"no server answers at {endpoint.origin} ({why}); start it, or check the address"
        return ProviderReport(name, "unreachable", detail, endpoint.base_url, endpoint.account)
    state, detail = _meaning(status, endpoint)
    return ProviderReport(name, state, detail, endpoint.base_url, endpoint.account)


async def _endpoint_status(endpoint: Endpoint, allowed: Allowed, tls: ssl.SSLContext) -> int:
    """Return the status of a request for the list of models."""
    EXCHANGE.set(ResponseTrace(sends=_VERSIONS.get(endpoint.api, {})))
    transport = Transport(endpoint, allowed, tls, MAX_MODEL_LIST)
    async with httpx2.AsyncClient(
        transport=transport, timeout=None, follow_redirects=False, trust_env=False
    ) as client:
        url = endpoint.base_url + _LISTS.get(endpoint.api, "/models")
        async with client.stream("GET", url) as response:
            return response.status_code


def _meaning(status: int, endpoint: Endpoint) -> tuple[State, str]:
    key = endpoint.account or "a key"
    if status in (401, 403):
        return "refused", f"{endpoint.origin} refused {key} (status {status}); check the key"
    if status >= 500:
        return "error", f"{endpoint.origin} answered status {status}; try again later"
    # A limit applies to an account, so the key was accepted.
    if status == 429:
        return "ready", f"answered status 429: {key} is accepted and has no room now"
    # A server without a list of models still answers requests.
    return "ready", f"answered status {status}" if status >= 300 else "answered"
