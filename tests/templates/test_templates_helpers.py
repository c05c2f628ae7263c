"""Templates: functions that are passed in are called, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from templating import VALUES, Key

from loopwright.errors import StepError
from loopwright.templates import TemplateError, compile_template
from loopwright.templates.sandbox import SANDBOX


def _joined(words: list[str], sep: str) -> str:
    return sep.join(words)


def test_helpers_are_called_and_nothing_else() -> None:
    """A function that is passed in is called with plain data, and its result is plain data."""
    template = compile_template("{{ join(words, sep='+') }} {{ count() + 1 }} {{ pair()[0] }}")
    helpers: dict[str, Callable[..., Any]] = {
        "join": _joined,
        "count": lambda: 41,
        "pair": lambda: (1, 2),
    }
    assert template.render(VALUES, helpers) == "b+A+c 42 1"


def _marked(text: str, mark: str = "!") -> str:
    return text + mark


def test_helpers_can_be_filters_when_they_are_named() -> None:
    """A name given to the compiler may stand after a bar, and wins over a filter of that name."""
    helpers: dict[str, Callable[..., Any]] = {"upper": _marked, "shout": str.upper}
    template = compile_template("{{ name|shout|upper('?') }}{{ name|upper }}", helpers=helpers)
    assert template.render(VALUES, helpers) == "ADA?Ada!"
    assert template.names == {"name", "shout", "upper"}


def test_a_value_hides_a_helper_of_the_same_name() -> None:
    """What is among the values is a value."""
    assert compile_template("{{ name }}").render(VALUES, {"name": len}) == "Ada"
    assert compile_template("{{ range }}").render({"range": 5}) == "5"


def _broken() -> None:
    raise KeyError("x")


def _stopped() -> None:
    raise StepError("no")


def test_a_helper_that_fails_is_an_error_of_the_template() -> None:
    """The error names the function; errors of this package pass unchanged."""
    with pytest.raises(TemplateError) as caught:
        compile_template("\n{{ f() }}").render({}, {"f": _broken})
    assert str(caught.value) == "template line 2, column 1: f() failed: KeyError: 'x'"
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(StepError):
        compile_template("{{ f() }}").render({}, {"f": _stopped})


def test_a_helper_has_no_fields() -> None:
    """A function can be called, and is opaque otherwise."""
    with pytest.raises(TemplateError, match="a function has no field 'api_key'"):
        compile_template("{{ f.api_key }}").render({}, {"f": Key})


def test_a_helper_that_gives_an_object_is_refused() -> None:
    """Results are held to the same rule as values."""
    with pytest.raises(TemplateError, match=r"'f\(\)' is of type Key; templates take plain data"):
        compile_template("{{ f() }}").render({}, {"f": Key})


def test_the_sandbox_itself_calls_nothing() -> None:
    """Every call is rewritten; one that was not would be refused."""
    with pytest.raises(TemplateError, match="only the functions of this template"):
        SANDBOX.call(None, len)
