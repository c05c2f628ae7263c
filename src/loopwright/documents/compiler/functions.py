"""Functions of documents, `package.module:function`: checked without an import, imported when the run starts.

A user approves contents. A file can change between the approval and the import, and a compiled file beside it
(`__pycache__`) can have another source. So approved modules are created from the approved contents, and neither their
file nor its compiled form is read again.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import cast

from ...engine.functions import types_of
from ...engine.step import Step
from ...errors import ConfigurationError, nearest
from ...records.codec import Json
from ..yaml.bounds import shorten

__all__ = [
    "Function",
    "function",
    "imported",
    "module_path_of",
    "resolve_reference",
    "serve_approved",
    "undefined_annotation",
    "unreadable_annotation",
]

# A function, a class of conditions or capabilities, or a step.
Function = Callable[..., Json]

# The folders of documents whose modules are in `sys.modules`, which is global too.
_FOLDERS: set[Path] = set()


def resolve_reference(reference: str, folder: Path) -> bool:
    """Check a reference against the source of its module, without running the module.

    It returns whether the function takes a context beside its value, and True if the source does not show it.

    Raises:
        ConfigurationError: if the module or the name does not exist, with the nearest name.
    """
    module, name = _split(reference)
    source = _source_file(module, folder)
    if source is None:
        # Also a module without source, such as a built-in one.
        there, first = sys.modules.get(module), name.split(".")[0]
        if there is not None and not hasattr(there, first):
            raise ConfigurationError(
                f"{reference!r}: {there.__name__} has no {first!r}{nearest(first, dir(there))}"
            )
        return True  # a compiled module that is not imported yet; the import will report problems
    tree = _tree(reference, source)
    names = {n for node in tree.body for n in _defined(node)}
    first = name.split(".")[0]
    # `from x import *` may define any name.
    if first not in names and "*" not in names:
        raise ConfigurationError(
            f"{reference!r}: {source.name} has no {first!r}{nearest(first, names)}"
        )
    _refuse_value(reference, tree, name)
    functions = (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    # A decorator may change the parameters, so only a plain function is known to take one or none.
    return not any(
        node.name == name
        and len([*node.args.posonlyargs, *node.args.args]) <= 1
        and node.args.vararg is None
        and not node.decorator_list
        for node in functions
    )


def _refuse_value(reference: str, tree: ast.Module, name: str) -> None:
    """Refuse the name of a constant, as the import would."""
    nodes = [node for node in tree.body if name in _defined(node)]
    # Of several definitions only the import knows which one counts.
    if (
        len(nodes) != 1
        or not isinstance(nodes[0], ast.Assign | ast.AnnAssign)
        or not nodes[0].value
    ):
        return
    targets = nodes[0].targets if isinstance(nodes[0], ast.Assign) else [nodes[0].target]
    if not all(isinstance(target, ast.Name) for target in targets):
        return
    try:
        kind = type(ast.literal_eval(nodes[0].value))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return  # an expression, whose value only the import knows
    raise ConfigurationError(f"{reference!r} is of type {kind.__name__}; name a function")


def _tree(reference: str, source: Path) -> ast.Module:
    try:
        return ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = str(error) or "it is nested too deeply"
        if isinstance(error, SyntaxError):
            why = f"{error.msg} on line {error.lineno}" if error.lineno else error.msg
        raise ConfigurationError(f"{reference!r}: {source.name} cannot be read: {why}") from error


def unreadable_annotation(target: Function | Step) -> str:
    """Return the sentence on an annotation of an imported function that cannot be read, or ""."""
    function = getattr(target, "function", None) if isinstance(target, Step) else target
    # The annotations of a class are those of its fields, which `dataclass` or pydantic reads.
    if not callable(function) or isinstance(function, type):
        return ""
    problem = types_of(function, getattr(function, "__name__", type(function).__name__)).problem
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not problem or code is None:
        return problem
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}: {problem}"


def undefined_annotation(reference: str, folder: Path) -> str:
    """Return the sentence on an annotation that has a name which its module does not define, or "".

    It reads the source and does not run the module, so it covers functions at the top of a module only.
    """
    module, name = _split(reference)
    source = _source_file(module, folder)
    if source is None:
        return ""
    tree = _tree(reference, source)
    names = {
        n
        for node in tree.body
        # The names of `if TYPE_CHECKING:` do not exist when the module runs.
        if not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
        for n in _defined(node)
    }
    functions = (n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    node = next((n for n in functions if n.name == name), None)
    if node is None or "*" in names:
        return ""
    names |= {*dir(builtins), *(part.name for part in getattr(node, "type_params", ()))}
    first = [*node.args.posonlyargs, *node.args.args][:1]
    for annotation in (*(argument.annotation for argument in first), node.returns):
        for used in _names_in(annotation):
            if used not in names:
                # Without the quotes of a forward reference.
                text = getattr(annotation, "value", None)
                text = text if isinstance(text, str) else ast.unparse(cast("ast.expr", annotation))
                return (
                    f"{source.name}:{node.lineno}: {name}: the annotation {text!r} cannot "
                    f"be read (the module does not define {used!r}); its values are passed as JSON"
                )
    return ""


def _names_in(annotation: ast.expr | None) -> Iterator[str]:
    """Iterate over the names that an annotation uses."""
    if isinstance(annotation, ast.Name):
        yield annotation.id
    elif isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            yield from _names_in(ast.parse(annotation.value, mode="eval").body)
        except (SyntaxError, ValueError):
            yield annotation.value
    elif isinstance(annotation, ast.Subscript):
        yield from _names_in(annotation.value)
        kind = ast.unparse(annotation.value).rpartition(".")[2]
        inner = annotation.slice
        # The other arguments of these two are values, so a text there names no class.
        if kind == "Annotated" and isinstance(inner, ast.Tuple):
            inner = inner.elts[0]
        if kind != "Literal":
            yield from _names_in(inner)
    elif annotation is not None:
        for part in ast.iter_child_nodes(annotation):
            if isinstance(part, ast.expr):
                yield from _names_in(part)


def imported(reference: str, folder: Path, contents: Mapping[Path, bytes] | None = None) -> Json:
    """Import a reference; modules beside the document come first.

    With `contents`, the approved files, modules beside the document are created from these contents only.

    Raises:
        ConfigurationError: if the module or the name does not exist, or if the import fails.
    """
    module, name = _split(reference)
    _forget_other_documents(folder)
    result = _module(module, reference, folder, contents)
    for part in name.split("."):
        if not hasattr(result, part):
            raise ConfigurationError(
                f"{reference!r}: {module} has no {part!r}{nearest(part, dir(result))}"
            )
        result = getattr(result, part)
    return result


def _module(
    name: str, reference: str, folder: Path, contents: Mapping[Path, bytes] | None
) -> ModuleType:
    if contents is not None:
        serve_approved(folder, contents)
    else:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    # The module of a user may raise anything, and `sys.exit()` at import must not end this process.
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ConfigurationError(
            f"{shorten(reference)!r}: importing {name} failed: {why}"
        ) from error
    finally:
        if contents is None:
            sys.path.remove(str(folder))


def _forget_other_documents(folder: Path) -> None:
    """Remove imported modules of other documents whose names this document's folder uses too.

    Two projects may each have a `tools.py`. Functions that were imported before keep their module.
    """
    for name in {f.stem for f in folder.glob("*.py")} & set(sys.modules):
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).parent != folder and Path(file).parent in _FOLDERS:
            for loaded in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
                del sys.modules[loaded]
    _FOLDERS.add(folder)


def function(
    reference: str, folder: Path, contents: Mapping[Path, bytes] | None = None
) -> Function:
    """Import a reference to a callable or a step; see `imported`.

    Raises:
        ConfigurationError: if it is neither.
    """
    result = imported(reference, folder, contents)
    if not callable(result) and not isinstance(result, Step):
        raise ConfigurationError(
            f"{reference!r} is of type {type(result).__name__}; name a function"
        )
    return result  # type: ignore[no-any-return]


def _split(reference: str) -> tuple[str, str]:
    module, _, name = reference.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not module or not name or not all(part.isidentifier() for part in parts):
        raise ConfigurationError(
            f"{shorten(reference)!r} is not a function reference; write package.module:function"
        )
    return module, name


def _source_file(module: str, folder: Path) -> Path | None:
    own = module_path_of(module, folder)
    if own is not None:
        return own
    top = module.split(".")[0]
    try:
        # Only the top package is looked up, because a search for a submodule imports its parents.
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        beside_it = [file.stem for file in folder.glob("*.py")]
        raise ConfigurationError(
            f"no module {module!r} beside the document or among the installed packages{nearest(module, beside_it)}"
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


class _ApprovedLoader(SourceFileLoader):
    """Loads a module from its approved source."""

    def __init__(self, name: str, file: Path, source: bytes) -> None:
        super().__init__(name, str(file))
        self._source = source

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the module, compiled from the approved source."""
        del fullname
        code: CodeType = self.source_to_code(self._source, self.path)
        return code

    def get_data(self, path: str) -> bytes:
        """Return the source, or another file of a package."""
        return self._source if str(path) == self.path else super().get_data(path)


