"""What HTTP statuses mean."""

from __future__ import annotations

from faults_case import BEGIN, Case
from faulty_answers import endless_error, stalls_in_an_error
from faulty_server import Answer, error, whole

_DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
_LATER = "Wed, 21 Oct 2026 07:28:40 GMT"
_WAITS = [
    *[("3", 3.0), ("0", 0.0), ("1.5", 1.5), ("-1", None), ("NaN", None), ("inf", None)],
    *[("1e3", 1000.0), ("99999999999", 2_678_400.0), ("soon", None), ("", None), (_LATER, 40.0)],
]


def _redirect(status: int) -> Answer:
    return whole({}, status, location="http://localhost:9/v1/chat/completions?key=1")


UNAVAILABLE = [
    *(
        Case(f"status {code}", error(code, "try later"), "transient", f"status_{code}")
        for code in (500, 502, 503, 504, 529, 408, 409)
    ),
    Case("500 without a body", whole(b"", 500, None), "transient", "status_500"),
    Case(
        "500 with a web page",
        whole(b"<html><h1>Bad</h1>", 500, "text/html"),
        "transient",
        "status_500",
    ),
    Case(
        "503 with a wait", error(503, "busy", retry_after="4"), "transient", "status_503", told=4.0
    ),
    Case("an endless error", endless_error, "transient", "status_500"),
]

THROTTLED = [
    Case("429", error(429, "Rate limit reached, add a payment method at /billing"), "throttled"),
    *(
        Case(
            f"429 with Retry-After {text!r}",
            error(429, "slow down", retry_after=text, date=_DATE),
            "throttled",
            told=told,
        )
        for text, told in _WAITS
    ),
    Case(
        "429 with retry-after-ms",
        error(429, "slow", **{"retry-after-ms": "1250", "retry-after": "9"}),
        "throttled",
        told=1.25,
    ),
    Case("an error that stalls", stalls_in_an_error, "throttled", told=2.0, ask=BEGIN),
]

QUOTAS = [
    Case(
        "429 insufficient_quota",
        error(429, "You exceeded your current quota", "insufficient_quota"),
        "quota",
    ),
    Case(
        "429 that words a quota",
        error(429, "You exceeded your current quota, check your plan"),
        "quota",
    ),
    Case("402", error(402, "Insufficient Balance"), "quota"),
    Case("400 credit balance", error(400, "Your credit balance is too low"), "quota"),
]

PERMANENT = [
    *(
        Case(f"status {code}", error(code, "no"), "permanent", reason)
        for code, reason in (
            (400, "rejected"),
            (401, "unauthorised"),
            (403, "forbidden"),
            (404, "not_found"),
            (422, "rejected"),
        )
    ),
    Case("418", error(418, "teapot"), "permanent", "rejected"),
    *(
        Case(
            f"400 {code or message[:20]}",
            error(400, message, code),
            "permanent",
            "context_too_long",
        )
        for message, code in (
            ("This model's maximum context length is 8192 tokens", ""),
            ("too long", "context_length_exceeded"),
            ("prompt is too long: 210000 tokens > 200000 maximum", ""),
        )
    ),
    Case("413", error(413, "payload too large"), "permanent", "context_too_long"),
    Case(
        "400 content_filter", error(400, "filtered", "content_filter"), "refused", "content_filter"
    ),
    Case("400 in a list", whole([{"error": {"message": "bad"}}], 400), "permanent", "rejected"),
    Case(
        "400 as a text",
        whole({"error": "context window exceeded"}, 400),
        "permanent",
        "context_too_long",
    ),
    Case(
        "400 as detail",
        whole({"detail": [{"msg": "field required"}]}, 422),
        "permanent",
        "rejected",
    ),
    *(
        Case(f"redirect {code}", _redirect(code), "permanent", "redirect")
        for code in (301, 302, 307, 308)
    ),
]

STATUSES: list[Case] = [*UNAVAILABLE, *THROTTLED, *QUOTAS, *PERMANENT]
