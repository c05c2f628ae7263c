"""Equality, hash and text of frozen dataclasses, written once.

`dataclass` compiles three methods for each class while it is imported, which is a third of the time until a
first iteration. A class that derives from `Value` is declared with `eq=False, repr=False` and has the same
equality, hash and text: https://docs.python.org/3/library/dataclasses.html
"""

from __future__ import annotations

from dataclasses import Field, fields
from reprlib import recursive_repr
from typing import Any, ClassVar

__all__ = ["Value"]


class Value:
    """A frozen dataclass that is equal to another of its class with the same fields."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    @recursive_repr()
    def __repr__(self) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, one.name) for one in fields(self) if one.compare)
