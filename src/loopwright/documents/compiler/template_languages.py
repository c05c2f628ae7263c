"""The languages of templates in documents: the native one, and that of loop nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ...templates import compile_expression
from ...templates.variables import TemplatedValue, fill, needed
from ..steps.loop_node import node_expression, node_fill

__all__ = ["LANGUAGES", "NATIVE", "TemplateLanguage"]


@dataclass(frozen=True, slots=True)
class TemplateLanguage:
    """How templates are read: `fill` compiles a value, `expression` a condition, `names` says what that needs."""

    fill: Callable[[Any], TemplatedValue]
    expression: Callable[[str], Any]
    names: Callable[[Any], Iterable[str]]


def _none(_: Any) -> Iterable[str]:
    """Return no names: what a loop node's condition lacks is empty there."""
    return ()


NATIVE = TemplateLanguage(fill, compile_expression, needed)
# By the `templates` of a document.
LANGUAGES: Mapping[str, TemplateLanguage] = MappingProxyType(
    {"native": NATIVE, "loop_node": TemplateLanguage(node_fill, node_expression, _none)}
)
