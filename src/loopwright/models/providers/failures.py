"""The model error behind a failure of an endpoint, the client library or the network.

Importing this module loads the client library.
"""

from __future__ import annotations

import json
import math
import re
import ssl
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from pydantic_ai import exceptions as library

from ...errors import ModelError, without_validation
from ...records.codec import Json
from ...records.display import cut
from .transport import ResponseTrace

__all__ = ["EndpointStatus", "from_status", "retry_after", "translate"]

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
    kind, reason = _kind(status, text)
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


def _kind(status: EndpointStatus, text: str) -> tuple[str, str]:
    for cause in _CAUSES:
        if cause.reason == "format_unsupported" and not status.formatted:
            continue
        if cause.matches(status, text):
            if cause.reason == "status":
                return cause.kind, f"status_{status.code}" if status.code else "in_stream"
            return cause.kind, cause.reason
    return "permanent", "rejected"


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
    return EndpointStatus(
        code=code,
        word=word,
        message=message or _first_line(error),
        headers=exchange.headers if exchange.status >= 300 else {},
        retry_after=getattr(error, "retry_after", None),
        hint=_hint(error),
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


def _hint(error: Exception) -> str:
    for kind, hint in _HINTS:
        if isinstance(error, kind):
            return hint
    # The library cannot classify this error inside a stream: the provider failed, not the request.
    return "transient" if getattr(error, "in_stream", False) else ""


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
