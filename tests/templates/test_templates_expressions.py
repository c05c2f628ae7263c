"""Expressions: what they give, and how they fail, as templates do."""

from __future__ import annotations

import pytest
from templating import VALUES, message

from loopwright.templates import TemplateError, TemplateValue, compile_expression


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("score >= 0.8 and name == 'Ada'", True),
        ("n > 5 or 'A' in words", True),
        ("reply", TemplateValue("the text", {"response": "r", "confidence": 0.9})),
        ("rows[0]", {"k": "x", "v": 2, "in": {"w": 1}}),
        ("1, 2", None),
        (" n ", 3),
        ("'x' if no is defined", ""),
        ("result", "mine"),
        ("numbers|sort", [1, 2, 3]),
    ],
)
def test_expressions_give_values(source: str, expected: object) -> None:
    """An expression gives plain data, or a value that was passed in."""
    if expected is None:
        with pytest.raises(TemplateError, match="unexpected ','"):
            compile_expression(source)
    else:
        assert compile_expression(source).evaluate(VALUES | {"result": "mine"}) == expected


@pytest.mark.parametrize(
    ("source", "place", "reason"),
    [
        ("nme", (1, 1), "'nme' is not defined; did you mean 'name'?"),
        ("name ==", (1, 0), "unexpected 'end of template'"),
        ("a b", (1, 3), "unexpected 'b'"),
        (
            "range",
            (1, 0),
            (
                "'the result' is of type Helper; templates take plain data only: text, numbers, "
                "true or false, null, lists and mappings"
            ),
        ),
        ("f(1)", (1, 1), "'f' is not defined"),
    ],
)
def test_a_bad_expression_is_an_error_with_its_place(
    source: str, place: tuple[int, int], reason: str
) -> None:
    """Errors of expressions are told as those of templates."""
    with pytest.raises(TemplateError) as caught:
        compile_expression(source).evaluate(VALUES)
    assert str(caught.value) == message(place, reason)


def test_a_lenient_expression_gives_empty_text_for_the_undefined() -> None:
    """In lenient mode an undefined result is empty."""
    assert compile_expression("d.zz", strict=False).evaluate(VALUES) == ""


def test_an_unknown_name_of_an_expression_is_found_by_check() -> None:
    """Expressions are checked as templates are."""
    problems = compile_expression("a and\n nme").check({"a", "name"})
    assert list(map(str, problems)) == ["template:2:2: 'nme' is not defined; did you mean 'name'?"]
