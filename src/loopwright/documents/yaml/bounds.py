"""Bounds of the YAML parser, messages for its errors, and scalars by the core schema of YAML 1.2.

1. `decode` accepts at most `MAX_BYTES` of UTF-8 without control characters.
2. Nothing is built from a text that nests deeper than `MAX_DEPTH`, or whose aliases expand to more than
   `MAX_NODES` values or `MAX_CHARACTERS` of text. `reader` counts while it reads. The parser only supplies
   events, one at a time, and stops at a bound: its own composer recurses in C, and 40,000 nested brackets
   crash the process.
3. An error of the parser becomes one sentence with a position and, for common mistakes, the remedy.

The core schema has no forms of YAML 1.1 (https://yaml.org/spec/1.2.2/#1032-tag-resolution)::

    ~ null true False        null and boolean, also with a capital or in capitals
    12 -3 012 0o17 0xff      integers; a leading zero is still decimal
    1.5 .5 1. 1e-1           floats, finite only
    yes no on off 1:30 0b1   text, like everything else
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn, Protocol

import yaml

from ...errors import DocumentError, Problem, nearest
from ...records.codec import Json

__all__ = [
    "CORE",
    "MAX_BYTES",
    "MAX_CHARACTERS",
    "MAX_DEPTH",
    "MAX_NODES",
    "MAX_PROBLEMS",
    "Place",
    "Scalar",
    "UnreadableError",
    "decode",
    "events",
    "place_of",
    "resolve",
    "short_tag",
    "shorten",
    "split_lines",
    "template_complaint",
]

MAX_BYTES = 1 << 20
MAX_CHARACTERS = 4 << 20
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_PROBLEMS = 100

# Characters of a line that are searched for a remedy, because the patterns below are not linear.
_LONG = 500
# An unquoted {{ or {% where a value begins.
_TEMPLATE = re.compile(r"""[^"'#]*?(?:^\s*|[:\-,]\s+|\[)(?=\{[{%])""")
# The value of such a key must not appear in a message, which may be logged.
_SECRET = re.compile("key|token|secret|passw|credential", re.IGNORECASE)
# The line breaks of YAML 1.1. Some editors do not count the last three.
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN = bytes([9, 10, 13, *range(0x20, 0x7F)])  # the ASCII characters that a document may contain
_TAG_DIRECTIVE = re.compile("(?:\\A|(?<=[\r\n\x85\u2028\u2029]))%TAG")
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\.", re.DOTALL)

_LOADER: Json = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Place = tuple[int, int]


class _Mark(Protocol):
    """A position of the parser, from 0, in C or in Python."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class UnreadableError(ValueError):
    """The parser stopped at `place`, line and column from 1. The text gives the reason."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


