"""The tests of templates: what may stand after `is`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .limits import Meter, TemplateError
from .text import to_text
from .values import Missing, TemplateValue, equal, kind, size

__all__ = ["COMPARISONS", "PREDICATES", "is_number"]


def is_number(value: Any) -> bool:
    """Tell if a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(meter: Meter, container: Any, item: Any) -> bool:
    """Tell if a text, list or mapping holds something."""
    if isinstance(container, TemplateValue):
        container = container.text
    if isinstance(container, str):
        part = to_text(meter, item)
        meter.read(len(container) + len(part))
        return part in container
    if isinstance(container, list):
        return any(equal(meter, other, item) for other in container)
    if isinstance(container, dict):
        return isinstance(item, str | int | float | None) and item in container
    raise TemplateError(f"'in' needs text, a list or a mapping on the right, got {kind(container)}")


def _ordered(meter: Meter, left: Any, right: Any) -> tuple[Any, Any]:
    """Return two values that have an order: two numbers, or two texts."""
    left = left.text if isinstance(left, TemplateValue) else left
    right = right.text if isinstance(right, TemplateValue) else right
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise TemplateError(
            f"cannot order {kind(left)} and {kind(right)}; turn text into a number with | float"
        )
    meter.read(min(size(left), size(right)))
    return left, right


def _less(meter: Meter, left: Any, right: Any) -> bool:
    left, right = _ordered(meter, left, right)
    return bool(left < right)


def _greater(meter: Meter, left: Any, right: Any) -> bool:
    return _less(meter, right, left)


def _at_most(meter: Meter, left: Any, right: Any) -> bool:
    left, right = _ordered(meter, left, right)
    return bool(left <= right)


def _at_least(meter: Meter, left: Any, right: Any) -> bool:
    return _at_most(meter, right, left)


def _differs(meter: Meter, left: Any, right: Any) -> bool:
    return not equal(meter, left, right)


def _is_in(meter: Meter, item: Any, container: Any) -> bool:
    return _contains(meter, container, item)


def _is_not_in(meter: Meter, item: Any, container: Any) -> bool:
    return not _contains(meter, container, item)


def _divisible(_meter: Meter, value: Any, by: Any) -> bool:
    if not (is_number(value) and is_number(by) and by):
        raise TemplateError("divisibleby needs two numbers, the second not 0")
    return bool(value % by == 0)


def _in_case(upper: bool) -> Callable[..., bool]:
    """Make the test for text that is all upper or all lower case."""

    def test(meter: Meter, value: Any) -> bool:
        text = to_text(meter, value)
        meter.read(len(text))
        return text.isupper() if upper else text.islower()

    return test


def _of_type(*types: type, bool_too: bool = False) -> Callable[..., bool]:
    """Make the test for values of some types."""

    def test(_meter: Meter, value: Any) -> bool:
        return isinstance(value, types) and (bool_too or not isinstance(value, bool))

    return test


COMPARISONS: dict[str, Callable[[Meter, Any, Any], bool]] = {
    "eq": equal, "ne": _differs, "lt": _less, "lteq": _at_most, "gt": _greater, "gteq": _at_least,
    "in": _is_in, "notin": _is_not_in,
}  # fmt: skip

PREDICATES: dict[str, Callable[..., bool]] = {
    "!=": _differs, "<": _less, "<=": _at_most, "==": equal, ">": _greater, ">=": _at_least,
    "boolean": _of_type(bool, bool_too=True),
    "defined": lambda _, value: not isinstance(value, Missing),
    "divisibleby": _divisible,
    "eq": equal, "equalto": equal,
    "even": lambda meter, value: _divisible(meter, value, 2),
    "false": lambda _, value: value is False,
    "float": _of_type(float),
    "ge": _at_least, "greaterthan": _greater, "gt": _greater, "in": _is_in,
    "integer": _of_type(int),
    "iterable": _of_type(str, list, dict, TemplateValue),
    "le": _at_most, "lessthan": _less,
    "lower": _in_case(False),
    "lt": _less,
    "mapping": _of_type(dict),
    "ne": _differs,
    "none": lambda _, value: value is None,
    "number": _of_type(int, float),
    "odd": lambda meter, value: not _divisible(meter, value, 2),
    "sequence": _of_type(str, list, dict, TemplateValue),
    "string": _of_type(str, TemplateValue),
    "true": lambda _, value: value is True,
    "undefined": lambda _, value: isinstance(value, Missing),
    "upper": _in_case(True),
}  # fmt: skip
