"""Templates: what is wrong is said in one sentence, with its place and the nearest name."""

from __future__ import annotations

import pytest
from templating import message, refusal

from loopwright.errors import ConfigurationError
from loopwright.templates import TemplateError, compile_template


@pytest.mark.parametrize(
    ("source", "place", "reason"),
    [
        ("a\n b {{ nme }}", (2, 7), "'nme' is not defined; did you mean 'name'?"),
        ("{{ rows[0].kk }}", (1, 12), "there is no field 'kk'; did you mean 'k'?"),
        ("{{ reply.respnse }}", (1, 10), "there is no field 'respnse'; did you mean 'response'?"),
        ("{{ name.size }}", (1, 9), "text has no field 'size'"),
        ("{{ nothing.x }}", (1, 12), "null has no field 'x'"),
        ("{{ n.x }}{{ words.x }}", (1, 6), "a number has no field 'x'"),
        ("{{ words['x'] }}", (1, 11), "a list has no field 'x'"),
        ("{{ yes.x }}", (1, 8), "true or false has no field 'x'"),
        ("{{ words[9] }}", (1, 1), "there is no item 9, only 3 items, counted from 0"),
        ("{% if nme %}{% endif %}", (1, 7), "'nme' is not defined; did you mean 'name'?"),
        ("{% if not nme %}{% endif %}", (1, 11), "'nme' is not defined; did you mean 'name'?"),
        ("{% for x in nme %}{% endfor %}", (1, 13), "'nme' is not defined; did you mean 'name'?"),
        ("{{ nme + 1 }}", (1, 4), "'nme' is not defined; did you mean 'name'?"),
        ("{{ -nme }}", (1, 5), "'nme' is not defined; did you mean 'name'?"),
        ("{{ nme|upper }}", (1, 4), "'nme' is not defined; did you mean 'name'?"),
        ("{{ 1|round(nme) }}", (1, 12), "'nme' is not defined; did you mean 'name'?"),
        ("{{ nme == 1 }}", (1, 4), "'nme' is not defined; did you mean 'name'?"),
        ("{{ nme() }}", (1, 4), "'nme' is not defined; did you mean 'name'?"),
        ("{{ rows|map(attribute='zz') }}", (1, 24), "there is no field 'zz'"),
        ("{{ rows|selectattr('zz') }}", (1, 21), "there is no field 'zz'"),
        ("{{ name() }}", (1, 1), "text cannot be called; only the functions of this template can"),
        ("{{ d.zz() }}", (1, 6), "the method 'zz' is not available in templates"),
        (
            "{{ name.uper() }}",
            (1, 9),
            "the method 'uper' is not available in templates; did you mean 'upper'?",
        ),
        ("{{ d['a']() }}", (1, 1), "this call is not available in templates"),
        ("{{ name|uper }}", (1, 9), "there is no filter 'uper'; did you mean 'upper'?"),
        ("{{ n is od }}", (1, 9), "there is no test 'od'; did you mean 'odd'?"),
        (
            "{{ name|trim(1, 2) }}",
            (1, 9),
            "the filter 'trim' takes (chars=None), not these arguments",
        ),
        ("{{ name.upper(1) }}", (1, 9), "the method 'upper' takes (), not these arguments"),
        (
            "{{ n is divisibleby }}",
            (1, 9),
            "the test 'divisibleby' takes (by), not these arguments",
        ),
        (
            "{{ words|map('upr') }}",
            (1, 15),
            "map needs attribute=, or the name of a filter, got 'upr'",
        ),
        ("{{ words|select('upr') }}", (1, 18), "there is no test 'upr'"),
        ("{{ n|length }}", (1, 1), "length needs text, a list or a mapping, got a number"),
        ("{{ n|join }}", (1, 1), "join needs a list, got a number"),
        ("{{ name|abs }}", (1, 1), "abs needs a number, got text"),
        ("{{ words|sum }}", (1, 1), "sum needs a number, got text"),
        ("{{ [1, 'a']|sort }}", (1, 1), "sort needs all text or all numbers"),
        ("{{ n|items }}", (1, 1), "items needs a mapping, got a number"),
        ("{{ 1|round(99) }}", (1, 1), "round needs an integer from 0 to 30"),
        ("{{ 1|round(0, 'up') }}", (1, 16), "round: the method is common, ceil or floor, not 'up'"),
        ("{{ name.split('') }}", (1, 1), "split needs a separator that is not empty"),
        ("{{ name.strip(lines * 6) }}", (1, 1), "strip takes text of at most 64 characters"),
        ("{{ 1 is divisibleby 0 }}", (1, 1), "divisibleby needs two numbers, the second not 0"),
        ("{{ 1 in 2 }}", (1, 6), "'in' needs text, a list or a mapping on the right, got a number"),
        (
            "{{ n < name }}",
            (1, 1),
            "cannot order a number and text; turn text into a number with | float",
        ),
        (
            "{{ n + name }}",
            (1, 1),
            "+ does not work on a number and text; put text together with ~",
        ),
        (
            "{{ '%d' % 1 }}",
            (1, 1),
            "% does not work on text and a number; put text together with ~",
        ),
        ("{{ name - 1 }}", (1, 1), "- does not work on text and a number"),
        ("{{ -name }}", (1, 1), "- needs a number, got text"),
        ("{{ 1 / 0 }}", (1, 1), "1 / 0: division by zero"),
        ("{{ n ** 999 }}", (1, 1), "3 ** 999 is too large a number"),
        ("{{ 2 ** 300 }}", (1, 1), "** gives a number that is too large, or not a number"),
        ("{{ (-8) ** 0.5 }}", (1, 1), "** gives a number that is too large, or not a number"),
        ("{{ 'ab' * 501 }}", (1, 1), "* repeats to at most 1,000 characters or items"),
        ("{{ n[1:] }}", (1, 1), "only text and lists can be sliced with [:], not a number"),
        ("{{ name[::0] }}", (1, 1), "the numbers in [:] must be integers, and the step not 0"),
        ("{{ name['a':] }}", (1, 1), "the numbers in [:] must be integers, and the step not 0"),
        (
            "{% for x in n %}{% endfor %}",
            (1, 1),
            "for needs a list, a mapping or text, got a number",
        ),
        (
            "{% for a, b in words %}{% endfor %}",
            (1, 0),
            "ValueError: not enough values to unpack (expected 2, got 1)",
        ),
        ("{{ range(10001) }}", (1, 1), "range gives at most 10,000 numbers"),
        ("{{ range('a') }}", (1, 1), "range needs one to three integers"),
        ("{{ range(1, 2, 0) }}", (1, 1), "range needs a step that is not 0"),
        ("{{ range }}", (1, 1), "only data can be printed, not a function or a loop"),
        ("{{ range(range) }}", (1, 1), "a function or a loop cannot be an argument"),
        (
            "{{ name.cycle(1) }}",
            (1, 1),
            "cycle() belongs to the 'loop' of {% for %}, and needs values",
        ),
        ("{{ [1e308 * 10] }}", (1, 1), "inf has no JSON form"),
        (
            "{% for x in words %}{{ loop.iteration }}{% endfor %}",
            (1, 24),
            (
                "'loop' has no 'iteration': inside {% for %} it is the counter of that loop; "
                "name an outer 'loop' before it, with {% set outer = loop %}"
            ),
        ),
    ],
)
def test_what_goes_wrong_is_said_with_its_place(
    source: str, place: tuple[int, int], reason: str
) -> None:
    """An error says where in the template, what was found, and what would do."""
    assert refusal(source) == message(place, reason)


