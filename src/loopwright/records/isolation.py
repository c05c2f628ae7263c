"""What is on record is nobody's to change: a reader gets a copy of his own, made when he first reads it.

The engine keeps the values of a record to itself. `Record.view` returns the same facts for one reader: text, numbers,
booleans and None are shared, as nobody can change them; what is made of others is copied at its first access and kept
in that view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, is_dataclass
from typing import Any, TypeVar

from .codec import ATOMS

__all__ = ["EMPTY", "Held", "Record", "own", "read_by_copy", "slot_of"]

_Kind = TypeVar("_Kind", bound=type[Any])


class Record:
    """A frozen record. Values inside it that could be changed are handed out by `view`."""

    __slots__ = ()

    def view(self) -> Any:
        """Return the same record for one reader: what he does to it reaches nobody else."""
        return self


EMPTY = object()  # stands in a record for an object without members


class Held:
    """A value that a reader has not read yet."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def own(value: Any) -> Any:
    """Return a copy of a recorded value that a reader may change without changing the record."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if isinstance(value, dict):
        return {key: own(item) for key, item in value.items()}
    if kind is list:
        return [own(item) for item in value]
    if kind is tuple:
        return tuple(own(item) for item in value)
    return value.view() if isinstance(value, Record) else value


def _reader(get: Callable[[Any], Any], put: Callable[[Any, Any], None]) -> Callable[[Any], Any]:
    def read(record: Any) -> Any:
        value = get(record)
        if type(value) is Held:
            value = own(value.value)
            put(record, value)
        elif value is EMPTY:  # a fresh one each time: the record itself has none to share
            return {}
        return value

    return read


def _not_set(record: Any, name: str, _: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _not_deleted(record: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def read_by_copy(*names: str) -> Callable[[_Kind], _Kind]:
    """Make fields of a class with slots copy what is `Held` in them when they are first read.

    What is in the slot of such a field, held or not, is `_raw_NAME`.
    """

    def made(kind: _Kind) -> _Kind:
        for name in names:
            slot = kind.__dict__[name]
            setattr(kind, f"_raw_{name}", slot)
            setattr(kind, name, property(_reader(slot.__get__, slot.__set__), slot.__set__))
        # What a frozen dataclass with slots has of its own is a TypeError for a name that is no field.
        if is_dataclass(kind):  # an entry is none, and is filled by assignment
            for method, refuse in (("__setattr__", _not_set), ("__delattr__", _not_deleted)):
                setattr(kind, method, refuse)
        return kind

    return made


def slot_of(kind: type[Any], name: str) -> Any:
    """Return the descriptor of a field, by which a frozen record is filled: what its class writes takes longer."""
    return kind.__dict__.get(f"_raw_{name}") or kind.__dict__[name]
