"""Real models: every provider behind the one protocol, through the client library.

Rules:

1. The library is imported when the first real request is made, in a thread, and never before.
2. One `complete` is one request: the library's and the SDK's own retries are off.
3. Which way of structured output an endpoint understands is found out once and remembered here.
4. Whatever goes wrong is a `ModelFault`, and no text that leaves holds a key.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from ..threads import in_thread
from .addresses import Allowed
from .endpoints import Endpoint, endpoint_of
from .exchange import EXCHANGE, Exchange
from .faults import ModelFault, translate
from .protocol import Reply, Request
from .redaction import Redactor
from .structured import check_schema

if TYPE_CHECKING:
    import httpx2

__all__ = ["ProviderModel"]

MAX_BYTES = 64 * 1024 * 1024


class _Ladder:
    """Which way of structured output one model at one endpoint understands, as far as is known."""

    __slots__ = ("at", "proven", "rungs")

    def __init__(self, rungs: tuple[str, ...]) -> None:
        self.rungs = rungs
        self.at = 0
        self.proven = False

    @property
    def rung(self) -> str:
        """The way to ask next."""
        return self.rungs[self.at]

    @property
    def last(self) -> bool:
        """Whether there is no other way left."""
        return self.at == len(self.rungs) - 1

    def failed(self, rung: str) -> None:
        """Go one way down, unless another call did, or this way is known to work."""
        if rung == self.rung and not self.last and not self.proven:
            self.at += 1


@dataclass
class _Session:
    """What belongs to one event loop: connections by endpoint, and the library's models."""

    clients: dict[Endpoint, httpx2.AsyncClient] = field(default_factory=dict)
    models: dict[tuple[Endpoint, str, str], Any] = field(default_factory=dict)


