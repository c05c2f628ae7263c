"""Where the parts of a native document come from, when a front-end made it from another dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import Problem
from .limits import Place
from .source import Path, Source

__all__ = ["Translated", "translated"]


@dataclass(frozen=True, eq=False, slots=True)
class Translated(Source):
    """A source that is asked by the paths of the native document that was made from it.

    `places` maps native paths to paths in the `original`; what lies below a mapped path is looked
    for under the same names, and has the place of the mapped path where there is no such thing.
    """

    original: Source
    places: Mapping[Path, Path]

    def position(self, path: Path, *, key: bool = False) -> Place:
        return self.original.position(self._found(path), key=key)

    def problem(self, path: Path, message: str, *, key: bool = False) -> Problem:
        found = self._found(path)
        return self.original.problem(found, message, key=key and len(found) > 0)

    def text(self, path: Path) -> str | None:
        return self.original.text(self._found(path))

    def _found(self, path: Path) -> Path:
        """Return the path in the original, without what the original does not have."""
        for end in range(len(path), 0, -1):
            start = self.places.get(path[:end])
            if start is not None:
                return self._existing((*start, *path[end:]))
        return self._existing(path)

    def _existing(self, path: Path) -> Path:
        value = self.original.value
        for length, part in enumerate(path):
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return path[:length]
        return path


def translated(source: Source, places: Mapping[Path, Path]) -> Translated:
    """Return a source that is asked by native paths."""
    return Translated(
        source.file, source.value, source.notes, source.stages, source._root, source, dict(places)
    )
