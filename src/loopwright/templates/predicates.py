"""The comparisons and tests of templates: an allow-list in which each counts its cost in advance."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TypeGuard

from ..records.codec import Json
from .values import Meter, Missing, TemplateError, TemplateValue, equal, kind, size, to_text

__all__ = ["COMPARISONS", "PREDICATES", "is_number", "plain"]

Comparison = Callable[[Meter, object, object], bool]


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number. True and false are not numbers, although bool is a subclass of int."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def plain(value: object) -> object:
    """Return the text of a value with fields; other values unchanged."""
    return value.text if isinstance(value, TemplateValue) else value


def _contains(meter: Meter, container: object, item: object) -> bool:
    container = plain(container)
    if isinstance(container, str):
        part = to_text(meter, item)
        meter.read(len(container) + len(part))
        return part in container
    if isinstance(container, list):
        return any(equal(meter, other, item) for other in container)
    if isinstance(container, dict):
        return isinstance(item, str | int | float | None) and item in container
    raise TemplateError(f"'in' needs text, a list or a mapping on the right, got {kind(container)}")


def _ordered(compare: Callable[[Json, Json], bool]) -> Comparison:
    """Return the comparison of two numbers or two texts by an operator."""

    def test(meter: Meter, left: object, right: object) -> bool:
        left, right = plain(left), plain(right)
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if not numbers and not (isinstance(left, str) and isinstance(right, str)):
            raise TemplateError(
                f"cannot order {kind(left)} and {kind(right)}; turn text into a number with | float"
            )
        # A comparison of two texts ends with the shorter one.
        meter.read(min(size(left), size(right)))
        return compare(left, right)

    return test


def _differs(meter: Meter, left: object, right: object) -> bool:
    return not equal(meter, left, right)


def _divisible(_meter: Meter, value: object, by: object) -> bool:
    if not (is_number(value) and is_number(by) and by):
        raise TemplateError("divisibleby needs two numbers, the second not 0")
    return value % by == 0


def _in_case(is_case: Callable[[str], bool]) -> Callable[..., bool]:
    def test(meter: Meter, value: object) -> bool:
        text = to_text(meter, value)
        meter.read(len(text))
        return is_case(text)

    return test


def _of_type(*types: type, bool_too: bool = False) -> Callable[..., bool]:
    """Return the test for values of some types."""

    def test(_meter: Meter, value: object) -> bool:
        return isinstance(value, types) and (bool_too or not isinstance(value, bool))

    return test


COMPARISONS: dict[str, Comparison] = {
    "eq": equal, "ne": _differs, "lt": _ordered(operator.lt), "lteq": _ordered(operator.le),
    "gt": _ordered(operator.gt), "gteq": _ordered(operator.ge),
    # The operands are in the order of the template: `item in container`.
    "in": lambda meter, item, container: _contains(meter, container, item),
    "notin": lambda meter, item, container: not _contains(meter, container, item),
}  # fmt: skip
# The names that Jinja gives to the comparisons as tests.
_COMPARED = {
    "eq": "== eq equalto", "ne": "!= ne", "lt": "< lt lessthan", "lteq": "<= le",
    "gt": "> gt greaterthan", "gteq": ">= ge", "in": "in",
}  # fmt: skip

PREDICATES: dict[str, Callable[..., bool]] = {
    name: COMPARISONS[of] for of, names in _COMPARED.items() for name in names.split()
} | {
    "boolean": _of_type(bool, bool_too=True),
    "defined": lambda _, value: not isinstance(value, Missing),
    "divisibleby": _divisible,
    "even": lambda meter, value: _divisible(meter, value, 2),
    "false": lambda _, value: value is False,
    "float": _of_type(float),
    "integer": _of_type(int),
    "iterable": _of_type(str, list, dict, TemplateValue),
    "lower": _in_case(str.islower),
    "mapping": _of_type(dict),
    "none": lambda _, value: value is None,
    "number": _of_type(int, float),
    "odd": lambda meter, value: not _divisible(meter, value, 2),
    "sequence": _of_type(str, list, dict, TemplateValue),
    "string": _of_type(str, TemplateValue),
    "true": lambda _, value: value is True,
    "undefined": lambda _, value: isinstance(value, Missing),
    "upper": _in_case(str.isupper),
}