class ProviderModel:
    """The models of openai, anthropic, gemini, deepseek, ollama, lm_studio and compatible servers.

    Args:
        keys: keys by the name of their environment variable; whoever calls has read them.
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
        allowed: Iterable[str] = (),
        secrets: Iterable[str] = (),
        certificates: ssl.SSLContext | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.keys = dict(keys or {})
        self.allowed = Allowed(allowed)
        self.redactor = Redactor([*self.keys.values(), *secrets])
        self.max_bytes = max_bytes
        self._loaded: set[str] = set()
        self._trusted = certificates
        self._ladders: dict[tuple[str, str], _Ladder] = {}
        self._sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Session]
        self._sessions = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"ProviderModel(keys={sorted(self.keys)})"

    async def __aenter__(self) -> ProviderModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that this event loop opened."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        for client in session.clients.values() if session else ():
            await client.aclose()

    def check(self, request: Request) -> tuple[str, ...]:
        """Return remarks on where a request would go, without going there.

        Raises:
            ConfigurationError: for an endpoint, a key or a schema that cannot be.
        """
        if request.schema is not None:
            check_schema(request.schema)
        return endpoint_of(request, self.keys).notes

    async def complete(
        self, request: Request, *, on_text: Callable[[str], None] | None = None
    ) -> Reply:
        """Answer one request with at most one call to its endpoint; see Model.complete."""
        exchange = Exchange()
        EXCHANGE.set(exchange)
        try:
            endpoint = endpoint_of(request, self.keys)
            await self._prepare(endpoint)
            reply = await self._ask(endpoint, request, exchange, on_text)
        except ConfigurationError as error:
            fault = ModelFault(str(error), kind="permanent", reason="configuration")
            raise self._cleaned(fault, request) from None
        except ModelFault as fault:
            raise self._cleaned(fault, request) from None
        cleaned = Reply.from_json(self.redactor.clean(reply.to_json()))
        return replace(cleaned, usage=reply.usage, finish=reply.finish)

    async def _prepare(self, endpoint: Endpoint) -> None:
        """Load what the first request needs, beside the event loop: it takes seconds."""
        if endpoint.api not in self._loaded:
            await in_thread(_load, endpoint)
            self._loaded.add(endpoint.api)
        if self._trusted is None and endpoint.base_url.startswith("https:"):
            self._trusted = await in_thread(_public_certificates)

    async def _ask(
        self,
        endpoint: Endpoint,
        request: Request,
        exchange: Exchange,
        on_text: Callable[[str], None] | None,
    ) -> Reply:
        # Loaded by now; see rule 1.
        from . import library, reading

        ladder = self._ladder(endpoint, request)
        rung = ladder.rung
        model = self._model(endpoint, request.model, rung)
        asked = library.asked(endpoint, model, request, rung)
        answer = reading.Answer()
        notes = [*endpoint.notes, *asked.notes]
        listener = _Listener(on_text, self.redactor, notes)
        formatted = request.schema is not None and not ladder.last and not ladder.proven
        try:
            await reading.read(model, asked, request, answer, exchange, listener.hear)
            listener.end()
            notes += exchange.notes
            reply = reading.reply_of(answer, endpoint, request, rung, tuple(notes))
        except Exception as error:  # nothing that an endpoint sends gets past this line
            what = f"{request.provider}/{request.model}"
            fault = translate(error, exchange, what, formatted=formatted)
            fault.partial = fault.partial or answer.text
            fault.usage = fault.usage or answer.usage()
            if request.schema is not None and (
                fault.reason == "format_unsupported" or fault.kind == "malformed"
            ):
                ladder.failed(rung)
            raise fault from None
        if reply.data is not None:
            ladder.proven = True
        return reply

    def _ladder(self, endpoint: Endpoint, request: Request) -> _Ladder:
        from . import library

        key = (endpoint.base_url, request.model)
        if key not in self._ladders:
            model = self._model(endpoint, request.model, "json_schema")
            self._ladders[key] = _Ladder(library.rungs(endpoint, model))
        return self._ladders[key]

    def _model(self, endpoint: Endpoint, name: str, rung: str) -> Any:
        from . import library

        for loop in [loop for loop in self._sessions if loop.is_closed()]:
            del self._sessions[loop]
        session = self._sessions.setdefault(asyncio.get_running_loop(), _Session())
        key = (endpoint, name, rung)
        if key not in session.models:
            client = self._client(endpoint, session)
            session.models[key] = library.build(endpoint, name, client, rung)
        return session.models[key]

    def _client(self, endpoint: Endpoint, session: _Session) -> httpx2.AsyncClient:
        import httpx2

        from .transport import Transport

        if endpoint not in session.clients:
            # Where no certificate will be needed, one that trusts nobody: cheap, and fails safe.
            tls = self._trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            transport = Transport(endpoint, self.allowed, tls, self.max_bytes)
            session.clients[endpoint] = httpx2.AsyncClient(
                transport=transport, timeout=None, follow_redirects=False, trust_env=False
            )
        return session.clients[endpoint]

    def _cleaned(self, fault: ModelFault, request: Request) -> ModelFault:
        """Return a fault without secrets, in its message, its parts or its traceback."""
        words = {"kind": fault.kind, "reason": fault.reason, "billed": fault.billed}
        made = ModelFault.from_json(
            {**self.redactor.clean(fault.to_json()), **words}, path=request.path
        )
        made.usage = fault.usage
        return made


def _load(endpoint: Endpoint) -> None:
    """Import the client library, its table of prices, and what one API needs of both."""
    for name in ("genai_prices.data", "anyio.streams.stapled", "pydantic_ai.models.openai"):
        importlib.import_module(name)
    import httpx2

    from . import library, reading, transport

    del reading, transport
    # Much is loaded only when a model is made; one that is thrown away has it loaded.
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client = httpx2.AsyncClient(verify=nobody, timeout=None, trust_env=False)
    library.build(endpoint, "none", client, "prompted")


def _public_certificates() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


class _Listener:
    """Whoever listens to the text: it cannot break the call, and never hears a secret."""

    def __init__(
        self, on_text: Callable[[str], None] | None, redactor: Redactor, notes: list[str]
    ) -> None:
        self._on_text = on_text
        self._filter = redactor.streamed()
        self._notes = notes

    def hear(self, piece: str) -> None:
        if self._on_text is not None:
            self._tell(self._filter.feed(piece))

    def end(self) -> None:
        if self._on_text is not None:
            self._tell(self._filter.flush())

    def _tell(self, text: str) -> None:
        if not text or self._on_text is None:
            return
        try:
            self._on_text(text)
        except Exception as error:  # a listener watches; it never steers
            self._on_text = None
            self._notes.append(f"a listener to the text failed: {error}")
