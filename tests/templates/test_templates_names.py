"""Templates: the names and fields that one needs, known before anything is rendered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.parser import Parser

from loopwright.templates import compile_expression, compile_template
from loopwright.templates.sandbox import SANDBOX, Program, names_of, paths_in, paths_of
from loopwright.templates.template import checked, rewrite


def test_names_are_the_free_names() -> None:
    """Names that a template itself defines are not among those it needs; functions are."""
    source = (
        "{{ a.b }}{% for i in b %}{{ i }}{{ loop.index }}{{ range(2) }}{% endfor %}"
        "{% set c = 1 %}{{ c }}{{ f(d) }}{% with e = 1 %}{{ e }}{% endwith %}{{ g }}{% set g = 1 %}"
    )
    assert compile_template(source).names == {"a", "b", "d", "f", "g"}


@pytest.mark.parametrize(
    "source",
    [
        "{{ name }}, {{ a.b.c }} {{ 1 }} {{ d['e'] }}",
        "{% if a %}{{ b }}{% elif c.d %}{{ e | upper }}{% else %}{{ f.strip() }}{% endif %}",
        "{{ a if b else c }} {{ d[e] }} {{ f(g, h=i) }} {{ j | shout(k) }} {{ l ~ m < n }} {{ o is even }}",
        "{{ [a, {b: c}, (d, e)][f:g] }} {{ range(h) }} {{ result }} {{ loop.last.x }}",
    ],
)
def test_names_are_those_that_the_code_looks_up(source: str) -> None:
    """What is read off the tree, before there is code, is what the code looks up when it is made."""
    tree = Parser(SANDBOX, source).parse()
    parts, depth = checked(tree, ("shout",))
    program = Program(lambda: rewrite(tree, ("shout",)))
    names = names_of(program, parts, depth, ("shout",))
    assert names == program.make()
    assert compile_template(source, helpers=("shout",)).names == names - {"range"}


PIECES = (
    "{{ a }}", "{{a.b}}", "{{ a.b.c }}", "{{\n_x1.y }}", "{{ loop.last.feedback }}", "{{ range }}", "{{ not }}",
    "{{ none }}", "{{ self.x }}", "{{ a.if }}", "{{ a.0 }}", "{{ a-b }}", "{{- a -}}", "{{ a", "}}", "{{ a }", "{{{ a }}}",
    "{{ a }}}", "{{ 1 }}", "{{ }}", "{{ a b }}", "{{ é }}", "{% if a %}", "{# x #}", "{", "%}", "text", "\r\n", "'", " ",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_what_is_read_late_is_what_would_be_read_at_once(source: str) -> None:
    """A template of names alone needs what its tree says, compiles, and renders as if it was read before."""
    found = paths_in(source)
    if found is None:
        return
    tree = Parser(SANDBOX, source).parse()
    parts, depth = checked(tree)
    program = Program(lambda: tree)
    assert names_of(program, parts, depth, ()) == found.names == program.make()
    template = compile_template(source, strict=False)
    assert template.names == found.names
    assert not template.notes
    values = {"a": {"b": {"c": "deep"}, "if": 1}, "_x1": {"y": 2}}
    at_once = compile_template(f"{{# #}}{source}", strict=False)
    assert template.render(values) == at_once.render(values)


@given(st.sampled_from([piece.strip("{}\n ") for piece in PIECES]))
def test_expressions_of_a_name_are_known_before_they_are_read(source: str) -> None:
    """An expression that is a name needs that name, and the first of its members."""
    found = paths_of(source)
    if found is None:
        return
    expression = compile_expression(source, strict=False)
    assert expression.names == found.names == {source.partition(".")[0]}
    assert expression.evaluate({source.partition(".")[0]: {}}) in ("", {})


def test_members_are_the_fields_needed_of_a_name() -> None:
    """Required names and fields are those without a default, that are not asked about."""
    template = compile_template("{{ a.b }}{{ a['c d'] }}{{ a.e|d }}{{ a[0] }}{{ z.b }}{{ q|d }}")
    assert template.required == {"a", "z"}
    assert template.members("a") == {"b", "c d"}
    assert template.members("b") == frozenset()
    assert compile_expression("a.x > 1 and a.y is defined").members("a") == {"x"}


def test_names_are_checked_before_anything_is_rendered() -> None:
    """`check` gives a problem with place and hint for each unknown name that is not asked about."""
    template = compile_template(
        "taks {{ task }}\n  {{ taks }} {{ x.taks }}{% if extra is defined %}{{ extra }}{% endif %}"
        "{{ more|default('') }}{% if\nzzz %}{% endif %}"
    )
    assert [str(problem) for problem in template.check({"task", "x"})] == [
        "template:2:6: 'taks' is not defined; did you mean 'task'?",
        "template:3:1: 'zzz' is not defined",
    ]
    assert template.check({"task", "x", "taks", "zzz", "extra"}) == []
