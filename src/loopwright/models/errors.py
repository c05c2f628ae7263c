"""What can go wrong with a model call: the vocabulary, and what each word allows.

=================  =========  ===========================================================
kind               again?     meaning
=================  =========  ===========================================================
transient          yes        the endpoint, or the way to it, failed for the moment
throttled          yes        too many requests; not before `retry_after`
quota              no         money or quota is used up
permanent          no         the request itself cannot succeed; `reason` says why
truncated          no         cut off at the cap on tokens; what follows is on_cutoff
refused            no         a safety filter or the model declined
malformed          no         not the JSON that was asked for; twice more with the problem quoted
unknown_outcome    yes        sent, and no complete reply: it may have been billed
cancelled          no         a person or a signal ended it
empty_output       no         nothing was written; once more
=================  =========  ===========================================================

What the transport saw of one call, for whoever explains how the call ended.

What the headers of a response ask for.
"""

from __future__ import annotations

import json
import math
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ..errors import (
    MODEL_ERROR_KINDS,
    Billed,
    ModelError,
    StepError,
    without_validation,
)
from ..records import Usage
from ..records.codec import Json
from ..records.excerpts import cut

if TYPE_CHECKING:
    from .protocol import Request

__all__ = [
    "EXCHANGE",
    "KINDS",
    "Billed",
    "EndpointStatus",
    "ModelError",
    "ModelFault",
    "ResponseTrace",
    "bounded",
    "error_from_json",
    "fault_of",
    "from_status",
    "retry_after",
    "too_many_calls",
    "translate",
]


@dataclass
class ResponseTrace:
    """One request and its answer, as far as it came.

    `status` is 0 until an answer begins, `headers` have lower-case names, `body` is the beginning
    of an error's, `began` says that a stream's first piece came, `notes` are sentences for people,
    `sends` are headers of the request's own.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    received: int = 0
    body: bytes = b""
    began: bool = False
    notes: list[str] = field(default_factory=list)
    sends: Mapping[str, str] = field(default_factory=dict)


EXCHANGE: ContextVar[ResponseTrace] = ContextVar("exchange")  # each call sets its own

LONGEST_TOLD = 31 * 86_400.0  # seconds; a longer Retry-After, however long, means this much
_SECONDS = re.compile(r"[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,6})?")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that response headers ask to wait, or None.

    Reads `retry-after-ms`, then `Retry-After` as seconds or as an HTTP date (RFC 9110, 10.2.3), the
    latter against the response's own `Date`, else against `now`, seconds since the epoch. What is
    negative or no number is no instruction: None. What is longer than 31 days means 31 days, which
    nobody waits for: it is never taken for leave to ask again at once.
    """
    if (found := _SECONDS.fullmatch(headers.get("retry-after-ms", "").strip())) is not None:
        return bounded(float(found[0]) / 1000)
    text = headers.get("retry-after", "").strip()
    if (found := _SECONDS.fullmatch(text)) is not None:
        return bounded(float(found[0]))
    moment = _moment(text)
    if moment is None:
        return None
    base = _moment(headers.get("date", ""))
    return bounded(max(0.0, moment - (now if base is None else base)))


def bounded(seconds: float | None) -> float | None:
    """Return seconds that an endpoint asks for as a number that can be waited, or None."""
    if seconds is None or math.isnan(seconds) or seconds < 0:
        return None
    return min(seconds, LONGEST_TOLD)


def _moment(text: str) -> float | None:
    """Return the seconds since the epoch of an HTTP date, or None."""
    if not 10 <= len(text) <= 40 or not text.isascii():
        return None
    try:
        found = parsedate_to_datetime(text)
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        return aware.timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


KINDS = MODEL_ERROR_KINDS
MESSAGE_CHARS = 500

ModelFault = ModelError  # the name of version 0.1, kept for one release


def error_from_json(data: Mapping[str, Json], *, path: str = "") -> ModelError:
    """Return the error that `ModelError.to_json` wrote."""
    return ModelError(
        data["message"],
        kind=data["kind"],
        path=path,
        reason=data.get("reason", ""),
        retry_after=data.get("retry_after"),
        usage=Usage.from_json(data["usage"]) if "usage" in data else None,
        billed=data.get("billed"),
        partial=data.get("partial", ""),
        problem=data.get("problem", ""),
        fields=tuple(data.get("fields", ())),
        parts=data.get("parts"),
    )


