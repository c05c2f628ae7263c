"""The filters and methods of templates: an allow-list, each counting its cost before it is paid.

Left out on purpose: what pads (`center`, `format`, ...), because its cost is a number in the
template; what reaches attributes (`attr`); what is not a function of its input (`random`); HTML.

What filters take: the coercions they share, each with its cost counted.

The tests of templates: what may stand after `is`.

The filters and methods that work on text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .limits import ITEM, Meter, TemplateError
from .values import Missing, TemplateValue, equal, find, kind, shown, size, to_json, to_text

__all__ = [
    "COMPARISONS",
    "FILTERS",
    "HEAVY",
    "METHODS",
    "PREDICATES",
    "TEXT_FILTERS",
    "TEXT_METHODS",
    "at_path",
    "field",
    "is_number",
    "items_of",
    "made_text",
    "number_of",
    "whole",
]


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


PIECE = 65_536


def _upper(meter: Meter, value: Any) -> str:
    return made_text(meter, value).upper()


def _lower(meter: Meter, value: Any) -> str:
    return made_text(meter, value).lower()


def _title(meter: Meter, value: Any) -> str:
    return made_text(meter, value).title()


def _capitalize(meter: Meter, value: Any) -> str:
    return made_text(meter, value).capitalize()


def _trim(meter: Meter, value: Any, chars: str | None = None) -> str:
    return made_text(meter, value).strip(_few(chars))


def _lstrip(meter: Meter, value: Any, chars: str | None = None) -> str:
    return made_text(meter, value).lstrip(_few(chars))


def _rstrip(meter: Meter, value: Any, chars: str | None = None) -> str:
    return made_text(meter, value).rstrip(_few(chars))


def _few(chars: str | None) -> str | None:
    """Refuse many characters to strip: each of the text is looked for among all of them."""
    if chars is not None and (not isinstance(chars, str) or len(chars) > 64):
        raise TemplateError("strip takes text of at most 64 characters")
    return chars


def _replace(meter: Meter, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = (to_text(meter, part) for part in (value, old, new))
    meter.read(len(text) * HEAVY)
    times = len(text) + 1 if not old else text.count(old)
    if count is not None and count >= 0:
        times = min(times, count)
    meter.make(len(text) + times * len(new))
    return text.replace(old, new, times)


def _truncate(
    meter: Meter, value: Any, length: int = 255, killwords: bool = False, end: str = "...",
    leeway: int = 5,
) -> str:  # fmt: skip
    text, end = to_text(meter, value), to_text(meter, end)
    length = whole(length, "truncate", 10**9)
    if len(text) <= length + whole(leeway, "truncate", 10**9):
        return text
    kept = text[: max(length - len(end), 0)]
    meter.make(len(kept) + len(end))
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end


def _indent(
    meter: Meter, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    margin = width if isinstance(width, str) else " " * whole(width, "indent", 100)
    text = to_text(meter, value)
    meter.make(len(text) + (text.count("\n") + 1) * (len(margin) + ITEM))
    lines = text.split("\n")
    spaced = (margin + line if line.strip() or blank else line for line in lines[1:])
    return "\n".join([margin + lines[0] if first else lines[0], *spaced])


def _wordcount(meter: Meter, value: Any) -> int:
    text = to_text(meter, value)
    meter.read(len(text) * HEAVY)
    count = 0
    # In pieces, so that the words of a long text need not all exist at once.
    for start in range(0, len(text), PIECE):
        count += len(text[start : start + PIECE].split())
        count -= start > 0 and not (text[start - 1].isspace() or text[start].isspace())
    return count


def _split(meter: Meter, value: Any, separator: str | None = None, most: int = -1) -> list[str]:
    text = to_text(meter, value)
    if separator == "":
        raise TemplateError("split needs a separator that is not empty")
    pieces = _wordcount(meter, text) if separator is None else text.count(separator) + 1
    pieces = min(pieces, most + 1) if most >= 0 else pieces
    meter.make(len(text) + pieces * ITEM)
    return text.split(separator, most)


def _splitlines(meter: Meter, value: Any) -> list[str]:
    text = to_text(meter, value)
    meter.make(len(text) * HEAVY)
    return text.splitlines()


def _startswith(meter: Meter, value: Any, start: str) -> bool:
    return to_text(meter, value).startswith(to_text(meter, start))


def _endswith(meter: Meter, value: Any, end: str) -> bool:
    return to_text(meter, value).endswith(to_text(meter, end))


def _as_json(meter: Meter, value: Any, indent: int | None = None) -> str:
    return to_json(meter, value, whole(indent or 0, "tojson", 16))


TEXT_FILTERS: dict[str, Callable[..., Any]] = {
    "capitalize": _capitalize,
    "indent": _indent,
    "lower": _lower,
    "replace": _replace,
    "string": to_text,
    "title": _title,
    "tojson": _as_json,
    "trim": _trim,
    "truncate": _truncate,
    "upper": _upper,
    "wordcount": _wordcount,
}

TEXT_METHODS: dict[str, Callable[..., Any]] = {
    "capitalize": _capitalize,
    "endswith": _endswith,
    "lower": _lower,
    "lstrip": _lstrip,
    "replace": _replace,
    "rstrip": _rstrip,
    "split": _split,
    "splitlines": _splitlines,
    "startswith": _startswith,
    "strip": _trim,
    "title": _title,
    "upper": _upper,
}


def _join(meter: Meter, value: Any, separator: Any = "", attribute: Any = None) -> str:
    items = items_of(meter, value, "join")
    if attribute is not None:
        items = [field(meter, item, attribute) for item in items]
    middle = to_text(meter, separator)
    parts = []
    for item in items:
        parts.append(to_text(meter, item))
        meter.make(len(parts[-1]) + len(middle))
    return middle.join(parts)


def _joined(meter: Meter, value: Any, parts: Any) -> str:
    """`separator.join(parts)`, the method."""
    return _join(meter, parts, value)


def _default(_meter: Meter, value: Any, instead: Any = "", boolean: bool = False) -> Any:
    return instead if isinstance(value, Missing) or (boolean and not value) else value


def _length(_meter: Meter, value: Any) -> int:
    if isinstance(value, str | TemplateValue):
        return size(value)
    if isinstance(value, list | dict):
        return len(value)
    raise TemplateError(f"length needs text, a list or a mapping, got {kind(value)}")


def _first(meter: Meter, value: Any) -> Any:
    return next(iter(items_of(meter, value, "first")), Missing("first: the list is empty"))


def _last(meter: Meter, value: Any) -> Any:
    return next(reversed(items_of(meter, value, "last")), Missing("last: the list is empty"))


def _reverse(meter: Meter, value: Any) -> Any:
    backwards = items_of(meter, value, "reverse")[::-1]
    return "".join(backwards) if isinstance(value, str) else backwards


def _as_list(meter: Meter, value: Any) -> list[Any]:
    return items_of(meter, value, "list")


def _keys_of(meter: Meter, items: list[Any], attribute: Any, exact: bool, doing: str) -> list[Any]:
    """Return what items are ordered or compared by: all text, or all numbers."""
    found = []
    for item in items:
        key = item if attribute is None else field(meter, item, attribute)
        key = key.text if isinstance(key, TemplateValue) else key
        meter.make(size(key))
        found.append(key.lower() if isinstance(key, str) and not exact else key)
    if not all(isinstance(k, str) for k in found) and not all(map(is_number, found)):
        raise TemplateError(f"{doing} needs all text or all numbers")
    return found


def _sort(
    meter: Meter, value: Any, reverse: bool = False, case_sensitive: bool = False,
    attribute: Any = None,
) -> list[Any]:  # fmt: skip
    items = items_of(meter, value, "sort")
    keys = _keys_of(meter, items, attribute, case_sensitive, "sort")
    meter.read(len(items) * ITEM)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[place] for place in order]


def _unique(
    meter: Meter, value: Any, case_sensitive: bool = False, attribute: Any = None
) -> list[Any]:
    items = items_of(meter, value, "unique")
    keys = _keys_of(meter, items, attribute, case_sensitive, "unique")
    kept: dict[Any, Any] = {}
    for key, item in zip(keys, items, strict=True):
        kept.setdefault(key, item)
    return list(kept.values())


def _extreme(largest: bool, doing: str) -> Callable[..., Any]:
    """Make the filter that chooses the smallest or the largest item."""

    def choose(
        meter: Meter, value: Any, case_sensitive: bool = False, attribute: Any = None
    ) -> Any:
        items = _sort(meter, value, largest, case_sensitive, attribute)
        return items[0] if items else Missing(f"{doing}: the list is empty")

    return choose


def _total(meter: Meter, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    items = items_of(meter, value, "sum")
    found = (item if attribute is None else field(meter, item, attribute) for item in items)
    return sum((number_of(item, "sum") for item in found), number_of(start, "sum"))


def _mapped(
    meter: Meter, value: Any, name: str | None = None, *args: Any, attribute: Any = None
) -> list[Any]:
    items = items_of(meter, value, "map")
    if attribute is not None:
        return [field(meter, item, attribute) for item in items]
    apply = FILTERS.get(name) if isinstance(name, str) else None
    if apply is None:
        raise TemplateError(f"map needs attribute=, or the name of a filter, got {shown(name)}")
    return [apply(meter, item, *args) for item in items]


def _chosen(wanted: bool, by_attribute: bool) -> Callable[..., Any]:
    """Make one of select, reject, selectattr and rejectattr."""

    def filter_(meter: Meter, value: Any, *given: Any) -> list[Any]:
        attribute, test = (given[0], given[1:]) if by_attribute and given else (None, given)
        kept = []
        for item in items_of(meter, value, "select"):
            tested = item if attribute is None else at_path(meter, item, attribute)
            if _holds(meter, tested, test) == wanted:
                kept.append(item)
        return kept

    return filter_


def _holds(meter: Meter, value: Any, test: tuple[Any, ...]) -> bool:
    """Tell if a value passes a test given by name and arguments; without a name, if it is true."""
    meter.read(ITEM)
    if isinstance(value, Missing) and test[:1] not in (("defined",), ("undefined",)):
        meter.miss(value.reason)
        return False
    if not test:
        return bool(value)
    predicate = PREDICATES.get(test[0]) if isinstance(test[0], str) else None
    if predicate is None:
        raise TemplateError(f"there is no test {shown(test[0])}")
    return bool(predicate(meter, value, *test[1:]))


def _to_int(meter: Meter, value: Any, default: Any = 0) -> Any:
    try:
        return int(value if is_number(value) else to_text(meter, value)[:100].strip())
    except (ValueError, OverflowError):
        number = _to_float(meter, value, None)
        return int(number) if number is not None and math.isfinite(number) else default


def _to_float(meter: Meter, value: Any, default: Any = 0.0) -> Any:
    try:
        return float(value if is_number(value) else to_text(meter, value)[:100].strip())
    except (ValueError, OverflowError):
        return default


def _rounded(_meter: Meter, value: Any, precision: int = 0, method: str = "common") -> Any:
    number = number_of(value, "round")
    digits = whole(precision, "round", 30)
    if method == "common":
        return round(float(number), digits)
    if method not in ("ceil", "floor"):
        raise TemplateError(f"round: the method is common, ceil or floor, not {shown(method)}")
    cut = math.ceil if method == "ceil" else math.floor
    return cut(number * 10**digits) / 10**digits


def _absolute(_meter: Meter, value: Any) -> Any:
    return abs(number_of(value, "abs"))


def _pairs(meter: Meter, value: Any) -> list[list[Any]]:
    value = value.fields if isinstance(value, TemplateValue) else value
    if not isinstance(value, dict):
        raise TemplateError(f"items needs a mapping, got {kind(value)}")
    meter.make(len(value) * ITEM * 2)
    return [[key, item] for key, item in value.items()]


def _keys(meter: Meter, value: Any) -> list[Any]:
    return [key for key, _ in _pairs(meter, value)]


def _values(meter: Meter, value: Any) -> list[Any]:
    return [item for _, item in _pairs(meter, value)]


def _get(_meter: Meter, value: Any, key: Any, instead: Any = None) -> Any:
    found = find(value, key)
    return instead if isinstance(found, Missing) else found


def _count(meter: Meter, value: Any, item: Any) -> int:
    if isinstance(value, list):
        return sum(1 for other in value if equal(meter, other, item))
    text = to_text(meter, value)
    meter.read(len(text) * HEAVY)
    return text.count(to_text(meter, item))


FILTERS: dict[str, Callable[..., Any]] = TEXT_FILTERS | {
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
    "reject": _chosen(False, False),
    "rejectattr": _chosen(False, True),
    "reverse": _reverse,
    "round": _rounded,
    "select": _chosen(True, False),
    "selectattr": _chosen(True, True),
    "sort": _sort,
    "sum": _total,
    "unique": _unique,
}

METHODS: dict[str, Callable[..., Any]] = TEXT_METHODS | {
    "count": _count,
    "get": _get,
    "items": _pairs,
    "join": _joined,
    "keys": _keys,
    "values": _values,
}
