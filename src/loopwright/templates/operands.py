"""What filters take: the coercions they share, each with its cost counted."""

from __future__ import annotations

from typing import Any

from .limits import ITEM, Meter, TemplateError
from .predicates import is_number
from .text import to_text
from .values import Missing, TemplateValue, find, kind

__all__ = ["HEAVY", "at_path", "field", "items_of", "made_text", "number_of", "whole"]

# Splitting, sorting and folding cost about this many times what reading does.
HEAVY = 4


def made_text(meter: Meter, value: Any) -> str:
    """Return a value as text of which a changed copy is about to be made."""
    text = to_text(meter, value)
    meter.make(len(text))
    return text


def items_of(meter: Meter, value: Any, doing: str) -> list[Any]:
    """Return the items of a list, the keys of a mapping or the characters of a text."""
    if isinstance(value, TemplateValue):
        value = value.text
    if not isinstance(value, list | dict | str):
        raise TemplateError(f"{doing} needs a list, got {kind(value)}")
    meter.make(len(value) * ITEM)
    return list(value)


def number_of(value: Any, doing: str) -> Any:
    """Return a number, or refuse what is none."""
    if not is_number(value):
        raise TemplateError(f"{doing} needs a number, got {kind(value)}")
    return value


def whole(value: Any, doing: str, most: int) -> int:
    """Return a whole number from 0 to `most`, or refuse."""
    if not isinstance(value, int) or not 0 <= value <= most:
        raise TemplateError(f"{doing} needs a whole number from 0 to {most:,}")
    return int(value)


def at_path(meter: Meter, item: Any, path: Any) -> Any:
    """Return `item.a.b` for the path "a.b", or a Missing."""
    meter.read(ITEM + (len(path) * HEAVY * 4 if isinstance(path, str) else 0))
    for step in path.split(".") if isinstance(path, str) else [path]:
        item = find(item, int(step) if isinstance(step, str) and step.isdecimal() else step)
    return item


def field(meter: Meter, item: Any, path: Any) -> Any:
    """Return what is at a path; missing is an error, or empty text in lenient mode."""
    found = at_path(meter, item, path)
    return to_text(meter, found) if isinstance(found, Missing) else found
