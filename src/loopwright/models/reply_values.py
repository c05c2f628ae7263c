"""The value for a schema in the text of a reply: found, read tolerantly, and fitted where the meaning is certain.

1. A wrong value is worse than another call, and another call is worse than a reader that is too strict.
2. The objects and arrays in the reply's own words are candidates, in fences or in prose. A single
   distinct value that fits is read; of two different values neither is. A truncated reply has no value.
3. Any text gives a result. The time is linear except for the checks of the schema.

Candidates are read as strict JSON first, then by a tolerant reader for text with one meaning:

1. Accepted beyond JSON: other quotes, bare keys, Python words, trailing commas, missing commas
   between members that white space separates, comments, full-width colon and comma, raw line breaks
   in strings, `.8`, and invalid escapes in a string without escapes such as `\\n`.
2. An open bracket is never closed, a key is never dropped or repeated, NaN is never read.
3. At most four times the characters of the text are read.

A value that does not fit is changed: integral `4.0` and text `"4"` to numbers, `"80%"` where the maximum is 1,
`"true"` to a boolean; members of an enum and keys to their own case, `_` and `-`. One wrapper or one-element list is
removed, one item becomes a list. A `null` of an optional member and forbidden members are dropped. A
number at most 1e-9 beyond a limit becomes the limit. Nothing else changes: `80` is not 0.8.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from ..records import codec
from ..records.codec import Json, canonical
from ..records.json_schema import checker
from .reply_text import DECODER, Words, clean_text, cleaned, read_json, words_of

__all__ = [
    "FoundValue",
    "Problem",
    "Reading",
    "Scan",
    "fitted",
    "read_loosely",
    "read_value",
    "scan",
    "several",
]

EDGE = (
    1e-9  # the error of a sum of rounded parts, such as weights that add up to 1.0000000000000002
)
MAX_DEPTH = 64  # the depth of `read_json`: a deeper value is never read
_NUMBER_OR_SHARE = re.compile(r"[ \t]*(-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?)[ \t]*(%?)[ \t]*")
_BOOLEANS = {"true": True, "false": False}

Check = Callable[[Json], str]


def fitted(value: Json, schema: Mapping[str, Json], check: Check) -> tuple[Json, str, list[str]]:
    """Return a value that fits, "" and the repairs; or None, the first violation and no repairs.

    `check` returns the first violation of the schema, "" if there is none.
    """
    problem, first = "", ""
    for candidate, done in _shapes(value):
        notes: list[str] = [done] if done else []
        fit = _Fitter(schema, notes).fit(candidate, schema, 0)
        # An empty object would satisfy a schema without required members, although nothing of the reply is left.
        if fit == {} and candidate != {}:
            first = first or check(candidate) or "it has none of the members that were asked for"
            continue
        problem = check(fit)
        if not problem:
            return fit, "", notes
        first = first or problem
    return None, first, []


def _shapes(value: Json) -> Iterator[tuple[Json, str]]:
    """Iterate over a value, the value inside a wrapper, and the list with the value as its only item."""
    # The value itself comes first, so that a value that fits is never taken apart.
    yield value, ""
    if isinstance(value, dict) and len(value) == 1:
        inner = next(iter(value.values()))
        if isinstance(inner, dict | list):
            yield inner, "wrapper taken off"
    if isinstance(value, list) and len(value) == 1:
        yield value[0], "list taken off"
    if isinstance(value, dict):
        yield [value], "made a list"


class _Fitter:
    def __init__(self, root: Mapping[str, Json], notes: list[str]) -> None:
        self.root = root
        self.notes = notes

    def fit(self, value: Json, schema: Json, depth: int) -> Json:
        """Return a value, changed where the schema requires it and the meaning is certain."""
        schema = self._resolved(schema)
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return value
        for kind in ("anyOf", "oneOf"):
            if isinstance(schema.get(kind), list):
                return self._one_of(value, schema[kind], depth)
        # All parts apply at once, so each may change the value that the part before it left.
        for part in schema.get("allOf", ()) if isinstance(schema.get("allOf"), list) else ():
            value = self.fit(value, part, depth + 1)
        types = _types(schema)
        if isinstance(value, dict) and (not types or "object" in types):
            return self._object(value, schema, depth)
        if isinstance(value, list) and (not types or "array" in types):
            return [self.fit(item, schema.get("items"), depth + 1) for item in value]
        if types == {"array"} and self._is_one_item(value, schema.get("items")):
            self.notes.append("made a list")
            return [self.fit(value, schema.get("items"), depth + 1)]
        return self._scalar(value, schema, types)

    def _is_one_item(self, value: Json, items: Json) -> bool:
        """Whether a value can only be an item. A free text can also list several items, or say "none"."""
        items = self._resolved(items)
        if not isinstance(value, str):
            return value is not None and not isinstance(value, list)
        if not isinstance(items, Mapping):
            return False
        return "enum" in items or (bool(_types(items)) and "string" not in _types(items))

    def _resolved(self, schema: Json) -> Json:
        # A schema from a document may refer to itself; a longer chain of references counts as unknown.
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(reference, str) or not reference.startswith("#"):
                return schema
            schema = self.root
            for part in reference.lstrip("#").strip("/").split("/") if reference != "#" else ():
                part = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(schema, Mapping) or part not in schema:
                    return None
                schema = schema[part]
        return None

    def _one_of(self, value: Json, schemas: list[Json], depth: int) -> Json:
        """Return the value in the form of the only alternative that it fits, or unchanged."""
        fitting: dict[str, tuple[Json, list[str]]] = {}
        for schema in schemas:
            schema = self._resolved(schema)
            if not isinstance(schema, Mapping):
                return value
            # References in an alternative point to the definitions of the complete schema.
            standalone = {**schema, "$defs": self.root.get("$defs", {}),
                          "definitions": self.root.get("definitions", {})}  # fmt: skip
            check = checker(standalone)
            notes: list[str] = []
            integral = isinstance(value, float) and "integer" in _types(schema)
            if not check(value) and not integral:
                return _Fitter(self.root, self.notes).fit(value, schema, depth + 1)
            candidate = _Fitter(self.root, notes).fit(value, schema, depth + 1)
            if not check(candidate):
                fitting.setdefault(canonical(candidate), (candidate, notes))
        # Of two different readings neither is certain.
        if len(fitting) != 1:
            return value
        candidate, notes = next(iter(fitting.values()))
        self.notes += notes
        return candidate

    def _object(self, value: dict[str, Json], schema: Mapping[str, Json], depth: int) -> Json:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        names = self._names(value, properties)
        members: dict[str, Json] = {}
        for key, member in value.items():
            name = names[key]
            if name not in properties:
                if schema.get("additionalProperties") is False and not schema.get(
                    "patternProperties"
                ):
                    self.notes.append("unknown member dropped")
                    continue
                inner = schema.get("additionalProperties")
                members[key] = self.fit(member, inner, depth + 1)
                continue
            part = self._resolved(properties[name])
            # Models write null for "no value"; an optional member means the same when it is absent.
            if member is None and name not in required and not _takes_null(part):
                self.notes.append("null dropped")
                continue
            members[name] = self.fit(member, part, depth + 1)
        return members

    def _names(self, value: Mapping[str, Json], properties: Mapping[str, Json]) -> dict[str, str]:
        """Return the name of each key: its own, or the only similar name that is not used."""
        by_plain_name: dict[str, list[str]] = {}
        for name in properties:
            by_plain_name.setdefault(_plain(name), []).append(name)
        wanted = [_plain(key) for key in value if key not in properties]
        names = {}
        for key in value:
            plain = _plain(key)
            free = [name for name in by_plain_name.get(plain, ()) if name not in value]
            names[key] = key
            # Two keys must never become one: a value would be lost.
            if key not in properties and len(free) == 1 and wanted.count(plain) == 1:
                names[key] = free[0]
                self.notes.append("key spelt as in the schema")
        return names

    def _scalar(self, value: Json, schema: Mapping[str, Json], types: set[str]) -> Json:
        members = schema.get("enum")
        if isinstance(members, list) and isinstance(value, str) and value not in members:
            near = [m for m in members if isinstance(m, str) and _word(m) == _word(value)]
            if len(near) == 1:
                self.notes.append("word spelt as in the schema")
                return near[0]
        converted = value
        if isinstance(value, str) and not members and "string" not in types:
            converted = _of_text(value, schema, types)
        if isinstance(converted, float) and "integer" in types and converted.is_integer():
            converted = int(converted)
        if isinstance(converted, int | float) and not isinstance(converted, bool):
            converted = _on_edge(converted, schema)
        if converted is not value and (type(converted) is not type(value) or converted != value):
            self.notes.append("value written as in the schema")
        return converted


def _types(schema: Mapping[str, Json]) -> set[str]:
    types = schema.get("type")
    if isinstance(types, str):
        return {types}
    return {item for item in types if isinstance(item, str)} if isinstance(types, list) else set()


def _takes_null(schema: Json) -> bool:
    if not isinstance(schema, Mapping):
        return True
    types = _types(schema)
    if types:
        return "null" in types
    return "properties" not in schema and "enum" not in schema


def _of_text(text: str, schema: Mapping[str, Json], types: set[str]) -> Json:
    if "boolean" in types and text.strip().lower() in _BOOLEANS:
        return _BOOLEANS[text.strip().lower()]
    match = _NUMBER_OR_SHARE.fullmatch(text)
    if match is None or not types & {"number", "integer"}:
        return text
    # A fraction is exact: "80%" of 1 must be 0.8, not 0.8000000000000000444.
    number = Fraction(match[1])
    if match[2]:
        # Only a maximum of 1 shows that the schema wants a share and not a number of percent.
        if schema.get("maximum") != 1 or isinstance(schema.get("maximum"), bool):
            return text
        number /= 100
    if number.denominator == 1:
        return int(number)
    return float(number) if "number" in types else text


def _on_edge(number: int | float, schema: Mapping[str, Json]) -> int | float:
    for name, sign in (("maximum", 1), ("minimum", -1)):
        edge = schema.get(name)
        if isinstance(edge, int | float) and not isinstance(edge, bool):
            beyond = (number - edge) * sign
            if 0 < beyond <= EDGE:
                return edge
    return number


def _plain(key: str) -> str:
    return re.sub(r"[\s_-]", "", key).casefold()


def _word(text: str) -> str:
    return text.strip().casefold()


# the depth that `records.codec` accepts, far below Python's limit of recursion
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
            if self._char(at) in _QUOTES:
                key, at = self._string(at)
                key = key.replace("\\_", "_")
            else:
                match = _KEY.match(self.text, at)
                if match is None:
                    raise _Bad(at)
                key, at = match[0], match.end()
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
                within = text[at - 1].isalpha() and text[at + 1 : at + 2].isalpha()
                if close in "'\u2019" and within:
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


Problem = Literal["", "no JSON", "several", "mismatch", "unfinished", "thinking", "cut"]

MAX_CANDIDATES = 200  # compared with the schema; a check may take milliseconds
SCHEMA_SHOWN = 2_000  # a longer one is in the conversation already, and would be paid for again
_FENCE = re.compile(r"```\w*|~~~\w*")
_SHORT = (
    "Your reply ended before its JSON value did. Reply with the JSON value only, and keep it short."
)
_FAULTS: Mapping[str, str] = {
    "no JSON": "the reply has no JSON value",
    "several": "the reply has several different JSON values that fit",
    "unfinished": "the reply ended before its JSON value did",
    "thinking": "the reply ended inside its thinking",
    "cut": "the reply was cut off",
}
_ONLY = "Reply with the whole corrected JSON value and nothing else."


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of a reply, or the problem with it.

    Args:
        value: the JSON value; None if there is a problem.
        problem: "" if the value was read, else a word for the problem.
        repairs: sentences that describe the changes to the value.
        complaint: the message to the model when it is asked again.
        mismatch: the first violation of the schema.

    Example:

    >>> read_value("none", {"type": "object"}).failure
    'the reply has no JSON value'
    """

    value: Json = None
    problem: Problem = ""
    repairs: tuple[str, ...] = ()
    complaint: str = ""
    mismatch: str = ""

    @property
    def failure(self) -> str:
        """The problem as a sentence for people; "" if the value was read."""
        return self.mismatch or _FAULTS.get(self.problem, "")


