"""Where the step of a Python program can be imported again, so that the command line can resume its runs.

A step is named if it is an attribute of the main module, or of the module of a function in it. A script is imported
under its name, so it needs a main guard: without one the import would run it again.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ..records.codec import Json
from .step import Step

__all__ = ["program_source"]


def program_source(given: object, step: Step) -> dict[str, Json]:
    """Return the source of a run of a step: `{"program": "module:attribute", "root": folder}`, or {}.

    Args:
        given: the step as the program passed it.
        step: the same as a step.
    """
    for module in _modules(step):
        found = (name for name, value in vars(module).items() if value is given)
        attribute = next((name for name in found if name.isidentifier()), "")
        if attribute and (place := _importable(module, attribute)) is not None:
            name, root = place
            return {"program": f"{name}:{attribute}", "root": str(root)}
    return {}


def _modules(step: Step) -> Iterator[ModuleType]:
    names = {"__main__": None}

    def collect(part: Any) -> None:
        names.setdefault(getattr(getattr(part, "function", part), "__module__", None) or "", None)
        for inner in part.parts():
            collect(inner)

    collect(step)
    for name in names:
        # Not the modules of this package: their steps are made anew for each run.
        if name.partition(".")[0] != "loopwright" and (module := sys.modules.get(name)):
            yield module


def _importable(module: ModuleType, attribute: str) -> tuple[str, Path] | None:
    """Return the name of a module and the folder from which it is imported; None if that is not known."""
    file, name = getattr(module, "__file__", None), module.__name__
    if not file or not file.endswith(".py") or "site-packages" in file:
        return None
    path = Path(file).absolute()
    if name == "__main__":
        spec = getattr(module, "__spec__", None)
        name = path.stem if spec is None else spec.name
        if not _guarded(path, attribute):
            return None
    parts = name.split(".") if path.name != "__init__.py" else [*name.split("."), "__init__"]
    if (
        not all(part.isidentifier() for part in parts)
        or [*path.with_suffix("").parts[-len(parts) :]] != parts
    ):
        return None
    return name, path.parents[len(parts) - 1]


def _guarded(path: Path, attribute: str) -> bool:
    """Return whether importing a script only defines things, and the attribute is one of them."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    guards = [one for one in body if isinstance(one, ast.If) and "__name__" in ast.dump(one.test)]
    defined = {
        getattr(node, "name", None) or getattr(node, "id", None)
        for one in body
        if one not in guards
        for node in ast.walk(one)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.alias)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    return bool(guards) and attribute in defined
