"""Requests through the client library: connections, the way of structured output, the answer as it comes.

Importing this takes seconds: `provider_model` does it when the first request is made.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from ...records.redaction import Redactor
from ..address_policy import Allowed
from ..endpoints import Endpoint
from ..errors import ResponseTrace, translate
from ..protocol import Reply, Request
from . import pydantic_ai as library
from . import stream as reading
from .transport import Transport

__all__ = ["Requests"]


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


class Requests:
    """Makes requests; `trusted` says whom https trusts, once that is known."""

    def __init__(
        self, allowed: Allowed, redactor: Redactor, max_bytes: int, trusted: ssl.SSLContext | None
    ) -> None:
        self.trusted = trusted
        self._allowed = allowed
        self._redactor = redactor
        self._max_bytes = max_bytes
        self._ladders: dict[tuple[str, str], _Ladder] = {}
        self._sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Session]
        self._sessions = weakref.WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the connections that this event loop opened."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        for client in session.clients.values() if session else ():
            await client.aclose()

    @staticmethod
    def load(endpoint: Endpoint) -> None:
        """Import the client library, its table of prices, and what one API needs of both."""
        for name in ("genai_prices.data", "anyio.streams.stapled", "pydantic_ai.models.openai"):
            importlib.import_module(name)
        # Much is loaded only when a model is made; one that is thrown away has it loaded.
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client = httpx2.AsyncClient(verify=nobody, timeout=None, trust_env=False)
        library.build(endpoint, "none", client, "prompted")

    @staticmethod
    def public_certificates() -> ssl.SSLContext:
        return httpx2.create_ssl_context(trust_env=False)

    async def ask(
        self,
        endpoint: Endpoint,
        request: Request,
        exchange: ResponseTrace,
        on_text: Callable[[str], None] | None,
    ) -> Reply:
        ladder = self._ladder(endpoint, request)
        rung = ladder.rung
        model = self._model(endpoint, request.model, rung)
        asked = library.asked(endpoint, model, request, rung)
        answer = reading.StreamedReply()
        notes = [*endpoint.notes, *asked.notes]
        listener = _Listener(on_text, self._redactor, notes)
        formatted = request.schema is not None and not ladder.last and not ladder.proven
        try:
            await reading.read(
                model, asked, request, answer, exchange=exchange, on_text=listener.hear
            )
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
        key = (endpoint.base_url, request.model)
        if key not in self._ladders:
            model = self._model(endpoint, request.model, "json_schema")
            self._ladders[key] = _Ladder(library.rungs(endpoint, model))
        return self._ladders[key]

    def _model(self, endpoint: Endpoint, name: str, rung: str) -> Any:
        for loop in [loop for loop in self._sessions if loop.is_closed()]:
            del self._sessions[loop]
        session = self._sessions.setdefault(asyncio.get_running_loop(), _Session())
        key = (endpoint, name, rung)
        if key not in session.models:
            client = self._client(endpoint, session)
            session.models[key] = library.build(endpoint, name, client, rung)
        return session.models[key]

    def _client(self, endpoint: Endpoint, session: _Session) -> httpx2.AsyncClient:
        if endpoint not in session.clients:
            # Where no certificate will be needed, one that trusts nobody: cheap, and fails safe.
            tls = self.trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            transport = Transport(endpoint, self._allowed, tls, self._max_bytes)
            session.clients[endpoint] = httpx2.AsyncClient(
                transport=transport, timeout=None, follow_redirects=False, trust_env=False
            )
        return session.clients[endpoint]


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
