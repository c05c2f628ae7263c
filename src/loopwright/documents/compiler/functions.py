"""`package.module:function` in documents: found without running it, imported when the run begins."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...engine.step import Step
from ...errors import ConfigurationError, nearest
from ..yaml.scalars import shorten
from .agreed_modules import module_path_of, serve

__all__ = ["function", "imported", "module_path_of", "resolve_reference"]


_FOLDERS: set[Path] = set()  # of documents whose modules are in sys.modules, which is global too


def resolve_reference(reference: str, folder: Path) -> bool:
    """Check that a reference names something, by reading the module's source and not by running it.

    Returns whether it takes a context beside its value, as far as the source says.

    Raises:
        ConfigurationError: naming what is missing and the nearest name.
    """
    module, name = _split(reference)
    source = _source_file(module, folder)
    if source is None:
        _looked_into(reference, sys.modules.get(module), name)
        return True  # a compiled module that nobody has imported yet: importing it will tell
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigurationError(
            f"{reference!r}: {source.name} cannot be read: {_why(error)}"
        ) from error
    names = {n for node in tree.body for n in _defined(node)}
    first = name.split(".")[0]
    if first not in names and "*" not in names:
        raise ConfigurationError(
            f"{reference!r}: {source.name} has no {first!r}{nearest(first, names)}"
        )
    return not any(_is_plain(node, name) for node in tree.body)


def _is_plain(node: ast.stmt, name: str) -> bool:
    """Return whether a statement defines a function of this name that takes a value and no more."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name != name:
        return False
    given = [*node.args.posonlyargs, *node.args.args]
    return len(given) <= 1 and node.args.vararg is None and not node.decorator_list


def _looked_into(reference: str, loaded: Any, name: str) -> None:
    """Check a name of a module that has no source to read, but is there already, as those of Python's core are."""
    first = name.split(".")[0]
    if loaded is not None and not hasattr(loaded, first):
        raise ConfigurationError(
            f"{reference!r}: {loaded.__name__} has no {first!r}{nearest(first, dir(loaded))}"
        )


def imported(reference: str, folder: Path, contents: Mapping[Path, bytes] | None = None) -> Any:
    """Import what a reference names; modules beside the document are found first.

    With `contents`, files and what a person agreed to in them, these modules are made of nothing else.

    Raises:
        ConfigurationError: naming what is missing or what went wrong in the module.
    """
    module, name = _split(reference)
    _forget_others(folder)
    found = _module(module, reference, folder, contents)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(
                f"{reference!r}: {module} has no {part!r}{nearest(part, dir(found))}"
            )
        found = getattr(found, part)
    return found


def _module(name: str, reference: str, folder: Path, contents: Mapping[Path, bytes] | None) -> Any:
    if contents is not None:
        serve(folder, contents)
    else:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever a user's module does while it loads
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ConfigurationError(
            f"{shorten(reference)!r}: importing {name} failed: {why}"
        ) from error
    finally:
        if contents is None:
            sys.path.remove(str(folder))


def _forget_others(folder: Path) -> None:
    """Let modules beside this document be found, whose names another document's modules took.

    Functions that were imported before keep their own module.
    """
    for name in {f.stem for f in folder.glob("*.py")} & set(sys.modules):
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).parent != folder and Path(file).parent in _FOLDERS:
            for loaded in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
                del sys.modules[loaded]
    _FOLDERS.add(folder)


def function(
    reference: str, folder: Path, contents: Mapping[Path, bytes] | None = None
) -> Callable[..., Any]:
    """Import a reference that must be callable, or a step; see `imported`.

    Raises:
        ConfigurationError: if it is neither.
    """
    found = imported(reference, folder, contents)
    if not callable(found) and not isinstance(found, Step):
        raise ConfigurationError(
            f"{reference!r} is of type {type(found).__name__}; name a function"
        )
    return found  # type: ignore[no-any-return]


def _why(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} on line {error.lineno}" if error.lineno else error.msg
    return str(error) or "it nests too deep"


def _split(reference: str) -> tuple[str, str]:
    module, _, name = reference.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not module or not name or not all(part.isidentifier() for part in parts):
        raise ConfigurationError(
            f"{shorten(reference)!r} names no function; write package.module:function"
        )
    return module, name


def _source_file(module: str, folder: Path) -> Path | None:
    own = module_path_of(module, folder)
    if own is not None:
        return own
    top = module.split(".")[0]
    try:
        # Only the top package is asked for: finding a submodule would run its parents.
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        beside_it = [file.stem for file in folder.glob("*.py")]
        raise ConfigurationError(
            f"there is no module {module!r} beside the document or installed{nearest(module, beside_it)}"
        )
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    root = Path(spec.origin)
    if top == module:
        return root
    base = root.parent.joinpath(*module.split(".")[1:])
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.Assign):
        return {
            n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)
        }
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.If | ast.Try | ast.With):
        return {
            n
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.stmt)
            for n in _defined(child)
        }
    return set()
