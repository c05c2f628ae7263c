"""From a stream to a reply: timers while it comes, and what its end means.

Rules:

1. Three timers: until it begins, between two pieces of content, for the whole. Keep-alives and
   empty pieces move none of them.
2. A stream is whole when it says why it ended. Without that it is an error, whatever came before.
3. What was cut off is never parsed; what a reply means is `received`'s to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
from pydantic_ai.models import Model as LibraryModel

from ...records import NOTHING, Usage, codec
from ...records.codec import Json
from ...records.excerpts import cut
from ..endpoints import Endpoint
from ..errors import EndpointStatus, ModelError, ResponseTrace, from_status, too_many_calls
from ..prices import input_at_most, tokens_at_most
from ..protocol import Reply, Request, ToolCall
from ..replies.received import received
from ..replies.strict_json import read_json
from ..replies.values import read_value, several
from .pydantic_ai import LibraryRequest, dump_parts

__all__ = ["StreamedReply", "read", "reply_of"]

MOST_TOKENS = 10**12
_BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "failed", "timeout"})


@dataclass
class StreamedReply:
    """What came of one call so far, for whoever must explain how it ended."""

    pieces: list[str] = field(default_factory=list)
    stream: Any = None
    response: ModelResponse | None = None

    @property
    def text(self) -> str:
        """The text that came so far."""
        return "".join(self.pieces)

    def usage(self) -> Usage:
        """Return the usage that the endpoint reported so far."""
        return NOTHING if self.stream is None else _usage(self.stream.usage, 0)


async def read(
    model: LibraryModel[Any],
    asked: LibraryRequest,
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
    last = now() + timers.whole
    try:
        async with asyncio.timeout_at(min(now() + timers.first_byte, last)) as scope:
            async with model_request_stream(
                model, asked.messages, model_settings=asked.settings,
                model_request_parameters=asked.parameters, instrument=False,
            ) as stream:  # fmt: skip
                answer.stream = stream
                called = 0
                exchange.began = True
                scope.reschedule(min(now() + timers.idle, last))
                async for event in stream:
                    # Refused at once: the library compares each new part with all before it.
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
    except TimeoutError:
        if not scope.expired():
            raise
        raise _late(request, exchange, answer, now() >= last) from None


def _late(
    request: Request, exchange: ResponseTrace, answer: StreamedReply, whole: bool
) -> ModelError:
    what = f"{request.provider}/{request.model}"
    if exchange.status >= 300:  # it said what is wrong and then stalled
        return from_status(EndpointStatus(exchange.status, headers=exchange.headers), what)
    timers = request.timeouts
    if whole:
        reason, detail = "call_timeout", f"took longer than {timers.whole:g} s"
    elif exchange.began:
        reason, detail = "idle_timeout", f"wrote nothing for {timers.idle:g} s"
    else:
        reason, detail = "first_byte_timeout", f"did not begin within {timers.first_byte:g} s"
    return ModelError(
        f"{what} {detail}; {len(answer.text)} characters had come",
        kind="unknown_outcome",
        reason=reason,
    )


def _content(event: Any) -> tuple[str, bool]:
    """Return the text of an event, and whether it brought anything at all."""
    if isinstance(event, PartStartEvent):
        part = event.part
        text = part.content if isinstance(part, TextPart) else ""
        return text, bool(text) or not isinstance(
            part, TextPart | ThinkingPart
        ) or part.has_content()
    if isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, TextPartDelta):
            return delta.content_delta, bool(delta.content_delta)
        return "", bool(getattr(delta, "content_delta", None) or getattr(delta, "args_delta", None))
    return "", False


def reply_of(
    answer: StreamedReply, endpoint: Endpoint, request: Request, rung: str, notes: tuple[str, ...]
) -> Reply:
    """Return what a finished stream means.

    Raises:
        ModelError: if it is cut off, refused, empty, or not what was asked for.
    """
    response = answer.response
    assert response is not None
    what = f"{request.provider}/{request.model}"
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    usage = _usage(response.usage, tokens_at_most(text), request)

    def fault(kind: str, detail: str, **facts: Any) -> ModelError:
        return ModelError(f"{what} {detail}", kind=kind, usage=usage, partial=text, **facts)

    _check_end(response, endpoint, fault)
    cut = response.finish_reason == "length"
    calls = _calls(response, fault) if not cut else []
    data: Json = None
    if request.schema is not None and rung == "tool" and not cut:
        data, calls = _answered(calls, request, fault)
    thinking = "".join(p.content for p in response.parts if isinstance(p, ThinkingPart))
    reply = Reply(
        text=text,
        data=data,
        usage=usage,
        finish="length" if cut else "tool_calls" if calls else "stop",
        model=response.model_name or request.model,
        provider=endpoint.provider,
        tool_calls=tuple(calls),
        parts=dump_parts(response),
        warnings=notes,
        thinking=thinking,
    )
    return received(reply, request)


def _check_end(response: ModelResponse, endpoint: Endpoint, fault: Any) -> None:
    """Refuse a reply that does not say why it ended, or says that it is not whole."""
    details = response.provider_details or {}
    raw = details.get("finish_reason")
    reason = response.finish_reason
    if reason == "content_filter":
        said = details.get("refusal")
        why = f": {cut(said, 200)}" if isinstance(said, str) and said else ""
        raise fault("refused", f"refused to answer{why}", reason="content_filter")
    if reason == "error" or str(raw).lower() in _BROKEN:
        detail = f"broke its reply off ({raw})"
        raise fault("transient", detail, reason="stream_incomplete", billed="maybe")
    # Chat Completions: the library takes a missing reason for a stop; we do not.
    if not (raw if endpoint.api == "chat" else raw or reason) or response.state == "suspended":
        detail = "ended its stream without a finish marker: the reply may be cut off"
        raise fault("transient", detail, reason="stream_incomplete", billed="maybe")


def _calls(response: ModelResponse, fault: Any) -> list[ToolCall]:
    calls = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            arguments, problem = part.args if part.args is not None else {}, ""
            if isinstance(arguments, str):
                read = read_json(arguments if arguments.strip() else "{}")
                arguments, problem = read.value, read.detail
            if problem or not isinstance(arguments, dict):
                problem = problem or "they are no JSON object"
                detail = f"the arguments of {part.tool_name!r} cannot be read: {problem}"
                told = f"{detail[0].upper()}{detail[1:]}. Call it again, with one JSON object."
                raise fault("malformed", f"called a tool wrongly: {detail}", problem=told)
            calls.append(ToolCall(part.tool_call_id, part.tool_name, codec.normalise(arguments)))
    return calls


def _answered(calls: list[ToolCall], request: Request, fault: Any) -> tuple[Json, list[ToolCall]]:
    """Return the value that was given by calling the answer as a tool, and the calls of others."""
    answers = [c for c in calls if c.name == request.schema_name]
    others = [c for c in calls if c not in answers]
    if not answers:
        return None, others
    given = codec.encode(answers[0].arguments)
    reading = read_value(given, request.schema or {}, strict=request.strict)
    if any(codec.canonical(c.arguments) != codec.canonical(answers[0].arguments) for c in answers):
        reading = several(len(answers))
    if reading.problem:
        detail = f"did not answer in the format: {reading.fault}"
        made = fault("malformed", detail, problem=reading.complaint)
        made.partial = made.partial or given
        raise made
    return codec.normalise(reading.value), others


def _usage(found: Any, output_bound: int, request: Request | None = None) -> Usage:
    """Return what was reported; with a request, what is missing is taken at its upper bound."""
    figures = [_tokens(getattr(found, name, 0)) for name in ("input_tokens", "output_tokens")]
    if request is None:
        return Usage(1, figures[0], figures[1]) if any(figures) else NOTHING
    bounds = (input_at_most(request), output_bound)
    missing = not figures[0] or (not figures[1] and output_bound > 0)
    if not missing and not getattr(found, "unmeasured_requests", 0):
        return Usage(1, figures[0], figures[1])
    known = [max(figure, bound) for figure, bound in zip(figures, bounds, strict=True)]
    return Usage(1, known[0], known[1], estimated=1)


def _tokens(value: Any) -> int:
    return min(MOST_TOKENS, value) if isinstance(value, int) and value > 0 else 0
