"""Two texts side by side: equal, removed, added and changed lines, with the changes in a line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

MAX_LINES = 4_000  # of either text; difflib takes quadratic time in the worst case
MAX_LINE = 2_000  # characters of a line whose words are compared
CONTEXT = 3  # equal lines shown before and after a change

Parts = tuple[tuple[bool, str], ...]  # (changed, text)


@dataclass(frozen=True, slots=True)
class LinePair:
    """A line on both sides: its numbers (0 if it is missing) and its parts.

    `kind` is `same`, `changed`, `gone`, `new`, or `skipped` for `count` omitted lines.
    """

    kind: str
    left: int = 0
    right: int = 0
    before: Parts = ()
    after: Parts = ()
    count: int = 0


def side_by_side(before: str, after: str) -> list[LinePair]:
    """Return two texts as pairs of lines, without long stretches of equal lines."""
    left, right = before.splitlines()[:MAX_LINES], after.splitlines()[:MAX_LINES]
    # The heuristic ignores frequent lines, such as blank ones: faster in long texts, wrong in short ones.
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > 1000)
    pairs: list[LinePair] = []
    codes = matcher.get_opcodes()
    for place, (tag, a, b, c, d) in enumerate(codes):
        if tag == "equal":
            pairs += _equal(left, a, b, c, first=place == 0, last=place == len(codes) - 1)
        else:
            pairs += _changed(left[a:b], right[c:d], a, c)
    return pairs


def _equal(
    left: list[str], a: int, b: int, c: int, *, first: bool, last: bool
) -> Iterator[LinePair]:
    head = 0 if first else CONTEXT
    tail = 0 if last else CONTEXT
    # The texts are equal; the beginning shows which text it is.
    if first and last:
        head = 20
    hidden = (b - a) - head - tail
    for i in range(a, b):
        # A line that says "1 equal line" would need as much room as the line.
        if hidden > 1 and a + head <= i < b - tail:
            if i == a + head:
                yield LinePair("skipped", count=hidden)
            continue
        parts: Parts = ((False, left[i]),)
        yield LinePair("same", i + 1, c + i - a + 1, parts, parts)


def _changed(removed: list[str], new: list[str], a: int, c: int) -> Iterator[LinePair]:
    for i, (old, added) in enumerate(zip_longest(removed, new)):
        if old is None:
            yield LinePair("new", 0, c + i + 1, (), ((True, added),))
        elif added is None:
            yield LinePair("gone", a + i + 1, 0, ((True, old),), ())
        else:
            yield LinePair("changed", a + i + 1, c + i + 1, *_words(old, added))


def _words(old: str, new: str) -> tuple[Parts, Parts]:
    # Words of a minified line have thousands of positions to compare.
    if len(old) + len(new) > 2 * MAX_LINE:
        return ((True, old),), ((True, new),)
    before, after = _split(old), _split(new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    left: list[tuple[bool, str]] = []
    right: list[tuple[bool, str]] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if b > a:
            left.append((tag != "equal", "".join(before[a:b])))
        if d > c:
            right.append((tag != "equal", "".join(after[c:d])))
    return tuple(left), tuple(right)


def _split(line: str) -> list[str]:
    """Return a line as words and the characters between them."""
    return re.findall(r"[^\W_]+|.", line, re.DOTALL)
