"""The filters and methods that work on text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .limits import ITEM, Meter, TemplateError
from .operands import HEAVY, made_text, whole
from .text import to_json, to_text

__all__ = ["TEXT_FILTERS", "TEXT_METHODS"]

PIECE = 65_536


def _upper(meter: Meter, value: Any) -> str:
    return made_text(meter, value).upper()


def _lower(meter: Meter, value: Any) -> str:
    return made_text(meter, value).lower()


def _title(meter: Meter, value: Any) -> str:
    return made_text(meter, value).title()


def _capitalize(meter: Meter, value: Any) -> str:
    return made_text(meter, value).capitalize()


def _trim(meter: Meter, value: Any, chars: str | None = None) -> str:
    return made_text(meter, value).strip(_few(chars))


def _lstrip(meter: Meter, value: Any, chars: str | None = None) -> str:
    return made_text(meter, value).lstrip(_few(chars))


def _rstrip(meter: Meter, value: Any, chars: str | None = None) -> str:
    return made_text(meter, value).rstrip(_few(chars))


def _few(chars: str | None) -> str | None:
    """Refuse many characters to strip: each of the text is looked for among all of them."""
    if chars is not None and (not isinstance(chars, str) or len(chars) > 64):
        raise TemplateError("strip takes text of at most 64 characters")
    return chars


def _replace(meter: Meter, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = (to_text(meter, part) for part in (value, old, new))
    meter.read(len(text) * HEAVY)
    times = len(text) + 1 if not old else text.count(old)
    if count is not None and count >= 0:
        times = min(times, count)
    meter.make(len(text) + times * len(new))
    return text.replace(old, new, times)


def _truncate(
    meter: Meter, value: Any, length: int = 255, killwords: bool = False, end: str = "...",
    leeway: int = 5,
) -> str:  # fmt: skip
    text, end = to_text(meter, value), to_text(meter, end)
    length = whole(length, "truncate", 10**9)
    if len(text) <= length + whole(leeway, "truncate", 10**9):
        return text
    kept = text[: max(length - len(end), 0)]
    meter.make(len(kept) + len(end))
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end


def _indent(
    meter: Meter, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    margin = width if isinstance(width, str) else " " * whole(width, "indent", 100)
    text = to_text(meter, value)
    meter.make(len(text) + (text.count("\n") + 1) * (len(margin) + ITEM))
    lines = text.split("\n")
    spaced = (margin + line if line.strip() or blank else line for line in lines[1:])
    return "\n".join([margin + lines[0] if first else lines[0], *spaced])


def _wordcount(meter: Meter, value: Any) -> int:
    text = to_text(meter, value)
    meter.read(len(text) * HEAVY)
    count = 0
    # In pieces, so that the words of a long text need not all exist at once.
    for start in range(0, len(text), PIECE):
        count += len(text[start : start + PIECE].split())
        count -= start > 0 and not (text[start - 1].isspace() or text[start].isspace())
    return count


def _split(meter: Meter, value: Any, separator: str | None = None, most: int = -1) -> list[str]:
    text = to_text(meter, value)
    if separator == "":
        raise TemplateError("split needs a separator that is not empty")
    pieces = _wordcount(meter, text) if separator is None else text.count(separator) + 1
    pieces = min(pieces, most + 1) if most >= 0 else pieces
    meter.make(len(text) + pieces * ITEM)
    return text.split(separator, most)


def _splitlines(meter: Meter, value: Any) -> list[str]:
    text = to_text(meter, value)
    meter.make(len(text) * HEAVY)
    return text.splitlines()


def _startswith(meter: Meter, value: Any, start: str) -> bool:
    return to_text(meter, value).startswith(to_text(meter, start))


def _endswith(meter: Meter, value: Any, end: str) -> bool:
    return to_text(meter, value).endswith(to_text(meter, end))


def _as_json(meter: Meter, value: Any, indent: int | None = None) -> str:
    return to_json(meter, value, whole(indent or 0, "tojson", 16))


TEXT_FILTERS: dict[str, Callable[..., Any]] = {
    "capitalize": _capitalize,
    "indent": _indent,
    "lower": _lower,
    "replace": _replace,
    "string": to_text,
    "title": _title,
    "tojson": _as_json,
    "trim": _trim,
    "truncate": _truncate,
    "upper": _upper,
    "wordcount": _wordcount,
}

TEXT_METHODS: dict[str, Callable[..., Any]] = {
    "capitalize": _capitalize,
    "endswith": _endswith,
    "lower": _lower,
    "lstrip": _lstrip,
    "replace": _replace,
    "rstrip": _rstrip,
    "split": _split,
    "splitlines": _splitlines,
    "startswith": _startswith,
    "strip": _trim,
    "title": _title,
    "upper": _upper,
}
