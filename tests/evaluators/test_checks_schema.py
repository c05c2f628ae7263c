"""Checks by JSON Schema: every error is told with its path, and no schema is waited for without end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from checking import error, found, gaps

from loopwright import Criterion, Evaluation
from loopwright.errors import ConfigurationError
from loopwright.evaluators import check

SHAPE = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "tags": {"$ref": "#/$defs/t"},
    },
    "patternProperties": {"^x_": {"type": "integer"}},
    "additionalProperties": False,
    "$defs": {"t": {"type": "array", "items": {"type": "string"}}},
}


@pytest.mark.parametrize("output", [{"name": "a", "tags": ["b"], "x_1": 1}, '{"name": "a"}',
                                    '```json\n{"name": "a"}\n```'])  # fmt: skip
def test_what_fits_a_schema_passes(output: Any) -> None:
    """A value is checked as it is, a text as strict JSON, alone or in a fence."""
    assert found(check(schema=SHAPE), output) == Evaluation(
        1.0, True, criteria=(Criterion("schema", True),)
    )


def test_every_error_is_listed_with_its_path() -> None:
    """All of what does not fit is an improvement, by its JSON path, in order."""
    evaluation = found(check(schema=SHAPE), {"name": "A", "tags": ["b", 1], "x_1": "1", "y": 0})
    assert evaluation.improvements == (
        "$.name: 'A' does not match '^[a-z]+$'",
        "$.tags[1]: 1 is not of type 'string'",
        "$.x_1: '1' is not of type 'integer'",
        "$: 'y' is not among the allowed properties",
    )
    assert evaluation.feedback == "\n".join(
        ["schema: does not fit in 4 places:", *(f"- {line}" for line in evaluation.improvements)]
    )


@pytest.mark.parametrize(
    ("output", "gap"),
    [
        ("", "the reply is empty; expected one JSON value"),
        ("Sure! {}", ("the reply is not JSON at line 1 column 1; expected one JSON value and "
         "nothing else")),
        ('{"name": NaN}', "the reply holds NaN; expected finite numbers only"),
        ('{"name": "a", "name": "b"}', ("the reply repeats a key of an object; expected each key "
         "once")),
    ],
)  # fmt: skip
def test_a_text_that_is_no_json_does_not_pass(output: str, gap: str) -> None:
    """That the output cannot be read is a fact about the output."""
    assert gaps(found(check(schema=SHAPE), output)) == [gap]


def test_an_alternative_names_what_the_nearest_one_misses() -> None:
    """anyOf says more than that nothing fits."""
    schema = {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["id"]}]}
    (line,) = found(check(schema=schema), {"a": 1}).improvements
    assert line == (
        "$: {'a': 1} is not valid under any of the given schemas "
        "(nearest: $: 'id' is a required property)"
    )


def test_a_flood_of_errors_is_cut() -> None:
    """Fifty errors are listed and the rest counted; a long value is shortened."""
    evaluation = found(check(schema={"items": {"type": "string"}}), [10**400] + [1] * 99)
    assert len(evaluation.improvements) == 51
    assert evaluation.improvements[-1] == "and 50 more"
    assert max(map(len, evaluation.improvements)) < 400


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"type": "objekt"},
            "check: schema: $.type: 'objekt' is not valid under any of the given schemas",
        ),
        ({"$ref": "#/$defs/no"}, ("check: schema: '#/$defs/no' is not in the schema, and remote "
         "schemas are not fetched. Put it under $defs.")),
        ({"$ref": "http://127.0.0.1:9/x"}, ("check: schema: 'http://127.0.0.1:9/x' is not in the "
         "schema, and remote schemas are not fetched. Put it under $defs.")),
        ({"$schema": "http://a/b"}, ("check: schema: $schema: 'http://a/b' is not a known dialect. "
         "Use for example 'https://json-schema.org/draft/2020-12/schema'.")),
        ([], "check: schema: [] is not an object. Use a JSON Schema as a mapping."),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False},
         ("check: schema: patternProperties together with unevaluatedProperties has no time limit. "
         "Use additionalProperties.")),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_is_refused_when_it_is_made(schema: Any, message: str) -> None:
    """Mistakes in a schema are found before anything runs, and nothing is ever fetched."""
    with pytest.raises(ConfigurationError) as raised:
        check(schema=schema)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("schema", "output"),
    [
        ({"pattern": "(a+)+$"}, json.dumps("a" * 5000 + "b")),
        ({"patternProperties": {"(a+)+$": {}}}, {"a" * 5000 + "b": 1}),
        ({"patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
         {"a" * 5000 + "b": 1}),
        ({"propertyNames": {"pattern": "(a+)+$"}}, {"a" * 5000 + "b": 1}),
    ],
)  # fmt: skip
def test_a_hostile_pattern_in_a_schema_is_given_up(schema: Any, output: Any) -> None:
    """The patterns of a schema have a time limit, in every keyword that searches one."""
    assert error(check(schema=schema), output)[0] == "pattern_timeout"


def test_a_schema_without_end_is_a_check_error() -> None:
    """A schema that refers to itself for ever is an error, not a verdict."""
    kind, message = error(check(schema={"$ref": "#"}), {})
    assert kind == "check_error"
    assert message.startswith("check schema: the schema cannot be evaluated: RecursionError")


def test_further_properties_may_have_a_shape_of_their_own() -> None:
    """additionalProperties as a schema holds for what no other keyword names."""
    schema = {
        "properties": {"a": {}},
        "patternProperties": {"^x_": {}},
        "additionalProperties": {"type": "integer"},
    }
    assert found(check(schema=schema), {"a": "", "x_b": "", "c": 1}).passed
    assert found(check(schema=schema), [1]).passed
    (line,) = found(check(schema=schema), {"c": 1, "d": "e"}).improvements
    assert line == "$.d: 'e' is not of type 'integer'"
    assert found(check(schema={"additionalProperties": True}), {"d": 1}).passed


def test_older_drafts_are_read_as_such() -> None:
    """$schema chooses the draft: in draft 4 exclusiveMaximum is a boolean."""
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "maximum": 5,
        "exclusiveMaximum": True,
    }
    assert [found(check(schema=schema), n).passed for n in (4, 5)] == [True, False]