def place_of(mark: _Mark | None) -> Place:
    """Return line and column of a parser's mark, from 1; without a mark, the beginning."""
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text as YAML counts them, without their ends."""
    if text.isascii():  # ten times as fast for a large document
        return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return _BREAK.split(text)


def decode(text: str | bytes, file: str, larger: int = 1) -> str:
    """Return the text of a document in a form that the parser accepts; `larger` multiplies the limit.

    A byte order mark is removed. Surrogate pairs in the strings of a JSON document, which YAML does not
    have, are rewritten with the same length, so that later positions stay the same.

    Raises:
        DocumentError: For a text that is too large, not UTF-8, or has forbidden characters.
    """
    limit = MAX_BYTES * larger
    if len(text) > limit or (
        isinstance(text, str) and len(text.encode("utf-8", "surrogatepass")) > limit
    ):
        message = f"the document is larger than {limit >> 20} MiB"
        _refuse(file, (1, 1), f"{message}; split it, or move large texts to separate files")
    if isinstance(text, bytes):
        text = _from_utf8(text, file)
    # Editors on Windows add a byte order mark.
    text = text.removeprefix("\ufeff")
    # A text of printable ASCII, found faster than by the search for other characters, has none.
    printable = text.isascii() and not text.encode().translate(None, _PLAIN)
    if not printable and (result := _UNPRINTABLE.search(text)):
        _refuse(
            file,
            _place(text, result.start()),
            f"character U+{ord(result[0]):04X} is not allowed in a document; remove it, "
            'or write an escape such as "\\x1b" in double quotes',
        )
    # The C parser compares each tag directive with all earlier ones: 1 MiB of them takes 12 seconds.
    if "%TAG" in text and (result := _TAG_DIRECTIVE.search(text)):
        place = _place(text, result.start())
        _refuse(file, place, "%TAG directives are not allowed; remove the line")
    return _join_pairs(text) if text.lstrip()[:1] in ("{", "[") else text


def _from_utf8(data: bytes, file: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        _refuse(file, (1, 1), "the document is UTF-16; save it as UTF-8")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        place = _place(data[: error.start].decode(), error.start)
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the document as UTF-8"
        _refuse(file, place, message)


def _place(text: str, index: int) -> Place:
    before = split_lines(text[:index])
    return len(before), len(before[-1]) + 1


def _refuse(file: str, place: Place, message: str) -> NoReturn:
    raise DocumentError([Problem(file, *place, "", message)])


def _join_pairs(text: str) -> str:
    def joined(pair: re.Match[str]) -> str:
        if pair[1] is None:
            return pair[0]
        point = 0x10000 + ((int(pair[1], 16) & 0x3FF) << 10 | int(pair[2], 16) & 0x3FF)
        return f"\\U{point:08x}"

    def padded(string: re.Match[str]) -> str:
        return _PAIR.sub(joined, string[0]).ljust(len(string[0]))

    return _JSON_STRING.sub(padded, text)


def template_complaint(line: str, column: int) -> str:
    """Return the message for an unquoted `{{` or `{%` at a column, which is a mapping in YAML."""
    opening = line[column - 1 : column + 1]
    return f"{opening!r} without quotes begins a mapping; {_quoted(line, column)}"


class _Spot(NamedTuple):
    """The line and position of an error of the parser, and those of its context."""

    line: str
    place: Place
    start_line: str
    start: Place
    last: yaml.Event | None


_Remedy = Callable[[_Spot], tuple[Place, str]]


def events(text: str, lines: list[str]) -> Iterator[yaml.Event]:
    """Yield the parser's events.

    Raises:
        UnreadableError: At the position where the parser stops, with the remedy.
    """
    last: yaml.Event | None = None
    try:
        loader = _LOADER(text)
        while (event := loader.get_event()) is not None:
            last = event
            yield event
    except yaml.MarkedYAMLError as error:
        at = _within(lines, error.problem_mark or error.context_mark)
        start = _within(lines, error.context_mark or error.problem_mark)
        spot = _Spot(lines[at[0] - 1], at, lines[start[0] - 1], start, last)
        raise UnreadableError(*_explain(error, spot)) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The %-escapes of a tag may form bytes that are not text; in pure Python so may other escapes.
        place = place_of(last.end_mark if last else None)
        raise UnreadableError(place, "not valid YAML: the following bytes are not text") from error


def _explain(error: yaml.MarkedYAMLError, spot: _Spot) -> tuple[Place, str]:
    lines = [(spot.line, spot.place)]
    if "flow" in (error.context or ""):
        lines.append((spot.start_line, spot.start))
    for line, (row, _) in lines:
        if result := _TEMPLATE.match(line[:_LONG]):
            return (row, result.end() + 1), template_complaint(line, result.end() + 1)
    wording = f"{error.context or ''}: {error.problem or ''}"
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, wording):
            place, message = remedy(spot)
            return place, f"not valid YAML: {message}"
    return spot.place, f"not valid YAML: {error.problem or error.context}"


def _within(lines: list[str], mark: _Mark | None) -> Place:
    # The parser counts one more line at the end of a text without a last line break.
    place = place_of(mark)
    return place if place[0] <= len(lines) else (len(lines), len(lines[-1]) + 1)


def _quoted(line: str, column: int) -> str:
    """Return the advice to quote the value at a column, with the quoted value if it is short."""
    before, value = line[: column - 1][-_LONG:], line[column - 1 :][:_LONG]
    # Without the comment at the end of the line.
    value = re.sub(r"\s+#.*", "", value).strip()
    if re.search(r"[\[{]", before):
        inner = re.match(r"\{\{.*?\}\}|[^,\]}]*", value)
        before, value = "", inner[0].strip() if inner else value
    if not value or len(value) > 80 or _SECRET.search(before):
        return "put quotes around the value"
    single = re.search(r'["\\]', value)
    written = "'" + value.replace("'", "''") + "'" if single else f'"{value}"'
    key = re.search(r"(?:[^\s:]+:|-)\s*$", before)
    return f"put quotes around the value: {key[0].strip() + ' ' if key else ''}{written}"


def _context(message: str) -> _Remedy:
    return lambda spot: (spot.start, message)


def _problem(message: str) -> _Remedy:
    return lambda spot: (spot.place, message)


def _stray(spot: _Spot) -> tuple[Place, str]:
    column = spot.place[1]
    character = spot.line[column - 1 : column]
    if character == "\t":
        return spot.place, _TAB
    return spot.place, f"{character!r} cannot begin a value; {_quoted(spot.line, column)}"


def _sigil(spot: _Spot) -> tuple[Place, str]:
    column = spot.start[1]
    meaning = "an alias" if spot.start_line[column - 1 : column] == "*" else "an anchor"
    return spot.start, f"this character begins {meaning}; {_quoted(spot.start_line, column)}"


def _colon(spot: _Spot) -> tuple[Place, str]:
    first = re.match(r"\s*(?:- +)*[^\s:][^:]*:\s+", spot.line[:_LONG])
    if first and first.end() < spot.place[1]:
        quoted = _quoted(spot.line, first.end() + 1)
        return spot.place, f"': ' inside a value needs quotes; {quoted}"
    return spot.place, (
        "a key is not expected here; check the indentation of this line, "
        "and that the line above has a space after its ':'"
    )


def _block(spot: _Spot) -> tuple[Place, str]:
    row, column = spot.place
    before = spot.line[: column - 1]
    if isinstance(spot.last, yaml.ScalarEvent) and spot.last.style in ("'", '"'):
        opened, closed = place_of(spot.last.start_mark), place_of(spot.last.end_mark)
        if closed[0] == row and not before[closed[1] - 1 :].strip():
            if opened[0] < row:
                return opened, f"the quote opened here is closed only on line {row}"
            quoted = _quoted(spot.line, opened[1])
            return spot.place, f"text follows a closing quote; {quoted}"
    if spot.line[column - 1 : column] == ":":
        return spot.place, "a key is missing before this ':'"
    if before.rstrip().endswith(("]", "}")):
        return spot.place, "text follows a closing bracket; put quotes around the entire value"
    return spot.place, (
        f"this line does not fit the block that begins on line {spot.start[0]}, "
        f"column {spot.start[1]}; check its indentation"
    )


_TAB = "a tab cannot indent; use spaces"
# Patterns for "context: problem" in the messages of libyaml and PyYAML. The first match counts.
_REMEDIES: list[tuple[str, _Remedy]] = [
    ("tab character", _problem(_TAB)),
    (
        "quoted scalar: found unexpected (end of stream|document)",
        _context("the quote opened here is never closed"),
    ),
    (
        "Unicode character escape",
        _problem("this escape is not a character; above U+FFFF write \\U and eight digits"),
    ),
    (
        "escape|hexdecimal|hexadecimal",
        _problem("a backslash in double quotes begins an escape; double it or use single quotes"),
    ),
    ("alphabetic or numeric", _sigil),
    ("mapping values are not allowed", _colon),
    ("cannot start any token|block node", _stray),
    ("sequence entries are not allowed", _problem("a list begins on the line below its key")),
    (
        "could not find expected ':'",
        _context("this is neither 'key: value' nor the rest of a text; check its indentation"),
    ),
    ("expected ',' or", _context("the bracket opened here is not closed, or a ',' is missing")),
    ("flow node", _problem("a value or a closing bracket is missing here")),
    ("block scalar", _problem("the text of '|' or '>' begins on the next line")),
    ("expected key|'-' indicator|block end", _block),
    (
        "document start",
        _problem("unexpected text after the value; 'key: value' needs a space after the ':'"),
    ),
    (
        "tag|directive|incompatible",
        _problem("tags and directives are not used here; put quotes around a text with '!' or '%'"),
    ),
]


Scalar = str | int | float | bool | None

CORE = "tag:yaml.org,2002:"

_WORDS: dict[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_BASES = {"0o": 8, "0x": 16}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_NAMES = {type(None): "null", bool: "bool", int: "int", float: "float"}
_TAGS = ("null", "bool", "int", "float", "str", "seq", "map")
_LARGEST = sys.float_info.max
# The largest finite float has 309 digits. Python refuses to convert more than 4,300.
_MAX_NUMBER_CHARS = 400


def resolve(text: str, *, tag: str | None = None, quoted: bool = False) -> Scalar:
    """Return the value of a scalar, by its explicit tag (`!!int "3"`), its quotes, or its form.

    Raises:
        ValueError: For a number that is not finite, a tag outside the core schema, a text that does not fit
            its tag, or a character that a text cannot contain.
    """
    if tag is None and not quoted:
        return _plain_scalar(text)
    plain = text.isascii() and "\0" not in text  # much faster than a search in a large text
    if not plain and (result := _NO_TEXT.search(text)):
        raise ValueError(f"a text cannot contain the character U+{ord(result[0]):04X}; remove it")
    return text if tag is None else _tagged(tag, text)


def short_tag(tag: str) -> str:
    """Return the short form of a tag, at most 60 characters.

    Example:
        >>> short_tag("tag:yaml.org,2002:int")
        '!!int'
    """
    written = f"!!{tag.removeprefix(CORE)}" if tag.startswith(CORE) else tag
    return shorten(written)


def shorten(text: str, length: int = 60) -> str:
    """Return a text for a message, cut to a length."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _plain_scalar(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    # Most scalars are words, so the patterns are skipped for them.
    if text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return _number(text, _integer)
    if _FLOAT.fullmatch(text):
        return _number(text, float)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number; put quotes around it if it is text")
    return text


