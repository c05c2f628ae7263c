"""Every type that a public signature names can be imported from a public module."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from docs.test_public_names import CREATED, PUBLIC
from docs.test_reference import reference

VALUES = {pair: getattr(import_module(pair[0]), pair[1]) for pair in PUBLIC}
EXPORTED = {id(value) for value in VALUES.values()}
NAMES = {name for _, name in PUBLIC}


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_the_types_of_a_signature_are_public(module: str, name: str) -> None:
    """Arguments, results and fields that a user reads name types of public modules only."""
    private = {
        f"{where}: {kind}"
        for where, annotations, home in annotated(VALUES[module, name])
        for kind in own_names(annotations, home)
    }
    assert private == set()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("loopwright", "TextDelta IterationEnded RunEnded for_each"),
        ("loopwright.memory", "Lesson Lessons"),
        ("loopwright.types", "Step StepLike EvaluatorLike Json RunOptions StreamEvent"),
    ],
)
def test_types_of_events_and_steps_have_public_places(module: str, names: str) -> None:
    """The names that annotations of a user need."""
    assert set(names.split()) <= set(import_module(module).__all__)


def annotated(value: object) -> Iterator[tuple[str, dict[str, Any], ModuleType]]:
    """Iterate over the annotations of a public function, or of a class with its public members."""
    if inspect.isfunction(value):
        yield value.__qualname__, value.__annotations__, sys.modules[value.__module__]
    if not inspect.isclass(value):
        return
    kinds = [kind for kind in value.__mro__ if kind.__module__.startswith("loopwright")]
    internal = {name for kind in kinds for name in reference.INTERNAL.get(kind.__name__, ())}
    if made_by_loopwright(value):
        internal.add("__init__")
    for kind in kinds:
        home = sys.modules[kind.__module__]
        if not made_by_loopwright(value):
            fields = {
                name: text
                for name, text in vars(kind).get("__annotations__", {}).items()
                if name not in internal
                and not name.startswith("_")
                and name not in made_inside(kind)
            }
            yield kind.__qualname__, fields, home
        for name, member in vars(kind).items():
            if name in internal or (name.startswith("_") and name not in ("__init__", "__call__")):
                continue
            for attribute in ("fget", "func", "__func__"):
                member = getattr(member, attribute, member)
            if inspect.isfunction(member):
                yield f"{kind.__qualname__}.{name}", member.__annotations__, home


def made_inside(kind: type) -> set[str]:
    """Return the fields of a dataclass that are no arguments."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {field.name for field in fields if not field.init}


def made_by_loopwright(kind: type) -> bool:
    """Return whether programs get objects of a class from another public name."""
    creator = re.search(r"[Ss]ee `(\w+)`", (kind.__doc__ or "").partition("\n\n")[0])
    return kind.__name__ in CREATED or bool(creator and creator[1] in NAMES)


def own_names(annotations: dict[str, Any], home: ModuleType) -> set[str]:
    """Return the names in annotations that are of this package and of no public module."""
    places = own_places(home)
    return {
        name
        for text in annotations.values()
        for name in names_in(text if isinstance(text, str) else getattr(text, "__name__", ""))
        if name in places and not is_public(*places[name])
    }


def is_public(module: str, name: str) -> bool:
    value = getattr(import_module(module), name, None)
    return id(value) in EXPORTED or type(value).__name__ == "TypeVar"


def names_in(annotation: str) -> Iterator[str]:
    if not annotation:
        return
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and str(node.value).isidentifier():
            yield str(node.value)


def own_places(home: ModuleType) -> dict[str, tuple[str, str]]:
    """Return the module and the name of each name of this package in a module, also of those for type checkers."""
    package = home.__name__ if hasattr(home, "__path__") else home.__name__.rpartition(".")[0]
    places: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(home))):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*parts, *filter(None, [node.module])])
            places |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            places |= {name: (home.__name__, name) for name in names if name[0].isupper()}
        elif isinstance(node, ast.ClassDef):
            places[node.name] = (home.__name__, node.name)
    return places
