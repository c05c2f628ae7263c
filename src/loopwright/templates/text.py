"""How values print: text as it is, scalars as Jinja prints them, lists and mappings as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from .limits import ITEM, VALUE_DEPTH, Meter, TemplateError
from .values import Missing, TemplateValue

__all__ = ["to_json", "to_text"]

TEXT_ENCODER = json.JSONEncoder(ensure_ascii=False)


def to_text(meter: Meter, value: Any) -> str:
    """Return a value as it is printed; a missing one is an error, or nothing in lenient mode."""
    if type(value) is str:
        return value
    if isinstance(value, TemplateValue):
        return value.text
    if isinstance(value, Missing):
        meter.miss(value.reason)
        return ""
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return to_json(meter, value)


def to_json(meter: Meter, value: Any, indent: int = 0) -> str:
    """Return a value as JSON text, with keys in their order; `indent` spaces a level, 0: one line.

    Raises:
        TemplateError: the value is not plain data, nested too deep, or the text grows too long.
    """
    parts: list[str] = []
    _write(meter, value, parts, indent, 0)
    return "".join(parts)


def _write(meter: Meter, value: Any, parts: list[str], indent: int, depth: int) -> None:
    if not isinstance(value, list | dict):
        parts.append(_scalar(meter, value))
        return
    if depth > VALUE_DEPTH:
        raise TemplateError(f"a value is nested more than {VALUE_DEPTH} deep")
    inner = "\n" + " " * (indent * (depth + 1)) if indent else ""
    separator = "," + (inner or " ")
    meter.make((len(value) + 1) * (ITEM + len(separator)))
    parts.append("{" if isinstance(value, dict) else "[")
    for number, item in enumerate(value):
        parts.append(separator if number else inner)
        if isinstance(value, dict):
            parts.append(_scalar(meter, str(item)) + ": ")
            _write(meter, value[item], parts, indent, depth + 1)
        else:
            _write(meter, item, parts, indent, depth + 1)
    parts.append("\n" + " " * (indent * depth) if indent and value else "")
    parts.append("}" if isinstance(value, dict) else "]")


def _scalar(meter: Meter, value: Any) -> str:
    if isinstance(value, TemplateValue | Missing):
        value = to_text(meter, value)
    if isinstance(value, str):
        # Counted before it is made, and then what escapes have added.
        meter.make(len(value))
        text = TEXT_ENCODER.encode(value)
        meter.make(len(text) - len(value))
        return text
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if not isinstance(value, int | float):
        raise TemplateError("only data can be printed, not a function or a loop")
    if isinstance(value, float) and not math.isfinite(value):
        raise TemplateError(f"{value} has no JSON form")
    text = repr(value)
    meter.make(len(text))
    return text
