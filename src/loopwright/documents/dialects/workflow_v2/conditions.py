"""The `if:` of `workflow/v2.0` as a native expression.

`{{name}}` holds unless it gives "", "false" or "0". `${{ name == "YES" }}`, `{{name}} == "YES"`
and the same with `!=` compare text, trimmed and without regard to case; a bare word on the right is
what has that name, or else the word itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...yaml.scalars import shorten
from .names import InvalidPlaceholder, Place, Rewriter, placeholders, quoted

__all__ = ["condition"]

_SIGN = re.compile(r"==|!=|&&|\|\||[<>]=?")
_QUOTATION = re.compile(r"\"[^\"]*\"|'[^']*'")
_WORD = re.compile(r"[\w./%+-]+(?: [\w./%+-]+)*")


class _Side(NamedTuple):
    """One side of a comparison: an expression, or a text that is written there."""

    text: str
    written: bool = False

    @property
    def plain(self) -> str:
        """Return it as an expression of trimmed text in lower case."""
        if self.written:
            return quoted(self.text.strip().lower())
        return f"{self.text} | trim | lower"


def condition(text: str, rewriter: Rewriter, place: Place) -> str:
    """Return an `if:` as a native expression.

    Raises:
        UnknownPlaceholder: for a name that cannot mean anything, or more than one comparison.
    """
    bare = text.strip()
    bare = bare[1:] if bare.startswith("${{") else bare
    spans = [(start, bare.index("}}", start) + 2) for _, start in placeholders(bare)]
    if spans == [(0, len(bare))]:
        inner = bare[2:-2].strip()
        split = _split(inner, [])
        if split is None:
            return _holds(_Side(rewriter.expression(inner, place)))
        remaining, sign, right = split
        first = _named(remaining, rewriter, place, or_word=False)
        return _compared(first, sign, _named(right, rewriter, place, or_word=True))
    split = _split(bare, spans)
    if split is None:
        return _holds(_filled(bare, rewriter, place))
    remaining, sign, right = split
    return _compared(_filled(remaining, rewriter, place), sign, _filled(right, rewriter, place))


def _split(text: str, spans: list[tuple[int, int]]) -> tuple[str, str, str] | None:
    """Split a text at its only comparison outside placeholders and quotes."""
    closed = [*spans, *(result.span() for result in _QUOTATION.finditer(text))]
    signs = [
        sign
        for sign in _SIGN.finditer(text)
        if not any(start < sign.start() < end for start, end in closed)
    ]
    if not signs:
        return None
    if len(signs) > 1 or signs[0][0] not in ("==", "!="):
        raise InvalidPlaceholder(
            f"{shorten(text)!r} is not a single comparison; "
            'write {{NAME}} == "VALUE", or != for the opposite'
        )
    return text[: signs[0].start()].strip(), signs[0][0], text[signs[0].end() :].strip()


def _named(side: str, rewriter: Rewriter, place: Place, *, or_word: bool) -> _Side:
    """Return a side inside the braces: a quoted text, a number, a name, or a bare word."""
    if _QUOTATION.fullmatch(side):
        return _Side(side[1:-1], written=True)
    if not _WORD.fullmatch(side):
        raise InvalidPlaceholder(f"{shorten(side)!r} is neither a name nor a quoted text")
    if side.isdigit():
        return _Side(side, written=True)
    if not or_word:
        return _Side(rewriter.expression(side, place))
    own = rewriter.own(side, place)
    return _Side(side, written=True) if own is None else _Side(own)


def _filled(side: str, rewriter: Rewriter, place: Place) -> _Side:
    """Return a side with its own placeholders, joined to one expression."""
    result = placeholders(side)
    if not result:
        return _Side(side[1:-1] if _QUOTATION.fullmatch(side) else side, written=True)
    parts, done = [], 0
    for name, start in result:
        parts += [quoted(side[done:start])] if start > done else []
        parts.append(rewriter.expression(name, place))
        done = side.index("}}", start) + 2
    parts += [quoted(side[done:])] if done < len(side) else []
    return _Side(parts[0] if len(parts) == 1 else f"({' ~ '.join(parts)})")


def _holds(side: _Side) -> str:
    return f'{side.plain} not in ["", "false", "0"]'


def _compared(remaining: _Side, sign: str, right: _Side) -> str:
    sides = [remaining, right]
    if any(side.text.endswith(".exit_reason") for side in sides if not side.written):
        # That dialect writes "failure" for a failed iteration; here it is "error".
        sides = [
            _Side("error", written=True)
            if side.written and side.text.lower() == "failure"
            else side
            for side in sides
        ]
    return f" {sign} ".join(side.plain for side in sides)
