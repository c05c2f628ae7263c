"""The values of a template: plain data, and the meter that counts the work on them.

1. Values are copied, so a template reaches only None, bool, int, float, str, list, dict with string keys
   and `TemplateValue`. Other values are refused and never printed by their `repr`.
2. Traversals are limited, because a value may contain the same list many times.
3. A render is a pure function of template and values, so the limits count work, not time: the same template
   with the same values has the same result on every machine and in every replay.
4. Text prints unchanged, scalars print as in Jinja, lists and mappings print as JSON.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import cast

from jinja2 import Undefined
from jinja2.runtime import LoopContext
from jinja2.utils import missing

from ..errors import TemplateError, nearest
from .variables import LOOP_FIELDS, TemplateValue

__all__ = [
    "DEPTH",
    "ITEM",
    "LOOP_DEPTH",
    "NUMBER_BITS",
    "RANGE_ITEMS",
    "REPEATED_ITEMS",
    "SOURCE_CHARS",
    "TOKENS",
    "VALUE_DEPTH",
    "VALUE_ITEMS",
    "Meter",
    "Missing",
    "equal",
    "find",
    "kind",
    "shown",
    "size",
    "to_data",
    "to_json",
    "to_text",
]


# Limits of a source, which bound the time of compilation. A longer text belongs into a variable.
SOURCE_CHARS = 200_000
TOKENS = 5_000
DEPTH = 50  # below the depth at which Python's compiler fails
LOOP_DEPTH = 4
# Limits of one render. They are far above any prompt, and bound the time and memory of a hostile template.
ITERATIONS = 100_000
OUTPUT_CHARS = 2 * 1024 * 1024
MADE_CHARS = 4 * 1024 * 1024  # also bounds the memory of intermediate values
WORK = 10_000_000  # characters read
RANGE_ITEMS = 10_000
REPEATED_ITEMS = 1_000
NUMBER_BITS = 256  # without a bound, `9 ** 9 ** 9` would run forever
# Limits of the values. A list may contain itself many times, so its size is counted while it is copied.
VALUE_ITEMS = 200_000
VALUE_DEPTH = 64
WARNINGS = 100
# One item of a list counts as this many characters, in memory and in time.
ITEM = 64
# Evaluating one node of a template takes about as long as reading this many characters.
NODE = 20
# The time to print an integer grows with the square of its length, so longer ones are refused.
INTEGER_BITS = 4096


class Meter:
    """Counts the cost of one render, and collects its warnings.

    Its methods raise TemplateError when a limit is exceeded, before the work if its cost is known.
    `defined` are the names with a value, for the hint about an undefined name.
    """

    __slots__ = (
        "copied", "defined", "iterations", "made", "missed", "output", "strict", "warnings", "work",
    )  # fmt: skip

    def __init__(self, *, strict: bool = True, defined: Iterable[str] = ()) -> None:
        self.strict = strict
        self.defined = defined
        self.copied = 0
        self.missed = 0
        self.iterations = 0
        self.output = 0
        self.made = 0
        self.work = 0
        self.warnings: list[str] = []

    def miss(self, describe: Callable[[Meter], str]) -> None:
        """Report an undefined value: an error, or in lenient mode one of at most 100 warnings.

        `describe` is called only if its text is used, because it has a cost.
        """
        if self.strict:
            raise TemplateError(describe(self))
        self.missed += 1
        if self.missed <= WARNINGS and (reason := describe(self)) not in self.warnings:
            self.warnings.append(reason)

    def copy(self, items: int = 1) -> bool:
        """Count copied items; return whether they are within the limit."""
        self.copied += items
        return self.copied <= VALUE_ITEMS

    def read(self, chars: int) -> None:
        """Count `chars` characters that are read."""
        self.work += chars
        if self.work > WORK:
            raise TemplateError("too much work; use smaller values, or fewer steps in loops")

    def make(self, chars: int) -> None:
        """Count `chars` characters of new values, which are also read."""
        self.made += chars
        if self.made > MADE_CHARS:
            raise TemplateError(f"makes values of more than {MADE_CHARS:,} characters in all")
        self.read(chars)

    def write(self, chars: int) -> None:
        """Count `chars` characters of output."""
        self.output += chars
        if self.output > OUTPUT_CHARS:
            raise TemplateError(f"writes more than {OUTPUT_CHARS:,} characters")

    def loop(self, count: int, nodes: int, chars: int) -> None:
        """Count `count` iterations of a loop whose body has `nodes` nodes and `chars` characters of text."""
        self.iterations += count
        if self.iterations > ITERATIONS:
            raise TemplateError(f"loops more than {ITERATIONS:,} times in all")
        self.read(count * nodes * NODE)
        self.write(count * chars)


class Missing(Undefined):
    """A name or field without a value. Its use is an error, or "" in lenient mode."""

    __slots__ = ()

    def reason(self, meter: Meter) -> str:
        """Return a sentence that names the missing value and the nearest name."""
        name, owner = self._undefined_name, self._undefined_obj
        if self._undefined_hint:
            return self._undefined_hint
        if owner is missing:
            return f"{shown(name)} is not defined{_hint(name, meter.defined)}"
        if isinstance(owner, LoopContext):
            return (
                f"'loop' has no {shown(name)}: inside {{% for %}} it is the counter of that loop; "
                "name an outer 'loop' before it, with {% set outer = loop %}"
            )
        if isinstance(owner, dict | TemplateValue):
            fields = owner if isinstance(owner, dict) else owner.fields
            return f"there is no field {shown(name)}{_hint(name, fields)}"
        if isinstance(owner, list | str) and isinstance(name, int):
            return f"there is no item {shown(name)}, only {len(owner)} items, counted from 0"
        return f"{kind(owner)} has no field {shown(name)}"


def shown(value: object) -> str:
    """Return a value for an error message, quoted and cut to 60 characters."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else repr(value[:57] + "...")
    return (
        str(value)[:60] if value is None or isinstance(value, bool | int | float) else kind(value)
    )


