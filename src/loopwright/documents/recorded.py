"""Documents as a run keeps them: their contents and which file each name meant, so that it goes on without the files.

A file that is still there is read again, so that who edits it and accepts the change goes on with the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..records.codec import Json

__all__ = ["Recorded"]

MOST = 1_000_000  # bytes of all documents of a run; more are not kept


@dataclass(frozen=True)
class Recorded:
    """The documents of a run by file, and the file that each of them meant by a name."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    calls: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Json) -> Recorded:
        """Return what `to_json` wrote; nothing for a run that keeps none."""
        if not isinstance(data, Mapping):
            return cls()
        files = {
            name: text.encode("utf-8", "surrogateescape") for name, text in data["files"].items()
        }
        return cls(files, {(file, name): found for file, name, found in data["calls"]})

    def to_json(self) -> Json:
        """Return it as JSON; None if it is too large to be kept."""
        if sum(map(len, self.files.values())) > MOST:
            return None
        try:
            texts = {name: raw.decode("utf-8") for name, raw in self.files.items()}
        except UnicodeDecodeError:
            return None
        calls: list[Json] = [[file, name, found] for (file, name), found in self.calls.items()]
        return {"files": texts, "calls": calls}

    def has(self, file: Path) -> bool:
        """Whether a file is gone that is on record."""
        return str(file) in self.files and not file.is_file()

    def meant(self, caller: Path, name: str) -> Path | None:
        """Return the file that a document meant by a name, if that is gone and on record."""
        found = self.calls.get((str(caller), name))
        return Path(found) if found is not None and self.has(Path(found)) else None
