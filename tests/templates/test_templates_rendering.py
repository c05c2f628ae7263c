"""Templates: what renders, with every filter, method and test of the allow-list."""

from __future__ import annotations

import pytest
from templating import VALUES, render

from loopwright.templates import compile_expression, compile_template


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", ""),
        ("plain { % } text\n", "plain { % } text\n"),
        ("{{ name }}, {{ n }}, {{ score }}", "Ada, 3, 0.85"),
        ("{{ yes }} {{ nothing }} {{ -n }} {{ +n }}", "True None -3 3"),
        ("{{ rows }}", '[{"k": "x", "v": 2, "in": {"w": 1}}, {"k": "y", "v": 1}]'),
        ("{{ [] }}{{ {} }}{{ [1, none, true, 'é'] }}", '[]{}[1, null, true, "é"]'),
        ("{{ {1: 2, none: 'x'} }}", '{"1": 2, "None": "x"}'),
        ("{{ rows[0].k }}{{ rows[1]['k'] }}{{ words[-1] }}{{ name[0] }}", "xycA"),
        ("{{ d.items }} {{ d.items() }}", 'own [["a", 1], ["items", "own"]]'),
        ("{{ words[1:] }}{{ name[::-1] }}{{ words[:1] }}", '["A", "c"]adA["b"]'),
        ("{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ 7 % 4 }} {{ 7 / 2 }} {{ 2 ** 8 }}", "3 3 3 3.5 256"),
        ("{{ 0.5 ** 2 }} {{ 0.0 ** 2 }} {{ 2.5 - 1 }}", "0.25 0.0 1.5"),
        ("{{ 'a' + 'b' }}{{ 'a' ~ 1 ~ none }}{{ [1] + [2] }}{{ '-' * 5 }}", "aba1None[1, 2]-----"),
        ("{{ [0] * 2 }}{{ 'x' * -1 }}", "[0, 0]"),
        ("{{ 1 < 2 <= 2 }}{{ 1 < 2 > 5 }}{{ 'a' < 'b' }}", "TrueFalseTrue"),
        ("{{ n == 3 }}{{ n != 3.0 }}{{ [1, {'a': 2}] == [1, {'a': 2}] }}", "TrueFalseTrue"),
        ("{{ {'a': 1} == {'a': 2} }}{{ [1] == [2] }}{{ [1] == 1 }}", "FalseFalseFalse"),
        ("{{ 'a' in 'ab' }}{{ 3 in numbers }}{{ 'a' in d }}{{ [1] in d }}", "TrueTrueTrueFalse"),
        ("{{ 'z' not in name }}{{ 4 >= 5 }}", "TrueFalse"),
        ("{{ 'y' if yes else 'n' }}{{ 'y' if not yes }}{{ none or 'x' }}{{ 1 and 2 }}", "yx2"),
        ("{% if n > 2 %}big{% elif n %}small{% else %}none{% endif %}", "big"),
        (
            "{% for w in words %}{{ loop.index }}{{ w }}{{ ',' if not loop.last }}{% endfor %}",
            "1b,2A,3c",
        ),
        ("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;items=own;"),
        (
            "{% for k in d %}{{ k }};{% endfor %}{% for c in 'xy' %}{{ c }};{% endfor %}",
            "a;items;x;y;",
        ),
        ("{% for r in rows if r.v > 1 %}{{ r.k }}{% else %}none{% endfor %}", "x"),
        ("{% for r in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for w in words %}{{ loop.cycle('odd', 'even') }} {% endfor %}", "odd even odd "),
        ("{% for w in words %}{{ loop.previtem|default('-') }}{% endfor %}", "-bA"),
        (
            "{% for i in range(2) %}{% for j in range(1, 6, 2) %}{{ i }}{{ j }} "
            + "{% endfor %}" * 2,
            "01 03 05 11 13 15 ",
        ),
        ("{{ range(5, 0, -2) }}{{ range(0) }}", "[5, 3, 1][]"),
        ("{% set x = n + 1 %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}", "412"),
        ("{% set x %}<{{ name }}>{% endset %}{{ x }}{{ x }}", "<Ada><Ada>"),
        ("{% with x = 1, y = 2 %}{{ x + y }}{% endwith %}", "3"),
        ("{% raw %}{{ name }}{% endraw %}{# note #}{{ '{{' }}", "{{ name }}{{"),
        ("a {%- if yes %} b {% endif -%} c", "a b c"),
        ("{{ reply }} {{ reply.response }} {{ reply['confidence'] }}", "the text r 0.9"),
        (
            "{{ reply|upper }}{{ reply|length }}{{ reply == 'the text' }}{{ [reply] }}",
            'THE TEXT8True["the text"]',
        ),
        (
            "{{ 'text' in reply }}{{ reply + '!' }}{{ reply[:3] }}{{ reply.get('x', 1) }}",
            "Truethe text!the1",
        ),
        (
            "{{ 'empty' if not quiet }}{{ reply.items() }}",
            'empty[["response", "r"], ["confidence", 0.9]]',
        ),
        ("{{ {'range': 1}.range }}", "1"),
    ],
)
def test_templates_render(source: str, expected: str) -> None:
    """Values, operators, conditions, loops, assignments and values with fields print as said."""
    assert render(source) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("-2|abs", 2), ("' a b '|trim", "a b"), ("'xax'|trim('x')", "a"), ("'ab c'|title", "Ab C"),
        ("'aBC'|capitalize", "Abc"), ("'aB'|upper ~ 'aB'|lower", "ABab"),
        ("words|count", 3), ("d|length", 2), ("none|default('x')", None),
        ("missing|default('x')", "x"), ("missing|d", ""), ("''|default('x', true)", "x"),
        ("missing.deep.er|default(1)", 1), ("d.zz|default(2)", 2),
        ("words|first", "b"), ("words|last", "c"), ("[]|first|default('e')", "e"),
        ("[]|last|default('e')", "e"), ("[]|max|default('e')", "e"),
        ("'3.7'|float", 3.7), ("'x'|float(1.5)", 1.5), ("'3.7'|int", 3), ("' 12 '|int", 12),
        ("'x'|int(7)", 7), ("'1e999'|int(7)", 7), ("3.9|int", 3), ("reply|int", 0),
        ("lines|indent(2)", "one\n  two\n\n  three"),
        ("lines|indent('> ', first=true, blank=true)", "> one\n> two\n> \n> three"),
        ("d|items|list", [["a", 1], ["items", "own"]]),
        ("numbers|join(', ')", "3, 1, 2"), ("rows|join('', attribute='k')", "xy"),
        ("'ab'|list", ["a", "b"]), ("rows|map(attribute='v')|list", [2, 1]),
        ("rows|map(attribute='k')|map('upper')|join", "XY"), ("[[1, 2]]|map(attribute=1)", [2]),
        ("numbers|max", 3), ("numbers|min", 1), ("rows|max(attribute='v')",
         {"k": "x", "v": 2, "in": {"w": 1}}),
        ("[1, 2, 3]|select('odd')|list", [1, 3]), ("[1, 0, 2]|select", [1, 2]),
        ("[1, 2, 3]|reject('gt', 1)|list", [1]), ("rows|selectattr('v', 'eq', 1)|length", 1),
        ("rows|rejectattr('in', 'defined')|map(attribute='k')", ["y"]),
        ("rows|selectattr('in', 'undefined')|length", 1),
        ("'a-b-c'|replace('-', '+')", "a+b+c"), ("'aaa'|replace('a', 'b', 2)", "bba"),
        ("'ab'|replace('', '-')", "-a-b-"), ("'abc'|reverse", "cba"),
        ("numbers|reverse", [2, 1, 3]),
        ("2.567|round(2)", 2.57), ("2.1|round(method='ceil')", 3), ("2.9|round(0, 'floor')", 2),
        ("words|sort", ["A", "b", "c"]), ("words|sort(case_sensitive=true)", ["A", "b", "c"]),
        ("numbers|sort(reverse=true)", [3, 2, 1]), ("rows|sort(attribute='v')|map(attribute='k')",
         ["y", "x"]),
        ("5|string ~ 'x'", "5x"), ("numbers|sum", 6), ("rows|sum(attribute='v', start=10)", 13),
        ("{'a': [1, {}]}|tojson", '{"a": [1, {}]}'),
        ("{'a': [1]}|tojson(indent=2)", '{\n  "a": [\n    1\n  ]\n}'),
        ("'hello wide world'|truncate(10)", "hello..."), ("'hello'|truncate(3)", "hello"),
        ("'hello wide world'|truncate(8, true, '!', 0)", "hello w!"),
        ("['a', 'A', 'b']|unique|list", ["a", "b"]), ("rows|unique(attribute='k')|length", 2),
        ("['a', 'A']|unique(true)", ["a", "A"]), ("'a  b\nc'|wordcount", 3), ("''|wordcount", 0),
        ("'a,b'.split(',')", ["a", "b"]), ("' a  b '.split()", ["a", "b"]),
        ("'a,b,c'.split(',', 1)", ["a", "b,c"]), ("lines.splitlines()|length", 4),
        ("'-'.join(words)", "b-A-c"), ("name.startswith('A')", True), ("name.endswith('x')", False),
        ("' x '.lstrip() ~ '|' ~ ' x '.rstrip() ~ '|' ~ ' x '.strip()", "x | x|x"),
        ("'aXa'.count('a')", 2), ("[1, 2, 1].count(1)", 2), ("d.get('zz')", None),
        ("d.keys()|list", ["a", "items"]), ("d.values()|list", [1, "own"]),
        ("name.lower() ~ name.upper() ~ 'ab c'.title() ~ 'ab'.capitalize()", "adaADAAb CAb"),
        ("'aa'.replace('a', 'b')", "bb"),
    ],
)  # fmt: skip
def test_filters_and_methods(expression: str, expected: object) -> None:
    """Each filter and method of the allow-list does what its name says."""
    assert compile_expression(expression).evaluate(VALUES) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("missing is defined", False), ("missing is undefined", True), ("n is not defined", False),
        ("n is number", True), ("yes is number", False), ("yes is boolean", True),
        ("n is integer", True), ("n is float", False), ("score is float", True),
        ("name is string", True), ("reply is string", True), ("d is mapping", True),
        ("words is sequence", True), ("n is iterable", False), ("nothing is none", True),
        ("yes is true", True), ("yes is false", False), ("n is odd", True), ("n is even", False),
        ("9 is divisibleby 3", True), ("n is eq 3", True), ("n is ne 3", False),
        ("n is lt 4", True), ("n is ge 3", True), ("n is gt 3", False), ("n is le 2", False),
        ("n is in [3]", True), ("'a' is lower", True), ("'a' is upper", False),
        ("n is equalto 3", True), ("n is greaterthan 1", True), ("n is lessthan 1", False),
        ("d.zz.yy is defined", False), ("[1, 2]|select('!=', 1)|list == [2]", True),
    ],
)  # fmt: skip
def test_tests(expression: str, expected: bool) -> None:
    """Each test of the allow-list tells what its name says."""
    assert compile_expression(expression).evaluate(VALUES) is expected


def test_rendering_twice_gives_the_same_and_keeps_nothing() -> None:
    """A compiled template holds no state: limits and values are those of one render."""
    template = compile_template("{% for i in range(9000) %}{{ name }}{% endfor %}")
    texts = {template.render({"name": "x"}) for _ in range(20)}
    assert texts == {"x" * 9000}


def test_texts_with_fields_are_text_to_python_too() -> None:
    """A value with fields prints as its text, and is true when that is not empty."""
    assert (str(VALUES["reply"]), bool(VALUES["reply"]), bool(VALUES["quiet"])) == (
        "the text",
        True,
        False,
    )
    assert compile_expression("reply|list|length").evaluate(VALUES) == 8
