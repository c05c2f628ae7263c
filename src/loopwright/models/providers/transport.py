"""The last step before the network: where a request may go, what it carries, what may come back.

Rules:

1. Only the endpoint's origin is called, at an address that was checked; redirects are not followed.
2. The key is put in here and nowhere before: no object of a library ever holds it. Where there is none (Vertex AI), what
   its library signs with the machine's own credentials goes out.
3. Of the headers that libraries add, only those that the call needs go out.
4. What comes back is bounded, uncompressed, and text: bytes that are no UTF-8 become U+FFFD.
5. A whole answer, sent by a server that cannot stream, is handed on as a stream of one piece.
"""

from __future__ import annotations

import codecs
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from ..address_policy import Allowed, resolve
from ..endpoints import Endpoint
from ..errors import EXCHANGE, ModelError, ResponseTrace
from .chunk_repair import ChunkRepair, RepeatedKey, as_chunk, decoded

__all__ = ["Transport"]

MAX_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
_SENT = frozenset({
    "accept", "content-type", "content-length", "host", "user-agent", "anthropic-version",
    "anthropic-beta", "connection", "transfer-encoding",
})  # fmt: skip
_KEY_HEADERS = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}


class Transport(httpx2.AsyncBaseTransport):
    """The connections to one endpoint."""

    def __init__(
        self,
        endpoint: Endpoint,
        allowed: Allowed,
        tls: ssl.SSLContext,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.endpoint = endpoint
        self.allowed = allowed
        self.max_bytes = max_bytes
        limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
        self._inner = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to the address that was checked and bound what comes back."""
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        origin = f"{url.scheme}://{url.host.lower().rstrip('.')}:{port}"
        if origin != self.endpoint.origin:
            raise ModelError(
                f"a request to {origin} was stopped: it is not {self.endpoint.origin}",
                kind="permanent",
                reason="address_refused",
            )
        exchange = EXCHANGE.get(ResponseTrace())
        response = await self._connected(request, await self._addresses(url.host, port))
        exchange.status = response.status_code
        exchange.headers = {key.lower(): value for key, value in response.headers.items()}
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            await response.aclose()
            raise ModelError(
                f"{self.endpoint.host} compressed its answer although it was asked not to",
                kind="permanent",
                reason="bad_response",
                billed="maybe",
            )
        return self._bounded(response, exchange)

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            return await resolve(host, port, self.allowed)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"{host} could not be resolved: {error}") from error

    async def _connected(self, request: httpx2.Request, addresses: list[str]) -> httpx2.Response:
        """Send to the first address that accepts a connection: until then nothing was sent."""
        for number, address in enumerate(addresses, start=1):
            try:
                return await self._inner.handle_async_request(self._pinned(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise httpx2.ConnectError(f"{request.url.host} has no address")

    def _pinned(self, request: httpx2.Request, address: str) -> httpx2.Request:
        """Return the request as it goes out, to an address, in the name of its host."""
        sent = _SENT | {"authorization"} if self.endpoint.api == "vertex" else _SENT
        headers = {k: v for k, v in request.headers.items() if k.lower() in sent}
        headers |= EXCHANGE.get(ResponseTrace()).sends  # they hold no key; see settings
        headers["accept-encoding"] = "identity"
        if self.endpoint.key:
            name = _KEY_HEADERS.get(self.endpoint.api, "authorization")
            headers[name] = ("Bearer " if name == "authorization" else "") + self.endpoint.key
        return httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": request.url.host},
        )

    def _bounded(self, response: httpx2.Response, exchange: ResponseTrace) -> httpx2.Response:
        stream = _Body(response, exchange, self.endpoint, self.max_bytes)
        kept = [
            (k, v)
            for k, v in response.headers.items()
            if k.lower() in ("retry-after", "retry-after-ms")
        ]
        plain = "text/event-stream" if response.status_code < 300 else "application/json"
        return httpx2.Response(
            response.status_code,
            headers=[("content-type", plain), *kept],
            stream=stream,
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, bounded and in UTF-8."""

    def __init__(
        self, response: httpx2.Response, exchange: ResponseTrace, endpoint: Endpoint, max_bytes: int
    ) -> None:
        self._response = response
        self._exchange = exchange
        self._endpoint = endpoint
        self._max = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._response.status_code >= 300:
            async for chunk in self._error():
                yield chunk
            return
        whole: bytearray | None = None
        begun = False
        mender = ChunkRepair(active=self._endpoint.api == "chat")
        async for chunk in self._text():
            if not begun:
                begun = bool(chunk.strip())
                whole = self._first(chunk) if begun else None
            elif whole is not None:
                whole += chunk
            if begun and whole is None:
                yield self._checked(mender.feed, chunk)
        yield self._checked(mender.rest) if whole is None else self._as_stream(bytes(whole))

    def _checked(self, read: Callable[..., Any], *given: bytes) -> Any:
        try:
            return read(*given)
        except RepeatedKey:
            raise ModelError(
                f"{self._endpoint.host} sent an object with a key twice; which one holds is unknown",
                kind="permanent",
                reason="bad_response",
                billed="maybe",
            ) from None

    def _first(self, chunk: bytes) -> bytearray | None:
        """Look at how an answer begins: a stream goes through, a whole one is collected."""
        start = chunk.lstrip()[:1]
        if start == b"<":
            kind = self._exchange.headers.get("content-type", "no content type")
            raise ModelError(
                f"{self._endpoint.base_url} answered with a web page ({kind}); check the model_url",
                kind="permanent",
                reason="bad_response",
                billed="maybe",
            )
        return bytearray(chunk) if start in b"{[" and self._endpoint.api == "chat" else None

    async def _text(self) -> AsyncIterator[bytes]:
        """Iterate over the bytes as valid UTF-8, up to the bound."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        lossy = False
        async for chunk in self._chunks():
            self._exchange.received += len(chunk)
            if self._exchange.received > self._max:
                raise ModelError(
                    f"{self._endpoint.host} sent more than {self._max:,} bytes; it was cut off",
                    kind="permanent",
                    reason="output_too_large",
                    billed="maybe",
                )
            text = decoder.decode(chunk)
            if not lossy and text.count("\ufffd") > chunk.count(b"\xef\xbf\xbd"):
                lossy = True
                self._exchange.notes.append("bytes of the reply that are no UTF-8 became U+FFFD")
            yield text.encode()

    async def _error(self) -> AsyncIterator[bytes]:
        """Iterate over the beginning of an error's body; it is kept, for what it says."""
        async for chunk in self._chunks():
            room = MAX_ERROR_BYTES - len(self._exchange.body)
            self._exchange.body += chunk[:room]
            yield chunk[:room]
            if len(chunk) >= room:
                return

    async def _chunks(self) -> AsyncIterator[bytes]:
        stream: Any = self._response.stream
        async for chunk in stream:
            yield chunk

    def _as_stream(self, body: bytes) -> bytes:
        """Return a whole chat completion as a stream of one piece."""
        try:
            data = self._checked(decoded, body)
        except (ValueError, RecursionError) as error:
            raise self._unread(f"JSON that cannot be read: {error}") from None
        piece = as_chunk(data)
        if piece is None:
            raise self._unread("JSON that is no chat completion")
        return b"data: " + json.dumps(piece).encode() + b"\n\ndata: [DONE]\n\n"

    def _unread(self, what: str) -> ModelError:
        return ModelError(
            f"{self._endpoint.base_url} answered with {what}",
            kind="transient",
            reason="bad_response",
            billed="maybe",
        )

    async def aclose(self) -> None:
        """Close the connection's turn."""
        await self._response.aclose()
