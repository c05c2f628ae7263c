"""The transport to an endpoint: it limits the destination, the headers and the response of a request.

Rules:

1. Only the endpoint's origin is called, at an address that was checked. Redirects are not followed.
2. The key is added here and nowhere else: no object of a library ever holds it. Without a key (Vertex AI)
   the signature of the provider's library is sent.
3. Of the headers that libraries add, only those that the call needs are sent.
4. A response is limited in size, uncompressed, and text: invalid UTF-8 becomes U+FFFD.
5. A complete response of a server that cannot stream becomes a stream of one chunk.
6. Chat Completions of servers that differ from OpenAI are repaired where the meaning is certain.
"""

from __future__ import annotations

import codecs
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar, cast

import httpx2

from ...errors import ModelError
from ...records.codec import Json
from .endpoints import Allowed, Endpoint, resolve

__all__ = ["EXCHANGE", "ResponseTrace", "Transport", "is_compressed"]

T = TypeVar("T")

MAX_BYTES = 64 * 1024 * 1024
# Of one event, or of a complete response: the longest replies of models have 1 MB, and a parsed value takes many times
# its text in memory, and stops the event loop while it is read.
MAX_MESSAGE = 4 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024  # enough for any message; an error may be an endless page
# The SDKs add headers with the system, the version of Python and their retries: facts of this machine.
_SENT = frozenset({
    "accept", "content-type", "content-length", "host", "user-agent", "anthropic-version",
    "anthropic-beta", "connection", "transfer-encoding",
})  # fmt: skip
_KEY_HEADERS = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}


