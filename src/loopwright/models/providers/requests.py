"""Requests through the client library: connections, formats of structured output, streamed replies.

Rules:

1. Three timers: until the reply begins, between two pieces of content, and for the entire reply.
   Keep-alives and empty pieces reset none of them.
2. A stream is complete when it states a finish reason. Without one it is an error.
3. A truncated value is never parsed; `received` decides how a reply is read.

Importing this module takes seconds: `provider_model` imports it for the first request.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from ...errors import Billed, ModelError
from ...records import NOTHING, Usage, codec
from ...records.codec import Json
from ...records.display import cut
from ...records.redaction import Redactor
from ..errors import too_many_calls
from ..protocol import Reply, Request, ToolCall, input_at_most, received, tokens_at_most
from ..replies.strict_json import read_json
from ..replies.values import read_loosely, read_value, several
from ..retry_policy import NOT_RUNNING
from . import pydantic_ai as library
from .endpoints import Allowed, Endpoint, is_loopback_name, origin_of
from .failures import EndpointStatus, from_status, translate
from .transport import EXCHANGE, ResponseTrace, Transport

__all__ = ["Requests"]


class _Ladder:
    """The formats of structured output that one model at one endpoint may support, best first."""

    __slots__ = ("at", "proven", "rungs")

    def __init__(self, rungs: tuple[str, ...]) -> None:
        self.rungs = rungs
        self.at = 0
        self.proven = False

    @property
    def rung(self) -> str:
        """The format of the next request."""
        return self.rungs[self.at]

    @property
    def last(self) -> bool:
        """Whether no other format is left."""
        return self.at == len(self.rungs) - 1

    # A format that has worked failed because of one reply, and not because the endpoint lacks it.
    def failed(self, rung: str) -> None:
        """Move to the next format, unless another call did, or this format has worked before."""
        if rung == self.rung and not self.last and not self.proven:
            self.at += 1


@dataclass
class _Session:
    """The connections and library models of one event loop."""

    clients: dict[Endpoint, httpx2.AsyncClient] = field(default_factory=dict)
    models: dict[tuple[Endpoint, str, str], library.AnyModel] = field(default_factory=dict)


class Requests:
    """Makes requests; `trusted` are the certificate authorities for https, once they are loaded."""

    def __init__(
        self, allowed: Allowed, redactor: Redactor, max_bytes: int, trusted: ssl.SSLContext | None
    ) -> None:
        self.trusted = trusted
        self._allowed = allowed
        self.redactor = redactor
        self._max_bytes = max_bytes
        self._ladders: dict[tuple[str, str], _Ladder] = {}
        # Connections belong to one event loop; `asyncio.run` in a program makes several.
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
        # Some modules are imported by the first model that is built, so build one and discard it.
        no_authorities = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client = httpx2.AsyncClient(verify=no_authorities, timeout=None, trust_env=False)
        library.build(endpoint, "none", client, "prompted")

    @staticmethod
    def public_certificates() -> ssl.SSLContext:
        return httpx2.create_ssl_context(trust_env=False)

    async def ask(
        self,
        endpoint: Endpoint,
        request: Request,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Make one request and return the complete reply.

        Raises:
            ModelError: for every failure of the request.
        """
        # A context variable reaches the transport through the library, which has no parameter for it.
        exchange = ResponseTrace(sends=request.headers)
        EXCHANGE.set(exchange)
        ladder = self._ladder(endpoint, request)
        rung = ladder.rung
        model = self._model(endpoint, request.model, rung)
        library_request = library.convert(endpoint, model, request, rung)
        answer = StreamedReply()
        notes = [*endpoint.notes, *library_request.notes]
        listener = _Listener(on_text, self.redactor, notes)
        formatted = request.schema is not None and not ladder.last and not ladder.proven
        try:
            await read(
                model, library_request, request, answer, exchange=exchange, on_text=listener.send
            )
            listener.end()
            notes += exchange.notes
            reply = reply_of(answer, endpoint, request, rung, tuple(notes))
        except Exception as error:  # no endpoint may raise another error
            what = f"{request.provider}/{request.model}"
            failure = translate(error, exchange, what, formatted=formatted)
            # The most frequent first error: Ollama is not running.
            if failure.reason == "unreachable" and is_loopback_name(endpoint.host):
                where = origin_of(endpoint.base_url)
                failure.reason = NOT_RUNNING
                failure.args = (
                    f"{what}: no server answers at {where}; start it, or give base_url",
                )
            failure.partial = failure.partial or answer.text
            failure.usage = failure.usage or answer.usage()
            if request.schema is not None and (
                failure.reason == "format_unsupported" or failure.kind == "malformed"
            ):
                ladder.failed(rung)
            # The chain of a foreign exception may hold the request, and with it the input.
            raise failure from None
        if reply.data is not None:
            ladder.proven = True
        return reply

    def _ladder(self, endpoint: Endpoint, request: Request) -> _Ladder:
        key = (endpoint.base_url, request.model)
        if key not in self._ladders:
            model = self._model(endpoint, request.model, "json_schema")
            self._ladders[key] = _Ladder(library.rungs(endpoint, model))
        return self._ladders[key]

    def _model(self, endpoint: Endpoint, name: str, rung: str) -> library.AnyModel:
        # A closed loop may stay alive in a reference cycle, and with it its connections.
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
            # A plain http endpoint needs no certificates: an empty context is cheap and fails safe.
            tls = self.trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            transport = Transport(endpoint, self._allowed, tls, self._max_bytes)
            session.clients[endpoint] = httpx2.AsyncClient(
                transport=transport, timeout=None, follow_redirects=False, trust_env=False
            )
        return session.clients[endpoint]


