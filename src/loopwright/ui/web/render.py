"""Templates to text: everything is escaped, so that what a model wrote is shown and never obeyed."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_environment
from markupsafe import Markup

from ...records.codec import Json, text_of
from .. import formatting as texts
from . import charts

__all__ = ["STATIC", "cut", "macro", "readable", "render", "static_path"]

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_NAMED = 12  # characters of the digest in the address of what is static


@cache
def static_path() -> str:
    """Return the address of what is static: another one for other contents, so that it may be kept."""
    files = sorted(path for path in STATIC.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files))
    return f"/static/{digest.hexdigest()[:_NAMED]}"


def readable(value: Json) -> str:
    """Return a value as a reader of the page sees it: text as it is, an object or a list over several lines."""
    if isinstance(value, dict | list) and value:
        return json.dumps(json.loads(text_of(value)), ensure_ascii=False, indent=2)
    return text_of(value)


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, and a line on how much more there is, and where."""
    left = len(text) - most
    if left <= 0:
        return text
    return f"{text[:most]}\n[… {left:,} characters more; export the run as JSON for all]"


@pass_environment
def _as_text(_: Environment, value: Json) -> str:
    return text_of(value)


@pass_environment
def _as_lines(_: Environment, value: Json) -> str:
    return readable(value)


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
        "readable": _as_lines,
        # The one text that is markup: numbers alone go into it.
        "sparkline": lambda scores: Markup(charts.sparkline(scores)),  # noqa: S704
    }
    return made


def render(template: str, **values: Any) -> str:
    """Return a template with its values, escaped."""
    here = {"runs.html": "runs", "start.html": "start"}.get(template, "")
    template_of = _environment().get_template(template)
    return template_of.render(here=here, static=static_path(), **values)


def macro(name: str, *values: Any) -> str:
    """Return what a macro of the parts gives, escaped."""
    made = getattr(_environment().get_template("parts.html").module, name)
    return str(made(*values))
