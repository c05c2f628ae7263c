"""`Value` gives frozen dataclasses the equality, the hash and the text that `dataclass` would compile."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import loopwright.conditions
import loopwright.engine
import loopwright.records
from loopwright.records.typed import Value


def _classes() -> list[type[Any]]:
    """Return every class of the package that derives from `Value` and is declared without compiled methods."""
    for package in (loopwright.conditions, loopwright.engine, loopwright.records):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)

    def below(kind: type[Any]) -> Iterator[type[Any]]:
        for inner in kind.__subclasses__():
            yield inner
            yield from below(inner)

    own = {kind for kind in below(Value) if kind.__module__.startswith("loopwright.")}
    found = [
        kind for kind in own if "__dataclass_params__" in vars(kind) and "_own" not in dir(kind)
    ]
    return sorted(found, key=lambda kind: kind.__qualname__)


def _twin(kind: type[Any]) -> type[Any]:
    """Return a class with the same name and fields, and the methods that `dataclass` compiles."""
    fields = [
        (
            one.name,
            one.type,
            dataclasses.field(default=None, repr=one.repr, compare=one.compare, hash=one.hash),
        )
        for one in dataclasses.fields(kind)
    ]
    twin = dataclasses.make_dataclass(kind.__name__, fields, frozen=True)
    twin.__qualname__ = kind.__qualname__
    return twin


def _made(kind: type[Any], values: dict[str, object]) -> Any:
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


@pytest.mark.parametrize("kind", _classes(), ids=lambda kind: kind.__name__)
def test_a_value_compares_and_prints_as_a_compiled_dataclass(kind: type[Any]) -> None:
    """Equality, hash and text of each class are those of a dataclass that compiles them."""
    twin = _twin(kind)
    names = [one.name for one in dataclasses.fields(kind)]
    one = {name: f"value {number}" for number, name in enumerate(names)}
    ours, compiled = _made(kind, one), _made(twin, one)
    assert ours == _made(kind, one)
    assert ours != compiled  # of another class
    # Own methods of a class are its rule, not the dataclass's.
    if kind.__hash__ is Value.__hash__:
        assert hash(ours) == hash(compiled)
    if kind.__repr__ is Value.__repr__:
        assert repr(ours) == repr(compiled)
    for name in names:
        other = {**one, name: "another"}
        assert (ours == _made(kind, other)) == (compiled == _made(twin, other)), name


def test_the_values_of_the_core_are_covered() -> None:
    """The classes that a first iteration declares are values: conditions, records, options of loops."""
    names = {kind.__name__ for kind in _classes()}
    assert {
        "ScoreAtLeast",
        "MaxIterations",
        "Evaluation",
        "Iteration",
        "Result",
        "LoopOptions",
        "OnStall",
    } <= names
