"""Templates of loop-node documents: lenient, with that dialect's names and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....engine.context import Context
from ....records.codec import Json
from ....templates import Template, TemplateValue, compile_expression, compile_template
from ....templates.variables import TemplatedValue
from .template_functions import HELPERS, helpers
from .template_view import LoopNodeView

__all__ = ["node_expression", "node_fill", "node_template", "plain", "written"]

_NONE: frozenset[str] = frozenset()


def node_template(source: str) -> Template:
    """Compile a template; what is undefined in it makes its expression empty, with a warning.

    Raises:
        TemplateError: for a template that cannot be read, with its place inside the text.
    """
    return compile_template(source, strict=False, helpers=HELPERS)


def node_fill(source: Json) -> TemplatedValue:
    """Compile the templates inside a value: text that is one expression gives its value.

    Raises:
        TemplateError: as `node_template`.
    """
    return TemplatedValue(source, _part(source), _NONE, LoopNodeView)


def node_expression(source: str) -> TemplatedValue:
    """Compile an expression, such as that of an `if`.

    Raises:
        TemplateError: for an expression that cannot be read.
    """
    return TemplatedValue(source, _evaluated(source), _NONE, LoopNodeView)


def written(template: Template, view: LoopNodeView, values: Mapping[str, Any], ctx: Context) -> str:
    """Render a template where it runs; what was undefined in it is a warning."""
    done = template.render_noting(values, helpers(view))
    for warning in done.warnings:
        ctx.warn(f"template: {warning}; it is left empty")
    return done.text


def plain(value: Any) -> Json:
    """Return a value of a template as plain data."""
    if isinstance(value, TemplateValue):
        return value.text
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _part(source: Json) -> Callable[[Any], Json]:
    if isinstance(source, str):
        return _text(source)
    if isinstance(source, Mapping):
        parts = {key: _part(item) for key, item in source.items()}
        return lambda view: {key: part(view) for key, part in parts.items()}
    if isinstance(source, list):
        items = [_part(item) for item in source]
        return lambda view: [item(view) for item in items]
    return lambda _: source


def _text(source: str) -> Callable[[Any], Json]:
    bare = source.strip()
    if "{" not in bare:
        return lambda _: source
    inner = bare[2:-2]
    if bare.startswith("{{") and bare.endswith("}}") and "{{" not in inner and "}}" not in inner:
        return _evaluated(inner.strip("-").strip())
    template = node_template(source)
    return lambda view: written(template, view, view.values, view.ctx)


def _evaluated(source: str) -> Callable[[Any], Json]:
    expression = compile_expression(source, strict=False, helpers=HELPERS)
    return lambda view: plain(expression.evaluate(view.values, helpers(view)))