def too_many_calls(request: Request, number: int) -> ModelError:
    """Return the fault of a reply that calls more tools than one reply may."""
    most = request.max_tool_calls
    problem = (
        f"it calls {number} tools or more at once, {most} is the most in one reply; call fewer, and go "
        "on after their results"
    )
    return ModelError(
        f"{request.provider}/{request.model}: {problem} (max_tool_calls_per_reply)",
        kind="malformed", problem=problem, path=request.path, reason="too_many_tool_calls",
    )  # fmt: skip


def fault_of(error: StepError) -> ModelError | None:
    """Return a failed call as a ModelError, or None for what is no fault of a model."""
    if isinstance(error, ModelError):
        return error
    if error.kind not in KINDS:
        return None
    told = error.retry_after
    return ModelError(str(error), kind=error.kind, path=error.path, retry_after=told)


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """An error as an endpoint reports it: the HTTP status, its code and type words, its message.

    `headers` have lower-case names. `hint` is a kind that the provider's own vocabulary implies,
    `formatted` that the request asked for a format which the endpoint may not know.
    """

    code: int
    word: str = ""
    message: str = ""
    headers: Mapping[str, str] | None = None
    told: float | None = None
    hint: str = ""
    formatted: bool = False


_QUOTA = re.compile(
    r"insufficient_quota|billing_(?:hard|not|error|limit)|exceeded_current_quota|quota_exceeded"
    r"|exceeded your current quota|credit[_ ]balance|(?:insufficient|more|out of) balance"
    r"|(?:insufficient|more|out of) credits"
    r"|spend_limit|usage_limit_(?:reached|exceeded)|payment required"
)
_CONTEXT = re.compile(
    r"context_length_exceeded|context length|context window|maximum context|prompt is too long"
    r"|too many tokens|reduce the length|input token count|input is too long|context size"
)
_FILTER = re.compile(r"content_filter|content_policy|content management policy|moderation_blocked")
_FORMAT = re.compile(
    r"response_format|json_schema|json_object|json mode|structured output|tool_choice|tool use"
    r"|does not support tools|support tool|\btools\b|guided_json|\bgrammar\b|output_config"
)
_PERMANENT = {401: "unauthorised", 403: "forbidden", 404: "not_found"}
_ADVICE = {
    "unauthorised": "; check the key",
    "forbidden": "; check what the key may do",
    "not_found": "; check the model's name and the model_url",
    "context_too_long": "; shorten messages or tools, or lower max_tokens",
}


def from_status(status: EndpointStatus, what: str) -> ModelError:
    """Return the fault that an HTTP status means; `what` names the model, for the message."""
    text = f"{status.word} {status.message}".lower()
    headers = status.headers or {}
    told = bounded(status.told)
    if "retry-after" in headers or "retry-after-ms" in headers:
        told = retry_after(headers, time.time())
    kind, reason = _kind(status, text)
    said = f": {cut(status.message, MESSAGE_CHARS)}" if status.message else ""
    code = f"status {status.code}" if status.code else "an error"
    return ModelError(
        f"{what} answered {code}{said}{_ADVICE.get(reason, '')}",
        kind=kind,
        reason=reason,
        retry_after=told if kind in ("transient", "throttled", "quota") else None,
        billed="no",
        fields=("messages", "tools", "max_tokens") if reason == "context_too_long" else (),
    )


def _kind(status: EndpointStatus, text: str) -> tuple[str, str]:
    code = status.code
    if 300 <= code < 400:
        return "permanent", "redirect"
    if code == 402 or status.hint == "quota":
        return "quota", ""
    # Google words a limit per minute like an exhausted quota; only its details tell them apart.
    if code in (400, 403, 429) and _QUOTA.search(text) and "resource_exhausted" not in text:
        return "quota", ""
    if status.hint == "context" or (400 <= code < 500 and code != 429 and _CONTEXT.search(text)):
        return "permanent", "context_too_long"
    if code == 429 or status.hint == "throttled":
        return "throttled", ""
    if code in (400, 403) and _FILTER.search(text):
        return "refused", "content_filter"
    if code >= 500 or code in (408, 409, 425) or status.hint == "transient":
        return "transient", f"status_{code}" if code else "in_stream"
    if code in (400, 422) and status.formatted and _FORMAT.search(text):
        # Not the request is wrong but its format: the next try asks in another one.
        return "transient", "format_unsupported"
    if code == 413:
        return "permanent", "context_too_long"
    return "permanent", _PERMANENT.get(code, "rejected")


