"""The digests of the documents whose commands and Python code a worker runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from difflib import SequenceMatcher

from ..errors import ConfigurationError

__all__ = ["TrustedDigests"]

_ALL = "all"
# Another document could be made to match a shorter beginning.
_DIGEST = re.compile(r"[0-9a-f]{12,64}")
_SHOWN = 16  # characters of a digest in a message


class TrustedDigests:
    """Returns whether a digest is trusted.

    Args:
        digests: digests, or their beginnings of 12 characters or more; `all` trusts each digest.
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
                    f"{option}: {digest!r} is not a digest; use 12 or more of its characters, as submit prints them, "
                    "or all"
                )

    def __call__(self, digest: str) -> bool:
        trusted = (*self._digests, *self._approved())
        return _ALL in trusted or digest.startswith(tuple(filter(_is_digest, trusted)))

    def nearest(self, digest: str) -> str:
        """Return the beginning of the most similar digest; "" without one."""
        return max(
            (one[:_SHOWN] for one in self._digests),
            key=lambda one: SequenceMatcher(None, one, digest[:_SHOWN]).ratio(),
            default="",
        )


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None
