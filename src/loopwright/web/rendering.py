"""Templates to text: everything is escaped, so that what a model wrote is shown and never obeyed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_environment
from markupsafe import Markup

from ..cli import texts
from ..codec import Json, text_of
from . import charts

__all__ = ["STATIC", "macro", "render"]

_HERE = Path(__file__).parent
STATIC = _HERE / "static"


@pass_environment
def _as_text(_: Environment, value: Json) -> str:
    return text_of(value)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "line": lambda value: texts.one_line(str(value)),
        "score": texts.score,
        "cost": texts.cost,
        "duration": texts.duration,
        "when": texts.when,
        "text": _as_text,
        # The one text that is markup: numbers alone go into it.
        "sparkline": lambda scores: Markup(charts.sparkline(scores)),  # noqa: S704
    }
    return made


def render(template: str, **values: Any) -> str:
    """Return a template with its values, escaped."""
    here = {"runs.html": "runs", "start.html": "start"}.get(template, "")
    return _environment().get_template(template).render(here=here, **values)


def macro(name: str, *values: Any) -> str:
    """Return what a macro of the parts gives, escaped."""
    made = getattr(_environment().get_template("parts.html").module, name)
    return str(made(*values))
