"""The transport to an endpoint: it limits what is sent and received, and names the model error of a failure.

1. Only the endpoint's origin is called, at an address that was checked. Redirects are not followed.
2. The key is added here and nowhere else: no object of a library ever holds it. Without a key (Vertex AI)
   the signature of the provider's library is sent.
3. Of the headers that libraries add, only those that the call needs are sent.
4. A response is limited in size, uncompressed, and text: invalid UTF-8 becomes U+FFFD.
5. A complete response of a server that cannot stream becomes a stream of one chunk.
6. Chat Completions of servers that differ from OpenAI are repaired where the meaning is certain.

`try_providers` tries providers with their keys by one request for the list of models, which costs nothing.
Importing this module loads the HTTP client and the client library.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import math
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Literal, TypeVar, cast

import httpx2
from pydantic_ai import exceptions as library

from ...errors import ConfigurationError, ModelError, without_validation
from ...records.codec import Json
from ...records.display import cut
from ..protocol import Message, Request
from .endpoints import ALIASES, PLACES, PROVIDERS, Allowed, Endpoint, endpoint_of, resolve

__all__ = [
    "EXCHANGE",
    "EndpointStatus",
    "ProviderReport",
    "ResponseTrace",
    "Transport",
    "from_status",
    "is_compressed",
    "retry_after",
    "translate",
    "try_providers",
]

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
        try:
            addresses = await resolve(url.host, port, self.allowed)
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(f"{url.host} could not be resolved: {error}") from error
        # The first address that accepts a connection; before that, no data is sent.
        for number, address in enumerate(addresses, start=1):
            try:
                response = await self._inner.handle_async_request(self._pinned(request, address))
                break
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(addresses):
                    raise
        else:
            raise httpx2.ConnectError(f"{request.url.host} has no address")
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
            return
        try:
            data = self._checked(decoded, bytes(document))
        except (ValueError, RecursionError) as error:
            raise self._unread(f"JSON that cannot be read: {error}") from None
        # A complete chat completion is a stream of one chunk.
        piece = as_chunk(data)
        if piece is None:
            raise self._unread("JSON that is not a chat completion")
        yield b"data: " + json.dumps(piece).encode() + b"\n\ndata: [DONE]\n\n"

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
    converted = []
    for choice in choices:
        if isinstance(choice, dict):
            message = choice.get("message")
            delta = dict(message) if isinstance(message, dict) else {}
            calls = delta.get("tool_calls")
            if isinstance(calls, list):
                delta["tool_calls"] = [
                    {**call, "index": i} for i, call in enumerate(calls) if isinstance(call, dict)
                ]
            index, finish = choice.get("index", 0), choice.get("finish_reason")
            converted.append({"index": index, "delta": delta, "finish_reason": finish})
    kind = {"object": "chat.completion.chunk", "usage": _figures(data.get("usage"))}
    return {**data, **kind, "choices": converted}


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
            # Of a request for the list of models.
            EXCHANGE.set(ResponseTrace(sends=_VERSIONS.get(endpoint.api, {})))
            transport = Transport(endpoint, allowed, tls, MAX_MODEL_LIST)
            url = endpoint.base_url + _LISTS.get(endpoint.api, "/models")
            async with (
                httpx2.AsyncClient(
                    transport=transport, timeout=None, follow_redirects=False, trust_env=False
                ) as client,
                client.stream("GET", url) as response,
            ):
                status = response.status_code
    except (ModelError, httpx2.HTTPError, OSError, TimeoutError) as error:
        why = str(error) or f"no answer within {SECONDS:g} s"
        detail = f"no server answers at {endpoint.origin} ({why}); start it, or check the address"
        return ProviderReport(name, "unreachable", detail, endpoint.base_url, endpoint.account)
    state, detail = _meaning(status, endpoint)
    return ProviderReport(name, state, detail, endpoint.base_url, endpoint.account)


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


MESSAGE_CHARS = 500  # of an endpoint's message, which may quote the entire request
MAX_RETRY_AFTER = 31 * 86_400.0  # seconds: the longest quotas are monthly
# The digits are limited, so that a hostile header costs no time.
_SECONDS = re.compile(r"[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,6})?")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that response headers ask the caller to wait, or None.

    Reads `retry-after-ms`, then `Retry-After` as seconds or as an HTTP date (RFC 9110, 10.2.3). `now` is
    the time in seconds since the epoch. Negative and malformed values give None.
    """
    if (match := _SECONDS.fullmatch(headers.get("retry-after-ms", "").strip())) is not None:
        return _bounded(float(match[0]) / 1000)
    text = headers.get("retry-after", "").strip()
    if (match := _SECONDS.fullmatch(text)) is not None:
        return _bounded(float(match[0]))
    moment = _moment(text)
    if moment is None:
        return None
    # The server's own clock counts, because the clock of this machine may differ.
    base = _moment(headers.get("date", ""))
    return _bounded(max(0.0, moment - (now if base is None else base)))


