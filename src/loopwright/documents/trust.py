"""What a document does on this machine by commands and Python, and what a person has agreed to.

Rules:

1. A document is code: its commands and functions run as the person who runs it. Prompts do not, so
   a document of prompts alone is never asked about.
2. Agreement is to contents, not to names: the documents, the Python modules beside them that their
   functions come from (and what those import from beside them), and the files that commands name.
3. It is kept as one empty file per digest: what is in the folder is never read, only that it is.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import functions
from .walking import commands_in, functions_in

if TYPE_CHECKING:
    from .loading import Loaded

__all__ = ["Agreements", "Deeds", "deeds_of"]

_LARGEST = 1 << 24  # bytes of a file that a command names; larger ones are data


@dataclass(frozen=True)
class Deeds:
    """What would run on this machine: command lines, functions, and a digest of all they are made of."""

    commands: tuple[str, ...]
    python: tuple[str, ...]
    digest: str

    def __bool__(self) -> bool:
        return bool(self.commands or self.python)


@dataclass(frozen=True)
class Agreements:
    """The digests that were agreed to, kept in a folder of the user's."""

    folder: Path

    def has(self, deeds: Deeds) -> bool:
        """Say whether these very contents were agreed to."""
        with suppress(OSError):
            return (self.folder / deeds.digest).is_file()
        return False

    def add(self, deeds: Deeds) -> None:
        """Keep that these contents are agreed to.

        Raises:
            OSError: if the folder cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / deeds.digest).touch(mode=0o600)


def deeds_of(loaded: Loaded) -> Deeds:
    """Return what a document and those that it calls would run.

    Functions that the caller named himself (`Settings.agents`) are his own and left out.
    """
    own = set(loaded.agents.values())
    commands, references = [], []
    files: set[Path] = set()
    for name, document in loaded.documents.items():
        folder = Path(name).parent
        files.add(Path(name))
        for command, cwd in commands_in(document):
            commands.append(command if isinstance(command, str) else shlex.join(command))
            files |= set(_files_named(command, folder, cwd))
        commands += [f"connect to {s.url}" for s in document.servers.values() if s.url]
        for reference in functions_in(document):
            if reference not in own:
                references.append(reference)
                files |= set(_modules(reference.partition(":")[0], folder))
    digest = _digest(files, [*commands, *references])
    return Deeds(tuple(dict.fromkeys(commands)), tuple(dict.fromkeys(references)), digest)


def _files_named(command: list[str] | str, folder: Path, cwd: str) -> Iterator[Path]:
    """Iterate over the files of the project that the words of a command name."""
    try:
        words = shlex.split(command, comments=True) if isinstance(command, str) else command
    except ValueError:  # a quote without its end, which the shell will refuse
        words = str(command).split()
    for word in words:
        with suppress(OSError, ValueError):
            file = folder / cwd / word
            if file.is_file() and file.stat().st_size <= _LARGEST and not Path(word).is_absolute():
                yield file


def _modules(name: str, folder: Path) -> list[Path]:
    """Return the files of a module beside a document, and of those beside it that it imports."""
    found: dict[Path, None] = {}
    waiting = [name]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        file = functions.beside(module, folder)
        if file is not None and file not in found:
            found[file] = None
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            waiting += [*_imports(file, package), module.rpartition(".")[0] or module]
    return list(found)


def _imports(file: Path, package: str) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(
                [*(above if node.level else ()), *([node.module] if node.module else ())]
            )
            yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)


def _digest(files: Iterable[Path], words: list[str]) -> str:
    whole = hashlib.sha256()
    contents: list[tuple[str, bytes]] = []
    for file in sorted({Path(os.path.realpath(file)) for file in files}):
        try:
            contents.append((str(file), file.read_bytes()))
        except OSError:  # gone since: then it is not what was agreed to
            contents.append((str(file), b"\0"))
    for name, content in [*contents, *((word, b"") for word in sorted(set(words)))]:
        for part in (name.encode("utf-8", "surrogatepass"), content):
            whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()
