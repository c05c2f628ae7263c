"""Text of a model made ready to be read: cleaned, normalised, quotations marked.

Rules of this module and of its two readers, `scores_text` and `verdicts`:

1. Total: any `str` gives an outcome, no text raises. Only a wrong configuration does.
2. Linear: every scan passes over the text a fixed number of times, whatever the text says.
3. Nothing is repaired, clamped or guessed. What a reader cannot read it names as a problem.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from ...models.replies.own_words import IGNORABLE
from ...models.replies.strict_json import (
    JSON_BYTES,
    JSON_DEPTH,
    JsonProblem,
    JsonReading,
    clean_text,
    closes_fence,
    opening_fence,
    read_json,
    strip_fence,
)

__all__ = [
    "JSON_BYTES",
    "JSON_DEPTH",
    "JsonProblem",
    "JsonReading",
    "clean_text",
    "lines_with_quotes",
    "normalise_characters",
    "normalise_reply",
    "read_json",
    "strip_emphasis",
    "strip_fence",
]

_IGNORABLE = re.compile(f"[{IGNORABLE}]")
# A run of emphasis marks goes unless it stands inside a word or a number: snake_case, 8*10, 0.*9.
_EMPHASIS = re.compile(r"(?<![*_`])(?:(?<![\w.,])[*_`]++|[*_`]++(?!\w|[.,]\d))")
_MARK_RUN = 30


def normalise_characters(text: str) -> str:
    """Return the text cleaned, in NFKC and without zero-width characters; marks of emphasis stay.

    Two departures from bare NFKC. A digit that is no digit of a number (superscript, circled,
    "digit full stop") is set off by a "^", so that the footnote in 0.9² cannot turn it into 0.92.
    Of more than 30 combining marks in a row only 30 stay, because ordering them takes quadratic
    time; the same bound as in Unicode's Stream-Safe Text Format (UAX 15).
    """
    text = clean_text(text)
    if text.isascii():
        return text
    text = _IGNORABLE.sub("", text)
    foreign = [char for char in set(text) if not char.isascii()]
    text = _bound_marks(text, foreign)
    text = text.translate({ord(char): f"^{plain}" for char, plain in _digit_look_alikes(foreign)})
    return unicodedata.normalize("NFKC", text)


def _bound_marks(text: str, characters: list[str]) -> str:
    marks = "".join(
        re.escape(char)
        for char in characters
        if unicodedata.combining(unicodedata.normalize("NFKD", char)[0])
    )
    if not marks:
        return text
    return re.sub(f"([{marks}]{{{_MARK_RUN}}})[{marks}]+", r"\1", text)


def _digit_look_alikes(characters: list[str]) -> Iterator[tuple[str, str]]:
    for char in characters:
        if not unicodedata.decomposition(char).startswith(("<wide>", "<font>")):
            plain = unicodedata.normalize("NFKC", char)
            if any("0" <= digit <= "9" for digit in plain):
                yield char, plain


def strip_emphasis(text: str) -> str:
    """Return the text without the marks of Markdown emphasis and inline code: * _ and backtick.

    Marks between two characters of a word or a number stay, so `QUALITY_SCORE` keeps its name and
    `8*10` does not become 810. Code fences lose their backticks: look for quotations first.
    """
    return _EMPHASIS.sub("", text)


def normalise_reply(text: str) -> str:
    """Return the reply of a model as a pattern should see it: plain characters, no emphasis.

    Use it before a user's pattern is searched; positions found are positions in this text.
    """
    return strip_emphasis(normalise_characters(text))


def lines_with_quotes(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line and whether it is quoted: in a `>` quotation or a fenced block of code.

    The lines of the fence itself are quoted; a fence that is never closed quotes all that follows.
    """
    fence = ""
    for line in text.splitlines():
        if fence:
            yield line, True
            if closes_fence(line, fence):
                fence = ""
            continue
        fence = opening_fence(line)
        yield line, bool(fence) or line.lstrip().startswith(">")
