"""The text of a model before it is read: cleaned, normalised, quotations marked, JSON parsed."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loopwright.models.reply_text import (
    JSON_BYTES,
    JSON_DEPTH,
    clean_text,
    lines_with_quotes,
    normalise_characters,
    normalise_reply,
    read_json,
    strip_emphasis,
    strip_fence,
)

texts = st.text(st.characters(exclude_categories=()))
jsonish = st.lists(
    st.sampled_from([*'{}[]":,\\ \n.-0123456789eE', "null", "NaN", "```", "\\u0000", "\ud800"]),
    max_size=30,
).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(texts)
def test_clean_text_can_be_stored(text: str) -> None:
    """Cleaned text encodes as UTF-8, has no NUL, and cleaning it again changes nothing."""
    cleaned = clean_text(text)
    assert cleaned.encode().decode() == cleaned
    assert "\0" not in cleaned
    assert clean_text(cleaned) == cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\0b", "ab"),
        ("a\ud800b", "a\ufffdb"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\0\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("plain \u00e9\r\n", "plain \u00e9\r\n"),
    ],
)
def test_surrogates_and_nul_are_replaced(text: str, cleaned: str) -> None:
    """A lone surrogate is U+FFFD, a pair its character, NUL is dropped, the rest stays."""
    assert clean_text(text) == cleaned


@given(st.text(st.characters(exclude_categories=["Cf", "Cs", "Mn", "No", "So"])))
def test_characters_are_normalised_as_nfkc(text: str) -> None:
    """Away from zero-width characters, marks and figured digits the outcome is plain NFKC."""
    assume(not re.search("[\0\u115f\u1160\u3164\uffa0\u2065\ufff0-\ufff8]", text))
    assume(not re.search("[\U000e0000-\U000e0fff]", text))
    assert normalise_characters(text) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("\uff33\uff23\uff2f\uff32\uff25\uff1a\u30000.9", "SCORE: 0.9"),
        ("0\u200b.\ufeff9\u2060", "0.9"),
        ("\U0001d7ce.\U0001d7d7", "0.9"),
        ("0.9\u00b2", "0.9^2"),
        ("0.9\u2082", "0.9^2"),
        ("0.9\u2460", "0.9^1"),
        ("0.9\u2488", "0.9^1."),
        ("\u0660.\u0669", "\u0660.\u0669"),
        ("\u2215 \u2044", "\u2215 \u2044"),
        ("e\u0301", "\u00e9"),
        ("a" + "\u0301" * 40, "\u00e1" + "\u0301" * 29),
    ],
)
def test_only_digits_of_a_number_become_digits(text: str, normalised: str) -> None:
    """Full-width and mathematical digits are digits; footnote and list digits are set off."""
    assert normalise_characters(text) == normalised


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("**QUALITY:** 8/10", "QUALITY: 8/10"),
        ("QUALITY_SCORE: 0.9", "QUALITY_SCORE: 0.9"),
        ("__QUALITY_SCORE__: _0.9_.", "QUALITY_SCORE: 0.9."),
        ("8*10 0.*9 0*.9 1_0", "8*10 0.*9 0*.9 1_0"),
        ("a ** b", "a  b"),
        ("***", ""),
    ],
)
def test_emphasis_is_stripped_around_words_only(text: str, stripped: str) -> None:
    """Marks around a word go, marks inside a word or a number stay."""
    assert strip_emphasis(text) == stripped
    assert normalise_reply(f"\u200b{text}\0") == stripped


def test_quotations_and_fences_are_marked() -> None:
    """A fence closes by a run at least as long of the same character, alone on its line."""
    text = "a\n> b\n```py\nc\n~~~\n`` \n```` \nd\n~~~~\ne\n~~~\n~~~~~\n````x`y\n    ```\n"
    quoted = [line for line, inside in lines_with_quotes(text) if inside]
    assert quoted == ["> b", "```py", "c", "~~~", "`` ", "```` ", "~~~~", "e", "~~~", "~~~~~"]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("```\na\n```", "a"),
        ("\ufeff ```json\na\n\nb\n````  \n", "a\n\nb"),
        ("```\n```", ""),
        ("```\na", "```\na"),
        ("```\na\n```\nb\n```", "```\na\n```\nb\n```"),
        ("a\n```\nb\n```", "a\n```\nb\n```"),
        ("```a```", "```a```"),
    ],
)
def test_a_fence_is_stripped_if_it_is_the_whole(text: str, body: str) -> None:
    """One fence around everything goes; a fence beside other text stays."""
    assert strip_fence(text) == body


@given(texts | jsonish)
def test_any_text_gives_json_or_a_problem(text: str) -> None:
    """What is read as JSON holds finite numbers, no NUL and no surrogate; all else a problem."""
    reading = read_json(text)
    assert (reading.problem is None) == (reading.detail == "")
    if reading.problem:
        assert reading.value is None
    else:
        written = json.dumps(reading.value, allow_nan=False, ensure_ascii=False)
        assert "\\u0000" not in written.encode().decode()


@given(values)
def test_strict_json_reads_what_json_writes(value: object) -> None:
    """A value that JSON can carry comes back as it went in, bare or in a fence."""
    assume("\\u0000" not in json.dumps(value))
    try:
        source = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except ValueError:
        source = "null"
    assert read_json(source).value == json.loads(source)
    assert read_json(f"```json\n{source}\n```").value == json.loads(source)


@pytest.mark.parametrize(
    ("source", "problem", "detail"),
    [
        ("[" * JSON_DEPTH + "]" * JSON_DEPTH, None, ""),
        ('"' + "[" * 100 + '\\"' + "{" * 100 + '"', None, ""),
        ('"' + "a" * (JSON_BYTES - 2) + '"', None, ""),
        (
            "[" * (JSON_DEPTH + 1) + "]" * (JSON_DEPTH + 1),
            "too_deep",
            "the reply nests too deep; expected at most 64 levels",
        ),
        ('{"a":' * 900_000, "too_deep", "the reply nests too deep; expected at most 64 levels"),
        (
            '"' + "\u00e9" * (JSON_BYTES // 2) + '"',
            "too_large",
            "the reply is too large; expected at most 5,000,000 bytes of JSON",
        ),
        (
            "9" * 5000,
            "malformed",
            "the reply holds a number too long to read; expected one plain JSON value",
        ),
        (
            "1e999",
            "not_finite",
            "the reply holds a number beyond any float; expected finite numbers only",
        ),
        ("[NaN]", "not_finite", "the reply holds NaN; expected finite numbers only"),
        (
            '[{"a": 1, "a": 1}]',
            "duplicate_key",
            "the reply repeats a key of an object; expected each key once",
        ),
        (
            '{"a":\n1,}',
            "malformed",
            "the reply is not JSON at line 2 column 3; expected one JSON value and nothing else",
        ),
        (" \n", "empty", "the reply is empty; expected one JSON value"),
        ('"' + '\\"' * 50_000, "malformed", None),
        ("[]" * 50_000, "malformed", None),
    ],
)
def test_json_beyond_a_limit_is_refused(
    source: str, problem: str | None, detail: str | None
) -> None:
    """Depth, size, digits, range, repeated keys and form each have their own refusal."""
    reading = read_json(source)
    assert reading.problem == problem
    assert detail is None or reading.detail == detail


def test_escapes_in_json_are_cleaned_too() -> None:
    """A surrogate or NUL written as an escape does not slip past the cleaning of the text."""
    source = r'{"k\u0000": ["\ud800", "\ud83d\ude00", 1, null], "t": {"u": "a\u0000b"}}'
    assert read_json(source).value == {"k": ["\ufffd", "\U0001f600", 1, None], "t": {"u": "ab"}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "a" + "\u0316\u0301" * 2_500_000,
        "*_`" * 1_600_000 + "x",
        "> \n" * 1_600_000,
        '"' + '\\"' * 2_499_000,
    ],
    ids=["marks", "emphasis", "quotations", "escapes"],
)
def test_five_megabytes_are_normalised(text: str) -> None:
    """Texts on which ordering or backtracking would be quadratic come out no longer than in."""
    assert len(normalise_reply(text)) <= len(text)
    assert sum(1 for _ in lines_with_quotes(text)) == len(text.splitlines())
    assert read_json(text).problem in ("malformed", "too_large")
