"""All providers behind one protocol, through the client library.

Rules:

1. The library is imported in a thread for the first real request, and never before.
2. One `complete` is one request: the retries of the library and the SDK are off.
3. The format of structured output that an endpoint supports is determined once and remembered.
4. Every failure is a `ModelError`, and no text in it contains a key.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..._extras import needs
from ...engine.functions import in_thread
from ...errors import ConfigurationError, ModelError
from ...records.json_schema import check_schema
from ...records.redaction import Redactor
from ..errors import error_from_json
from ..protocol import Reply, Request
from .endpoints import Allowed, Endpoint, endpoint_of

if TYPE_CHECKING:
    from .requests import Requests

__all__ = ["ProviderModel"]

# Of one response: far more than any reply, and less than the memory of a small machine.
MAX_BYTES = 64 * 1024 * 1024


class ProviderModel:
    """The models of all `PROVIDERS` and of compatible servers.

    It holds connections: use it with `async with`, or call `aclose`.

    Args:
        keys: keys by the name of their environment variable; default none. Loopwright does not read
            the environment here.
        places: addresses and regions of providers, by the name of their environment variable (see
            `PLACES`); default none.
        allowed: hosts, addresses and networks that are not public and may be called; default none.
        secrets: further values to remove from every message; default none.
        certificates: trusted certificates for https; default: the public authorities.
        max_bytes: the limit of one response in bytes; default 64 MiB.

    Raises:
        ConfigurationError: for an entry of `allowed` that is not a host, address or network.

    Example:

    >>> ProviderModel({"OPENAI_API_KEY": "sk-test"})
    ProviderModel(keys=['OPENAI_API_KEY'])
    """

    def __init__(
        self,
        keys: Mapping[str, str] | None = None,
        *,
        places: Mapping[str, str] | None = None,
        allowed: Iterable[str] = (),
        secrets: Iterable[str] = (),
        certificates: ssl.SSLContext | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.keys = dict(keys or {})
        self.places = dict(places or {})
        self.allowed = Allowed(allowed)
        self._secrets = tuple(secrets)
        self.redactor = Redactor([*self.keys.values(), *self._secrets])
        self.max_bytes = max_bytes
        self._loaded: set[str] = set()
        self._trusted = certificates
        self._requests: Requests | None = None

    def __repr__(self) -> str:
        return f"ProviderModel(keys={sorted(self.keys)})"

    async def __aenter__(self) -> ProviderModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that this event loop opened."""
        if self._requests is not None:
            await self._requests.aclose()

    def add_key(self, name: str, value: str) -> None:
        """Add a key by the name of its environment variable; it is removed from every message."""
        self.keys[name] = value
        self.redactor = Redactor([*self.keys.values(), *self._secrets])
        if self._requests is not None:
            self._requests.redactor = self.redactor

    def check(self, request: Request) -> tuple[str, ...]:
        """Check the endpoint of a request without a network connection; return remarks for people.

        Raises:
            ConfigurationError: for an invalid endpoint, key or schema.
        """
        if request.schema is not None:
            check_schema(request.schema)
        return endpoint_of(request, self.keys, self.places).notes

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        """Answer one request with at most one call to its endpoint; see Model.complete."""
        try:
            endpoint = endpoint_of(request, self.keys, self.places)
            requests = await self._prepared(endpoint, request.model)
            reply = await requests.ask(endpoint, request, on_text)
        except ConfigurationError as error:
            failure = ModelError(str(error), kind="permanent", reason="configuration")
            raise self._cleaned(failure, request) from None
        except ModelError as failure:
            raise self._cleaned(failure, request) from None
        # A server may send the key back, for example in an error quoted by the model.
        cleaned = Reply.from_json(self.redactor.clean(reply.to_json()))
        return replace(cleaned, usage=reply.usage, finish=reply.finish)

    async def _prepared(self, endpoint: Endpoint, model: str) -> Requests:
        """Load the modules that the first request needs in a thread, because it takes seconds.

        Raises:
            ConfigurationError: if the client of the provider is not installed.
        """
        subject = f"{endpoint.provider}:{model}"
        if self._requests is None:
            kind = await in_thread(_library, subject)
            if self._requests is None:  # another call may have set it during the import
                self._requests = kind(self.allowed, self.redactor, self.max_bytes, self._trusted)
        requests = self._requests
        if endpoint.api not in self._loaded:
            with needs(subject, endpoint.extra):
                await in_thread(requests.load, endpoint)
            self._loaded.add(endpoint.api)
        # Loading the certificates is slow, and local servers with plain http do not need them.
        if requests.trusted is None and endpoint.base_url.startswith("https:"):
            requests.trusted = await in_thread(requests.public_certificates)
        return requests

    def _cleaned(self, failure: ModelError, request: Request) -> ModelError:
        """Return an error without secrets in its message, its parts and its traceback."""
        words = {"kind": failure.kind, "reason": failure.reason, "billed": failure.billed}
        cleaned = error_from_json(
            {**self.redactor.clean(failure.to_json()), **words}, path=request.path
        )
        cleaned.usage = failure.usage
        return cleaned


def _library(subject: str) -> type[Requests]:
    """Import the client library; see rule 1."""
    with needs(subject, "models"):
        from .requests import Requests
    return Requests
