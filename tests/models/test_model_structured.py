"""From the text of a reply to a value that meets a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError
from loopwright.models import read_value
from loopwright.models.reply_text import JsonReading, read_json
from loopwright.records.json_schema import check_schema

SCHEMA = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}, "score": {"type": "number", "minimum": 0}},
    "required": ["verdict"],
}


def parse(text: str, schema: Any) -> tuple[Any, str]:
    """Read a reply strictly; return the value and "", or None and the problem."""
    reading = read_value(text, schema, strict=True)
    tail = ". Reply with the whole corrected JSON value and nothing else."
    return reading.value, reading.complaint.removesuffix(tail)


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
    assume("\\u0000" not in text)  # which nothing stores
    assert read_json(text) == JsonReading(value)
    assert read_json(f"```json\n{text}\n```") == JsonReading(value)
    assert read_json(f"```json\n{text}```") == JsonReading(value)


@given(st.text())
def test_reading_is_total(text: str) -> None:
    """Whatever a model writes is a value or a sentence, never an exception."""
    value, problem = parse(text, SCHEMA)
    assert problem == "" or value is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("The verdict is yes", "the reply is not JSON at line 1 column 1; expected one JSON value and nothing else"),
        ('{"verdict": "yes"', "the reply is not JSON at line 1 column 18; expected one JSON value and nothing else"),
        ('{"verdict": "yes", "verdict": "no"}', "the reply repeats a key of an object; expected each key once"),
        ('{"verdict": "yes", "score": NaN}', "the reply holds NaN; expected finite numbers only"),
        ('{"verdict": "yes", "score": 1e999}', "the reply holds a number beyond any float; expected finite numbers only"),
        ("[" * 65 + "]" * 65, "the reply nests too deep; expected at most 64 levels"),
        ("[" * 200_000, "the reply nests too deep; expected at most 64 levels"),
        ('"' + "a" * 5_000_001, "the reply is too large; expected at most 5,000,000 bytes of JSON"),
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


def test_a_pattern_of_property_names_has_a_time_limit() -> None:
    """The names of an object come from a model too, so `patternProperties` has the same limit."""
    name = "a" * 60 + "!"
    schema = {"type": "object", "patternProperties": {r"^(a|aa)+$": {"type": "string"}}}
    value, problem = parse(f'{{"{name}": 1}}', schema)
    assert value is None
    assert "was stopped" in problem


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strin"}, "schema: $.type: 'strin' is not valid under any of the given schemas"),
        ({"$ref": "https://example.com/schema.json"},
         "schema: $ref 'https://example.com/schema.json' is not in the schema, and remote schemas are not fetched"),
        ({"$ref": "#"}, "schema: its $ref refer to each other without end"),
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