def read_value(
    text: str, schema: Mapping[str, Json], *, finish: str = "stop", strict: bool = False
) -> Reading:
    """Read the only value in a reply that fits a JSON Schema.

    Args:
        text: the complete reply.
        schema: a JSON Schema; draft 2020-12 unless it has a `$schema`.
        finish: why the reply ended; a truncated one ("length") has no value. Default "stop".
        strict: read the reply as one JSON value, at most in a code fence, without any repair.
            Default False.

    Returns:
        A `Reading`: the value and the repairs, or the problem.

    Raises:
        ConfigurationError: for a schema with a reference that cannot be resolved.

    Example:

    >>> read_value('Sure! {"answer": "4"}', {"type": "object", "properties":
    ...     {"answer": {"type": "integer"}}, "required": ["answer"]}).value
    {'answer': 4}
    """
    if finish == "length":
        return Reading(problem="cut", complaint=_SHORT)
    check = checker(schema)
    if strict:
        reading = read_json(text)
        mismatch = reading.detail or check(reading.value)
        return _mismatch(mismatch) if mismatch else Reading(reading.value)
    words = words_of(text, value=True)
    if words.unclosed:
        return Reading(problem="thinking", complaint=_SHORT)
    scanned = scan(words.text)
    # A complete value before an unfinished one may be a draft of it.
    if scanned.unfinished is not None:
        return Reading(problem="unfinished", complaint=_SHORT)
    values = scanned.values
    if not values:
        # A text, number, boolean or null may be the complete reply.
        alone = read_json(words.text)
        values = [] if alone.problem else [FoundValue(alone.value, 0, len(words.text))]
    candidates = _Candidates(values, schema, check)
    return _chosen(candidates, scanned, words, schema)


