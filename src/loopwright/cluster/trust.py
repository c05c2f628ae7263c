"""The digests of the documents whose commands and Python code a worker runs."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Collection
from difflib import SequenceMatcher
from pathlib import Path

from ..errors import ConfigurationError

__all__ = ["TrustedDigests", "shared_digests"]

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
