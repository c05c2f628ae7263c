"""Find the document that a name refers to: a file, the stem of a file, or the `name:` inside it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ..errors import ConfigurationError, DocumentError, nearest
from .yaml.reader import read

__all__ = ["find"]

SUFFIXES = (".yaml", ".yml", ".json")
# A document may lie in a home folder: both limits bound the time of a search there.
MAX_FILES = 1000  # files of one folder that are searched
MAX_FOLDERS = 200  # folders that are searched for a hint


def find(name: str, folders: Collection[Path], root: Path, calling: Collection[Path] = ()) -> Path:
    """Return the real path of the document that a name refers to.

    The name is a file, or the stem of a file or the `name:` inside it, after a path of folders if it has slashes.

    Args:
        name: The name in the document that calls.
        folders: The folders to search, in this order.
        root: The folder that the result must be in.
        calling: The documents that are calling. They are a result only if no other document matches.

    Raises:
        ConfigurationError: If no document or several documents match, or if the document is outside `root`.
    """
    # A document comes from others: its names must not reach files outside the project.
    if Path(name).is_absolute() or ".." in Path(name).parts or not name.strip():
        raise ConfigurationError(f"{name!r} is outside the project folder")
    for folder in folders:
        if (folder / name).is_file():
            return _inside(folder / name, root, name)
    for folder in folders:
        matches = sorted({_inside(file, root, name) for file in _documents_named(folder / name)})
        # A document and the one that it calls may have the same `name:`, for example in two folders.
        matches = [file for file in matches if file not in calling] or matches
        if len(matches) > 1:
            files = ", ".join(file.name for file in matches)
            raise ConfigurationError(f"{name!r} is ambiguous: {files}; use a file name")
        if matches:
            return matches[0]
    where = "beside this one" + (" or from the project folder" if "/" in name else "")
    raise ConfigurationError(f"there is no document {name!r} {where}{_hint(name, folders)}")


def _hint(name: str, folders: Collection[Path]) -> str:
    """Return a document of the same stem elsewhere, or the nearest stem, for a message."""
    stem = Path(name).stem
    same: dict[Path, str] = {}
    for folder in folders:
        for file in _below(folder):
            if stem in (file.stem, file.name):
                same.setdefault(file, str(file.relative_to(folder)))
    if same:
        files = " or ".join(sorted(same.values(), key=lambda file: (file.count(os.sep), file))[:3])
        return f"; did you mean {files}?"
    stems = {file.stem for folder in folders for file in _files((folder / name).parent)}
    return nearest(name, stems)


def _below(folder: Path) -> Iterator[Path]:
    """Iterate over the documents below a folder, without hidden folders."""
    for count, (path, folders, names) in enumerate(os.walk(folder)):
        # In place, so that `os.walk` does not enter the folders that are left out.
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "node_modules")
        yield from (Path(path, name) for name in names if name.endswith(SUFFIXES))
        if count == MAX_FOLDERS:
            return


def _inside(file: Path, root: Path, name: str) -> Path:
    # Real paths: a symbolic link may lead out of the project.
    path = Path(os.path.realpath(file))
    if not path.is_relative_to(os.path.realpath(root)):
        raise ConfigurationError(f"{name!r} is outside the project folder")
    return path


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = (file for file in folder.iterdir() if file.suffix in SUFFIXES and file.is_file())
    return sorted(files)[:MAX_FILES]


def _documents_named(path: Path) -> Iterator[Path]:
    """Iterate over the files whose stem or whose `name:` is the last part of a path."""
    for file in _files(path.parent):
        if file.stem == path.name or _has_name(file, path.name):
            yield file


def _has_name(file: Path, name: str) -> bool:
    try:
        raw = file.read_bytes()
        # Most files of a folder are other documents, and parsing each would take seconds.
        if name.encode() not in raw:
            return False
        # `repeatable`, so that documents of `workflow/v2.0` can be read too.
        value = read(raw, file.name, repeatable=frozenset({"steps", "loops"})).value
    except (OSError, DocumentError):
        return False
    return isinstance(value, Mapping) and value.get("name") == name
