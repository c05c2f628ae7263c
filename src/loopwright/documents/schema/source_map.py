"""Where the parts of a native document come from, when a front-end made it from another dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import Problem
from ..yaml.limits import Place
from ..yaml.reader import Path, Source

__all__ = ["SourceMap", "translated"]


@dataclass(frozen=True, eq=False, slots=True)
class SourceMap(Source):
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

    def problem_at_word(self, path: Path, message: str, word: str) -> Problem:
        return self.original.problem_at_word(self._found(path), message, word)

    def place_inside(self, path: Path, offset: int) -> Place | None:
        return self.original.place_inside(self._found(path), offset)

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


def translated(source: Source, places: Mapping[Path, Path]) -> SourceMap:
    """Return a source that is asked by native paths."""
    return SourceMap(
        source.file, source.value, source.notes, source.stages, source._root, source.lines, source,
        dict(places),
    )  # fmt: skip
