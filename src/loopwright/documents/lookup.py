"""Which file a document means when it names another one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ..errors import ConfigurationError, DocumentError, nearest
from .source import read

__all__ = ["find"]

ENDINGS = (".yaml", ".yml", ".json")
MOST_FILES = 1000  # of a folder that are looked into


def find(name: str, folders: Collection[Path], root: Path, calling: Collection[Path] = ()) -> Path:
    """Return the real path of the document that `name` means.

    `name` is a file; or, beside one of `folders` (tried in order), the stem of a file or the
    `name:` in it, after a path of folders if it has slashes. A document that is itself `calling`
    is meant only if no other is.

    Raises:
        ConfigurationError: if there is none, if there are several, or if it leads out of `root`.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts or not name.strip():
        raise ConfigurationError(f"{name!r} leads out of the project folder")
    for folder in folders:
        if (folder / name).is_file():
            return _inside(folder / name, root, name)
    for folder in folders:
        found = sorted({_inside(file, root, name) for file in _named(folder / name)})
        found = [file for file in found if file not in calling] or found
        if len(found) > 1:
            files = ", ".join(file.name for file in found)
            raise ConfigurationError(f"{name!r} may be any of {files}; name the file")
        if found:
            return found[0]
    stems = {file.stem for folder in folders for file in _files((folder / name).parent)}
    raise ConfigurationError(f"there is no document {name!r} beside this one{nearest(name, stems)}")


def _inside(file: Path, root: Path, name: str) -> Path:
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(os.path.realpath(root)):
        raise ConfigurationError(f"{name!r} leads out of the project folder")
    return real


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = (file for file in folder.iterdir() if file.suffix in ENDINGS and file.is_file())
    return sorted(found)[:MOST_FILES]


def _named(wanted: Path) -> Iterator[Path]:
    """Iterate over the files whose stem, or whose `name:`, is the last part of a path."""
    for file in _files(wanted.parent):
        if file.stem == wanted.name or _name_in(file, wanted.name):
            yield file


def _name_in(file: Path, name: str) -> bool:
    try:
        raw = file.read_bytes()
        if name.encode() not in raw:
            return False
        value = read(raw, file.name, repeatable=frozenset({"steps", "loops"})).value
    except (OSError, DocumentError):
        return False
    return isinstance(value, Mapping) and value.get("name") == name
