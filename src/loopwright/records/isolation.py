"""Records that no reader can change: each reader receives copies of their values.

`Record.view` returns a record for one reader. Text, numbers, booleans and None are shared, because
they are immutable. Lists and objects are copied at the first access, and the copy stays in the view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Self, TypeVar

from .codec import ATOMS, Json
from .typed import CARRIERS, json_of

_Kind = TypeVar("_Kind", bound=type)


class Record:
    """A frozen record; `view` returns it with copies of its mutable values."""

    __slots__ = ()

    def view(self, *, typed: bool = True) -> Self:
        """Return the record for one reader, whose changes have no effect on other readers.

        Args:
            typed: whether values are read in their declared types, or as JSON.
        """
        return self


_UNREAD = object()  # the copy of a value that its reader has not read
EMPTY = object()  # represents an object without members in a record


class Held:
    """A value of a view before its first access."""

    __slots__ = ("copy", "value")

    def __init__(self, value: Json) -> None:
        self.value = value
        self.copy: Json = _UNREAD


class HeldJson(Held):
    """A value of a view whose reader wants JSON, without declared types."""

    __slots__ = ()


def unread(value: Json) -> Json:
    """Return the recorded value of a slot that holds it for its first reader."""
    return value.value if isinstance(value, Held) else value


def json_in(slot: Json) -> Json:
    """Return the JSON of a recorded value in a slot, held for its first reader or not."""
    return own_json(slot.value) if isinstance(slot, Held) else json_of(slot)


def own_json(value: Json) -> Json:
    """Return an independent copy of a recorded value, without its declared type."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind in CARRIERS:
        return json_of(value)
    if isinstance(value, dict):
        return {key: own_json(item) for key, item in value.items()}
    if kind is list:
        return [own_json(item) for item in value]
    if kind is tuple:
        return tuple(own_json(item) for item in value)
    return value.view(typed=False) if isinstance(value, Record) else value


def own(value: Json) -> Json:
    """Return an independent copy of a recorded value, in its declared type.

    >>> own({"a": [1]})
    {'a': [1]}
    """
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind in CARRIERS:
        return value.decoded()
    if isinstance(value, dict):
        return {key: own(item) for key, item in value.items()}
    if kind is list:
        return [own(item) for item in value]
    if kind is tuple:
        return tuple(own(item) for item in value)
    return value.view() if isinstance(value, Record) else value


def _reader(get: Callable[[object], Json]) -> Callable[[object], Json]:
    def read(record: object) -> Json:
        value = get(record)
        kind = type(value)
        if kind is Held or kind is HeldJson:
            # The recorded value stays beside the copy: `to_json` writes that.
            if value.copy is _UNREAD:
                # Kept in the slot: a reader that changes a list must find its change there.
                value.copy = own(value.value) if kind is Held else own_json(value.value)
            return value.copy
        if value is EMPTY:  # a new one each time: a shared one could be changed
            return {}
        return value

    return read


def _not_set(record: object, name: str, _: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _not_deleted(record: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def read_by_copy(*names: str) -> Callable[[_Kind], _Kind]:
    """Return a decorator: fields of a class with slots copy a `Held` value when they are first read.

    `_raw_NAME` is the content of the slot, held or not.
    """

    def decorate(kind: _Kind) -> _Kind:
        for name in names:
            # The slot stays under another name, so that the engine reads the record without a copy.
            slot = kind.__dict__[name]
            setattr(kind, f"_raw_{name}", slot)
            setattr(kind, name, property(_reader(slot.__get__), slot.__set__))
        # A frozen dataclass with slots raises TypeError, not this error, for a name that is not a field.
        if issubclass(kind, Record):
            for method, refuse in (("__setattr__", _not_set), ("__delattr__", _not_deleted)):
                setattr(kind, method, refuse)
        return kind

    return decorate


def slot_of(kind: type, name: str) -> Json:
    """Return the descriptor of a field, which assigns to a frozen record."""
    return kind.__dict__.get(f"_raw_{name}") or kind.__dict__[name]
