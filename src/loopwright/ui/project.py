"""The workflows in a folder, for what offers them to be started: the page and the servers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..documents.schema.inputs import DeclaredInputs
from ..errors import DocumentError, LoopwrightError
from ..records.codec import text_of
from .consent import actions_text, is_approved
from .sources import SourceSettings, load_source

MAX_DOCUMENTS = 60  # each is loaded for the list, which takes milliseconds
MAX_DEPTH = 3  # folders below the project folder
_MAX_SIZE = 1 << 20  # bytes
_KINDS = (".yaml", ".yml")
# A project has other YAML files too, such as those of CI, which must not be listed as broken workflows.
_BEGINS = re.compile(rb"^(schema|\$schema|orchestrator)\s*:", re.MULTILINE)
_SKIPPED = ("node_modules", "__pycache__", "venv", "build", "dist")


@dataclass(frozen=True, slots=True)
class KnownDocument:
    """A document: its file, its name, whether it may be started, its actions, its default input and declared inputs."""

    file: str
    name: str
    trusted: bool = False
    runs: str = ""
    input: str = ""
    inputs: DeclaredInputs | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A folder with workflows in it."""

    folder: Path

    def documents(self) -> list[KnownDocument]:
        """Return the documents in the folder, by name."""
        return [self._document(file) for file in self.files()]

    def find(self, file: str) -> KnownDocument | None:
        """Return a document by its file in `documents`, or None."""
        # Only listed files: a request must not name another file of the machine.
        return self._document(file) if file in self.files() else None

    def files(self) -> list[str]:
        """Return the names of the documents, relative to the folder; a link that leads out of it is none."""
        return sorted(name for name, _ in zip(self._walk(), range(MAX_DOCUMENTS), strict=False))

    def _walk(self) -> Iterator[str]:
        for root, folders, files in os.walk(self.folder):
            here = Path(root).relative_to(self.folder)
            deep = len(here.parts) >= MAX_DEPTH
            folders[:] = (
                [] if deep else sorted(n for n in folders if n[0] != "." and n not in _SKIPPED)
            )
            for name in sorted(files):
                if name.endswith(_KINDS) and self._is_document(Path(root) / name):
                    yield str(here / name)

    def _document(self, file: str) -> KnownDocument:
        try:
            # Listing a folder must not run the code in it.
            source = load_source(str(self.folder / file), SourceSettings(), execute=False)
            actions = source.local_actions()
        except DocumentError as error:
            return KnownDocument(file, file, problem=str(error.problems[0]))
        except LoopwrightError as error:
            return KnownDocument(file, file, problem=str(error))
        return KnownDocument(
            file,
            source.name,
            trusted=is_approved(actions),
            runs=actions_text(actions) if actions else "",
            input=text_of(source.default_input),
            inputs=source.inputs,
        )

    def _is_document(self, path: Path) -> bool:
        with suppress(OSError):
            inside = path.resolve().is_relative_to(self.folder.resolve())
            if inside and path.is_file() and path.stat().st_size <= _MAX_SIZE:
                return _BEGINS.search(path.read_bytes()) is not None
        return False