def _bounded(seconds: float | None) -> float | None:
    if seconds is None or math.isnan(seconds) or seconds < 0:
        return None
    # Bounded and not rejected: a very large number must not become permission to call at once.
    return min(seconds, MAX_RETRY_AFTER)


def _moment(text: str) -> float | None:
    """Return the seconds since the epoch of an HTTP date, or None."""
    if not 10 <= len(text) <= 40 or not text.isascii():
        return None
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """An error as an endpoint reports it: the HTTP status, its code and type words, its message.

    `headers` have lower-case names. `retry_after` is the wait in seconds that the client library read.
    `hint` is the cause that the provider's own vocabulary implies. `formatted` means that the request
    asked for a format that the endpoint may not support.
    """

    code: int
    word: str = ""
    message: str = ""
    headers: Mapping[str, str] | None = None
    retry_after: float | None = None
    hint: str = ""
    formatted: bool = False


# Google reports a limit per minute with the words of an exhausted quota; its details tell them apart.
_QUOTA = re.compile(
    r"^(?!.*resource_exhausted).*(?:"
    r"insufficient_quota|billing_(?:hard|not|error|limit)|exceeded_current_quota|quota_exceeded"
    r"|exceeded your current quota|credit[_ ]balance|(?:insufficient|more|out of) balance"
    r"|(?:insufficient|more|out of) credits"
    r"|spend_limit|usage_limit_(?:reached|exceeded)|payment required)",
    re.DOTALL,
)
# No status is reserved for these cases: providers use 400, 413 or 422 with words of their own.
_CONTEXT = re.compile(
    r"context_length_exceeded|context length|context window|maximum context|prompt is too long"
    r"|too many tokens|reduce the length|input token count|input is too long|context size"
)
_FILTER = re.compile(r"content_filter|content_policy|content management policy|moderation_blocked")
_FORMAT = re.compile(
    r"response_format|json_schema|json_object|json mode|structured output|tool_choice|tool use"
    r"|does not support tools|support tool|\btools\b|guided_json|\bgrammar\b|output_config"
)


@dataclass(frozen=True, slots=True)
class _Cause:
    """A row of the table: which statuses, words in the text or hints mean this kind and reason."""

    kind: str
    reason: str
    codes: Collection[int]
    words: re.Pattern[str] | None = None
    hint: str = "-"

    def matches(self, status: EndpointStatus, text: str) -> bool:
        if status.hint == self.hint:
            return True
        return status.code in self.codes and (self.words is None or bool(self.words.search(text)))


# The first row that matches counts. Quota and context stand before "throttled": providers report them with
# status 429 or 400 as well, and waiting would not help.
_CAUSES = (
    _Cause("permanent", "redirect", range(300, 400)),
    _Cause("quota", "", {402}, hint="quota"),
    _Cause("quota", "", {400, 403, 429}, _QUOTA),
    _Cause("permanent", "context_too_long", {*range(400, 500)} - {429}, _CONTEXT, "context"),
    _Cause("throttled", "", {429}, hint="throttled"),
    _Cause("refused", "content_filter", {400, 403}, _FILTER),
    _Cause("transient", "status", {408, 409, 425, *range(500, 1000)}, hint="transient"),
    # The request is correct and its format is not: the next attempt uses another format.
    _Cause("transient", "format_unsupported", {400, 422}, _FORMAT),
    _Cause("permanent", "context_too_long", {413}),
    _Cause("permanent", "unauthorised", {401}),
    _Cause("permanent", "forbidden", {403}),
    _Cause("permanent", "not_found", {404}),
)
_ADVICE = {
    "unauthorised": "; check the key",
    "forbidden": "; check the permissions of the key",
    "not_found": "; check the model's name and the model_url",
    "context_too_long": "; shorten messages or tools, or lower max_tokens",
}


def from_status(status: EndpointStatus, what: str) -> ModelError:
    """Return the error that an HTTP status means; `what` names the model in the message."""
    text = f"{status.word} {status.message}".lower()
    headers = status.headers or {}
    wait = _bounded(status.retry_after)
    # The library reads only one of the two forms, and no milliseconds.
    if "retry-after" in headers or "retry-after-ms" in headers:
        wait = retry_after(headers, time.time())
    causes = (cause for cause in _CAUSES if cause.matches(status, text))
    cause = next((c for c in causes if status.formatted or c.reason != "format_unsupported"), None)
    kind, reason = (cause.kind, cause.reason) if cause is not None else ("permanent", "rejected")
    if reason == "status":
        reason = f"status_{status.code}" if status.code else "in_stream"
    detail = f": {cut(status.message, MESSAGE_CHARS)}" if status.message else ""
    code = f"status {status.code}" if status.code else "an error"
    return ModelError(
        f"{what} answered {code}{detail}{_ADVICE.get(reason, '')}",
        kind=kind,
        reason=reason,
        retry_after=wait if kind in ("transient", "throttled", "quota") else None,
        billed="no",
        fields=("messages", "tools", "max_tokens") if reason == "context_too_long" else (),
    )


