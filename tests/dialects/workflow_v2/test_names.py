"""Placeholders of `workflow/v2.0` as native templates: the same text, whatever is in it."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loopwright.dialects.workflow_v2.fields import (
    InvalidPlaceholder,
    NameTable,
    Place,
    Rewriter,
    quoted,
    variable,
)
from loopwright.dialects.workflow_v2.steps import condition
from loopwright.records.codec import text_of
from loopwright.templates import compile_expression
from loopwright.templates.variables import fill

from .reference import UnknownName, holds, interpolate

STEPS = {"a": "one", "my step": "{{a}}", "value": "V", "größe": " G ", "if": "{% x %}"}
SEEN = {
    **{name: value for name, value in STEPS.items() if name == "a"},
    "input": "in", "env": {"K-1": "k"}, "value": "not this", "steps": STEPS,
    "loops": {"l": {"output": "o", "iterations": 3, "outputs": ["x", "y"], "steps": {"w": "W"}}},
    "loop": {"iteration": 2, "output": "o", "outputs": [], "steps": {}},
    "given": {"max-words": "9"}, "l": "o",
}  # fmt: skip
LOOKUP = {
    **STEPS, **{f"step.{name}": value for name, value in STEPS.items()},
    "input": "in", "env.K-1": "k", "l": "o", "l.output": "o", "l.iterations": "3",
    "l.history": "x\n---\ny", "l_accumulator": "x\n---\ny", "l.w": "W", "loop.iteration": "2",
    "loop.output": "o", "loop.last.output": "o", "loop.history": "", "loop.last.w": "",
    "max-words": "9",
}  # fmt: skip
NAMES = NameTable(
    "doc", frozenset(STEPS), {"l": "refine"}, {"l_accumulator": "l"}, frozenset({"K-1"})
)
PLACE = Place("here", "step")

pieces = st.one_of(
    st.sampled_from(sorted(LOOKUP)).map(lambda name: f"{{{{{name}}}}}"),
    st.sampled_from(sorted(LOOKUP)).map(lambda name: f"{{{{  {name} }}}}"),
    st.sampled_from(
        ["{", "}", "{{", "}}", "{%", "%}", "{#", "#}", "-", "\n", "\r\n", "\r", '"', "'", "\\"]
    ),
    st.text(alphabet=string.printable + "é€😀\u2028\x85", max_size=5),
)
texts = st.lists(pieces, max_size=8).map("".join)


def rewriter(notes: list[str] | None = None) -> Rewriter:
    """Return a rewriter for the names of this module."""
    return Rewriter(NAMES, [].append if notes is None else notes.append)


def _asks_for_more(text: str) -> bool:
    """Whether a text is refused, or needs a name that only a caller could supply."""
    try:
        names = fill(rewriter().text(text, PLACE)).names
    except InvalidPlaceholder:
        return True
    return bool(names - {*SEEN, *(f"given.{name}" for name in SEEN["given"])})


@given(texts)
@example("{{a}}")
@example("{{{a}}")
@example("{ {{a}} }")
@example("x{{{{a}}")
@example("{{a}}}}{{a}}")
@example("{\r\n{{a}}")
def test_a_native_template_gives_what_the_placeholders_give(text: str) -> None:
    """Rewritten and rendered is the same text as interpolated, for every text with known names."""
    try:
        wanted = interpolate(text, LOOKUP)
    except UnknownName:
        assert _asks_for_more(text)
        return
    native = rewriter().text(text, PLACE)
    found = text_of(fill(native).fill(SEEN))
    # A text that is one expression is that expression's value, without the space around it.
    bare = native.strip()
    assert wanted in (found, native.replace(bare, found)) if bare else wanted == found


@given(texts)
def test_a_text_without_placeholders_needs_nothing(text: str) -> None:
    """Only names that are placeholders make a step wait for another."""
    made = rewriter()
    try:
        made.text(text, PLACE)
    except InvalidPlaceholder:
        return
    assert set(made.needs) <= {*STEPS, "l"}
    if "{{" not in text:
        assert not made.needs


@pytest.mark.parametrize(
    ("name", "expression", "needs"),
    [
        ("input", "input", []),
        ("a", "a", ["a"]),
        ("step.a", "a", ["a"]),
        ("a.result", "a", ["a"]),
        ("my step", 'steps["my step"]', ["my step"]),
        ("value", "steps.value", ["value"]),
        ("größe", 'steps["größe"]', ["größe"]),
        ("if", "steps.if", ["if"]),
        ("env.K-1", 'env["K-1"]', []),
        ("l", "l", ["l"]),
        ("l.iterations", "loops.l.iterations", ["l"]),
        ("l.exit_reason", "loops.l.exit_reason", ["l"]),
        ("l.write", 'loops.l.steps.write | default("")', ["l"]),
        ("l_accumulator", 'loops.l.outputs | join("\\n---\\n")', ["l"]),
        ("loop.iteration", "loop.iteration", []),
        ("loop.last.output", "loop.output", []),
        ("loop.last.w-2", 'loop.steps["w-2"] | default("")', []),
        ("workflow.name", '"doc"', []),
        ("from_caller", "from_caller", []),
        ("max-words", 'given["max-words"]', []),
        ("loops", "given.loops", []),
    ],
)  # fmt: skip
def test_names_become_the_shortest_expression(name: str, expression: str, needs: list[str]) -> None:
    """Each kind of name has its expression, and says what comes first."""
    made = rewriter()
    assert made.expression(name, PLACE) == expression
    assert list(made.needs) == needs


@pytest.mark.parametrize(
    ("name", "place", "expression"),
    [
        ("loop.output", Place("l", "until", "refine"), "value"),
        ("loop.last.output", Place("l", "until", "refine"), "loop.output"),
        ("loop.output", Place("l", "with", "refine"), "loop.output"),
        ("loop.current", Place("l", "with", "iterate"), "loop.current"),
        ("loop.item", Place("l", "with", "iterate"), "loop.current"),
        ("item", Place("l", "with", "iterate"), "loop.current"),
        ("loop.total", Place("l", "with", "iterate"), "loop.count"),
        ("loop.stats.failed", Place("l", "with", "iterate"), "loop.stats.failed"),
    ],
)
def test_loop_means_the_loop_around_it(name: str, place: Place, expression: str) -> None:
    """A6: in until the present output, in with the one before; items have fields of their own."""
    assert rewriter().expression(name, place) == expression


def test_what_looks_like_another_language_is_noted() -> None:
    """A26: tags of Jinja are literal, and said to be."""
    notes: list[str] = []
    assert rewriter(notes).text("{% if x %}", PLACE) == '{{ "{%" }} if x %}'
    assert len(notes) == 1


def test_text_without_braces_stays_as_it_is() -> None:
    """What needs no change gets none."""
    assert rewriter().text('plain "text"\r\n', PLACE) == 'plain "text"\r\n'


@given(st.text(max_size=20).filter(lambda text: text.isprintable()))
def test_names_and_quotations_are_read_back(name: str) -> None:
    """A quoted text is that text in an expression, and a variable's expression finds its value."""
    assert compile_expression(quoted(name)).evaluate({}) == name
    if name:
        found = compile_expression(variable("steps", name)).evaluate({"steps": {name: 1}, name: 1})
        assert found == 1


