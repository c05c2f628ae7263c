"""JSON values in a text: strict JSON first, then a tolerant reader for text with one meaning.

Rules:

1. Accepted beyond JSON: other quotes, bare keys, Python words, trailing commas, missing commas
   between members that white space separates, comments, full-width colon and comma, raw line breaks
   in strings, `.8`, and invalid escapes in a string without escapes such as `\\n`.
2. An open bracket is never closed, a key is never dropped or repeated, NaN is never read.
3. The time is linear: at most four times the characters of the text are read.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field

from ...records.codec import Json
from .strict_json import DECODER, cleaned
from .text import clean_text

__all__ = ["FoundValue", "Scan", "scan"]

MAX_DEPTH = 64  # the depth that `records.codec` accepts, far below Python's limit of recursion
READS = 4  # characters read, as a multiple of the length of the text: the time stays linear
ALLOWANCE = 100_000  # additional characters, for short texts with many brackets
ATTEMPT = 300  # characters that a failed attempt counts as, at least
MAX_VALUES = 1_000
MAX_PARTS = 30_000  # parts of values that are read tolerantly

_SPACE = re.compile(r"(?:[\s\ufeff\u200b]|//[^\n]*|\#[^\n]*|/\*(?:[^*]|\*(?!/)){0,2000}+\*/)*+")
_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]{0,308})(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_WORD = re.compile(r"[^\W\d][\w$]*")
_KEY = re.compile(r"[^\W\d][\w$]*(?:-[\w$]+)*|\$[\w$]+")
_WORDS: dict[str, Json] = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None,
}  # fmt: skip
_QUOTES = {'"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u2018": "\u2019"}
_PLAIN = {close: re.compile(rf"[^\\{close}]*+") for close in set(_QUOTES.values())}
_ESCAPES = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_HEX = re.compile(r"[0-9a-fA-F]{4}")
# The decoder is tried only where strict JSON can begin, because prose has many brackets.
_STRICT = re.compile(r'\{\s*+["}]|\[\s*+["\]\[{\-0-9tfn]')
_OPEN = re.compile(r"[\[{]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value in a text, its position, and whether it is strict JSON."""

    value: Json
    start: int
    end: int
    strict: bool = True


@dataclass
class Scan:
    """The objects and arrays of a text, in order.

    `unfinished` and `broken` are the positions of the last value that never ends and of the last one
    that cannot be read. `exhausted` means that the rest of the text was not read.
    """

    values: list[FoundValue] = field(default_factory=list)
    unfinished: int | None = None
    broken: int | None = None
    exhausted: bool = False


class _Bad(ValueError):
    """There is no value here; `end` is the position that shows it."""

    def __init__(self, end: int, *, ended: bool = False) -> None:
        super().__init__(end)
        self.end = end
        self.ended = ended  # the text ends inside the value


def scan(text: str) -> Scan:
    """Return the top-level objects and arrays of a text."""
    result = Scan()
    left = READS * len(text) + ALLOWANCE
    at, parts = 0, 0
    while opening := _OPEN.search(text, at):
        start = opening.start()
        if left <= 0 or len(result.values) == MAX_VALUES or parts >= MAX_PARTS:
            result.exhausted = True
            break
        value, end, length = _strict(text, start)
        left -= length
        if end:
            result.values.append(FoundValue(value, start, end))
            at = end
            continue
        reader = _Reader(text, parts)
        try:
            value, at = reader.value(start, 1)
        except _Bad as bad:
            left -= bad.end - start + ATTEMPT
            at = _after(text, start, bad, reader.began, result)
        else:
            left -= at - start
            result.values.append(FoundValue(value, start, at, strict=False))
        parts = reader.parts
    return result


def _after(text: str, start: int, bad: _Bad, began: bool, result: Scan) -> int:
    """Return the position after a value that cannot be read."""
    if not began:
        return start + 1  # a bracket in prose
    if bad.ended:
        result.unfinished = start
        return len(text)
    # A member of a broken object may fit the schema by chance and mean something else.
    # The parts of a broken value do not count as values.
    result.broken = start
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = token[0][0]
        depth += (mark in "[{") - (mark in "]}")
        if depth == 0:
            return token.end()
    return len(text)


def _strict(text: str, start: int) -> tuple[Json, int, int]:
    """Return a strict JSON value, its end (0 if there is none), and the number of characters read."""
    if _STRICT.match(text, start) is None:
        return None, 0, 0
    try:
        value, end = DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, 0, error.pos - start + ATTEMPT
    except RecursionError:
        return None, 0, 100 * ATTEMPT
    except ValueError:  # a repeated key, NaN or a number too large inside the value
        return None, 0, ATTEMPT
    if _too_deep(value):
        return None, 0, end - start
    return cleaned(value), end, end - start


def _too_deep(value: Json) -> bool:
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


