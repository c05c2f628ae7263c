"""Packages whose names are loaded at first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module

__all__ = ["names_of"]


def names_of(package: str, modules: Mapping[str, Collection[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package; a name is an attribute of the package after its first use.

    Args:
        package: the name of the package.
        modules: the names by their module, which is relative to the package.
    """

    def load(name: str) -> object:
        for module, names in modules.items():
            if name in names:
                value = getattr(import_module(module, package), name)
                setattr(sys.modules[package], name, value)
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
