"""What statuses and headers mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import errors, models
from loopwright.errors import StepError
from loopwright.models import KINDS, ModelError
from loopwright.models.errors import model_error_of
from loopwright.models.providers.transport import EndpointStatus, from_status, retry_after

DAYS = 31 * 86_400.0  # the longest that is told: nobody waits for it
NOW = 1_792_567_680.0  # Wed, 21 Oct 2026 07:28:00 GMT


def test_one_class_stands_for_failed_model_calls() -> None:
    """`ModelError` is the one class of failed model calls."""
    assert errors.ModelError is models.ModelError


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, None),
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": " 30 "}, 30.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "2678400"}, 2678400.0),
        ({"retry-after": "2678401"}, DAYS),
        ({"retry-after": "1" * 400}, DAYS),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "+5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1_0"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "1e2"}, 100.0),
        ({"retry-after": "1e308"}, DAYS),
        ({"retry-after": "1e999"}, DAYS),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "-1", "retry-after": "9"}, 9.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:10 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:04 GMT"}, 6.0),
        ({"retry-after": "Wednesday, 21-Oct-26 07:28:10 GMT"}, 10.0),
        ({"retry-after": "Wed Oct 21 07:28:10 2026"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2099 07:28:10 GMT"}, DAYS),
        ({"retry-after": "Wed, 99 Oct 2026 07:28:10 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 99999999999 07:28:10 GMT"}, None),
    ],
)  # fmt: skip
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], told: float | None) -> None:
    """Seconds, milliseconds and HTTP dates are read; what is longer than 31 days means these, never nothing."""
    assert retry_after(headers, NOW) == told


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_reading_headers_is_total(seconds: str, millis: str, date: str) -> None:
    """Whatever the headers say, the answer is a possible wait or none."""
    told = retry_after({"retry-after": seconds, "retry-after-ms": millis, "date": date}, NOW)
    assert told is None or 0 <= told <= 31 * 86_400


@given(
    st.integers(0, 999), st.text(max_size=40), st.text(max_size=80), st.booleans(),
    st.sampled_from(["", "quota", "context", "throttled", "transient"]),
)  # fmt: skip
def test_every_status_means_something(
    code: int, word: str, message: str, formatted: bool, hint: str
) -> None:
    """Every status, code and message has a kind of the vocabulary, and never one that was billed."""
    fault = from_status(EndpointStatus(code, word, message, hint=hint, formatted=formatted), "p/m")
    assert fault.kind in KINDS
    assert fault.billed == "no"


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (EndpointStatus(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", hint="throttled"), "throttled", ""),
        (EndpointStatus(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", hint="quota"), "quota", ""),
        (EndpointStatus(429, "", "see https://platform.example/account/billing"), "throttled", ""),
        (EndpointStatus(400, "", "unknown field json_schema", formatted=True), "transient", "format_unsupported"),
        (EndpointStatus(400, "", "unknown field json_schema"), "permanent", "rejected"),
        (EndpointStatus(400, "", "bad temperature", formatted=True), "permanent", "rejected"),
        (EndpointStatus(401, "", "json_schema", formatted=True), "permanent", "unauthorised"),
        (EndpointStatus(0, "", "odd", hint="transient"), "transient", "in_stream"),
    ],
)  # fmt: skip
def test_words_decide_where_a_status_does_not(
    status: EndpointStatus, kind: str, reason: str
) -> None:
    """What a provider says beside a status tells a quota from a throttle and a format from a fault."""
    fault = from_status(status, "p/m")
    assert (fault.kind, fault.reason) == (kind, reason)


def test_a_prompt_that_is_too_long_names_what_to_shorten() -> None:
    """A context that is too long has its own reason and names the fields to change."""
    fault = from_status(EndpointStatus(400, "context_length_exceeded", "too long"), "openai/gpt-4o")
    assert fault.fields == ("messages", "tools", "max_tokens")
    assert str(fault) == (
        "openai/gpt-4o answered status 400: too long; shorten messages or tools, or lower max_tokens"
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelError("x", kind="quota"), "quota"),
        (ModelError("x", kind="throttled"), "throttled"),
        (StepError("x", kind="transient"), "transient"),
        (StepError("x", kind="ValueError"), None),
        (StepError("x", kind="timeout"), None),
    ],
)
def test_an_error_of_the_vocabulary_is_a_fault(error: Any, kind: str | None) -> None:
    """An error whose kind is of the vocabulary is a fault, whoever raised it; others are not."""
    fault = model_error_of(error)
    assert (fault.kind if fault else None) == kind