@dataclass
class ResponseTrace:
    """One request and the part of its response that arrived, for the message of an error.

    `status` is 0 until a response begins. `headers` have lower-case names. `body` is the beginning of an
    error's body. `began` is true after the first event of a stream. `notes` are warnings for people.
    `sends` are the request's own headers.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    received: int = 0
    body: bytes = b""
    began: bool = False
    notes: list[str] = field(default_factory=list)
    sends: Mapping[str, str] = field(default_factory=dict)


EXCHANGE: ContextVar[ResponseTrace] = ContextVar("exchange")  # each call sets its own


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
        # The default of 100 connections would queue the calls of a large `parallel` while their timers run.
        # The default of 100 connections would queue the calls of a large `parallel` while their timers run.
        limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
        self._inner = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to a checked address and limit the response."""
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        origin = f"{url.scheme}://{url.host.lower().rstrip('.')}:{port}"
        # A library or a redirect could otherwise send the key and the messages elsewhere.
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
        if is_compressed(response.headers):
            await response.aclose()
            raise ModelError(
                f"{self.endpoint.host} compressed its response although the request forbids it",
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
        """Send to the first address that accepts a connection; before that, no data is sent."""
        for number, address in enumerate(addresses, start=1):
            try:
                return await self._inner.handle_async_request(self._pinned(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(addresses):
                    raise
        raise httpx2.ConnectError(f"{request.url.host} has no address")

    def _pinned(self, request: httpx2.Request, address: str) -> httpx2.Request:
        """Return the request for one address of its host, with the headers that are sent."""
        sent = _SENT | {"authorization"} if self.endpoint.api == "vertex" else _SENT
        headers = {k: v for k, v in request.headers.items() if k.lower() in sent}
        headers |= EXCHANGE.get(ResponseTrace()).sends  # they contain no key; see `checked_headers`
        headers["accept-encoding"] = "identity"
        if self.endpoint.key:
            name = _KEY_HEADERS.get(self.endpoint.api, "authorization")
            headers[name] = ("Bearer " if name == "authorization" else "") + self.endpoint.key
        return httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=headers,
            stream=request.stream,
            # The connection goes to an address, but the certificate is that of the name.
            extensions={**request.extensions, "sni_hostname": request.url.host},
        )

    def _bounded(self, response: httpx2.Response, exchange: ResponseTrace) -> httpx2.Response:
        stream = _Body(response, exchange, self.endpoint, self.max_bytes)
        wait_headers = [
            (k, v)
            for k, v in response.headers.items()
            if k.lower() in ("retry-after", "retry-after-ms")
        ]
        plain = "text/event-stream" if response.status_code < 300 else "application/json"
        return httpx2.Response(
            response.status_code,
            headers=[("content-type", plain), *wait_headers],
            stream=stream,
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def is_compressed(headers: httpx2.Headers) -> bool:
    """Return whether a response is encoded: a few kilobytes can expand to gigabytes, past any limit of bytes received."""
    return headers.get("content-encoding", "").strip().lower() not in ("", "identity")


class _Body(httpx2.AsyncByteStream):
    """The body of a response, limited and in UTF-8."""

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
        document: bytearray | None = None
        begun = False
        repair = ChunkRepair(active=self._endpoint.api == "chat")
        async for chunk in self._text():
            # Servers that ignore `stream: true` send one JSON document instead of events.
            if not begun:
                begun = bool(chunk.strip())
                document = self._first(chunk) if begun else None
            elif document is not None:
                document += chunk
            if max(len(document or b""), repair.pending) > MAX_MESSAGE:
                raise self._too_large(MAX_MESSAGE, "in one message")
            if begun and document is None:
                yield self._checked(repair.feed, chunk)
        if document is None:
            yield self._checked(repair.end, b"")
        else:
            yield self._as_stream(bytes(document))

    def _checked(self, read: Callable[[bytes], T], data: bytes) -> T:
        try:
            return read(data)
        except RepeatedKey:
            raise ModelError(
                f"{self._endpoint.host} sent an object with a repeated key, which is ambiguous",
                kind="permanent",
                reason="bad_response",
                billed="maybe",
            ) from None

    def _first(self, chunk: bytes) -> bytearray | None:
        """Return the beginning of a complete JSON response, or None for a stream."""
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
        """Iterate over the bytes as valid UTF-8, up to the limit."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        lossy = False
        async for chunk in self._chunks():
            self._exchange.received += len(chunk)
            if self._exchange.received > self._max:
                raise self._too_large(self._max)
            text = decoder.decode(chunk)
            # A reply may contain U+FFFD itself.
            if not lossy and text.count("\ufffd") > chunk.count(b"\xef\xbf\xbd"):
                lossy = True
                self._exchange.notes.append(
                    "invalid_utf8: invalid UTF-8 in the reply became U+FFFD"
                )
            yield text.encode()

    def _too_large(self, limit: int, where: str = "") -> ModelError:
        sent = f"more than {limit:,} bytes {where}".rstrip()
        return ModelError(
            f"{self._endpoint.host} sent {sent}; the response was cut off",
            kind="permanent",
            reason="output_too_large",
            billed="maybe",
        )

    async def _error(self) -> AsyncIterator[bytes]:
        """Iterate over the beginning of an error's body and keep it for the error message."""
        async for chunk in self._chunks():
            room = MAX_ERROR_BYTES - len(self._exchange.body)
            self._exchange.body += chunk[:room]
            yield chunk[:room]
            if len(chunk) >= room:
                return

    async def _chunks(self) -> AsyncIterator[bytes]:
        async for chunk in cast("AsyncIterator[bytes]", self._response.stream):
            yield chunk

    def _as_stream(self, body: bytes) -> bytes:
        """Return a complete chat completion as a stream of one chunk."""
        try:
            data = self._checked(decoded, body)
        except (ValueError, RecursionError) as error:
            raise self._unread(f"JSON that cannot be read: {error}") from None
        piece = as_chunk(data)
        if piece is None:
            raise self._unread("JSON that is not a chat completion")
        return b"data: " + json.dumps(piece).encode() + b"\n\ndata: [DONE]\n\n"

    def _unread(self, what: str) -> ModelError:
        return ModelError(
            f"{self._endpoint.base_url} answered with {what}",
            kind="transient",
            reason="bad_response",
            billed="maybe",
        )

    async def aclose(self) -> None:
        """Release the connection."""
        await self._response.aclose()


class RepeatedKey(ValueError):
    """An object of a response has a repeated key, so its meaning is ambiguous."""


class ChunkRepair:
    """Reads a stream of events line by line and refuses repeated keys.

    If `active`, it also removes a usage that is not a pair of token counts, so that the reply counts as
    one without usage and is not lost.
    """

    __slots__ = ("_active", "_pending")

    def __init__(self, *, active: bool) -> None:
        self._active = active
        self._pending = bytearray()

    @property
    def pending(self) -> int:
        """The bytes of the line that is not complete."""
        return len(self._pending)

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that are complete now, repaired.

        Raises:
            RepeatedKey: for an event with a repeated key.
        """
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._pending += chunk
            return b""
        lines = bytes(self._pending) + chunk[:end]
        self._pending = bytearray(chunk[end:])
        return b"".join(self._line(line) for line in lines.splitlines(keepends=True))

    def end(self, rest: bytes) -> bytes:
        """Return the text after the last line break, repaired."""
        line, self._pending = bytes(self._pending) + rest, bytearray()
        return self._line(line)

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:"):
            return line
        try:
            data = decoded(line[5:])
        except RepeatedKey:
            raise
        except (ValueError, RecursionError):
            return line
        if not self._active or not isinstance(data, dict) or "usage" not in data:
            return line
        figures = _figures(data["usage"])
        if figures == data["usage"]:
            return line
        return b"data: " + json.dumps({**data, "usage": figures}).encode() + b"\n"


def decoded(text: bytes) -> Json:
    """Return the value of JSON text.

    Raises:
        RepeatedKey: for an object with a repeated key.
        ValueError: for text that is not JSON.
    """
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise RepeatedKey("a key is repeated")
    return members


def _figures(usage: Json) -> dict[str, Json] | None:
    """Return the token counts of a usage, or None if one of the two counts is missing."""
    if not isinstance(usage, dict):
        return None
    counts: list[Json] = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    if not all(_is_count(count) for count in counts):
        return None
    figures: dict[str, Json] = {"prompt_tokens": counts[0], "completion_tokens": counts[1]}
    # Several servers send a total that is not the sum, and the SDK rejects the reply for it.
    figures["total_tokens"] = sum(counts)
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        details = usage.get(name)
        if isinstance(details, dict):
            figures[name] = {key: value for key, value in details.items() if _is_count(value)}
    return figures


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def as_chunk(data: Json) -> dict[str, Json] | None:
    """Return a complete chat completion as the only chunk of a stream, or None for other JSON."""
    if not isinstance(data, dict):
        return None
    if data.get("error"):
        return data
    choices = data.get("choices")
    if not isinstance(choices, list):
        return None
    converted = [_choice(choice) for choice in choices if isinstance(choice, dict)]
    kind = {"object": "chat.completion.chunk", "usage": _figures(data.get("usage"))}
    return {**data, **kind, "choices": converted}


def _choice(choice: dict[str, Json]) -> dict[str, Json]:
    message = choice.get("message")
    delta = dict(message) if isinstance(message, dict) else {}
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        delta["tool_calls"] = [
            {**call, "index": i} for i, call in enumerate(calls) if isinstance(call, dict)
        ]
    return {
        "index": choice.get("index", 0),
        "delta": delta,
        "finish_reason": choice.get("finish_reason"),
    }
