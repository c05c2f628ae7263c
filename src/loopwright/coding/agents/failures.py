"""The kind of an agent's failure, by the words and statuses that programs and providers use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...records.codec import Json
from ...records.display import excerpt_line

__all__ = ["AgentFailure", "classified", "failure_of"]

MESSAGE_CHARS = 500
_READ = 8_000  # characters of a message in which words are searched
MAX_WAIT = 31 * 86_400.0  # seconds: the longest quotas are monthly
_STATUS = re.compile(
    r"(?:\bstatus(?:[ _]?code)?|\bHTTP(?:/\d\.\d)?|\bAPI Error|\bcode|\berror)\W{0,3}([45]\d\d)\b"
    r"|\b([45]\d\d) (?:Bad|Unauth|Forbid|Not Found|Too Many|Internal|Service|Gateway|status|\{)",
    re.IGNORECASE,
)
_WAIT = re.compile(
    r"(?:retry|try again|reset\w*|available)[ \w]{0,20}? in (\d{1,6})(?:\.\d+)? ?(s|sec|m|min|h|hour|d|day)",
    re.IGNORECASE,
)
_WAIT_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
# The first row that matches counts: providers report an exhausted quota with the status of a rate limit.
_ROWS: tuple[tuple[str, frozenset[int], re.Pattern[str]], ...] = tuple(
    (kind, frozenset(codes), re.compile(words, re.IGNORECASE))
    for kind, codes, words in (
        (
            "quota", {402},
            (r"insufficient_quota|exceeded your current quota|credit balance|usage[ _]limit|out of credits"
            r"|insufficient balance|quota (?:exceeded|exhausted)|billing|spend limit"),
        ),
        ("throttled", {429}, r"rate[ _-]?limit|too many requests|resource.exhausted|throttl"),
        (
            "permanent", {401, 403, 404},
            (r"invalid api key|incorrect api key|invalid x-api-key|authenticat|unauthori[sz]ed|not logged in|/login"
            r"|log ?in required|please (?:log|sign) in|missing api key|no api key|api key (?:is )?(?:missing|not)"
            r"|environment variable.{0,40}(?:missing|not set|not found)|permission denied by provider"
            r"|(?:model|deployment).{0,60}(?:not found|does not exist|not supported|unknown)|unknown model"
            r"|model_not_found|not_found_error|must specify.{0,20}auth|set an auth method"),
        ),
        ("refused", set(), r"content[ _](?:filter|policy)|safety (?:filter|policy|reasons)|usage polic|\brefus"),
        (
            "transient", {408, 409, 500, 502, 503, 504, 520, 522, 524, 529},
            (r"overloaded|internal server error|service unavailable|bad gateway|gateway time|timed? ?out"
            r"|connection|econnre|enotfound|eai_again|socket hang up|fetch failed|stream (?:disconnected|closed|ended)"
            r"|network|terminated|premature|unable to connect|reconnecting"),
        ),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgentFailure:
    """The failure of one call of an agent.

    Args:
        kind: one of `manifest.FAILURES`, or a kind of StepError.
        message: the cause, on one line.
        retry_after: seconds until the time that the program named, or None.
    """

    kind: str
    message: str
    retry_after: float | None = None

    @property
    def retryable(self) -> bool:
        """Whether another call can help."""
        return self.kind in ("throttled", "transient", "unknown_outcome", "timeout", "empty_output")

    def to_json(self) -> Json:
        return {"kind": self.kind, "message": self.message, "retry_after": self.retry_after}


def classified(message: str, status: int | None = None) -> str:
    """Return the kind of a failure by its HTTP status and its words, or "" if neither says it.

    >>> classified("API Error: 529 Overloaded"), classified("Invalid API key", 401)
    ('transient', 'permanent')
    """
    text = message[:_READ]
    if status is None and (match := _STATUS.search(text)) is not None:
        status = int(match[1] or match[2])
    for kind, codes, words in _ROWS:
        # The words of a quota explain a status 429 or 400; other statuses are clearer than words.
        if status in codes or ((status is None or kind == "quota") and words.search(text)):
            return kind
    if status is not None:
        return "permanent" if status < 500 else "transient"
    return ""


def failure_of(
    message: str, *, status: int | None = None, default: str = "permanent"
) -> AgentFailure:
    """Return the failure that a message of a program means; `default` is its kind if no word says it."""
    kind = classified(message, status) or default
    match = _WAIT.search(message[:_READ])
    wait = None
    if match is not None and kind in ("throttled", "quota", "transient"):
        wait = min(float(match[1]) * _WAIT_UNITS[match[2][0].lower()], MAX_WAIT)
    return AgentFailure(kind, excerpt_line(message, MESSAGE_CHARS) or kind, wait)
