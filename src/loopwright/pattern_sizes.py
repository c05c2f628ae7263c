"""How large a regular expression would be once compiled, read off its text: too large is refused."""

from __future__ import annotations

import re
import string

from .errors import ConfigurationError

__all__ = ["PatternError", "check_size"]

PATTERN_CHARS = 2_000
GROUP_DEPTH = 50
UNROLLED_ITEMS = 20_000
SET_WEIGHT = 400
PROPERTY_WEIGHT = 20
RANGE_WEIGHT = 10
INLINE_FLAGS = frozenset("aimsu")
POSIX_CLASS = re.compile(r"\[:\^?[A-Za-z0-9 &_.-]*(?:[:=][A-Za-z0-9 &_./-]*)?:\]")
GROUP_CALL = re.compile(r"\?(?:[+-]?[0-9]|R|&|P>)")

Quantifier = tuple[int, int]


class PatternError(ConfigurationError):
    """A pattern is not a usable regular expression; `position` counts characters from 0."""

    def __init__(self, pattern: str, reason: str, position: int) -> None:
        shown = pattern if len(pattern) <= 60 else pattern[:57] + "..."
        super().__init__(f"pattern {shown!r}: {reason} at position {position}")
        self.pattern = pattern
        self.reason = reason
        self.position = position


def check_size(text: str) -> None:
    """Bound what compiling a pattern costs.

    Raises:
        PatternError: if it is too long, nests too deep, repeats too much, or uses what is not read here.
    """
    _Measure(text).check()


class _Measure:
    """Reads the structure of a pattern without compiling it.

    A repeat that must match at least once is unrolled by the library: n copies of its body for
    `{n}`, and one more when it may go on. So a body of weight w weighs w * (n + 1). Mistakes of
    syntax are not judged here; the library reports them better.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def check(self) -> None:
        if len(self.text) > PATTERN_CHARS:
            reason = f"longer than {PATTERN_CHARS:,} characters (it has {len(self.text):,})"
            raise PatternError(self.text, reason, PATTERN_CHARS)
        groups: list[list[int]] = [[0, 0]]  # of each open group: its weight, that of its last item
        while self.at < len(self.text):
            self._item(groups)
            if groups[-1][0] > UNROLLED_ITEMS:
                self._refuse("repeats too much: nested or large repeat counts multiply")

    def _item(self, groups: list[list[int]]) -> None:
        """Read one item and add its weight to the innermost open group."""
        start, character = self.at, self.text[self.at]
        self.at += 1
        repeat = self._repeat(start)
        if repeat is not None:
            group = groups[-1]
            group[0] += group[1] * repeat
            group[1] = 0
        elif character == "(":
            self._open(groups)
        elif character == ")" and len(groups) > 1:
            weight = groups.pop()[0] + 2
            groups[-1][0] += weight
            groups[-1][1] = weight
        else:
            weight = self._set(start) if character == "[" else 1
            if character == "\\":
                self.at += 1
            groups[-1][0] += weight
            groups[-1][1] = weight

    def _repeat(self, start: int) -> int | None:
        """Return how many further copies a quantifier at `start` makes; None if it is none."""
        character = self.text[start]
        if character in "*?":
            copies = 0
        elif character == "+":
            copies = 1
        elif character == "{" and (counts := self._counts(start)) is not None:
            low, high = counts
            copies = 0 if low == 0 or low == high == 1 else low
        else:
            return None
        if self.text[self.at : self.at + 1] in ("?", "+"):
            self.at += 1
        return copies

    def _counts(self, start: int) -> Quantifier | None:
        """Read `{2}`, `{2,}`, `{,3}` or `{2,3}`; anything else in braces is literal text."""
        end = self.text.find("}", start)
        low, comma, high = self.text[start + 1 : max(end, start)].partition(",")
        digits = set(low + high) <= set(string.digits)
        if end < 0 or not digits or not (low or comma):
            return None
        if len(low) > 6 or len(high) > 9:
            self._refuse("repeat count too big", start)
        self.at = end + 1
        return int(low or 0), int(high or (-1 if comma else low))

    def _open(self, groups: list[list[int]]) -> None:
        if self.text.startswith("?#", self.at):
            self._skip_comment()
            return
        if GROUP_CALL.match(self.text, self.at):
            self._refuse("a call of a group is not accepted: write its pattern out", self.at)
        if self.text.startswith("?", self.at):
            self._check_flags()
        groups.append([0, 0])
        if len(groups) > GROUP_DEPTH:
            self._refuse(f"groups nested more than {GROUP_DEPTH - 1} deep")

    def _skip_comment(self) -> None:
        while self.at < len(self.text) and self.text[self.at] != ")":
            self.at += 2 if self.text[self.at] == "\\" else 1
        self.at += 1

    def _check_flags(self) -> None:
        """Refuse the inline flags that change how the rest of the pattern must be read."""
        end = self.at + 1
        while self.text[end : end + 1].isalnum() or self.text[end : end + 1] == "-":
            end += 1
        letters = self.text[self.at + 1 : end]
        unknown = set(letters) - INLINE_FLAGS - {"-"}
        if unknown and self.text[end : end + 1] in (")", ":"):
            self._refuse(
                f"inline flags {letters!r} are not accepted, only those of 'aimsu'", self.at
            )

    def _set(self, start: int) -> int:
        """Read a set like `[a-z]` and return its weight, which is its number of characters."""
        text = self.text
        if text.startswith("^", self.at):
            self.at += 1
        weight, first = 0, True
        while self.at < len(text) and (first or text[self.at] != "]"):
            first = False
            weight += self._set_member()
        self.at += 1
        if weight > SET_WEIGHT:
            self._refuse("character set too large; use fewer ranges and properties", start)
        return self.at - start

    def _set_member(self) -> int:
        text, at = self.text, self.at
        if text[at] == "\\":
            self.at += 2
            return PROPERTY_WEIGHT if text[at + 1 : at + 2] in tuple("pPwWdDsShH") else 1
        named = POSIX_CLASS.match(text, at)
        if named:
            self.at = named.end()
            return PROPERTY_WEIGHT
        self.at += 1
        return RANGE_WEIGHT if text[at] == "-" else 1

    def _refuse(self, reason: str, position: int | None = None) -> None:
        raise PatternError(self.text, reason, self.at if position is None else position)