class _Listener:
    """Sends text to the caller without secrets; a failure of the caller is a note."""

    def __init__(
        self, on_text: Callable[[str], None] | None, redactor: Redactor, notes: list[str]
    ) -> None:
        self._on_text = on_text
        self._filter = redactor.streamed()
        self._notes = notes

    def send(self, piece: str) -> None:
        if self._on_text is not None:
            self._pass_on(self._filter.feed(piece))

    def end(self) -> None:
        if self._on_text is not None:
            self._pass_on(self._filter.flush())

    def _pass_on(self, text: str) -> None:
        if not text or self._on_text is None:
            return
        try:
            self._on_text(text)
        except Exception as error:  # a listener must not change the call
            self._on_text = None
            self._notes.append(f"listener_failed: a listener to the text failed: {error}")


# Of one call: a count beyond it is an error of the server, and would break sums.
MAX_TOKENS = 10**12
# Finish reasons of servers that stopped in the middle; the library reads an unknown one as "stop".
_BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "failed", "timeout"})


@dataclass
class StreamedReply:
    """The part of one reply that has arrived."""

    pieces: list[str] = field(default_factory=list)
    stream: StreamedResponse | None = None
    response: ModelResponse | None = None

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return "".join(self.pieces)

    def usage(self) -> Usage:
        """Return the usage that the endpoint has reported."""
        return NOTHING if self.stream is None else _usage(self.stream.usage, 0)


