"""The filters, methods, comparisons and tests of templates: an allow-list in which each counts its cost in advance.

Not offered: filters that pad (`center`, `format`), because a number in the template sets their cost;
access to attributes (`attr`); random values; HTML.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TypeGuard

from ..errors import TemplateError
from ..records.codec import Json
from .values import (
    ITEM,
    Meter,
    Missing,
    equal,
    find,
    kind,
    shown,
    size,
    to_json,
    to_text,
)
from .variables import TemplateValue

__all__ = [
    "COMPARISONS",
    "FILTERS",
    "METHODS",
    "PREDICATES",
    "is_number",
    "items_of",
    "plain",
]

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


# Splitting, sorting and changing the case cost about this many times as much as reading.
HEAVY = 4


def _copied_text(meter: Meter, value: object) -> str:
    """Return a value as text, with the cost of one copy counted."""
    text = to_text(meter, value)
    meter.make(len(text))
    return text


def items_of(meter: Meter, value: object, doing: str) -> list[object]:
    """Return the items of a list, the keys of a mapping or the characters of a text."""
    value = plain(value)
    if not isinstance(value, list | dict | str):
        raise TemplateError(f"{doing} needs a list, got {kind(value)}")
    # Counted before the copy is created.
    meter.make(len(value) * ITEM)
    return list(value)


def _number(value: object, doing: str) -> int | float:
    if not is_number(value):
        raise TemplateError(f"{doing} needs a number, got {kind(value)}")
    return value


def _integer(value: object, doing: str, maximum: int) -> int:
    # The bound is checked before the work, because the template chooses the number.
    if not isinstance(value, int) or not 0 <= value <= maximum:
        raise TemplateError(f"{doing} needs an integer from 0 to {maximum:,}")
    return int(value)


def _at_path(meter: Meter, item: object, path: object) -> object:
    """Return `item.a.b` for the path "a.b", or a Missing."""
    meter.read(ITEM + (len(path) * HEAVY * 4 if isinstance(path, str) else 0))
    # A number in a path is an index of a list, as in Jinja.
    for step in path.split(".") if isinstance(path, str) else [path]:
        item = find(item, int(step) if isinstance(step, str) and step.isdecimal() else step)
    return item


def _field(meter: Meter, item: object, path: object) -> object:
    """Return the value at a path; a missing one is an error, or "" in lenient mode."""
    value = _at_path(meter, item, path)
    return to_text(meter, value) if isinstance(value, Missing) else value


PIECE = 65_536  # characters of a text that are split at once to count words


def _changed(change: Callable[[str], str]) -> Callable[[Meter, object], str]:
    """Return the filter that makes one changed copy of a text."""
    return lambda meter, value: change(_copied_text(meter, value))


_CASES = {name: _changed(getattr(str, name)) for name in ("capitalize", "lower", "title", "upper")}


def _trim(meter: Meter, value: object, chars: str | None = None) -> str:
    return _copied_text(meter, value).strip(_few(chars))


def _lstrip(meter: Meter, value: object, chars: str | None = None) -> str:
    return _copied_text(meter, value).lstrip(_few(chars))


def _rstrip(meter: Meter, value: object, chars: str | None = None) -> str:
    return _copied_text(meter, value).rstrip(_few(chars))


def _few(chars: str | None) -> str | None:
    """Refuse a long set of characters, because each character of the text is compared with all of them."""
    if chars is not None and (not isinstance(chars, str) or len(chars) > 64):
        raise TemplateError("strip takes text of at most 64 characters")
    return chars


def _replace(
    meter: Meter, value: object, old: object, new: object, count: int | None = None
) -> str:
    # Authors also replace numbers, which Jinja accepts.
    text, old, new = (to_text(meter, part) for part in (value, old, new))
    meter.read(len(text) * HEAVY)
    # An empty `old` matches before every character and at the end.
    times = len(text) + 1 if not old else text.count(old)
    if count is not None and count >= 0:
        times = min(times, count)
    # The size of the result is known before the text is created.
    meter.make(len(text) + times * len(new))
    return text.replace(old, new, times)


def _truncate(
    meter: Meter, value: object, length: int = 255, killwords: bool = False, end: str = "...",
    leeway: int = 5,
) -> str:  # fmt: skip
    text, end = to_text(meter, value), to_text(meter, end)
    length = _integer(length, "truncate", 10**9)
    # As in Jinja: a text that is only a little too long is not cut.
    if len(text) <= length + _integer(leeway, "truncate", 10**9):
        return text
    shortened = text[: max(length - len(end), 0)]
    meter.make(len(shortened) + len(end))
    return (shortened if killwords else shortened.rsplit(" ", 1)[0]) + end


def _indent(
    meter: Meter, value: object, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    margin = width if isinstance(width, str) else " " * _integer(width, "indent", 100)
    text = to_text(meter, value)
    meter.make(len(text) + (text.count("\n") + 1) * (len(margin) + ITEM))
    lines = text.split("\n")
    # As in Jinja: blank lines are not indented by default.
    spaced = (margin + line if line.strip() or blank else line for line in lines[1:])
    return "\n".join([margin + lines[0] if first else lines[0], *spaced])


def _wordcount(meter: Meter, value: object) -> int:
    text = to_text(meter, value)
    meter.read(len(text) * HEAVY)
    count = 0
    # In pieces, so that the words of a long text do not exist at the same time.
    for start in range(0, len(text), PIECE):
        count += len(text[start : start + PIECE].split())
        count -= start > 0 and not (text[start - 1].isspace() or text[start].isspace())
    return count


def _split(
    meter: Meter, value: object, separator: str | None = None, maximum: int = -1
) -> list[str]:
    text = to_text(meter, value)
    # Python would raise an error without the name of the filter.
    if separator == "":
        raise TemplateError("split needs a separator that is not empty")
    # The number of pieces is counted first, because each costs more memory than its characters.
    pieces = _wordcount(meter, text) if separator is None else text.count(separator) + 1
    pieces = min(pieces, maximum + 1) if maximum >= 0 else pieces
    meter.make(len(text) + pieces * ITEM)
    return text.split(separator, maximum)


def _splitlines(meter: Meter, value: object) -> list[str]:
    text = to_text(meter, value)
    meter.make(len(text) * HEAVY)
    return text.splitlines()


def _startswith(meter: Meter, value: object, start: str) -> bool:
    return to_text(meter, value).startswith(to_text(meter, start))


def _endswith(meter: Meter, value: object, end: str) -> bool:
    return to_text(meter, value).endswith(to_text(meter, end))


def _as_json(meter: Meter, value: object, indent: int | None = None) -> str:
    return to_json(meter, value, _integer(indent or 0, "tojson", 16))


def _join(meter: Meter, value: object, separator: object = "", attribute: object = None) -> str:
    items = items_of(meter, value, "join")
    if attribute is not None:
        items = [_field(meter, item, attribute) for item in items]
    middle = to_text(meter, separator)
    parts = []
    for item in items:
        parts.append(to_text(meter, item))
        meter.make(len(parts[-1]) + len(middle))
    return middle.join(parts)


def _joined(meter: Meter, value: object, parts: object) -> str:
    """`separator.join(parts)`, the method."""
    return _join(meter, parts, value)


def _default(_meter: Meter, value: object, instead: object = "", boolean: bool = False) -> object:
    # The only filter that accepts a missing value, with `d`.
    return instead if isinstance(value, Missing) or (boolean and not value) else value


def _length(_meter: Meter, value: object) -> int:
    if isinstance(value, str | TemplateValue):
        return size(value)
    if isinstance(value, list | dict):
        return len(value)
    raise TemplateError(f"length needs text, a list or a mapping, got {kind(value)}")


def _first(meter: Meter, value: object) -> object:
    return next(iter(items_of(meter, value, "first")), Missing("first: the list is empty"))


def _last(meter: Meter, value: object) -> object:
    return next(reversed(items_of(meter, value, "last")), Missing("last: the list is empty"))


def _reverse(meter: Meter, value: object) -> object:
    # A reversed text is a text again, as in Jinja.
    backwards = items_of(meter, value, "reverse")[::-1]
    return "".join(map(str, backwards)) if isinstance(value, str) else backwards


def _as_list(meter: Meter, value: object) -> list[object]:
    return items_of(meter, value, "list")


def _keys_of(
    meter: Meter, items: list[object], attribute: object, exact: bool, doing: str
) -> list[Json]:
    """Return the keys by which items are ordered: all text, or all numbers."""
    keys = []
    for item in items:
        key = item if attribute is None else _field(meter, item, attribute)
        key = key.text if isinstance(key, TemplateValue) else key
        meter.make(size(key))
        keys.append(key.lower() if isinstance(key, str) and not exact else key)
    # Python cannot order other values, and its error would not name the filter.
    if not all(isinstance(k, str) for k in keys) and not all(map(is_number, keys)):
        raise TemplateError(f"{doing} needs all text or all numbers")
    return keys


def _sort(
    meter: Meter, value: object, reverse: bool = False, case_sensitive: bool = False,
    attribute: object = None,
) -> list[object]:  # fmt: skip
    items = items_of(meter, value, "sort")
    keys = _keys_of(meter, items, attribute, case_sensitive, "sort")
    meter.read(len(items) * ITEM)
    # By index, so that equal keys never compare the items themselves.
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[place] for place in order]


def _unique(
    meter: Meter, value: object, case_sensitive: bool = False, attribute: object = None
) -> list[object]:
    items = items_of(meter, value, "unique")
    keys = _keys_of(meter, items, attribute, case_sensitive, "unique")
    first_items: dict[object, object] = {}
    for key, item in zip(keys, items, strict=True):
        first_items.setdefault(key, item)
    return list(first_items.values())


def _extreme(largest: bool, doing: str) -> Callable[..., object]:
    """Return the filter that chooses the smallest or the largest item."""

    def choose(
        meter: Meter, value: object, case_sensitive: bool = False, attribute: object = None
    ) -> object:
        items = _sort(meter, value, largest, case_sensitive, attribute)
        return items[0] if items else Missing(f"{doing}: the list is empty")

    return choose


def _total(meter: Meter, value: object, attribute: object = None, start: object = 0) -> object:
    items = items_of(meter, value, "sum")
    values = (item if attribute is None else _field(meter, item, attribute) for item in items)
    return sum((_number(item, "sum") for item in values), _number(start, "sum"))


def _mapped(
    meter: Meter, value: object, name: str | None = None, *args: object, attribute: object = None
) -> list[object]:
    items = items_of(meter, value, "map")
    if attribute is not None:
        return [_field(meter, item, attribute) for item in items]
    apply = FILTERS.get(name) if isinstance(name, str) else None
    if apply is None:
        raise TemplateError(f"map needs attribute=, or the name of a filter, got {shown(name)}")
    return [apply(meter, item, *args) for item in items]


def _filtered(expected: bool, by_attribute: bool) -> Callable[..., object]:
    """Return one of the filters select, reject, selectattr and rejectattr."""

    def filter_(meter: Meter, value: object, *arguments: object) -> list[object]:
        attribute, test = (
            (arguments[0], arguments[1:]) if by_attribute and arguments else (None, arguments)
        )
        selected = []
        for item in items_of(meter, value, "select"):
            tested = item if attribute is None else _at_path(meter, item, attribute)
            if _holds(meter, tested, test) == expected:
                selected.append(item)
        return selected

    return filter_


def _holds(meter: Meter, value: object, test: tuple[object, ...]) -> bool:
    """Whether a value passes a test with a name and arguments; without a name, whether it is true."""
    meter.read(ITEM)
    # A missing value is a mistake, unless the test asks whether it is defined.
    if isinstance(value, Missing) and test[:1] not in (("defined",), ("undefined",)):
        meter.miss(value.reason)
        return False
    if not test:
        return bool(value)
    predicate = PREDICATES.get(test[0]) if isinstance(test[0], str) else None
    if predicate is None:
        raise TemplateError(f"there is no test {shown(test[0])}")
    return bool(predicate(meter, value, *test[1:]))


def _to_int(meter: Meter, value: object, default: object = 0) -> object:
    try:
        # No number for a template has more than 100 characters, and conversion takes quadratic time.
        return int(value if is_number(value) else to_text(meter, value)[:100].strip())
    except (ValueError, OverflowError):
        number = _to_float(meter, value, None)
        return int(number) if isinstance(number, float) and math.isfinite(number) else default


def _to_float(meter: Meter, value: object, default: object = 0.0) -> object:
    try:
        return float(value if is_number(value) else to_text(meter, value)[:100].strip())
    except (ValueError, OverflowError):
        return default


def _rounded(_meter: Meter, value: object, precision: int = 0, method: str = "common") -> object:
    number = _number(value, "round")
    digits = _integer(precision, "round", 30)
    # Python rounds half to even, as Jinja does.
    if method == "common":
        return round(float(number), digits)
    if method not in ("ceil", "floor"):
        raise TemplateError(f"round: the method is common, ceil or floor, not {shown(method)}")
    cut = math.ceil if method == "ceil" else math.floor
    return cut(number * 10**digits) / 10**digits


def _absolute(_meter: Meter, value: object) -> object:
    return abs(_number(value, "abs"))


def _pairs(meter: Meter, value: object) -> list[list[object]]:
    # The fields of a reply are read like those of a mapping.
    value = value.fields if isinstance(value, TemplateValue) else value
    if not isinstance(value, dict):
        raise TemplateError(f"items needs a mapping, got {kind(value)}")
    meter.make(len(value) * ITEM * 2)
    return [[key, item] for key, item in value.items()]


def _keys(meter: Meter, value: object) -> list[object]:
    return [key for key, _ in _pairs(meter, value)]


def _values(meter: Meter, value: object) -> list[object]:
    return [item for _, item in _pairs(meter, value)]


def _get(_meter: Meter, value: object, key: object, instead: object = None) -> object:
    result = find(value, key)
    return instead if isinstance(result, Missing) else result


def _count(meter: Meter, value: object, item: object) -> int:
    if isinstance(value, list):
        return sum(1 for other in value if equal(meter, other, item))
    text = to_text(meter, value)
    meter.read(len(text) * HEAVY)
    return text.count(to_text(meter, item))


FILTERS: dict[str, Callable[..., object]] = _CASES | {
    "indent": _indent,
    "replace": _replace,
    "string": to_text,
    "tojson": _as_json,
    "trim": _trim,
    "truncate": _truncate,
    "wordcount": _wordcount,
    "abs": _absolute,
    "count": _length,
    "d": _default,
    "default": _default,
    "first": _first,
    "float": _to_float,
    "int": _to_int,
    "items": _pairs,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": _as_list,
    "map": _mapped,
    "max": _extreme(True, "max"),
    "min": _extreme(False, "min"),
    "reject": _filtered(False, False),
    "rejectattr": _filtered(False, True),
    "reverse": _reverse,
    "round": _rounded,
    "select": _filtered(True, False),
    "selectattr": _filtered(True, True),
    "sort": _sort,
    "sum": _total,
    "unique": _unique,
}

METHODS: dict[str, Callable[..., object]] = _CASES | {
    "endswith": _endswith,
    "lstrip": _lstrip,
    "replace": _replace,
    "rstrip": _rstrip,
    "split": _split,
    "splitlines": _splitlines,
    "startswith": _startswith,
    "strip": _trim,
    "count": _count,
    "get": _get,
    "items": _pairs,
    "join": _joined,
    "keys": _keys,
    "values": _values,
}
