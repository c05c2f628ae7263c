"""The reader of values: total, and what it does where the text or the schema is odd."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopwright.models import read_value
from loopwright.models.reply_values import MAX_VALUES, scan

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
}
PARTS = [
    "{", "}", "[", "]", '"', "'", "`", ":", ",", "a", '"a"', "1", "-", ".", "\\", "\\u", "\\n", " ", "\n",
    "true", "None", "NaN", "//", "/*", "*/", "#", "\u201c", "\u201d", "\uff1a", "<think>", "</think>",
    "```", '{"a": 1}', "\0", "\ud800", "</s>",
]  # fmt: skip
texts = st.text(st.characters(exclude_categories=())) | st.lists(
    st.sampled_from(PARTS), max_size=40
).map("".join)


@given(texts)
def test_any_text_gives_a_value_or_a_problem(text: str) -> None:
    """No text raises; a value fits the schema, and a problem has a sentence for the model."""
    reading = read_value(text, SCHEMA)
    assert (reading.problem == "") == (reading.complaint == "") == (reading.failure == "")
    if not reading.problem:
        assert isinstance(reading.value["a"], int)


def test_what_people_read_is_no_instruction_to_the_model() -> None:
    """`fault` says what is wrong with a reply; `complaint` asks the model for another."""
    for text, fault in (
        ('{"a": 1} or {"a": 2}', "the reply has several different JSON values that fit"),
        ("nothing", "the reply has no JSON value"),
        ('{"a": 1', "the reply ended before its JSON value did"),
        ('{"a": "four"}', "$.a: 'four' is not of type 'integer'"),
    ):
        assert read_value(text, SCHEMA).failure == fault


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner:
       st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8))  # fmt: skip
def test_strict_json_is_read_as_it_was_written(value: Any) -> None:
    """In prose and in a fence too, and nothing of it is changed."""
    whole = {"a": 1, "rest": value}
    for form in ("{}", "Here:\n{}\nDone.", "```json\n{}\n```"):
        reading = read_value(form.replace("{}", json.dumps(whole)), SCHEMA)
        assert reading.problem in ("", "several")
        if not reading.problem:
            assert json.dumps(reading.value) == json.dumps(
                json.loads(json.dumps(whole).replace("\\u0000", ""))
            ) or "\\ud" in json.dumps(whole)


def test_what_was_cut_off_is_never_read() -> None:
    """Not even where it is whole."""
    reading = read_value('{"a": 1}', SCHEMA, finish="length")
    assert (reading.value, reading.problem) == (None, "cut")


def test_strict_reading_repairs_nothing() -> None:
    """The reading of before: one value, in one fence at most."""
    assert read_value('```\n{"a": 1}\n```', SCHEMA, strict=True).value == {"a": 1}
    for text in ('x {"a": 1}', "{'a': 1}", '{"a": "1"}', '<think>x</think>{"a": 1}'):
        assert read_value(text, SCHEMA, strict=True).problem == "mismatch"


def test_repairs_say_what_was_done() -> None:
    """Each kind is named once."""
    reading = read_value("<think>x</think>So: {'A': '1', b: 2,}", SCHEMA)
    assert reading.value == {"a": 1, "b": 2}
    assert reading.repairs == (
        "thinking left out", "text around the value", "not strict JSON",
        "key spelt as in the schema", "value written as in the schema",
    )  # fmt: skip


def test_the_work_is_bounded() -> None:
    """Beyond so many values or characters the rest is not read, and a value is not guessed from a part."""
    assert len(scan('{"a":1}' * 20_000).values) == MAX_VALUES
    assert scan("{'" * 100_000).exhausted
    assert read_value('{"a": 1}' + "{'" * 100_000, SCHEMA).problem == "several"
    assert scan("[" * 200_000).values == []


def test_references_and_alternatives_of_a_schema_are_followed() -> None:
    """A value is fitted inside of $ref and anyOf too, and only where one alternative fits."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "n": {"$ref": "#/$defs/n"},
            "m": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "o": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
        "$defs": {"n": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    found = read_value('{"n": {"X": "0.5"}, "m": "4", "o": "4"}', schema)
    assert found.value == {"n": {"x": 0.5}, "m": 4, "o": "4"}


def test_a_single_item_is_a_list_of_one_unless_a_text_could_list_several() -> None:
    """Numbers and members of an enumeration are certain; "none" and "a, b" are not one item."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "sizes": {"type": "array", "items": {"type": "integer"}},
            "kinds": {"type": "array", "items": {"enum": ["short", "long"]}},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    for reply, expected in (
        ('{"sizes": 4}', {"sizes": [4]}),
        ('{"sizes": "4"}', {"sizes": [4]}),
        ('{"kinds": "Short"}', {"kinds": ["short"]}),
        ('{"sizes": "4, 5"}', None),
        ('{"kinds": "short, long"}', None),
        ('{"tags": "none"}', None),
    ):
        reading = read_value(reply, schema)
        assert reading.value == expected
        assert (reading.problem == "") == (expected is not None)