def _hint(name: object, candidates: Iterable[object]) -> str:
    """Return the nearest name. Only short names and the first 100 are compared, to limit the cost."""
    if not isinstance(name, str) or len(name) > 60:
        return ""
    words = (word for word in candidates if isinstance(word, str) and len(word) <= 60)
    return nearest(name, islice(words, 100))


def find(owner: object, name: object) -> object:
    """Return a field of a mapping, an item of a list, or a `Missing`; attributes do not exist."""
    # By exact type: a subclass could run code when it is read.
    if type(owner) is dict:
        if isinstance(name, str | int | float | None) and name in owner:
            return owner[name]
    elif type(owner) is list or type(owner) is str:
        if type(name) is int and -len(owner) <= name < len(owner):
            return owner[name]
    elif type(owner) is Missing:
        return owner
    elif isinstance(owner, TemplateValue):
        if isinstance(name, str) and name in owner.fields:
            return owner.fields[name]
    elif isinstance(owner, LoopContext) and name in LOOP_FIELDS:
        return getattr(owner, name)
    return Missing(obj=owner, name=cast("str | None", name))  # an index may be a number


def to_data(meter: Meter, value: object, name: str) -> object:
    """Copy a value to plain data; `name` is its name in errors.

    Raises:
        TemplateError: If the value, or a part of it, is not plain data.
    """
    if type(value) is str:
        return value
    try:
        return _Copy(meter).copy(value, 0)
    except _Refused as refused:
        # Only the last five parts of the path: it may be very long.
        steps = (f"[{s}]" if isinstance(s, int) else f".{s}" for s in refused.path[-1:-6:-1])
        raise TemplateError(f"{name + ''.join(steps)!r} {refused.reason}") from None


