"""What a worker agrees to run: the digests of documents, and the Python modules below its folders.

A document whose commands and Python code a worker runs has a digest that it trusts. A Python step is named by
`module:attribute`. Who submits a run names both, so neither decides alone what is run:

1. The module is a file below a folder of the worker, links followed, with the contents that it had when the worker
   started, or with a digest that the worker trusts. Each of its packages is compared before it is imported, because
   importing runs its code.
2. What these modules import from the same folders is compared too, and compiled from the compared contents: a cached
   bytecode file is not read.
3. The attribute is a Step that the module itself holds: no function, no attribute of another module.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import itertools
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import SequenceMatcher
from functools import partial
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..engine.step import Step
from ..errors import ConfigurationError, nearest

__all__ = [
    "RootModules",
    "TrustedDigests",
    "shared_digests",
]


class RootModules:
    """The Python modules below some folders, as they are now.

    Args:
        roots: the folders; a module in several of them is that of the first.
        trusts: returns whether a file that changed since may be run, by its digest.
    """

    def __init__(self, roots: Sequence[str | Path], trusts: Callable[[str], bool]) -> None:
        self._roots = [Path(root).resolve() for root in roots]
        self._trusts = trusts
        self._digests = {
            file: _digest(file.read_bytes()) for root in self._roots for file in _sources(root)
        }
        self._added: list[str] = []

    def open(self) -> None:
        """Put the folders first on the import path, in their order."""
        self._added = [str(root) for root in self._roots if str(root) not in sys.path]
        sys.path[:0] = self._added
        sys.path_hooks.insert(0, self._finder)
        self._forget()

    def close(self) -> None:
        """Remove the folders from the import path."""
        if self._finder in sys.path_hooks:
            sys.path_hooks.remove(self._finder)
            self._forget()
        for root in self._added:
            if root in sys.path:
                sys.path.remove(root)

    def _forget(self) -> None:
        """Let Python ask for the finders of these folders again."""
        for path in [path for path in sys.path_importer_cache if self._has_folder(path)]:
            del sys.path_importer_cache[path]

    def _has_folder(self, path: str) -> bool:
        """Return whether modules are imported from a folder that is a root or a package below one."""
        # As it is written too: behind a link the files are compared, and refused.
        return any(
            place.is_relative_to(root)
            # Not an environment such as .venv or lib/python3.11, whose packages are installed.
            and all(map(str.isidentifier, place.relative_to(root).parts))
            for place in (Path.cwd() / path, Path(path).resolve())
            for root in self._roots
        )

    def _finder(self, path: str) -> FileFinder:
        if not self._has_folder(path):
            raise ImportError("not a folder of a worker", path=path)
        source, compiled = partial(_Source, modules=self), partial(_Compiled, modules=self)
        loaders: Any = (source, SOURCE_SUFFIXES), (compiled, EXTENSION_SUFFIXES)
        return FileFinder(path, *loaders)

    def compare(self, name: str, path: str, source: bytes) -> None:
        """Compare the contents of a module with those at the start.

        Raises:
            ConfigurationError: if it is another file, or has other contents whose digest is not trusted.
        """
        file = self._file(name, path)
        digest = _digest(source)
        if self._digests.get(file) != digest and not self._trusts(digest):
            raise ConfigurationError(
                f"{file} was {'changed' if file in self._digests else 'added'} after this worker started. Start the "
                f"worker again, or trust the file with --trust {digest[:16]}"
            )

    def _file(self, name: str, path: str) -> Path:
        """Return the file of a module with its links followed. Raises ConfigurationError if no root has it."""
        file = Path(path).resolve()
        if not any(file.is_relative_to(root) for root in self._roots):
            raise ConfigurationError(
                f"the module {name} is {file} on this worker, which is in no folder of --root. Give the module in the "
                "folder another name, or put the file there in place of a link"
            )
        return file

    def step(self, reference: str) -> Step:
        """Return the step at `module:attribute`.

        Raises:
            ConfigurationError: if this worker does not have it, or does not run it.
        """
        module, _, attribute = reference.partition(":")
        names = module.split(".")
        if not all(map(str.isidentifier, (*names, *attribute.split(".")))):
            raise ConfigurationError(
                f"{reference!r} is not the name of a step; use module:attribute"
            )
        try:
            target = _held(self._imported(names), reference, attribute)
        except ConfigurationError:
            raise
        except ModuleNotFoundError as error:
            missing = str(error.name)
            raise ConfigurationError(
                f"{reference} cannot be imported here: "
                + (
                    f"no folder of --root has the module {missing}. Start the worker with --root FOLDER, the folder of "
                    "the module"
                    if module == missing or module.startswith(f"{missing}.")
                    else f"its module imports {missing}, which is not installed on this worker"
                )
            ) from error
        except (Exception, SystemExit) as error:  # the user's module can raise anything
            raise ConfigurationError(
                f"{reference} cannot be imported here: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(target, Step):
            raise ConfigurationError(
                f"{reference} is a {type(target).__name__}, and a worker runs only steps of its folders. Name a Loop, a "
                "Workflow or a function with the decorator @step"
            )
        return target

    def _imported(self, names: Sequence[str]) -> ModuleType:
        """Import a module, each of its packages first."""
        # Only here does the first name count: looking for another one could run code of the environment.
        if PathFinder.find_spec(names[0], [str(root) for root in self._roots]) is None:
            raise ModuleNotFoundError(name=names[0])
        module = None
        for name in itertools.accumulate(names, "{}.{}".format):
            spec = importlib.util.find_spec(name)  # imports nothing but the packages before it
            if spec is None:
                raise ModuleNotFoundError(name=name)
            if not _is_namespace(spec):
                # What Python itself contains has a word in place of a path, which is not a file of this folder.
                self._file(name, str(spec.origin) if spec.has_location else f"/{spec.origin}")
            module = importlib.import_module(name)
        if module is None or module.__spec__ is None or _is_namespace(module.__spec__):
            raise ConfigurationError(f"{'.'.join(names)} is a folder, and not a module with steps")
        return module


class _Source(SourceFileLoader):
    """Compiles exactly the contents that were compared."""

    def __init__(self, name: str, path: str, *, modules: RootModules) -> None:
        super().__init__(name, path)
        self._modules = modules

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        self._modules.compare(fullname, path, source)
        code: CodeType = self.source_to_code(source, path)
        return code


class _Compiled(ExtensionFileLoader):
    """Loads an extension whose contents were compared."""

    def __init__(self, name: str, path: str, *, modules: RootModules) -> None:
        super().__init__(name, path)
        self._modules = modules

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._modules.compare(spec.name, self.path, self.get_data(self.path))
        return super().create_module(spec)


def _sources(root: Path) -> Iterator[Path]:
    """Yield the files that can be imported from a folder; the targets of links are elsewhere."""
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name.isidentifier()]
        for name in files:
            file = Path(place, name)
            if (
                name.endswith((*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES))
                and not file.is_symlink()
                and os.access(file, os.R_OK)
            ):
                yield file


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _is_namespace(spec: ModuleSpec) -> bool:
    """Return whether a package is only folders; it has no code, so nothing is compared."""
    return not spec.has_location and spec.submodule_search_locations is not None


def _held(module: ModuleType, reference: str, attribute: str) -> Any:
    """Return what a module holds, without calling code of it such as a property."""
    target: Any = module
    for part in attribute.split("."):
        if target is not module and not (
            isinstance(target, type) and target.__module__ == module.__name__
        ):
            raise ConfigurationError(
                f"{reference}: the part before {part!r} is a {type(target).__name__}. Name an attribute of the module "
                "itself, or of a class in it"
            )
        if part not in vars(target):
            hint = nearest(part, [name for name in vars(target) if not name.startswith("_")])
            raise ConfigurationError(f"{reference}: there is no {part!r}{hint}")
        target = vars(target)[part]
    return target


_ALL = "all"
# Another document could be made to match a shorter beginning.
_SHORTEST = 16
_DIGEST = re.compile(rf"[0-9a-f]{{{_SHORTEST},64}}")


class TrustedDigests:
    """Returns whether a digest is trusted.

    Args:
        digests: digests, or their beginnings of 16 characters or more; `all` trusts each digest.
        approved: returns further digests; it is called for each question.
        option: the name of the argument in errors.

    Raises:
        ConfigurationError: for a text that is not a digest.
    """

    def __init__(
        self,
        digests: Collection[str] | str,
        *,
        approved: Callable[[], Collection[str]] = tuple,
        option: str = "trust",
    ) -> None:
        self._digests = (digests,) if isinstance(digests, str) else tuple(digests)
        self._approved = approved
        for digest in self._digests:
            if digest != _ALL and not _is_digest(digest):
                raise ConfigurationError(
                    f"{option}: {digest!r} is not a digest; use {_SHORTEST} or more of its characters, as submit prints "
                    "them, or all"
                )

    def __call__(self, digest: str) -> bool:
        trusted = (*self._digests, *self._approved())
        return _ALL in trusted or digest.startswith(tuple(filter(_is_digest, trusted)))

    def nearest(self, digest: str) -> str:
        """Return the beginning of the most similar digest; "" without one."""
        return max(
            (one[:_SHORTEST] for one in self._digests),
            key=lambda one: SequenceMatcher(None, one, digest[:_SHORTEST]).ratio(),
            default="",
        )


def shared_digests(path: Path) -> list[str]:
    """Return the digests in a file, or in each file of a folder: one per line, before a `#`.

    Raises:
        ConfigurationError: if it cannot be read, has other lines, or could be changed by every user of the machine.
    """
    found = []
    try:
        files = [path]
        if path.is_dir():
            files += sorted(file for file in path.iterdir() if file.is_file())
        for file in files:
            if file.stat().st_mode & stat.S_IWOTH:
                raise ConfigurationError(
                    f"--trust-file: every user may write {file}, and what it names is run here. Use: chmod o-w {file}"
                )
            lines = [] if file.is_dir() else file.read_text("utf-8").splitlines()
            for number, line in enumerate(lines, start=1):
                digest = line.partition("#")[0].strip()
                if digest and not _is_digest(digest):
                    raise ConfigurationError(
                        f"--trust-file: {file}: line {number}: {digest[:70]!r} is not a digest; use {_SHORTEST} or more of "
                        "its characters, as submit prints them"
                    )
                found += [digest] if digest else []
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigurationError(f"--trust-file: {path} cannot be read: {why}") from None
    return found


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None