def translate(
    error: Exception, exchange: ResponseTrace, what: str, *, formatted: bool
) -> ModelError:
    """Return the model error that an exception of the client library, the SDK or the transport means.

    Every foreign exception is translated. An exception that no rule covers means that the reply could
    not be read. `formatted` means that the request asked for a format the endpoint may not support.
    """
    # The transport raises these errors inside the library, which wraps them.
    own = next((e for e in _chain(error) if isinstance(e, ModelError)), None)
    if own is not None:
        return own
    in_stream = isinstance(error, library.ModelAPIError) and error.in_stream
    if in_stream or exchange.status >= 300 or isinstance(error, library.ModelHTTPError):
        failure = from_status(_status_of(error, exchange, formatted), what)
        if in_stream:
            # The provider had begun to generate.
            failure.billed = "maybe"
        return failure
    if isinstance(error, library.ModelConnectionError):
        return _connection(error, exchange, what)
    if isinstance(error, library.UserError) and not exchange.status:
        kind, reason = (
            ("transient", "format_unsupported") if formatted else ("permanent", "rejected")
        )
        return ModelError(f"{what}: {_first_line(error)}", kind=kind, reason=reason)
    if isinstance(error, library.UnexpectedModelBehavior) and not exchange.began:
        return _incomplete(f"{what} closed its stream before the first piece of content")
    return _incomplete(
        f"{what} sent a reply that cannot be read: {_first_line(error)}", "bad_response"
    )


def _incomplete(message: str, reason: str = "stream_incomplete") -> ModelError:
    return ModelError(message, kind="transient", reason=reason, billed="maybe")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(20):  # a chain may be circular
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _connection(
    error: library.ModelConnectionError, exchange: ResponseTrace, what: str
) -> ModelError:
    root = next((e for e in reversed(list(_chain(error))) if isinstance(e, OSError)), None)
    detail = root.strerror if root is not None and root.strerror else ""
    detail = detail or _first_line(error.__cause__ or error)
    # A retry cannot help, and an attacker may be in the connection.
    if isinstance(root, ssl.SSLCertVerificationError):
        message = f"{what}: the certificate of the endpoint is not valid: {root.verify_message}"
        return ModelError(message, kind="permanent", reason="certificate")
    if error.phase in ("connect", "pool"):
        return ModelError(
            f"{what} cannot be reached: {detail}", kind="transient", reason="unreachable"
        )
    if exchange.status:
        return _incomplete(f"{what}: the connection broke off in the middle of the reply: {detail}")
    return ModelError(
        f"{what}: the connection was lost after the request was sent: {detail}",
        kind="unknown_outcome",
        reason="connection_lost",
    )


def _first_line(error: BaseException) -> str:
    # Later lines of the library's messages are advice on its own API.
    text = without_validation(str(error)).strip() or type(error).__name__
    return cut(text.splitlines()[0], MESSAGE_CHARS)


def _status_of(error: Exception, exchange: ResponseTrace, formatted: bool) -> EndpointStatus:
    """Return an error as the endpoint reported it, from the response and the library's exception."""
    code = exchange.status if exchange.status >= 300 else getattr(error, "status_code", 0)
    word, message = _words(getattr(error, "body", None) or _decoded(exchange.body))
    if 300 <= code < 400:
        message = f"moved to {cut(exchange.headers.get('location', 'another address'), 200)}; "
        message += "redirects are not followed, give the new address as model_url"
    # The library cannot classify this error inside a stream: the provider failed, not the request.
    unknown = "transient" if getattr(error, "in_stream", False) else ""
    return EndpointStatus(
        code=code,
        word=word,
        message=message or _first_line(error),
        headers=exchange.headers if exchange.status >= 300 else {},
        retry_after=getattr(error, "retry_after", None),
        hint=next((hint for kind, hint in _HINTS if isinstance(error, kind)), unknown),
        formatted=formatted,
    )


_HINTS = (
    (library.ModelQuotaExceededError, "quota"),
    (library.ModelContextWindowExceededError, "context"),
    (library.ModelRateLimitError, "throttled"),
    (library.ModelUnavailableError, "transient"),
    (library.ModelServerError, "transient"),
    (library.ModelRequestRejectedError, ""),
)


def _decoded(body: bytes) -> Json:
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _words(body: Json) -> tuple[str, str]:
    """Return the code words and the message of an error's body, whatever its shape."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("error"), dict | str):
        body = body["error"]
    if isinstance(body, dict):
        words = " ".join(str(body.get(key)) for key in ("code", "type", "status") if body.get(key))
        message = body.get("message") or body.get("detail") or body.get("msg") or ""
        text = message if isinstance(message, str) else json.dumps(message, default=str)
        return words, " ".join(without_validation(text).split())
    # A proxy between here and the endpoint answers with HTML.
    text = re.sub(r"<[^>]{0,500}>", " ", body) if isinstance(body, str) else ""
    return "", " ".join(without_validation(text).split())
