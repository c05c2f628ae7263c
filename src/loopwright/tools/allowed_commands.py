"""One command of an allow-list: words that stand as they are, and places that are free.

Rules:

1. A command is allowed as a whole: every word of it is written in the list or stands at a free place.
2. `{name}` is one word, `{name...}` any number of words, `--since={name}` a word with that beginning.
3. What stands at a free place of its own may not begin with a dash, since it would be an option;
   `{name:any}` and `{name...:any}` allow it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConfigurationError

__all__ = ["AllowedCommand"]

_PLACE = re.compile(r"(.*)\{[A-Za-z_]\w*(\.\.\.)?(:any)?\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of the list: what it begins with, and whether something free follows."""

    fixed: str
    free: bool = False
    many: bool = False
    dashes: bool = False

    def fits(self, word: str) -> bool:
        if not self.free:
            return word == self.fixed
        if not word.startswith(self.fixed):
            return False
        return bool(self.fixed) or self.dashes or not word.startswith("-")


class AllowedCommand:
    """A command with free places; see the rules of this module.

    Raises:
        ConfigurationError: naming what could not mean anything.

    >>> log = AllowedCommand(["git", "log", "-n", "{count}", "{paths...}"])
    >>> [log.allows(["git", "log", "-n", "3", *more]) for more in ([], ["a", "b"], ["--output=a"])]
    [True, True, False]
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        if not self.words or not all(isinstance(w, str) for w in self.words) or not self.words[0]:
            raise ConfigurationError(f"{words!r} is no command; give a list of words")
        made = [_read(word) for word in self.words]
        if made[0].free:
            raise ConfigurationError(f"{self} leaves the program free; name it")
        several = [i for i, word in enumerate(made) if word.many]
        if len(several) > 1:
            raise ConfigurationError(f"{self} has two places for any number of words; one will do")
        at = several[0] if several else len(made)
        self._head, self._tail = made[:at], made[at + 1 :]
        self._many = made[at] if several else None

    def __str__(self) -> str:
        return " ".join(self.words)

    def allows(self, argv: Sequence[str]) -> bool:
        """Say whether a command is this one."""
        least = len(self._head) + len(self._tail)
        if len(argv) < least or (len(argv) > least and self._many is None):
            return False
        end = len(argv) - len(self._tail)
        words, tail = argv[: len(self._head)], argv[end:]
        pairs = [*zip(self._head, words, strict=True), *zip(self._tail, tail, strict=True)]
        middle = argv[len(self._head) : end]
        return all(word.fits(given) for word, given in pairs) and all(
            self._many is not None and self._many.fits(given) for given in middle
        )


def _read(word: str) -> _Word:
    found = _PLACE.fullmatch(word)
    if found is None:
        return _Word(word)
    fixed, many, dashes = found.groups()
    if many and fixed:
        raise ConfigurationError(f"{word!r}: a place for any number of words stands alone")
    return _Word(fixed, True, bool(many), bool(dashes))
