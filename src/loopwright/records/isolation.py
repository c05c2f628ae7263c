"""Records that no reader can change: each reader receives copies of their values.

A record has plain fields. `Record.view` returns it for one reader, as an instance of a subclass that takes each
field from the record at the first access. Text, numbers, booleans and None are shared, because they are immutable.
Lists and objects are copied, and the copy stays in the view.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import ClassVar, Self, TypeVar

from .codec import ATOMS, Json
from .typed import CARRIERS, json_of

_Kind = TypeVar("_Kind", bound="type[Record]")
_new = object.__new__  # past `__init__`: a new view has no values
_put = object.__setattr__  # past the refusal of a frozen record


class Record:
    """A frozen record; `view` returns it with copies of its mutable values."""

    __slots__ = ()
    _view_class: ClassVar[type[_View]]  # the class of its views, which `viewed` sets

    def view(self, *, typed: bool = True) -> Self:
        """Return the record for one reader, whose changes have no effect on other readers.

        Args:
            typed: whether values are read in their declared types, or as JSON.
        """
        view = _new(self._view_class)
        _put(view, "_recorded", self)
        _put(view, "_own", own if typed else own_json)
        return view  # type: ignore[return-value]  # its class is a subclass


class _View:
    """The rules of a view; its fields are slots that stay empty until they are read."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, object]]
    _copied: ClassVar[frozenset[str]]
    _recorded: Record
    _own: Callable[[Json], Json]

    def __getattr__(self, name: str) -> Json:
        # An unknown name raises the error of the record.
        value = getattr(self._recorded, name)
        if name in self._copied:
            value = self._own(value)
        # Kept in the slot: a reader that changes a list must find its change there.
        if name in self.__dataclass_fields__:
            _put(self, name, value)
        return value

    def view(self, *, typed: bool = True) -> Record:
        return self._recorded.view(typed=typed)

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (self.__class__,), self.__getstate__()  # type: ignore[attr-defined]


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


def _not_set(record: object, name: str, _: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _not_deleted(record: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _written(name: str) -> Callable[[_View], Json]:
    """Return a method that writes the record of a view, without the changes of its reader."""
    return lambda view: own_json(getattr(view._recorded, name)())


def viewed(*copied: str, written: tuple[str, ...] = ("to_json",)) -> Callable[[_Kind], _Kind]:
    """Return a decorator for a frozen dataclass with slots: its views have copies of the fields `copied`.

    `written` are its methods that return JSON.
    """

    def decorate(kind: _Kind) -> _Kind:
        # A frozen dataclass with slots raises TypeError, not this error, for a name that is not a field.
        kind.__setattr__, kind.__delattr__ = _not_set, _not_deleted  # type: ignore[method-assign]
        members: dict[str, object] = {name: _written(name) for name in written}
        members |= {
            "__slots__": ("_own", "_recorded"),
            "__module__": kind.__module__,
            # A view compares, copies and prints itself as the record: a dataclass asks for this class.
            "__class__": property(lambda _: kind),
            "_copied": frozenset(copied),
        }
        kind._view_class = type(kind.__name__, (_View, kind), members)
        return kind

    return decorate