def translate(
    error: Exception, exchange: ResponseTrace, what: str, *, formatted: bool
) -> ModelError:
    """Return the fault that an exception of the client library, the SDK or the transport means.

    Everything foreign is translated here, and nothing gets past: what no rule knows is an answer
    that could not be read. `formatted` says that the request asked for a format which may be
    unknown there.
    """
    # Whoever comes here has loaded the library already.
    from pydantic_ai import exceptions as library

    own = next((e for e in _chain(error) if isinstance(e, ModelError)), None)
    if own is not None:
        return own
    in_stream = isinstance(error, library.ModelAPIError) and error.in_stream
    if in_stream or exchange.status >= 300 or isinstance(error, library.ModelHTTPError):
        fault = from_status(_status(error, exchange, formatted), what)
        if in_stream:
            fault.billed = "maybe"
        return fault
    if isinstance(error, library.ModelConnectionError):
        return _connection(error, exchange, what)
    if isinstance(error, library.UserError) and not exchange.status:
        kind, reason = (
            ("transient", "format_unsupported") if formatted else ("permanent", "rejected")
        )
        return ModelError(f"{what}: {_said(error)}", kind=kind, reason=reason)
    if isinstance(error, library.UnexpectedModelBehavior) and not exchange.began:
        return _incomplete(f"{what} closed its stream before it said anything")
    return _incomplete(f"{what} sent what cannot be read: {_said(error)}", "bad_response")


def _incomplete(message: str, reason: str = "stream_incomplete") -> ModelError:
    return ModelError(message, kind="transient", reason=reason, billed="maybe")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(20):  # a chain may be a circle
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _connection(error: Any, exchange: ResponseTrace, what: str) -> ModelError:
    cause = _said(error.__cause__ or error)
    root = next((e for e in reversed(list(_chain(error))) if isinstance(e, OSError)), None)
    detail = root.strerror if root is not None and root.strerror else cause
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


def _said(error: BaseException) -> str:
    # The library's message may end in advice on its own API; the first line says what happened.
    text = without_validation(str(error)).strip() or type(error).__name__
    return cut(text.splitlines()[0], MESSAGE_CHARS)


def _status(error: Any, exchange: ResponseTrace, formatted: bool) -> EndpointStatus:
    """Return an error as the endpoint reported it, from the response and what the library read."""
    code = exchange.status if exchange.status >= 300 else getattr(error, "status_code", 0)
    body = getattr(error, "body", None) or _decoded(exchange.body)
    word, message = _words(body)
    if 300 <= code < 400:
        message = f"moved to {cut(exchange.headers.get('location', 'another address'), 200)}; "
        message += "redirects are not followed, give the new address as model_url"
    return EndpointStatus(
        code=code,
        word=word,
        message=message or _said(error),
        headers=exchange.headers if exchange.status >= 300 else {},
        told=getattr(error, "retry_after", None),
        hint=_hint(error),
        formatted=formatted,
    )


def _hint(error: Any) -> str:
    from pydantic_ai import exceptions as library

    hints = (
        (library.ModelQuotaExceededError, "quota"),
        (library.ModelContextWindowExceededError, "context"),
        (library.ModelRateLimitError, "throttled"),
        (library.ModelUnavailableError, "transient"),
        (library.ModelServerError, "transient"),
    )
    known = next((hint for kind, hint in hints if isinstance(error, kind)), "")
    rejected = isinstance(error, library.ModelRequestRejectedError)
    # An error inside a stream that the library cannot place: the provider failed, not the request.
    in_stream = getattr(error, "in_stream", False) and not rejected
    return known or ("transient" if in_stream else "")


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
    text = re.sub(r"<[^>]{0,500}>", " ", body) if isinstance(body, str) else ""
    return "", " ".join(without_validation(text).split())
