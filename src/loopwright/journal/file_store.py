"""The contents of files that runs use, each stored once by its digest."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from pathlib import Path

from ..errors import StepError

__all__ = ["FileStore"]

_DIGEST = re.compile(r"[0-9a-f]{64}")


class FileStore:
    """Contents by the SHA-256 digest of their bytes: in a folder, or in memory.

    Args:
        folder: the folder, which the first content creates. Default: contents stay in memory.

    Example:
        >>> store = FileStore()
        >>> digest = store.put(b"content")
        >>> digest[:12], store.get(digest)
        ('ed7002b439e9', b'content')
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._contents: dict[str, bytes] = {}

    @property
    def journal_folder(self) -> Path | None:
        """The folder of the journal beside it; None for contents that are in no folder."""
        return self._folder and self._folder.parent

    def put(self, content: bytes) -> str:
        """Store a content and return its digest; an existing content is not written again."""
        digest = hashlib.sha256(content).hexdigest()
        if self._folder is None:
            self._contents[digest] = content
            return digest
        path = self._path(self._folder, digest)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Written under another name and renamed, so that a crash leaves no incomplete content. The
            # thread is part of the name, because threads of one process may store the same content.
            partial = path.with_name(f"{digest}.{os.getpid()}.{threading.get_ident()}.part")
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        return digest

    def get(self, digest: str) -> bytes:
        """Return the content with a digest.

        Raises:
            StepError: of kind `file_missing` if it is not there, or is damaged.
        """
        if self._folder is None:
            content = self._contents.get(digest)
        else:
            try:
                content = self._path(self._folder, digest).read_bytes()
            except OSError:
                content = None
        # Checked at each read: a prompt must not contain a damaged file.
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            state = "is missing" if content is None else "is damaged"
            where = "in memory" if self._folder is None else f"in {self._folder}"
            raise StepError(f"the recorded file {digest[:12]} {state} {where}", kind="file_missing")
        return content

    def digests(self) -> list[str]:
        """Return the digests of all contents."""
        if self._folder is None:
            return list(self._contents)
        names = (path.name for path in sorted(self._folder.glob("??/*")))
        return [name for name in names if _DIGEST.fullmatch(name)]

    @staticmethod
    def _path(folder: Path, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            # The digest may come from a document; it must not name another path.
            raise StepError(f"{digest!r:.80} is not the digest of a file", kind="file_missing")
        return folder / digest[:2] / digest
