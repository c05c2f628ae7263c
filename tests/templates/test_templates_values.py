"""Templates: which values they take, and that what a value holds comes out as it is."""

from __future__ import annotations

import json
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from templating import Key, refusal, render

from loopwright.templates import (
    TemplateError,
    TemplateValue,
    compile_expression,
    compile_template,
)


class Sink(StrEnum):
    LOG = "log"


class Level(IntEnum):
    HIGH = 3


class Ratio(float):
    pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Sink.LOG, "log"),
        (Level.HIGH, "3"),
        (Ratio(0.5), "0.5"),
        ((1, (2,)), "[1, [2]]"),
        ({Sink.LOG: 1}, '{"log": 1}'),
        (TemplateValue("t", {"a": TemplateValue("u", {"b": 1})}), "t"),
        (float("nan"), "nan"),
    ],
)
def test_near_plain_values_become_plain(value: object, expected: str) -> None:
    """Members of enumerations, tuples and subclasses of numbers are taken as what they hold."""
    assert render("{{ x }}", x=value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Key(), "'x' is of type Key; "),
        ({"a": [0, {"b": Key()}]}, "'x.a[1].b' is of type Key; "),
        (TemplateValue("t", {"f": len}), "'x.f' is of type builtin_function_or_method; "),
        ({1}, "'x' is of type set; "),
        (b"x", "'x' is of type bytes; "),
    ],
)
def test_other_values_are_refused_with_their_place(value: object, message: str) -> None:
    """An object is refused, not printed: its attributes are out of reach."""
    expected = message + (
        "templates take plain data only: text, numbers, true or false, null, lists and mappings"
    )
    assert refusal("{{ x }}", x=value) == f"template: {expected}"
    assert refusal("{{ x.api_key }}", x=value) == f"template: {expected}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: 2}, "'x' has a key of type int, not text"),
        ({"a": {None: 2}}, "'x.a' has a key of type NoneType, not text"),
        (10**2000, "'x' is too large a number for a template"),
        (
            [0] * 200_001,
            "'x' is too large for a template, which takes at most 200,000 items, nested 64 deep",
        ),
    ],
)
def test_odd_and_large_values_are_refused(value: object, message: str) -> None:
    """Keys are text, numbers have a size, and so have values as a whole."""
    assert refusal("{{ x }}", x=value) == f"template: {message}"


def test_values_nested_without_end_are_refused() -> None:
    """A list that contains itself is an error, not a crash."""
    endless: list[Any] = []
    endless.append(endless)
    assert "is too large for a template" in refusal("{{ x }}", x=endless)


def test_values_that_are_not_used_are_not_looked_at() -> None:
    """Only the names a template uses are copied in."""
    assert render("{{ name }}", other=Key()) == "Ada"


def test_a_template_cannot_change_its_values() -> None:
    """Values come back from a render as they were."""
    values = {"xs": [1, [2]]}
    compile_template("{% set xs = xs + [3] %}{{ xs|reverse }}").render(values)
    assert values == {"xs": [1, [2]]}


TEXT = st.text(alphabet="{}%#-ab \n'\"|", max_size=60)


@given(TEXT, TEXT)
def test_values_come_out_verbatim(first: str, second: str) -> None:
    """I47: rendering is single-pass, whatever braces a value holds."""
    template = compile_template("<{{ a }}|{{ d.b }}|{{ a ~ d.b }}>")
    expected = f"<{first}|{second}|{first}{second}>"
    assert template.render({"a": first, "d": {"b": second}}) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_containers_print_as_json(value: Any) -> None:
    """What is printed for a list or mapping is read back as the same value."""
    assert json.loads(compile_template("{{ [x] }}").render({"x": value})) == [value]
    pretty = compile_template("{{ [x]|tojson(indent=1) }}").render({"x": value})
    assert json.loads(pretty) == [value]
    assert compile_expression("x").evaluate({"x": value}) == value


@given(st.text(alphabet="ab \u2003\n", max_size=60).map(lambda text: text * 3000))
def test_words_are_counted_across_pieces(text: str) -> None:
    """A long text is counted in pieces, with the same result."""
    assert compile_expression("x|wordcount").evaluate({"x": text}) == len(text.split())


@given(st.text(alphabet="{}%#()[]|~.,:'\"-+*/<>=!a1 \nforinsetdfe_", max_size=40))
def test_any_text_is_a_template_or_a_template_error(source: str) -> None:
    """Compiling and rendering are total."""
    try:
        text = compile_template(source).render({"a": [1, "x"], "i": {"a": 1}})
    except TemplateError as error:
        text = str(error)
    assert isinstance(text, str)


def test_what_a_value_holds_is_not_rendered_by_any_payload() -> None:
    """A template inside a value comes out as text, also through filters and captures."""
    second = "{{ fn.api_key }}{% for i in range(9) %}x{% endfor %}"
    source = "{{ s }}{% set x %}{{ s }}{% endset %}{{ x }}{{ s|trim }}{{ [s]|join }}{{ s ~ '' }}"
    assert compile_template(source).render({"s": second}) == second * 5
