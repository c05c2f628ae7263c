"""The placeholders of `workflow/v2.0`: one pass, flat names, everything else literal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigurationError

from .reference import UnknownName, holds, interpolate, placeholders

VALUES = {
    "input": "task",
    "loop.last.output": "draft",
    "step.write": "{{input}}",
    "count": 3,
    "flag": True,
    "nothing": None,
    "rows": [{"a": "é"}],
}


PLAIN = "; placeholders of this dialect are plain names, without filters or calls"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("no braces", "no braces"),
        ("{{input}}", "task"),
        ("a {{ input }} b {{input}}", "a task b task"),
        ("{{loop.last.output}}", "draft"),
        ("{{\n  input\n}}", "task"),
        ("{{step.write}} {{input}}", "{{input}} task"),
        ("{{input}}}", "task}"),
        ("{{count}}, {{flag}}, {{nothing}}, {{rows}}", '3, true, , [{"a": "é"}]'),
        ("{{}} {{input", "{{}} {{input"),
        ("{{ input }", "{{ input }"),
        ("{ {input} }", "{ {input} }"),
        ("{{a}b}} {{input}}", "{{a}b}} task"),
        ("{% if input %}x{% endif %} {# note #}", "{% if input %}x{% endif %} {# note #}"),
        ('{"a": {"b": {}}}', '{"a": {"b": {}}}'),
    ],
)
def test_placeholders_are_replaced_and_all_else_is_literal(text: str, expected: str) -> None:
    """Only two braces around a name, closed by two, are a placeholder."""
    assert interpolate(text, VALUES) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb {{inptu}}", "line 2, column 3: 'inptu' is not defined; did you mean 'input'?"),
        ("{{zzz}}", "line 1, column 1: 'zzz' is not defined"),
        ("{{ }}", "line 1, column 1: '' is not defined"),
        ("{{ input | upper }}", "line 1, column 1: 'input | upper' is not defined" + PLAIN),
        (
            "{{" + "x" * 80 + "}}",
            "line 1, column 1: '" + "x" * 57 + "...' is not defined",
        ),
    ],
)
def test_an_unknown_name_is_an_error_with_place_and_hint(text: str, message: str) -> None:
    """The error says where the placeholder is, what it names, and what is near."""
    with pytest.raises(UnknownName) as caught:
        interpolate(text, VALUES)
    assert isinstance(caught.value, ConfigurationError)
    assert str(caught.value) == message
    assert text[caught.value.offset :].startswith("{{")


def test_lenient_leaves_an_unknown_placeholder_as_it_stands() -> None:
    """Unknown names stay in the text, spaces included; known ones are put in."""
    assert interpolate("{{ zzz }} {{input}}", VALUES, lenient=True) == "{{ zzz }} task"


def test_placeholders_lists_names_and_offsets() -> None:
    """Every placeholder is listed in order, twice if it is there twice."""
    text = "{{a}} {% b %} {{ c.d }}{{a}} {{"
    assert placeholders(text) == [("a", 0), ("c.d", 14), ("a", 23)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("{{input}}", True),
        ("{{nothing}}", False),
        ("{{off}}", False),
        ("{{no}}", False),
        ("{{unknown}}", False),
        ("${{ input }}", True),
        ('${{ answer == "YES" }}', True),
        ("${{ answer == 'yes' }}", True),
        ("${{ answer == YES }}", True),
        ("${{ answer == same }}", True),
        ('${{ answer != "YES" }}', False),
        ('${{ answer != "NO" }}', True),
        ('${{ unknown == "YES" }}', False),
        ('${{ unknown != "YES" }}', False),
        ('{{ answer == "no" }}', False),
        ('{{answer}} == "YES"', True),
        ("{{answer}} == {{same}}", True),
        ("{{answer}} != NO", True),
        ("{{code}}", True),
        ('{{a == b}} == "c"', True),
        ("false", False),
        ("", False),
    ],
)
def test_a_condition_compares_text_or_asks_for_truth(condition: str, expected: bool) -> None:
    """`==` and `!=` compare trimmed text without case; otherwise "", "false" and "0" are false."""
    lookup = {
        "answer": " Yes\n",
        "same": "YES",
        "off": "False",
        "no": "0",
        "code": "a == b",
        "a == b": "c",
    }
    assert holds(condition, VALUES | lookup) is expected


BRACES = st.text(alphabet="{}ab %\n", max_size=40)


@given(BRACES, st.dictionaries(st.sampled_from(["a", "b", "ab", ""]), BRACES))
def test_values_are_never_read_as_placeholders(text: str, values: dict[str, str]) -> None:
    """One pass is what a replacement of each match, with a function, gives."""

    def put(match: re.Match[str]) -> str:
        return values.get(match[1].strip(), match[0])

    expected = re.sub(r"\{\{([^}]+)\}\}", put, text)
    assert interpolate(text, values, lenient=True) == expected


@given(BRACES)
def test_the_scanner_finds_what_the_pattern_of_the_dialect_finds(text: str) -> None:
    """Names and places are those of two braces, no closing brace in between, two braces."""
    expected = [(m[1].strip(), m.start()) for m in re.finditer(r"\{\{([^}]+)\}\}", text)]
    assert placeholders(text) == expected
