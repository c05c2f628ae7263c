"""Python modules beside a document, loaded from the contents that were agreed to.

A person agrees to contents. Between the answer and the import a file can change, and a compiled file
beside it (`__pycache__`) need not be of this source at all. So once contents were agreed to, modules
beside the document are made from them: neither their file nor its compiled form is read again.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

__all__ = ["module_path_of", "serve"]


class _Content(SourceFileLoader):
    """The loader of a module whose source is known."""

    def __init__(self, name: str, file: Path, source: bytes) -> None:
        super().__init__(name, str(file))
        self._source = source

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the module's code, compiled from what was agreed to."""
        del fullname
        code: CodeType = self.source_to_code(self._source, self.path)
        return code

    def get_data(self, path: Any) -> bytes:
        """Return the source, or another file of a package."""
        return self._source if str(path) == self.path else super().get_data(path)


class _Agreed(MetaPathFinder):
    """Finds modules of documents' folders in what was agreed to, and lets no other of these be imported."""

    def __init__(self) -> None:
        self.contents: Mapping[Path, bytes] = {}
        self.folders: tuple[Path, ...] = ()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module; None leaves it to the installed ones."""
        for folder in self.folders:
            file = module_path_of(fullname, folder)
            real = Path(os.path.realpath(file)) if file is not None else None
            if real is not None and real in self.contents:
                return _spec(fullname, real, self.contents[real])
            place = folder.joinpath(*fullname.split("."))
            if file is None and any(known.is_relative_to(place) for known in self.contents):
                spec = ModuleSpec(fullname, None, is_package=True)
                spec.submodule_search_locations = [str(place)]
                return spec
            if real is not None and _found_there(fullname, path, target, real):
                raise ImportError(
                    f"{file} is not among the files that were agreed to; it came since, or is imported "
                    "by other means than an import statement",
                    name=fullname,
                )
        return None


def _spec(name: str, file: Path, source: bytes) -> ModuleSpec | None:
    folders = [str(file.parent)] if file.name == "__init__.py" else None
    loader = _Content(name, file, source)
    return importlib.util.spec_from_file_location(
        name, file, loader=loader, submodule_search_locations=folders
    )


def _found_there(
    name: str, path: Sequence[str] | None, target: ModuleType | None, file: Path
) -> bool:
    """Whether the usual import would take a module from this very file."""
    spec = PathFinder.find_spec(name, path, target)
    return (
        spec is not None and spec.origin is not None and Path(os.path.realpath(spec.origin)) == file
    )


_FINDER = _Agreed()  # one per process, like the modules that it makes


def serve(folder: Path, contents: Mapping[Path, bytes]) -> None:
    """Let modules of a document's folder be made from these contents only, now and when they import later."""
    if contents is not _FINDER.contents:
        _FINDER.contents, _FINDER.folders = contents, ()
    others = tuple(known for known in _FINDER.folders if known != folder)
    _FINDER.folders = (folder, *others)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def module_path_of(module: str, folder: Path) -> Path | None:
    """Return the file of a module that lies beside a document, or None."""
    base = folder.joinpath(*module.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py") if module else ():
        if candidate.is_file():
            return candidate
    return None
