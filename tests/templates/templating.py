"""What the tests of templates share: values to render with, and what a refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.templates import TemplateError, TemplateValue, compile_template

VALUES: dict[str, Any] = {
    "name": "Ada",
    "n": 3,
    "score": 0.85,
    "yes": True,
    "nothing": None,
    "words": ["b", "A", "c"],
    "numbers": [3, 1, 2],
    "rows": [{"k": "x", "v": 2, "in": {"w": 1}}, {"k": "y", "v": 1}],
    "d": {"a": 1, "items": "own"},
    "reply": TemplateValue("the text", {"response": "r", "confidence": 0.9}),
    "quiet": TemplateValue("", {"response": "r"}),
    "lines": "one\ntwo\n\nthree",
}


def render(source: str, **more: Any) -> str:
    """Render a template with VALUES and what else is given."""
    return compile_template(source).render(VALUES | more)


def refusal(source: str, **more: Any) -> str:
    """What is said when a template is refused, at the latest when it is rendered."""
    with pytest.raises(TemplateError) as caught:
        compile_template(source).render(VALUES | more)
    return str(caught.value)


def message(place: tuple[int, int], reason: str) -> str:
    """An error as it must read; a line or column of 0 is not told."""
    line, column = place
    where = f" line {line}" if line else ""
    return f"template{where}, column {column}: {reason}" if column else f"template{where}: {reason}"


class Key:
    """An object that is no plain data, and holds a secret."""

    api_key = "secret"
