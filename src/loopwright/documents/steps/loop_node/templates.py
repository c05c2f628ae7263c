"""Templates of loop-node documents: lenient, with the names and functions of that dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....engine.context import Context
from ....records.codec import Json
from ....templates import Template, TemplateValue, compile_expression, compile_template
from ....templates.variables import TemplatedValue
from .template_functions import HELPERS, helpers
from .template_view import LoopNodeView

__all__ = ["node_expression", "node_fill", "node_template", "plain", "written"]

_NO_NAMES: frozenset[str] = frozenset()
_Fill = Callable[[LoopNodeView], Json]


def node_template(source: str) -> Template:
    """Compile a template; an expression with an undefined name is empty, with a warning.

    Raises:
        TemplateError: for an invalid template, with the position in the text.
    """
    return compile_template(source, strict=False, helpers=HELPERS)


def node_fill(source: Json) -> TemplatedValue:
    """Compile the templates inside a value; a text that is one expression has the value of that expression.

    Raises:
        TemplateError: as `node_template`.
    """
    return TemplatedValue(source, _part(source), _NO_NAMES, LoopNodeView)


def node_expression(source: str) -> TemplatedValue:
    """Compile an expression, such as that of an `if`.

    Raises:
        TemplateError: for an invalid expression.
    """
    return TemplatedValue(source, _evaluated(source), _NO_NAMES, LoopNodeView)


def written(
    template: Template, view: LoopNodeView, values: Mapping[str, Json], ctx: Context
) -> str:
    """Render a template at its place; an undefined name is a warning."""
    done = template.render_noting(values, helpers(view))
    for warning in done.warnings:
        ctx.warn(f"template: {warning}; it is left empty")
    return done.text


def plain(value: object) -> Json:
    """Return a value of a template as plain data."""
    if isinstance(value, TemplateValue):
        return value.text
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _part(source: Json) -> _Fill:
    if isinstance(source, str):
        return _text(source)
    if isinstance(source, Mapping):
        parts = {key: _part(item) for key, item in source.items()}
        return lambda view: {key: part(view) for key, part in parts.items()}
    if isinstance(source, list):
        items = [_part(item) for item in source]
        return lambda view: [item(view) for item in items]
    return lambda _: source


def _text(source: str) -> _Fill:
    bare = source.strip()
    if "{" not in bare:
        return lambda _: source
    inner = bare[2:-2]
    if bare.startswith("{{") and bare.endswith("}}") and "{{" not in inner and "}}" not in inner:
        return _evaluated(inner.strip("-").strip())
    template = node_template(source)
    return lambda view: written(template, view, view.values, view.ctx)


def _evaluated(source: str) -> _Fill:
    expression = compile_expression(source, strict=False, helpers=HELPERS)
    return lambda view: plain(expression.evaluate(view.values, helpers(view)))