def read_loosely(text: str, field: str, failure: str) -> Reading:
    """Return what a reply without a value that fits does hold: its only object, and its text as a field."""
    own = words_of(text, value=True).text
    objects = [one.value for one in scan(own).values if isinstance(one.value, dict)]
    found = objects[0] if objects and all(one == objects[0] for one in objects) else {}
    note = f"{failure}; " + ("the object in it was kept" if found else f"its text is {field!r}")
    return Reading({field: own, **found}, repairs=(note,))


class _Candidates:
    """The values of a reply, compared with the schema.

    `fitting` holds each different value that fits and its repairs, by canonical text. `problem` is the
    first violation, `last` the position of the last value that fits.
    """

    def __init__(
        self, values: list[FoundValue], schema: Mapping[str, Json], check: Callable[[Json], str]
    ) -> None:
        self.values = values
        self.fitting: dict[str, tuple[Json, list[str]]] = {}
        self.problem = ""
        self.last = 0
        for candidate in values[:MAX_CANDIDATES]:
            # It is an object too and fits many schemas.
            if candidate.value == schema:
                continue
            value, problem, notes = fitted(candidate.value, schema, check)
            if problem:
                self.problem = self.problem or problem
                continue
            self.last = candidate.start
            notes = notes if candidate.strict else ["not strict JSON", *notes]
            self.fitting.setdefault(codec.canonical(value), (value, notes))