@pytest.mark.parametrize(
    ("source", "place", "reason"),
    [
        ("a\n{{ name", (2, 1), "{{ is not closed; close it with }}"),
        ("{{ a }} {% if a", (1, 9), "{% is not closed; close it with %}"),
        ("{{ a b }}", (1, 6), "expected token 'end of print statement', got 'b'"),
        ("{% fro x in y %}", (1, 4), "unknown tag 'fro'; did you mean 'for'?"),
        ("{% macro m() %}{% endmacro %}", (1, 1), "{% macro %} is not available in templates"),
        ("{% include 'x' %}", (1, 1), "{% include %} is not available in templates"),
        ("{% filter upper %}{% endfilter %}", (1, 1), "{% filter %} is not available in templates"),
        ("{% set x | upper %}a{% endset %}", (1, 1), "filters on a block are not available"),
        ("{% set d.a = 1 %}", (1, 1), "NSRef is not available in templates"),
        (
            "{% for x in y recursive %}{% endfor %}",
            (1, 1),
            "recursive loops are not available in templates",
        ),
        ("{{ f(*a) }}", (1, 1), "write the arguments out: * and ** are not available"),
        ("{{ f(a=1, a=2) }}", (1, 1), "an argument is repeated"),
        ("{{ self }}", (1, 4), "the name 'self' cannot be used in templates"),
        ("{{ 1e999 }}", (1, 1), "a number is too large"),
        ("{{ " + "9" * 99 + " }}", (1, 1), "a number is too large"),
        ("{{ '\\ud800' }}", (1, 1), "text with half a character (a lone surrogate)"),
        (
            "{% for x in y %}{% set loop = 1 %}{% endfor %}",
            (1, 1),
            "'loop' cannot be set inside {% for %}; choose another name",
        ),
        ("{% for x in y %}" * 5 + "{% endfor %}" * 5, (1, 1), "loops nested more than 4 deep"),
        ("{{ " + "-" * 60 + "1 }}", (1, 1), "nested more than 50 deep"),
        ("{{ " + "(" * 9000 + " }}", (0, 0), "nested too deep, or too complex, to compile"),
        ("{{ a }}" * 4000, (1, 1), "more than 5,000 parts"),
        ("x" * 200_001, (0, 0), "longer than 200,000 characters (it has 200,001)"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_its_place(
    source: str, place: tuple[int, int], reason: str
) -> None:
    """A template is refused before it is rendered, as a ConfigurationError."""
    with pytest.raises(TemplateError) as caught:
        compile_template(source)
    assert isinstance(caught.value, ConfigurationError)
    assert str(caught.value) == message(place, reason)


def test_an_error_carries_its_facts() -> None:
    """Line, column and reason are attributes, so nobody has to read the message."""
    with pytest.raises(TemplateError) as caught:
        compile_template("\n{{ x | nope }}")
    assert (caught.value.line, caught.value.column) == (2, 8)
    assert caught.value.reason == "there is no filter 'nope'"


def test_a_long_name_is_cut_and_has_no_hint() -> None:
    """An error stays short whatever is looked up."""
    assert refusal("{{ d['x' * 900] }}").endswith(f"there is no field {'x' * 57 + '...'!r}")