def _tagged(tag: str, text: str) -> Scalar:
    name = tag.removeprefix(CORE)
    if tag in ("!", CORE + "str"):
        return text
    if name not in _TAGS or not tag.startswith(CORE):
        names = nearest(short_tag(tag), [f"!!{name}" for name in _TAGS])
        raise ValueError(
            f"tag {short_tag(tag)} is not allowed, only those of plain YAML such as !!str{names}; "
            "put quotes around the value if '!' is part of the text"
        )
    value = _plain_scalar(text)
    # `!!float 3` is valid YAML.
    if name == "float" and type(value) is int:
        return float(value)
    if name != _NAMES.get(type(value)):
        raise ValueError(f"{shorten(text)!r} is not a value of tag !!{name}")
    return value


def _integer(text: str) -> int:
    base = _BASES.get(text[:2])
    return int(text[2:], base) if base else int(text)


def _number(text: str, convert: Callable[[str], float]) -> float:
    number = convert(text) if len(text) <= _MAX_NUMBER_CHARS else math.inf
    # An integer above the range of floats would fail later, in a calculation with floats.
    if not -_LARGEST <= number <= _LARGEST:
        raise ValueError(
            f"number {shorten(text, 24)} is too large or too long, at most {_LARGEST:.2g}; "
            "put quotes around it if it is text"
        )
    return number
