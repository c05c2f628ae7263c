"""How values print: text as it is, scalars as Jinja prints them, lists and mappings as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from .limits import ITEM, VALUE_DEPTH, Meter, TemplateError
from .values import Missing, TemplateValue, size

__all__ = ["to_json", "to_text"]


def to_text(meter: Meter, value: Any) -> str:
    """Return a value as it is printed; a missing one is an error, or nothing in lenient mode."""
    if type(value) is str:
        return value
    if isinstance(value, TemplateValue):
        return value.text
    if isinstance(value, Missing):
        meter.miss(value.reason(meter))
        return ""
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return to_json(meter, value)


def to_json(meter: Meter, value: Any, indent: int = 0) -> str:
    """Return a value as JSON text, with keys in their order; `indent` spaces a level, 0: one line.

    Raises:
        TemplateError: the value is not plain data, nested too deep, or the text grows too long.
    """
    return "".join(_json(meter, value, indent, 0))


def _json(meter: Meter, value: Any, indent: int, depth: int) -> Iterator[str]:
    if depth > VALUE_DEPTH:
        raise TemplateError(f"a value is nested more than {VALUE_DEPTH} deep")
    if isinstance(value, dict):
        keys: Sequence[str] = [_scalar(meter, str(key)) + ": " for key in value]
        yield from _collection(meter, "{}", keys, list(value.values()), indent, depth)
    elif isinstance(value, list):
        yield from _collection(meter, "[]", [""] * len(value), value, indent, depth)
    else:
        yield _scalar(meter, value)


def _collection(
    meter: Meter, brackets: str, keys: Sequence[str], items: list[Any], indent: int, depth: int
) -> Iterator[str]:
    inner = "\n" + " " * (indent * (depth + 1)) if indent else ""
    separator = "," + (inner or " ")
    meter.make(len(items) * (ITEM + len(separator)) + 2)
    yield brackets[0]
    for number, (key, item) in enumerate(zip(keys, items, strict=True)):
        yield separator if number else inner
        yield key
        yield from _json(meter, item, indent, depth + 1)
    yield ("\n" + " " * (indent * depth) if indent and items else "") + brackets[1]


def _scalar(meter: Meter, value: Any) -> str:
    if isinstance(value, TemplateValue | Missing):
        value = to_text(meter, value)
    if not (value is None or isinstance(value, str | bool | int | float)):
        raise TemplateError("only data can be printed, not a function or a loop")
    weight = size(value)
    meter.make(weight)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise TemplateError(f"{value} has no JSON form") from None
    meter.make(max(len(text) - weight, 0))
    return text
