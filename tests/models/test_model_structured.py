"""From the text of a reply to a value that meets a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.models.structured import check_schema, parse, read_json

SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}, "score": {"type": "number", "minimum": 0}},
    "required": ["verdict"],
}
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_json_is_read_as_it_was_written(value: Any) -> None:
    """Strict JSON is read to the value that was written, with or without one code fence around it."""
    text = json.dumps(value)
    assert read_json(text) == (value, "")
    assert read_json(f"```json\n{text}\n```") == (value, "")


@given(st.text())
def test_reading_is_total(text: str) -> None:
    """Whatever a model writes is a value or a sentence, never an exception."""
    value, problem = parse(text, SCHEMA)
    assert problem == "" or value is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The verdict is yes", "the answer is not JSON: Expecting value at line 1, column 1, in 'The verdict is yes'"),
        (
            '{"verdict": "yes"',
            "the answer is not JSON: Expecting ',' delimiter at line 1, column 18, in '{\"verdict\": \"yes\"'",
        ),
        ('{"verdict": "yes", "verdict": "no"}', "the answer is not strict JSON: the key 'verdict' is there twice"),
        ('{"verdict": "yes", "score": NaN}', "the answer is not strict JSON: NaN is not a JSON number"),
        ('{"verdict": "yes", "score": 1e999}', "the answer is not strict JSON: 1e999 is too large for a JSON number"),
        ("[" * 65 + "]" * 65, "the JSON is nested deeper than 64 levels"),
        ("[" * 200_000, "the JSON is nested deeper than 64 levels"),
        ('"' + "a" * 5_000_001, "the answer has 5,000,002 characters; at most 5,000,000 are read"),
        ('{"verdict": "maybe"}', "$.verdict: 'maybe' is not one of ['yes', 'no']"),
        ('{"score": 1}', "the answer: 'verdict' is a required property"),
        ('{"verdict": "yes", "score": "1"}', "$.score: '1' is not of type 'number'"),
        ('{"verdict": "yes", "score": true}', "$.score: True is not of type 'number'"),
        ('{"verdict": 1, "score": -1}', "$.score: -1 is less than the minimum of 0 (and 1 more)"),
        ('```json\n{"verdict": "yes"}\n```\n```json\n{}\n```', None),
        ('{"verdict": "yes"} and more', None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(text: str, problem: str | None) -> None:
    """What cannot be used is never repaired; the sentence says what is wrong and where."""
    value, found = parse(text, SCHEMA)
    assert value is None
    assert found
    assert problem is None or found == problem


def test_brackets_inside_text_are_not_depth() -> None:
    """Only brackets outside of strings count as nesting."""
    text = json.dumps({"verdict": "yes", "note": '[[[["' * 100})
    assert parse(text, SCHEMA)[1] == ""


def test_a_pattern_of_a_schema_has_a_time_limit() -> None:
    """A pattern that would take for ever on a model's text is given up."""
    value, problem = parse('"' + "a" * 60 + '!"', {"type": "string", "pattern": r"^(a|aa)+$"})
    assert value is None
    assert "pattern" in problem or "does not match" in problem


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strin"}, "schema: $.type: 'strin' is not valid under any of the given schemas"),
        ({"$ref": "https://example.com/schema.json"},
         "schema: $ref 'https://example.com/schema.json' leads nowhere; only references inside it are followed"),
        ({"$ref": "#"}, "schema: its $ref go round in a circle"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_is_refused(schema: dict[str, Any], message: str) -> None:
    """A schema is checked, and its references never make a request."""

    def used() -> None:
        check_schema(schema)
        parse("1", schema)

    with pytest.raises(ConfigurationError) as caught:
        used()
    assert str(caught.value) == message
