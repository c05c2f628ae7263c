"""The filters and methods of templates: an allow-list, each counting its cost before it is paid.

Left out on purpose: what pads (`center`, `format`, ...), because its cost is a number in the
template; what reaches attributes (`attr`); what is not a function of its input (`random`); HTML.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .limits import ITEM, Meter, TemplateError
from .operands import HEAVY, at_path, field, items_of, number_of, whole
from .predicates import PREDICATES, is_number
from .text import to_text
from .text_filters import TEXT_FILTERS, TEXT_METHODS
from .values import Missing, TemplateValue, equal, find, kind, shown, size

__all__ = ["FILTERS", "METHODS"]


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
