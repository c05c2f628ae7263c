"""The workflows that can be started from the page: documents of the project folder, agreed to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import DocumentError, LoopwrightError
from ...records.codec import text_of
from ..sources import Given, load_source
from ..trust import does, is_agreed

__all__ = ["KnownDocument", "ProjectFolder"]

MOST = 60  # documents listed
DEEPEST = 3  # folders below the project's
_LARGEST = 1 << 20
_KINDS = (".yaml", ".yml")
_BEGINS = re.compile(rb"^(schema|\$schema|orchestrator)\s*:", re.MULTILINE)
_SKIPPED = ("node_modules", "__pycache__", "venv", "build", "dist")


@dataclass(frozen=True, slots=True)
class KnownDocument:
    """A document: its file in the project, whether it may be started, and what it says of itself."""

    file: str
    name: str
    trusted: bool = False
    runs: str = ""
    input: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A folder with workflows in it."""

    folder: Path

    def documents(self) -> list[KnownDocument]:
        """Return the documents in it, in the order of their names."""
        return [self._known(file) for file in self._files()]

    def find(self, file: str) -> KnownDocument | None:
        """Return a document by its file as `documents` told it; None for any other file."""
        found = next((path for path in self._files() if path == file), None)
        return self._known(found) if found is not None else None

    def _files(self) -> list[str]:
        return sorted(name for name, _ in zip(self._walk(), range(MOST), strict=False))

    def _walk(self) -> Iterator[str]:
        for root, folders, files in os.walk(self.folder):
            here = Path(root).relative_to(self.folder)
            deep = len(here.parts) >= DEEPEST
            folders[:] = (
                [] if deep else sorted(n for n in folders if n[0] != "." and n not in _SKIPPED)
            )
            for name in sorted(files):
                if name.endswith(_KINDS) and _is_document(Path(root) / name):
                    yield str(here / name)

    def _known(self, file: str) -> KnownDocument:
        try:
            source = load_source(str(self.folder / file), Given(), execute=False)
            deeds = source.deeds()
        except DocumentError as error:
            return KnownDocument(file, file, problem=str(error.problems[0]))
        except LoopwrightError as error:
            return KnownDocument(file, file, problem=str(error))
        given = text_of(source.default_input)
        return KnownDocument(
            file, source.name, is_agreed(deeds), does(deeds) if deeds else "", given
        )


def _is_document(path: Path) -> bool:
    with suppress(OSError):
        if path.is_file() and path.stat().st_size <= _LARGEST:
            return _BEGINS.search(path.read_bytes()) is not None
    return False