def _chosen(
    candidates: _Candidates, scanned: Scan, words: Words, schema: Mapping[str, Json]
) -> Reading:
    fitting, values = candidates.fitting, candidates.values
    incomplete = scanned.exhausted or len(values) > MAX_CANDIDATES
    # An unread rest could hold another value that fits.
    if len(fitting) > 1 or (fitting and incomplete):
        return several(len(fitting))
    # A broken value after the last readable one may be its correction.
    if fitting and (scanned.broken is None or scanned.broken < candidates.last):
        value, notes = next(iter(fitting.values()))
        rest = words.text[: values[0].start] + words.text[values[-1].end :]
        around = ["text around the value"] if _FENCE.sub("", rest).strip() else []
        return Reading(value, "", tuple(dict.fromkeys((*words.repairs, *around, *notes))))
    if scanned.broken is not None and (fitting or not candidates.problem):
        return _mismatch("the JSON value is broken, or has a key twice")
    if candidates.problem:
        return _mismatch(candidates.problem)
    shown = codec.encode(schema)
    if len(shown) > SCHEMA_SHOWN:
        shown = "the schema above"
    return Reading(
        problem="no JSON",
        complaint="Your reply has no JSON value. Reply with one JSON value for this schema and "
        f"nothing else: {shown}",
    )


def several(number: int) -> Reading:
    """Return the reading of a reply with this number of different values."""
    return Reading(
        problem="several",
        complaint=f"Your reply has {max(2, number)} different JSON values that fit. Reply with the one "
        "you mean and nothing else.",
    )


def _mismatch(problem: str) -> Reading:
    sentence = problem.rstrip(".")
    return Reading(problem="mismatch", complaint=f"{sentence}. {_ONLY}", mismatch=sentence)
