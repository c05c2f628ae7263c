"""JSON values in a text: strict JSON first, else a scanner that accepts what has one meaning only.

Rules:

1. Accepted beyond JSON: other quotes, bare keys, Python words, trailing commas, commas missing
   between members that white space separates, comments, full-width colon and comma, raw line breaks
   in strings, `.8`, and invalid escapes in a string without escapes such as `\\n`.
2. Nothing open is closed, no key dropped or repeated, no NaN read.
3. Linear: characters are looked at four times the text at most; what lies beyond is not read.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from ...records.codec import Json
from .strict_json import clean_text

__all__ = ["Found", "Scan", "scan"]

MAX_DEPTH = 64
LOOKS = 4  # characters looked at, by the length of the text
ALLOWANCE = 100_000  # and so many more, for short texts with many brackets
ATTEMPT = 300  # characters that an attempt in vain counts as at least
MOST = 1_000  # values that are looked for
MOST_PARTS = 30_000  # parts of values that are read tolerantly

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
_STRICT = re.compile(r'\{\s*+["}]|\[\s*+["\]\[{\-0-9tfn]')
_OPEN = re.compile(r"[\[{]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A value in a text, where it stands, and whether it was strict JSON."""

    value: Json
    start: int
    end: int
    strict: bool = True


@dataclass
class Scan:
    """The objects and arrays of a text, in order; `unfinished` is where the last one began that
    never ends."""

    found: list[Found] = field(default_factory=list)
    unfinished: int | None = None
    broken: int | None = None  # where the last one began that cannot be read
    exhausted: bool = False  # the rest was not looked at


class _Bad(ValueError):
    """What stands here is no value; `end` is where that showed."""

    def __init__(self, end: int, *, ended: bool = False) -> None:
        super().__init__(end)
        self.end = end
        self.ended = ended  # the text ended first


def scan(text: str) -> Scan:
    """Return the top-level objects and arrays of a text."""
    result = Scan()
    left = LOOKS * len(text) + ALLOWANCE
    at, parts = 0, 0
    while opening := _OPEN.search(text, at):
        start = opening.start()
        if left <= 0 or len(result.found) == MOST or parts >= MOST_PARTS:
            result.exhausted = True
            break
        value, end, looked = _strict(text, start)
        left -= looked
        if end:
            result.found.append(Found(value, start, end))
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
            result.found.append(Found(value, start, at, strict=False))
        parts = reader.parts
    return result


def _after(text: str, start: int, bad: _Bad, began: bool, result: Scan) -> int:
    """Return where to go on behind what could not be read."""
    if not began:
        return start + 1  # a bracket of prose
    if bad.ended:
        result.unfinished = start
        return len(text)
    # Inside a value that is broken nothing is a value of its own.
    result.broken = start
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = token[0][0]
        depth += (mark in "[{") - (mark in "]}")
        if depth == 0:
            return token.end()
    return len(text)


def _strict(text: str, start: int) -> tuple[Json, int, int]:
    """Return a value of strict JSON, its end (0 if there is none), and the characters looked at."""
    if _STRICT.match(text, start) is None:
        return None, 0, 0
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, 0, error.pos - start + ATTEMPT
    except RecursionError:
        return None, 0, 100 * ATTEMPT
    except ValueError:  # a key twice, NaN, a number too large: somewhere inside
        return None, 0, ATTEMPT
    if _too_deep(value):
        return None, 0, end - start
    return (_cleaned(value) if "\\u" in text[start:end] else value), end, end - start


def _too_deep(value: Json) -> bool:
    level: list[Any] = [value]
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


def _unique(pairs: list[tuple[str, Json]]) -> Json:
    members = {clean_text(key): value for key, value in pairs}
    if len(members) < len(pairs):
        raise ValueError("a key twice")
    return members


def _number(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError("a number too large")
    return number


def _refuse(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_number)


def _cleaned(value: Json) -> Json:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_cleaned(member) for member in value]
    if isinstance(value, dict):
        return {key: _cleaned(member) for key, member in value.items()}
    return value


class _Reader:
    """Reads one value tolerantly; `began` says that it looked like a value."""

    def __init__(self, text: str, parts: int) -> None:
        self.text = text
        self.parts = parts
        self.began = False

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def _char(self, at: int) -> str:
        if at >= len(self.text):
            raise _Bad(at, ended=True)
        return self.text[at]

    def value(self, at: int, depth: int) -> tuple[Json, int]:
        char = self._char(at)
        self.parts += 1
        if char in "{[":
            if depth > MAX_DEPTH or self.parts > MOST_PARTS:
                self.began = True
                raise _Bad(at)
            return (self._object if char == "{" else self._array)(at + 1, depth)
        if char in _QUOTES:
            return self._string(at)
        if self.parts > MOST_PARTS:
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
        if after.isalnum() or after in ("_", ".", "%"):
            raise _Bad(end + 1)
        if not set(literal) & set(".eE"):
            return int(literal), end
        found = float(literal)
        if not math.isfinite(found):
            raise _Bad(end)
        return found, end

    def _object(self, at: int, depth: int) -> tuple[Json, int]:
        members: dict[str, Json] = {}
        at = self._skip(at)
        while self._char(at) != "}":
            key, at = self._key(at)
            at = self._skip(at)
            if self._char(at) not in ":\uff1a":
                raise _Bad(at)
            self.began = True
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
        """Return where the next member begins or the brackets close: behind a comma, or white space."""
        after = self._skip(at)
        char = self._char(after)
        if char in ",\uff0c":
            return self._skip(after + 1)
        if char != close and after == at:
            raise _Bad(at)
        return after

    def _key(self, at: int) -> tuple[str, int]:
        if self._char(at) in _QUOTES:
            key, at = self._string(at)
            return key.replace("\\_", "_"), at
        found = _KEY.match(self.text, at)
        if found is None:
            raise _Bad(at)
        return found[0], found.end()

    def _string(self, at: int) -> tuple[str, int]:
        text, close = self.text, _QUOTES[self.text[at]]
        start, at = at, at + 1
        parts: list[str] = []
        known = unknown = False
        while True:
            plain = _PLAIN[close].match(text, at)
            at = plain.end() if plain else at
            parts.append(plain[0] if plain else "")
            if at >= len(text):
                raise _Bad(at, ended=True)
            if text[at] == close:
                if close in "'\u2019" and _is_apostrophe(text, at):
                    parts.append(close)
                    at += 1
                    continue
                break
            part, at, sort = _escape(text, at)
            parts.append(part)
            known, unknown = known or sort > 0, unknown or sort < 0
        if known and unknown:
            self.began = True
            raise _Bad(at)
        if at + 1 < len(text) and text[at + 1] in _QUOTES and at == start + 1:
            raise _Bad(at)  # three quotes in a row
        return clean_text("".join(parts)), at + 1


def _is_apostrophe(text: str, at: int) -> bool:
    return text[at - 1].isalpha() and text[at + 1 : at + 2].isalpha()


def _escape(text: str, at: int) -> tuple[str, int, int]:
    """Return what an escape means, its end, and 1 for one such as \\n, -1 for one that is none."""
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