async def read(
    model: library.AnyModel,
    library_request: library.LibraryRequest,
    request: Request,
    answer: StreamedReply,
    exchange: ResponseTrace,
    on_text: Callable[[str], None],
) -> None:
    """Send a request and read its stream into `answer`, under the request's timers.

    Raises:
        ModelError: of kind unknown_outcome if a timer ran out; other exceptions are the library's.
    """
    timers, now = request.timeouts, asyncio.get_running_loop().time
    # The limit for the reply holds even if pieces arrive until it passes.
    last = now() + timers.whole
    try:
        async with asyncio.timeout_at(min(now() + timers.first_byte, last)) as scope:
            async with model_request_stream(
                model, library_request.messages, model_settings=library_request.settings,
                model_request_parameters=library_request.parameters, instrument=False,
            ) as stream:  # fmt: skip
                answer.stream = stream
                called = 0
                exchange.began = True
                scope.reschedule(min(now() + timers.idle, last))
                async for event in stream:
                    # Checked for each part, because the library compares a new part with all parts before it.
                    called += isinstance(event, PartStartEvent) and isinstance(
                        event.part, ToolCallPart
                    )
                    if called > request.max_tool_calls:
                        raise too_many_calls(request, called)
                    piece, content = _content(event)
                    if piece:
                        answer.pieces.append(piece)
                        on_text(piece)
                    if content:
                        scope.reschedule(min(now() + timers.idle, last))
                answer.response = stream.get()
    # The library or the SDK may raise TimeoutError for a reason of its own.
    except TimeoutError:
        if not scope.expired():
            raise
        raise _late(request, exchange, answer, now() >= last) from None


def _late(
    request: Request, exchange: ResponseTrace, answer: StreamedReply, whole: bool
) -> ModelError:
    what = f"{request.provider}/{request.model}"
    if exchange.status >= 300:  # the endpoint reported an error and then stalled
        return from_status(EndpointStatus(exchange.status, headers=exchange.headers), what)
    timers = request.timeouts
    if whole:
        reason, detail = "call_timeout", f"took longer than {timers.whole:g} s"
    elif exchange.began:
        reason, detail = "idle_timeout", f"wrote nothing for {timers.idle:g} s"
    else:
        reason, detail = "first_byte_timeout", f"did not begin within {timers.first_byte:g} s"
    return ModelError(
        f"{what} {detail}; {len(answer.text)} characters had arrived",
        kind="unknown_outcome",
        reason=reason,
    )


def _content(event: object) -> tuple[str, bool]:
    """Return the text of an event, and whether the event has any content."""
    if isinstance(event, PartStartEvent):
        part = event.part
        text = part.content if isinstance(part, TextPart) else ""
        silent = isinstance(part, TextPart | ThinkingPart) and not part.has_content()
        return text, bool(text) or not silent
    if isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            return delta.content_delta, bool(delta.content_delta)
        return "", bool(getattr(delta, "content_delta", None) or getattr(delta, "args_delta", None))
    return "", False


class _Failed(Protocol):
    """Returns an error of the call, with the text and the usage of the reply."""

    def __call__(
        self,
        kind: str,
        detail: str,
        *,
        reason: str = "",
        billed: Billed | None = None,
        problem: str = "",
    ) -> ModelError: ...


def reply_of(
    answer: StreamedReply, endpoint: Endpoint, request: Request, rung: str, notes: tuple[str, ...]
) -> Reply:
    """Return the reply of a finished stream.

    Raises:
        ModelError: if it is truncated, refused, empty, or not in the requested format.
    """
    response = answer.response
    assert response is not None
    what = f"{request.provider}/{request.model}"
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    usage = _usage(response.usage, tokens_at_most(text), request)

    def failed(
        kind: str,
        detail: str,
        *,
        reason: str = "",
        billed: Billed | None = None,
        problem: str = "",
    ) -> ModelError:
        return ModelError(
            f"{what} {detail}", kind=kind, usage=usage, partial=text, reason=reason,
            billed=billed, problem=problem,
        )  # fmt: skip

    _check_end(response, endpoint, failed)
    truncated = response.finish_reason == "length"
    calls = _calls(response, failed) if not truncated else []
    data: Json = None
    if request.schema is not None and rung == "tool" and not truncated:
        data, calls = _answered(calls, request, failed)
    thinking = "".join(p.content for p in response.parts if isinstance(p, ThinkingPart))
    reply = Reply(
        text=text,
        data=data,
        usage=usage,
        finish="length" if truncated else "tool_calls" if calls else "stop",
        model=response.model_name or request.model,
        provider=endpoint.provider,
        tool_calls=tuple(calls),
        parts=library.dump_parts(response),
        warnings=notes,
        thinking=thinking,
    )
    return received(reply, request)


