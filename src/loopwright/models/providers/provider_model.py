"""Real models: every provider behind the one protocol, through the client library.

Rules:

1. The library is imported when the first real request is made, in a thread, and never before.
2. One `complete` is one request: the library's and the SDK's own retries are off.
3. Which way of structured output an endpoint understands is found out once and remembered here.
4. Whatever goes wrong is a `ModelError`, and no text that leaves holds a key.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...engine.threads import in_thread
from ...errors import ConfigurationError
from ...records.redaction import Redactor
from ..address_policy import Allowed
from ..endpoints import Endpoint, endpoint_of
from ..errors import EXCHANGE, ModelError, ResponseTrace, error_from_json
from ..protocol import Reply, Request
from ..structured_output import check_schema

if TYPE_CHECKING:
    from .requests import Requests

__all__ = ["ProviderModel"]

MAX_BYTES = 64 * 1024 * 1024


class ProviderModel:
    """The models of all `PROVIDERS`, and of compatible servers.

    Args:
        keys: keys by the name of their environment variable; whoever calls has read them.
        places: where providers are, by the name of the environment variable that says it: see `PLACES`.
        allowed: hosts and networks that are not public and may be called; see Allowed.
        secrets: further values that no message may contain.
        certificates: whom to trust at https; default: the public authorities.
        max_bytes: the most that one answer may have on the wire.

    It holds connections: use it as `async with`, or call `aclose`.
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
        self.redactor = Redactor([*self.keys.values(), *secrets])
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

    def check(self, request: Request) -> tuple[str, ...]:
        """Return remarks on where a request would go, without going there.

        Raises:
            ConfigurationError: for an endpoint, a key or a schema that cannot be.
        """
        if request.schema is not None:
            check_schema(request.schema)
        return endpoint_of(request, self.keys, self.places).notes

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        """Answer one request with at most one call to its endpoint; see Model.complete."""
        exchange = ResponseTrace(sends=request.headers)
        EXCHANGE.set(exchange)
        try:
            endpoint = endpoint_of(request, self.keys, self.places)
            requests = await self._prepared(endpoint)
            reply = await requests.ask(endpoint, request, exchange, on_text)
        except ConfigurationError as error:
            fault = ModelError(str(error), kind="permanent", reason="configuration")
            raise self._cleaned(fault, request) from None
        except ModelError as fault:
            raise self._cleaned(fault, request) from None
        cleaned = Reply.from_json(self.redactor.clean(reply.to_json()))
        return replace(cleaned, usage=reply.usage, finish=reply.finish)

    async def _prepared(self, endpoint: Endpoint) -> Requests:
        """Load what the first request needs, beside the event loop: it takes seconds."""
        if self._requests is None:
            kind = await in_thread(_library)
            if self._requests is None:  # no other call has made it meanwhile
                self._requests = kind(self.allowed, self.redactor, self.max_bytes, self._trusted)
        requests = self._requests
        if endpoint.api not in self._loaded:
            await in_thread(requests.load, endpoint)
            self._loaded.add(endpoint.api)
        if requests.trusted is None and endpoint.base_url.startswith("https:"):
            requests.trusted = await in_thread(requests.public_certificates)
        return requests

    def _cleaned(self, fault: ModelError, request: Request) -> ModelError:
        """Return a fault without secrets, in its message, its parts or its traceback."""
        words = {"kind": fault.kind, "reason": fault.reason, "billed": fault.billed}
        made = error_from_json({**self.redactor.clean(fault.to_json()), **words}, path=request.path)
        made.usage = fault.usage
        return made


def _library() -> type[Requests]:
    """Import the client library; see rule 1."""
    from .requests import Requests

    return Requests