class _ApprovedFinder(MetaPathFinder):
    """Finds modules in the folders of documents by their approved contents, and refuses all others there."""

    def __init__(self) -> None:
        self.contents: Mapping[Path, bytes] = {}
        self.folders: tuple[Path, ...] = ()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module; None leaves it to the other finders."""
        for folder in self.folders:
            file = module_path_of(fullname, folder)
            resolved = Path(os.path.realpath(file)) if file is not None else None
            if resolved is not None and resolved in self.contents:
                folders = [str(resolved.parent)] if resolved.name == "__init__.py" else None
                loader = _ApprovedLoader(fullname, resolved, self.contents[resolved])
                return importlib.util.spec_from_file_location(
                    fullname, resolved, loader=loader, submodule_search_locations=folders
                )
            place = folder.joinpath(*fullname.split("."))
            # A folder without `__init__.py` is a namespace package.
            if file is None and any(approved.is_relative_to(place) for approved in self.contents):
                spec = ModuleSpec(fullname, None, is_package=True)
                spec.submodule_search_locations = [str(place)]
                return spec
            # Only if a plain import would take this file: an installed package may have the same name.
            usual = resolved and PathFinder.find_spec(fullname, path, target)
            if usual and usual.origin and Path(os.path.realpath(usual.origin)) == resolved:
                raise ImportError(
                    f"{file} is not among the approved files: it is new, or no import "
                    "statement names it",
                    name=fullname,
                )
        return None


_FINDER = _ApprovedFinder()  # one per process, like sys.modules


def serve_approved(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Import modules of a document's folder from these contents only, now and later."""
    # The contents of another approval replace all earlier ones.
    if contents is not _FINDER.contents:
        _FINDER.contents, _FINDER.folders = contents, ()
    others = tuple(other for other in _FINDER.folders if other != folder)
    _FINDER.folders = (folder, *others)
    # First: the finder for files would read the current contents of the file.
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def module_path_of(module: str, folder: Path) -> Path | None:
    """Return the file of a module beside a document, or None."""
    base = folder.joinpath(*module.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py") if module else ():
        if candidate.is_file():
            return candidate
    return None
