"""The arguments of helpers as data: what templates pass on has text and fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..templates import TemplateValue
from .outputs import reply_text

__all__ = ["fields", "plain", "said"]


def plain(value: Any) -> Any:
    """Return a value of a template as plain data: what has fields as its text."""
    return value.text if isinstance(value, TemplateValue) else value


def said(value: Any) -> str:
    """Return a value as text, nothing as empty text."""
    value = plain(value)
    return "" if value is None else reply_text(value)


def fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of a value, none of one that has none."""
    if isinstance(value, TemplateValue):
        return value.fields
    return value if isinstance(value, Mapping) else {}
