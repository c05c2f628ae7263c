"""What can go wrong with a model call: the vocabulary, and what each word allows.

=================  =========  ===========================================================
kind               again?     meaning
=================  =========  ===========================================================
transient          yes        the endpoint, or the way to it, failed for the moment
throttled          yes        too many requests; not before `retry_after`
quota              no         money or quota is used up
permanent          no         the request itself cannot succeed; `reason` says why
truncated          no         cut off at the cap on tokens; once more with double the cap
refused            no         a safety filter or the model declined
malformed          no         not the JSON that was asked for; twice more with the problem quoted
unknown_outcome    yes        sent, and no complete reply: it may have been billed
cancelled          no         a person or a signal ended it
empty_output       no         nothing was written; once more
=================  =========  ===========================================================
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..codec import Json
from ..errors import ConfigurationError, ModelError, StepError, nearest
from ..records import NOTHING, Usage
from .exchange import Exchange
from .headers import retry_after

__all__ = [
    "KINDS",
    "Billed",
    "ModelFault",
    "Status",
    "fault_of",
    "from_status",
    "translate",
]

Billed = Literal["no", "maybe", "yes"]

KINDS: tuple[str, ...] = (
    "transient", "throttled", "quota", "permanent", "truncated", "refused", "malformed",
    "unknown_outcome", "cancelled", "empty_output",
)  # fmt: skip
_AGAIN = frozenset({"transient", "throttled", "unknown_outcome"})
_BILLED: Mapping[str, Billed] = {
    "truncated": "yes", "refused": "yes", "malformed": "yes", "empty_output": "yes",
    "unknown_outcome": "maybe", "cancelled": "maybe",
}  # fmt: skip
PARTIAL_CHARS = 20_000
MESSAGE_CHARS = 500


class ModelFault(ModelError):
    """A model call failed.

    Args:
        kind: a word of the vocabulary; it decides `retryable`.
        reason: what exactly, where a kind has several causes: context_too_long, stream_incomplete.
        retry_after: seconds before which the endpoint wants no other request.
        usage: tokens that were seen before it failed.
        billed: whether the request costs money: no, maybe, yes.
        partial: the text received so far; never an output.
        problem: what a re-ask quotes, for `malformed`.
        fields: names of the request's fields to change, for `permanent`.
        parts: what the model keeps with the call, opaque, as in Reply.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        path: str = "",
        reason: str = "",
        retry_after: float | None = None,
        usage: Usage = NOTHING,
        billed: Billed | None = None,
        partial: str = "",
        problem: str = "",
        fields: tuple[str, ...] = (),
        parts: Json = None,
    ) -> None:
        if kind not in KINDS:
            raise ConfigurationError(f"fault: kind: {kind!r} is unknown{nearest(kind, KINDS)}")
        again = kind in _AGAIN
        super().__init__(message, path=path, kind=kind, retryable=again, retry_after=retry_after)
        self.reason = reason
        self.usage = usage
        self.billed: Billed = billed or _BILLED.get(kind, "no")
        self.partial = partial[:PARTIAL_CHARS]
        self.problem = problem
        self.fields = fields
        self.parts = parts

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object without the fields that say nothing."""
        data: dict[str, Json] = {"kind": self.kind, "message": str(self), "billed": self.billed}
        names = ("reason", "partial", "problem", "parts")
        data |= {name: value for name in names if (value := getattr(self, name))}
        if self.retry_after is not None:
            data["retry_after"] = self.retry_after
        if self.usage:
            data["usage"] = self.usage.to_json()
        if self.fields:
            data["fields"] = list(self.fields)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json], *, path: str = "") -> ModelFault:
        """Return the fault that `to_json` wrote."""
        return cls(
            data["message"], kind=data["kind"], path=path, reason=data.get("reason", ""),
            retry_after=data.get("retry_after"), usage=Usage.from_json(data.get("usage")),
            billed=data.get("billed"), partial=data.get("partial", ""),
            problem=data.get("problem", ""), fields=tuple(data.get("fields", ())),
            parts=data.get("parts"),
        )  # fmt: skip


def fault_of(error: StepError) -> ModelFault | None:
    """Return a failed call as a ModelFault, or None for what is no fault of a model."""
    if isinstance(error, ModelFault):
        return error
    if error.kind not in KINDS:
        return None
    told = error.retry_after
    return ModelFault(str(error), kind=error.kind, path=error.path, retry_after=told)


@dataclass(frozen=True, slots=True)
class Status:
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


def from_status(status: Status, what: str) -> ModelFault:
    """Return the fault that an HTTP status means; `what` names the model, for the message."""
    text = f"{status.word} {status.message}".lower()
    headers = status.headers or {}
    told = status.told
    if "retry-after" in headers or "retry-after-ms" in headers:
        told = retry_after(headers, time.time())
    kind, reason = _kind(status, text)
    said = f": {status.message[:MESSAGE_CHARS]}" if status.message else ""
    code = f"status {status.code}" if status.code else "an error"
    return ModelFault(
        f"{what} answered {code}{said}{_ADVICE.get(reason, '')}",
        kind=kind,
        reason=reason,
        retry_after=told if kind in ("transient", "throttled", "quota") else None,
        billed="no",
        fields=("messages", "tools", "max_tokens") if reason == "context_too_long" else (),
    )


def _kind(status: Status, text: str) -> tuple[str, str]:
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


def translate(error: Exception, exchange: Exchange, what: str, *, formatted: bool) -> ModelFault:
    """Return the fault that an exception of the client library, the SDK or the transport means.

    Everything foreign is translated here, and nothing gets past: what no rule knows is an answer
    that could not be read. `formatted` says that the request asked for a format which may be
    unknown there.
    """
    # Whoever comes here has loaded the library already.
    from pydantic_ai import exceptions as library

    own = next((e for e in _chain(error) if isinstance(e, ModelFault)), None)
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
        return ModelFault(f"{what}: {_said(error)}", kind=kind, reason=reason)
    if isinstance(error, library.UnexpectedModelBehavior) and not exchange.began:
        return _incomplete(f"{what} closed its stream before it said anything")
    return _incomplete(f"{what} sent what cannot be read: {_said(error)}", "bad_response")


def _incomplete(message: str, reason: str = "stream_incomplete") -> ModelFault:
    return ModelFault(message, kind="transient", reason=reason, billed="maybe")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(20):  # a chain may be a circle
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _connection(error: Any, exchange: Exchange, what: str) -> ModelFault:
    cause = _said(error.__cause__ or error)
    root = next((e for e in reversed(list(_chain(error))) if isinstance(e, OSError)), None)
    detail = root.strerror if root is not None and root.strerror else cause
    if isinstance(root, ssl.SSLCertVerificationError):
        message = f"{what}: the certificate of the endpoint is not valid: {root.verify_message}"
        return ModelFault(message, kind="permanent", reason="certificate")
    if error.phase in ("connect", "pool"):
        return ModelFault(
            f"{what} cannot be reached: {detail}", kind="transient", reason="unreachable"
        )
    if exchange.status:
        return _incomplete(f"{what}: the connection broke off in the middle of the reply: {detail}")
    return ModelFault(
        f"{what}: the connection was lost after the request was sent: {detail}",
        kind="unknown_outcome",
        reason="connection_lost",
    )


def _said(error: BaseException) -> str:
    # The library's message may end in advice on its own API; the first line says what happened.
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:MESSAGE_CHARS]


def _status(error: Any, exchange: Exchange, formatted: bool) -> Status:
    """Return an error as the endpoint reported it, from the response and what the library read."""
    code = exchange.status if exchange.status >= 300 else getattr(error, "status_code", 0)
    body = getattr(error, "body", None) or _decoded(exchange.body)
    word, message = _words(body)
    if 300 <= code < 400:
        message = f"moved to {exchange.headers.get('location', 'another address')[:200]}; "
        message += "redirects are not followed, give the new address as model_url"
    return Status(
        code,
        word,
        message or _said(error),
        exchange.headers if exchange.status >= 300 else {},
        getattr(error, "retry_after", None),
        _hint(error),
        formatted,
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
        return words, " ".join(text.split())
    text = re.sub(r"<[^>]{0,500}>", " ", body) if isinstance(body, str) else ""
    return "", " ".join(text.split())