class _Refused(Exception):
    """A part of a value is not plain data; each level adds its key to the path."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str | int] = []


class _Copy:
    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def copy(self, value: object, depth: int) -> object:
        exact = type(value)
        if exact is str or value is None or exact is float or exact is bool:
            return value
        if exact is int and isinstance(value, int) and value.bit_length() <= INTEGER_BITS:
            return value
        items = len(value) if isinstance(value, Mapping | list | tuple) else 1
        # Also ends a list that contains itself.
        if depth > VALUE_DEPTH or not self.meter.copy(items):
            raise _Refused(
                f"is too large for a template, which takes at most {VALUE_ITEMS:,} items, "
                f"nested {VALUE_DEPTH} deep"
            )
        if isinstance(value, TemplateValue):
            return TemplateValue(str(value.text), self._mapping(value.fields, depth))
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, list | tuple):
            return self._list(value, depth)
        return _scalar(value)

    def _list(self, value: list[object] | tuple[object, ...], depth: int) -> list[object]:
        copied: list[object] = []
        try:
            for item in value:
                copied.append(self.copy(item, depth + 1))  # noqa: PERF401 - its length is the place
        except _Refused as refused:
            refused.path.append(len(copied))
            raise
        return copied

    def _mapping(self, value: Mapping[str, object], depth: int) -> dict[str, object]:
        copied: dict[str, object] = {}
        for key, item in value.items():
            # JSON has text keys only, and a template could not reach others.
            if not isinstance(key, str):
                raise _Refused(f"has a key of type {type(key).__name__}, not text")
            try:
                copied[str.__str__(key)] = self.copy(item, depth + 1)
            except _Refused as refused:
                refused.path.append(key)
                raise
        return copied


def _scalar(value: object) -> object:
    """Return the plain value of a subclass such as a member of a StrEnum."""
    # The method of the base class: a subclass may override `__str__`.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if value.bit_length() > INTEGER_BITS:
            raise _Refused("is too large a number for a template")
        return operator.index(value) + 0
    if isinstance(value, float):
        return float.__float__(value)
    raise _Refused(
        f"is of type {type(value).__name__}; templates take plain data only: "
        "text, numbers, true or false, null, lists and mappings"
    )


def kind(value: object) -> str:
    """Return the type of a value in the words of a template's author."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str | TemplateValue):
        return "text"
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, dict) else "a function"


def size(value: object) -> int:
    """Return the approximate size of a value in characters, without the content of its items."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, TemplateValue):
        return len(value.text)
    return len(value) * ITEM + 1 if isinstance(value, list | dict) else 1


def equal(meter: Meter, left: object, right: object) -> bool:
    """Compare two values by content; a value with fields compares as its text."""
    left = left.text if isinstance(left, TemplateValue) else left
    right = right.text if isinstance(right, TemplateValue) else right
    if isinstance(left, list) and isinstance(right, list):
        meter.read(ITEM * 4)
        return len(left) == len(right) and all(
            equal(meter, a, b) for a, b in zip(left, right, strict=True)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        meter.read(ITEM * (len(left) + 4))
        return left.keys() == right.keys() and all(equal(meter, left[k], right[k]) for k in left)
    # A list never equals a scalar, and Python's comparison would run uncounted.
    if isinstance(left, list | dict) or isinstance(right, list | dict):
        return False
    meter.read(min(size(left), size(right)) + ITEM)
    return bool(left == right)


TEXT_ENCODER = json.JSONEncoder(ensure_ascii=False)


def to_text(meter: Meter, value: object) -> str:
    """Return the printed text of a value; a missing one is an error, or "" in lenient mode."""
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


def to_json(meter: Meter, value: object, indent: int = 0) -> str:
    """Return a value as JSON text, with `indent` spaces per level; 0 gives one line.

    Raises:
        TemplateError: If the value is not plain data, is nested too deep, or its text is too long.
    """
    parts: list[str] = []
    _write(meter, value, parts, indent, 0)
    return "".join(parts)


def _write(meter: Meter, value: object, parts: list[str], indent: int, depth: int) -> None:
    if not isinstance(value, list | dict):
        parts.append(_text_scalar(meter, value))
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
            parts.append(_text_scalar(meter, str(item)) + ": ")
            _write(meter, value[item], parts, indent, depth + 1)
        else:
            _write(meter, item, parts, indent, depth + 1)
    parts.append("\n" + " " * (indent * depth) if indent and value else "")
    parts.append("}" if isinstance(value, dict) else "]")


def _text_scalar(meter: Meter, value: object) -> str:
    if isinstance(value, TemplateValue | Missing):
        value = to_text(meter, value)
    if isinstance(value, str):
        # The length is counted before encoding, and the escape sequences after it.
        meter.make(len(value))
        text = TEXT_ENCODER.encode(value)
        meter.make(len(text) - len(value))
        return text
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if not isinstance(value, int | float):
        raise TemplateError("only data can be printed, not a function or a loop")
    # `NaN` and `Infinity` are not JSON, although Python writes them.
    if isinstance(value, float) and not math.isfinite(value):
        raise TemplateError(f"{value} has no JSON form")
    text = repr(value)
    meter.make(len(text))
    return text