class _Reader:
    """Reads one value tolerantly; `began` is true after the first sign of a value."""

    def __init__(self, text: str, parts: int) -> None:
        self.text = text
        self.parts = parts
        self.began = False

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self.text, at)
        return space.end() if space else at

    def _char(self, at: int) -> str:
        if at >= len(self.text):
            raise _Bad(at, ended=True)
        return self.text[at]

    def value(self, at: int, depth: int) -> tuple[Json, int]:
        char = self._char(at)
        self.parts += 1
        if char in "{[":
            if depth > MAX_DEPTH or self.parts > MAX_PARTS:
                self.began = True
                raise _Bad(at)
            return (self._object if char == "{" else self._array)(at + 1, depth)
        if char in _QUOTES:
            return self._string(at)
        if self.parts > MAX_PARTS:
            raise _Bad(at)
        number = _NUMBER.match(self.text, at)
        if number is not None:
            return self._literal(number)
        word = _WORD.match(self.text, at)
        if word is None or word[0] not in _WORDS:
            ended = word is not None and word.end() == len(self.text)
            raise _Bad(word.end() if word else at + 1, ended=ended)
        return _WORDS[word[0]], word.end()

    def _literal(self, number: re.Match[str]) -> tuple[Json, int]:
        end, literal = number.end(), number[0]
        after = self.text[end : end + 1]
        # "3kg", "1.2.3" and "80%" are not numbers, and a guess would change their meaning.
        if after.isalnum() or after in ("_", ".", "%"):
            raise _Bad(end + 1)
        if not set(literal) & set(".eE"):
            return int(literal), end
        value = float(literal)
        if not math.isfinite(value):
            raise _Bad(end)
        return value, end

    def _object(self, at: int, depth: int) -> tuple[Json, int]:
        members: dict[str, Json] = {}
        at = self._skip(at)
        while self._char(at) != "}":
            key, at = self._key(at)
            at = self._skip(at)
            if self._char(at) not in ":\uff1a":
                raise _Bad(at)
            self.began = True
            # Neither of two values for one key is certain.
            if key in members:
                raise _Bad(at)
            members[key], at = self.value(self._skip(at + 1), depth + 1)
            at = self._next(at, "}")
        return members, at + 1

    def _array(self, at: int, depth: int) -> tuple[Json, int]:
        members: list[Json] = []
        at = self._skip(at)
        while self._char(at) != "]":
            member, at = self.value(at, depth + 1)
            self.began = self.began or isinstance(member, str | dict | list)
            members.append(member)
            at = self._next(at, "]")
        return members, at + 1

    def _next(self, at: int, close: str) -> int:
        """Return the position of the next member or the closing bracket, after a comma or white space."""
        after = self._skip(at)
        char = self._char(after)
        if char in ",\uff0c":
            return self._skip(after + 1)
        if char != close and after == at:
            raise _Bad(at)
        return after

    def _key(self, at: int) -> tuple[str, int]:
        if self._char(at) in _QUOTES:
            text, at = self._string(at)
            return text.replace("\\_", "_"), at
        key = _KEY.match(self.text, at)
        if key is None:
            raise _Bad(at)
        return key[0], key.end()

    def _string(self, at: int) -> tuple[str, int]:
        text, close = self.text, _QUOTES[self.text[at]]
        start, at = at, at + 1
        parts: list[str] = []
        has_escape = has_invalid_escape = False
        while True:
            plain = _PLAIN[close].match(text, at)
            at = plain.end() if plain else at
            parts.append(plain[0] if plain else "")
            if at >= len(text):
                raise _Bad(at, ended=True)
            if text[at] == close:
                # In 'it's' the middle quote is an apostrophe.
                if close in "'\u2019" and _is_apostrophe(text, at):
                    parts.append(close)
                    at += 1
                    continue
                break
            part, at, sort = _escape(text, at)
            parts.append(part)
            has_escape, has_invalid_escape = has_escape or sort > 0, has_invalid_escape or sort < 0
        # With valid and invalid escapes in one string, it is unclear which backslashes are text (a path?).
        if has_escape and has_invalid_escape:
            self.began = True
            raise _Bad(at)
        if at + 1 < len(text) and text[at + 1] in _QUOTES and at == start + 1:
            raise _Bad(at)  # three quotes in a row
        return clean_text("".join(parts)), at + 1


def _is_apostrophe(text: str, at: int) -> bool:
    return text[at - 1].isalpha() and text[at + 1 : at + 2].isalpha()


def _escape(text: str, at: int) -> tuple[str, int, int]:
    """Return the text of an escape, its end, and 1 for a valid one such as \\n, -1 for an invalid one."""
    if at + 1 >= len(text):
        raise _Bad(at, ended=True)
    char = text[at + 1]
    if char in "'`\u2018\u2019\u201c\u201d":
        return char, at + 2, 0
    if char == "u":
        digits = _HEX.match(text, at + 2)
        if digits is None:
            return "\\u", at + 2, -1
        return chr(int(digits[0], 16)), at + 6, 1
    if char in _ESCAPES:
        return _ESCAPES[char], at + 2, int(char not in '"\\/')
    return f"\\{char}", at + 2, -1