sides = st.one_of(
    st.sampled_from(["{{a}}", "{{my step}}", "{{l.iterations}}", "{{max-words}}", "'one'", '"ONE "', "one", "3", "x{{a}}"]),
    st.sampled_from(["yes", "No", "0", "false", "''", "{{größe}}", "g"]),
)  # fmt: skip
inner = st.sampled_from(["a", "l.output", "'one'", '"O"', "one", "3", "l.iterations", "max-words"])


@given(
    st.one_of(
        sides,
        st.tuples(sides, st.sampled_from(["==", "!="]), sides).map(" ".join),
        st.tuples(inner, st.sampled_from(["==", " != "]), inner).map(
            lambda p: "${{ " + "".join(p) + " }}"
        ),
        inner.filter(lambda text: text[0] not in "'\"3").map(lambda text: "{{" + text + "}}"),
    )
)
def test_conditions_hold_as_they_do_there(text: str) -> None:
    """A27: the native expression is true when the condition holds."""
    try:
        native = condition(text, rewriter(), PLACE)
    except InvalidPlaceholder:
        return
    given_left = native.startswith(("one ", "O "))  # a bare word on the left is a caller's variable
    seen = {**SEEN, "one": "", "O": ""} if given_left else SEEN
    lookup = {**LOOKUP, "one": "", "O": ""} if given_left else LOOKUP
    if text.endswith(("==one }}", " != one }}", "max-words }}")):
        return  # a bare word on the right is no variable of the caller's here, which nobody knows yet
    if text.startswith("${{ '") or text.startswith('${{ "') or text.startswith("${{ 3"):
        return  # there, a text on the left is the name of something; here it is a text
    if text.startswith(("'", '"')):
        return
    assert bool(compile_expression(native).evaluate(seen)) == holds(text, lookup)


@pytest.mark.parametrize(
    ("text", "native"),
    [
        ("{{a}}", 'a | trim | lower not in ["", "false", "0"]'),
        ("true", '"true" not in ["", "false", "0"]'),
        ('${{ a == "YES" }}', 'a | trim | lower == "yes"'),
        ("{{ a != ' No ' }}", 'a | trim | lower != "no"'),
        ("{{a}} == {{l}}", "a | trim | lower == l | trim | lower"),
        ("'yes' == {{a}}", '"yes" == a | trim | lower'),
        ("{{l.exit_reason}} == failure", 'loops.l.exit_reason | trim | lower == "error"'),
        ("${{ a == l }}", "a | trim | lower == l | trim | lower"),
        ("{{a}}-{{l}} == x", '(a ~ "-" ~ l) | trim | lower == "x"'),
        ('{{a}} == "a == b"', 'a | trim | lower == "a == b"'),
        ("${{ l.iterations == 3 }}", 'loops.l.iterations | trim | lower == "3"'),
    ],
)
def test_conditions_read_as_people_write_them(text: str, native: str) -> None:
    """The native expression says the same in the words of templates."""
    assert condition(text, rewriter(), PLACE) == native


@pytest.mark.parametrize(
    "text", ["{{a}} == 1 && {{a}} != 2", "${{ a > 3 }}", "${{ a == (b) }}", "{{a}} == b == c"]
)
def test_more_than_one_comparison_is_refused(text: str) -> None:
    """What this dialect cannot say is not guessed at."""
    with pytest.raises(InvalidPlaceholder, match="single comparison|neither a name"):
        condition(text, rewriter(), PLACE)
