"""Secrets are found by their value, however they are written."""

from __future__ import annotations

import base64
import itertools
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.models import Redactor
from loopwright.records.redaction import MARK

secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=40)
around = st.text(st.characters(min_codepoint=97, max_codepoint=122), max_size=7)


@given(secrets, around, around)
def test_every_form_of_a_secret_is_taken_out(secret: str, before: str, after: str) -> None:
    """Raw, in a URL, in JSON, in JSON inside JSON, in base64 of something longer: all are found."""
    redactor = Redactor([secret])
    inside = f"{before}{secret}{after}"
    forms = [
        inside,
        quote(secret, safe=""),
        quote(secret, safe="").lower()
        if quote(secret, safe="") == secret.lower()
        else quote(secret),
        quote_plus(secret),
        json.dumps({"key": inside}),
        json.dumps(json.dumps({"key": inside})),
        base64.b64encode(inside.encode()).decode(),
        base64.urlsafe_b64encode(inside.encode()).decode(),
        repr(inside),
    ]
    for form in forms:
        assert MARK in redactor.text(form)
        assert secret not in redactor.text(form)


@given(secrets)
def test_json_is_cleaned_all_through(secret: str) -> None:
    """Keys, values and everything nested are cleaned; numbers and the shape stay."""
    value = {"a": [secret, {"b": f"Bearer {secret}"}, 7, None, True], f"x{secret}": 1.5}
    cleaned = Redactor([secret]).clean(value)
    assert cleaned == {"a": [MARK, {"b": f"Bearer {MARK}"}, 7, None, True], f"x{MARK}": 1.5}


@pytest.mark.parametrize("given_secrets", [[], [""], ["   "], ["short"], ["ollama"]])
def test_what_is_too_short_to_be_a_secret_is_left(given_secrets: list[str]) -> None:
    """A value of fewer than 8 characters is ordinary text, and an empty one is everywhere."""
    assert Redactor(given_secrets).clean("a short ollama text") == "a short ollama text"


def test_of_two_secrets_the_longer_goes_first() -> None:
    """A secret that begins like another does not leave its tail behind."""
    assert (
        Redactor(["secret-12", "secret-12-extended"]).text("x secret-12-extended y")
        == f"x {MARK} y"
    )


def test_a_redactor_does_not_show_what_it_knows() -> None:
    """Its repr has no secret in it."""
    assert "very-secret" not in repr(Redactor(["very-secret-value"]))


@given(secrets, around, around, st.lists(st.integers(0, 80), max_size=6))
def test_a_secret_in_pieces_is_not_heard(
    secret: str, before: str, after: str, cuts: list[int]
) -> None:
    """However a stream cuts a secret up, the pieces that are let through hold none of it."""
    text = f"{before} {secret} {after}{secret}"
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    stream = Redactor([secret]).streamed()
    pieces = [stream.feed(text[a:b]) for a, b in itertools.pairwise(places)]
    heard = "".join([*pieces, stream.flush()])
    assert heard == f"{before} {MARK} {after}{MARK}"


def test_ordinary_text_is_not_held_back() -> None:
    """Only what may begin a secret waits for the next piece."""
    stream = Redactor(["sk-very-secret"]).streamed()
    assert [stream.feed("hello "), stream.feed("sk-v"), stream.feed("ictory")] == [
        "hello ",
        "",
        "sk-victory",
    ]
