"""What executions keep of errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.records.codec import cleaned, sanitised

TABLE = [
    # The three rules of the format.
    ("mail ann.b+c@mail.example.org now", "mail [EMAIL] now"),
    ("from 192.168.0.1:8080", "from [IP]:8080"),
    ("key abcdefghij0123456789", "key [TOKEN]"),
    ("x" * 20, "[TOKEN]"),
    ("x" * 19, "x" * 19),
    # More than they ask.
    ("at fe80::1%eth0 and ::1", "at [IP] and [IP]"),
    ("at 2001:db8::8a2e:370:7334.", "at [IP]."),
    ("bad key sk-ant-api03-aBcD1234efgh5678-xyz", "bad key [TOKEN]"),
    ("id 123e4567-e89b-12d3-a456-426614174000", "id [TOKEN]"),
    ("Bearer eyJhbGciOi.eyJzdWIiOi12.SflKxwRJ-4fwpM", "Bearer [TOKEN]"),
    ("password=x", "password=[SECRET]"),
    ("db_password = 'two words' failed", "db_password = '[SECRET]' failed"),
    ('{"api_key": "abc", "token": "t"}', '{"api_key": "[SECRET]", "token": "[SECRET]"}'),
    ("connect ann:hunter2@db.example.org", "connect [SECRET]@db.example.org"),
    ("postgres://ann:p@ss@db:5432/x", "postgres://[SECRET]@db:5432/x"),
    ("redis://:hunter2@cache:6379", "redis://[SECRET]@cache:6379"),
    ("Authorization: Basic YW5uOng=", "Authorization: Basic [SECRET]"),
    # What stays readable.
    ("unexpected token: }", "unexpected token: }"),
    ("max_tokens=500 is too few", "max_tokens=500 is too few"),
    ("HTTP 429 at 12:30:45", "HTTP 429 at 12:30:45"),
    ("agent/reasoning/3/execute/attempt-1 failed", "agent/reasoning/3/execute/attempt-1 failed"),
    ("a well-known state-of-the-art model", "a well-known state-of-the-art model"),
    ("version 1.2.3", "version 1.2.3"),
    ("/usr/lib64/python3.11/bin/python3.11: not found", "/usr/lib64/python3.11/bin/python3.11: not found"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TABLE)
def test_names_and_keys_are_replaced(text: str, expected: str) -> None:
    """E-mail, IP addresses and long runs go, hyphenated keys too; sentences stay."""
    assert sanitised(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ConnectionRefusedError at 127.0.0.1:8080", "ConnectionRefusedError at 127.0.0.1:8080"),
        ("from 10.0.0.7 and ::1 and fe80::1.", "from [IP] and ::1 and [IP]."),
        ("key abcdefghij0123456789", "key [TOKEN]"),
        ("ann@example.org: password=x", "[EMAIL]: password=[SECRET]"),
    ],
)
def test_recorded_errors_keep_the_names_of_errors_and_of_this_machine(
    text: str, expected: str
) -> None:
    """What every record of an error passes masks the same, but for class names and loopback."""
    assert cleaned(text) == expected


def test_masking_takes_linear_time() -> None:
    """No text of 200,000 characters makes a rule look back over it again and again."""
    for text in (
        "a" * 200_000,
        "a@" * 100_000,
        "a:" * 100_000,
        "password" * 25_000,
        "1." * 100_000,
    ):
        assert len(sanitised(text)) <= 500


def test_an_error_is_cut_to_five_hundred_characters() -> None:
    """The cut comes last, so that it never opens half of a key."""
    assert len(sanitised("word " * 200)) == 500
    assert sanitised("a " * 245 + "k" * 30) == "a " * 245 + "[TOKEN]"


@given(st.text(max_size=300))
def test_no_rule_of_the_format_is_missed(text: str) -> None:
    """Whatever the text, no run of 20 letters and digits is left in it, and it is never longer."""
    found = sanitised(text)
    assert len(found) <= 500
    assert not any(len(run) >= 20 for run in _runs(found))


def _runs(text: str) -> list[str]:
    kept = "".join(c if c.isascii() and c.isalnum() else " " for c in text)
    return kept.split()