def _check_end(response: ModelResponse, endpoint: Endpoint, failed: _Failed) -> None:
    """Refuse a reply without a finish reason, or with one that means it is incomplete."""
    details = response.provider_details or {}
    raw = details.get("finish_reason")
    reason = response.finish_reason
    # A refusal ends the reply normally, so it must be checked before incomplete replies.
    if reason == "content_filter":
        refusal = details.get("refusal")
        why = f": {cut(refusal, 200)}" if isinstance(refusal, str) and refusal else ""
        raise failed("refused", f"refused to answer{why}", reason="content_filter")
    if reason == "error" or str(raw).lower() in _BROKEN:
        detail = f"broke its reply off ({raw})"
        raise failed("transient", detail, reason="stream_incomplete", billed="maybe")
    # For Chat Completions the library reads a missing finish reason as "stop". It may also mean a lost connection.
    if not (raw if endpoint.api == "chat" else raw or reason) or response.state == "suspended":
        detail = "ended its stream without a finish reason: the reply may be incomplete"
        raise failed("transient", detail, reason="stream_incomplete", billed="maybe")


def _calls(response: ModelResponse, failed: _Failed) -> list[ToolCall]:
    calls = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            arguments: Json = part.args if part.args is not None else {}
            problem = ""
            if isinstance(arguments, str):
                # Some servers send an empty text for a call without arguments.
                reading = read_json(arguments if arguments.strip() else "{}")
                arguments, problem = reading.value, reading.detail
            if problem or not isinstance(arguments, dict):
                problem = problem or "they are not a JSON object"
                detail = f"the arguments of {part.tool_name!r} cannot be read: {problem}"
                advice = f"{detail[0].upper()}{detail[1:]}. Call it again, with one JSON object."
                raise failed("malformed", f"called a tool wrongly: {detail}", problem=advice)
            calls.append(ToolCall(part.tool_call_id, part.tool_name, codec.normalise(arguments)))
    return calls


def _answered(
    calls: list[ToolCall], request: Request, failed: _Failed
) -> tuple[Json, list[ToolCall]]:
    """Return the value of the call that gives the answer, and the calls of other tools."""
    answers = [c for c in calls if c.name == request.schema_name]
    others = [c for c in calls if c not in answers]
    if not answers:
        return None, others
    text = codec.encode(answers[0].arguments)
    reading = read_value(text, request.schema or {}, strict=request.strict)
    # A model may call the answer tool several times; of different values none is certain.
    if any(codec.canonical(c.arguments) != codec.canonical(answers[0].arguments) for c in answers):
        reading = several(len(answers))
    if reading.problem and request.text_field:
        reading = read_loosely(text, request.text_field, reading.failure)
    if reading.problem:
        detail = f"did not answer in the format: {reading.failure}"
        error = failed("malformed", detail, problem=reading.complaint)
        error.partial = error.partial or text
        raise error
    return codec.normalise(reading.value), others


def _usage(reported: RequestUsage, output_bound: int, request: Request | None = None) -> Usage:
    """Return the reported usage; with a request, missing counts are estimated at their upper bound."""
    counts = [_tokens(getattr(reported, name, 0)) for name in ("input_tokens", "output_tokens")]
    if request is None:
        return Usage(1, counts[0], counts[1]) if any(counts) else NOTHING
    bounds = (input_at_most(request), output_bound)
    missing = not counts[0] or (not counts[1] and output_bound > 0)
    if not missing and not getattr(reported, "unmeasured_requests", 0):
        return Usage(1, counts[0], counts[1])
    upper = [max(count, bound) for count, bound in zip(counts, bounds, strict=True)]
    return Usage(1, upper[0], upper[1], estimated=1)


def _tokens(value: object) -> int:
    return min(MAX_TOKENS, value) if isinstance(value, int) and value > 0 else 0
