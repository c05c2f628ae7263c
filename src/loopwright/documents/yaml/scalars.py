"""Scalars by the YAML 1.2 core schema, without the forms of YAML 1.1.

    ~ null true False        null and boolean, also with a capital or in capitals
    12 -3 012 0o17 0xff      integers; a leading zero is still decimal
    1.5 .5 1. 1e-1           floats, finite only
    yes no on off 1:30 0b1   text, like everything else

Format: YAML 1.2.2, section 10.3.2 (https://yaml.org/spec/1.2.2/#1032-tag-resolution).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable

from loopwright.errors import nearest

__all__ = ["CORE", "Scalar", "resolve", "short_tag", "shorten"]

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
