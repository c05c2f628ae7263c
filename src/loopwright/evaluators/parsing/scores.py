"""Scores read from text: one grammar, behind a declared label or where a pattern matched.

The grammar, in ASCII digits after NFKC, with an optional trailing full stop::

    number        0.85  1  .9  0,85  8 points      on the declared scale, 0..1 by default
    number/den    8/10  8 of 10  93 out of 100     describes itself, whatever the scale
    number%       93%  93 percent                  describes itself

It may stand in brackets or quotes: [[8]], <0.9>. Everything else is a problem, never a guess: 1,234 and
1e-1 and NaN and +0.9 are `unreadable`, a number off its scale is `out_of_range`. A sign is read only to
say so, and -0 is 0.

1. The last match decides. If an earlier one gave a different number the reading is `ambiguous`;
   it is not refused. If the last one cannot be read there is no falling back to an earlier one.
2. Behind a label (`read_score`) prose without another digit may follow on the line, so
   `SCORE: 0.95 (100% of tests pass)` and `SCORE: 0.8-0.9` are unreadable. Lines in a quotation or a
   fence say what somebody else said and are not read, unless the whole reply is one fence, nor is
   thinking.
3. Where a pattern matched (`read_score_by_pattern`) prose may follow, because the user's pattern
   says where the number is; only what would change the number's value is looked at.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ...errors import ConfigurationError
from ...models.replies.own_words import own_words
from .text import lines_with_quotes, normalise_characters, squeezed, strip_emphasis, strip_fence

__all__ = [
    "ScoreProblem",
    "ScoreReading",
    "is_repeated",
    "read_number",
    "read_score",
    "read_score_by_pattern",
]

ScoreProblem = Literal["missing", "unreadable", "out_of_range", "quoted"]
_Scale = tuple[Fraction, Fraction]

# More digits than any float has are damage, not precision; the bound also keeps every scan short.
# A comma is a decimal one where it cannot part thousands.
_NUMBER = (
    r"(?:0,[0-9]{1,32}|[0-9]{1,2},[0-9]{1,2}(?![0-9])"
    r"|[0-9]{1,32}(?:\.[0-9]{1,32})?|\.[0-9]{1,32})"
)
_UNIT = (
    rf"[ \t]{{0,8}}(?:(?:/|(?:out[ \t]{{1,8}})?of\b)[ \t]{{0,8}}(?P<den>{_NUMBER})"
    r"|(?P<percent>%|per[ \t]?cent\b|pct\b)|(?P<points>points?\b|pts?\b))"
)
_VALUE = re.compile(rf"(?P<sign>-?)(?P<number>{_NUMBER})(?:{_UNIT})?\.?", re.IGNORECASE)
_BRACKETS = {"[[": "]]", "[": "]", "<": ">", "(": ")", '"': '"', "'": "'", "\u201c": "\u201d"}
_PROSE = tuple(" \t,;:!(-\u2013\u2014")  # may come between a number and prose
_UNIT_AFTER = re.compile(_UNIT, re.IGNORECASE)
# "1 out of ten", "1 von 10" and "1 star" are not 1.
_SPELT_UNIT = re.compile(
    r"[ \t]{0,8}\(?(?:out[ \t]{1,8}of\b|of[ \t]{1,8}(?:a[ \t]{1,8})?(?:one|five|ten|hundred)\b"
    r"|(?:of|von|sur|de|di|su|van|av|из)[ \t]{1,8}\d"
    r"|per[ \t]?cent\b|pct\b|points?\b|pts?\b|stars?\b|max(?:imum)?\b|on[ \t]a[ \t]scale\b"
    r"|[分点점割成])",
    re.IGNORECASE,
)
_LETTER = "0-9A-Za-z_\u00b5-\u058f\u1e00-\u1fff"
_WORD_START = rf"(?<![{_LETTER}])(?<![{_LETTER}][-./'\u2019])"
_NUMERIC = re.compile(r".{0,12}?\d|\W{0,4}(?:nan|inf|infinity)\b", re.IGNORECASE)
_NOTHING = re.compile(r"(?:n/?a|none|null|unknown|undefined|undecided)\b", re.IGNORECASE)
_FIGURES = re.compile(r"\W{0,8}[\d.,]+(?:[ \t]{0,8}(?:/|(?:out[ \t]{1,8})?of)[ \t]{0,8}[\d.,]+)?")
_ALPHANUMERIC = re.compile(r"[^\W_]")
_TRAILING = ".,;:!)]}\"'"
# Cased letters, marks and digits; a letter without case may follow: in Japanese nothing separates.
_JOINING = {"Lu", "Ll", "Lt", "Lm", "Mn", "Mc", "Me", "Nd", "Nl", "No"}
_WINDOW = 200  # longer than the longest number with its unit
_KEPT, _KEPT_LENGTH = 20, 80

_SENTENCES: dict[ScoreProblem, str] = {
    "missing": "no score was found in the reply",
    "unreadable": "what stands where the score belongs is not one number, number/den or number%",
    "out_of_range": "the score lies off its scale, and a score is never clamped",
    "quoted": "a score stands only inside a quotation or a block of code",
}


@dataclass(frozen=True, slots=True)
class ScoreReading:
    """What a reply says about a score: a `score` from 0 to 1, or the `problem` with it.

    `ambiguous` says that earlier matches gave other numbers than the one taken, the last.
    `found` holds the raw text of the last 20 matches, each cut to 80 characters, in order.
    `detail` puts the problem in a sentence.
    """

    score: float | None
    ambiguous: bool = False
    problem: ScoreProblem | None = None
    detail: str = ""
    found: tuple[str, ...] = ()


def read_score(
    text: str,
    *,
    label: str | None = "score",
    scale: tuple[float, float] = (0.0, 1.0),
    candidate: str = "",
) -> ScoreReading:
    """Read the score that follows a label, with `:` or `=`; only prose without figures may follow it.

    The label is compared without case after NFKC, as a complete word or phrase. The number may also be
    on the next line that is not blank. A label at the start of a line always matches. Inside a line it
    matches if a digit, or a word for no number, is near: "the score: it is about style" does not match.

    Args:
        text: The reply of a model.
        label: The word before the number. None: the reply must be the number. Default: "score".
        scale: The lowest and the highest score. The result is between 0 and 1. Default: (0, 1).
        candidate: The rated text. Its scores are not read if the reply quotes them. Default: "".

    Returns:
        The score, or the reason why there is none.

    Raises:
        ConfigurationError: If the scale is not two finite numbers in order, or the label is empty.

    Example:
        >>> read_score("Clear and short. Score: 8 of 10").score
        0.8
    """
    exact = _exact_scale(scale)
    text = strip_fence(normalise_characters(own_words(text)))
    if label is None:
        alone = strip_emphasis(text).strip()
        return _conclude([alone] if alone else [], exact, prose=False)
    known = squeezed(candidate)
    matches = [
        (value, quoted)
        for value, quoted in _labelled(text, _label_pattern(label))
        if not (known and is_repeated(f"{label} {_figures(value)}", known))
    ]
    own = [value for value, quoted in matches if not quoted]
    if matches and not own:
        return _refused("quoted", [value for value, _ in matches])
    return _conclude(own, exact)


def is_repeated(said: str, known: str) -> bool:
    """Whether a text, squeezed, occurs in a squeezed candidate, with the same figures at its end."""
    own = squeezed(said)
    return bool(own) and re.search(re.escape(own) + r"(?!\d)", known) is not None


def _figures(value: str) -> str:
    found = _FIGURES.match(value)
    return found[0] if found else value


def _label_pattern(label: str) -> re.Pattern[str]:
    words = strip_emphasis(normalise_characters(label)).strip().rstrip(":=").split()
    if not words:
        raise ConfigurationError(
            f"the label of a score is {label!r}, expected a word such as 'score'; "
            f"give label=None if the reply is the number alone"
        )
    phrase = r"[ \t]+".join(re.escape(word) for word in words)
    return re.compile(rf"{_WORD_START}{phrase}[ \t]*[:=][ \t]*", re.IGNORECASE)


def _labelled(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """Yield the text behind each label, and whether label or text is quoted."""
    waiting: tuple[bool, bool] | None = None  # a label ended its line: opening? quoted?
    for raw, quoted in lines_with_quotes(text):
        line = strip_emphasis(raw).strip()
        if waiting and line:
            fits = quoted is waiting[1] and not pattern.search(line)
            value = line[:_WINDOW] if fits else ""
            if waiting[0] or _is_answer(value):
                yield value, waiting[1]
            waiting = None
        first = _ALPHANUMERIC.search(line)
        for found in pattern.finditer(line):
            opens = first is not None and first.start() == found.start()
            value = line[found.end() : found.end() + _WINDOW]
            if not value:
                waiting = opens, quoted
            elif opens or _is_answer(value):
                yield value, quoted
    if waiting:  # cut off where the score belongs: an earlier one must not stand in for it
        yield "", waiting[1]


def _is_answer(value: str) -> bool:
    return bool(_NUMERIC.match(value) or _NOTHING.match(value))


def _conclude(values: list[str], scale: _Scale, *, prose: bool = True) -> ScoreReading:
    if not values:
        return _refused("missing", [])
    read = {value: _read_value(value, scale, prose) for value in set(values)}
    last = read[values[-1]]
    others = {reading for value, reading in read.items() if _NUMERIC.match(value)} - {last}
    return _reading(last, ambiguous=bool(others), found=values)


def _read_value(value: str, scale: _Scale, prose: bool) -> float | ScoreProblem:
    opening = next((sign for sign in _BRACKETS if value.startswith(sign)), "")
    if opening:
        inner, closing, rest = value[len(opening) :].partition(_BRACKETS[opening])
        found = _VALUE.fullmatch(inner.strip()) if closing else None
    else:
        found = _VALUE.match(value)
        rest = value[found.end() :] if found else ""
        if rest and found and found[0].rstrip(".").isdecimal() and found[0].endswith("."):
            return "unreadable"  # the first item of a list
    if found is None or (rest and not (prose and _is_prose(rest))):
        return "unreadable"
    if found["points"] is None and found["den"] is None and _SPELT_UNIT.match(rest):
        return "unreadable"
    number = _exact(found["number"])
    return _place(-number if found["sign"] else number, found, scale)


def _is_prose(rest: str) -> bool:
    """Whether what follows a number is prose that says nothing else in figures."""
    return rest.startswith(_PROSE) and not any(char.isnumeric() for char in rest)


def _exact(number: str) -> Fraction:
    return Fraction(number.replace(",", "."))


def _place(number: Fraction, unit: re.Match[str] | None, scale: _Scale) -> float | ScoreProblem:
    """Return where a number lies on its scale; exact until the last step, so 93.7% is 0.937."""
    low, high = scale
    if unit and unit["percent"]:
        share = number / 100
    elif unit and unit["den"]:
        if not _exact(unit["den"]):
            return "unreadable"
        share = number / _exact(unit["den"])
    else:
        share = (number - low) / (high - low)
    return float(share) if 0 <= share <= 1 else "out_of_range"


def read_number(
    token: str, following: str, scale: tuple[float, float] = (0.0, 1.0), *, preceding: str = ""
) -> ScoreReading:
    """Read the number that a pattern captured, with the unit that follows it in the text.

    The token may carry trailing punctuation ("0.9.") or its own unit ("8/10"). Of `following`, the
    text right after the token, `/den` and `%` are honoured. It is unreadable if it shows that the
    token is a piece of something else: 0 of "0,85", 1 of "1e-1", 0.8 of "0.8-0.9", 1 of
    "1 out of 10". A minus right before the token, in `preceding`, makes it negative.

    Raises:
        ConfigurationError: the scale is not two finite numbers in order.
    """
    exact = _exact_scale(scale)
    value, _ = _read_match(token, following[:_WINDOW], preceding[-2:], exact)
    return _reading(value, ambiguous=False, found=[token])


def read_score_by_pattern(
    text: str,
    search: Iterable[tuple[int, int, str]],
    scale: tuple[float, float] = (0.0, 1.0),
    *,
    first: bool = False,
    candidate: str = "",
) -> ScoreReading:
    """Read the score at the last, or the first, of the matches that the caller's own search found in the text.

    `search` gives, in order, the start and end of the captured number in `text` and what was
    captured. `text` is what was searched, best the outcome of `normalise_reply`. A capture without
    a letter or digit ("..." of a format hint) is not a match, nor is one inside the unit of the
    one before (10 of 8/10), nor one whose line, up to there, occurs in `candidate`. What `search` raises
    while it runs is the caller's.

    Raises:
        ConfigurationError: the scale is not two finite numbers in order.
    """
    exact = _exact_scale(scale)
    known = squeezed(candidate)
    found: list[str] = []
    values: list[float | ScoreProblem] = []
    passed = 0
    for start, end, token in search:
        if start < passed or not _ALPHANUMERIC.search(token):
            continue
        if known and is_repeated(text[text.rfind("\n", 0, start) + 1 : end], known):
            continue
        following, preceding = text[end : end + _WINDOW], text[max(0, start - 2) : start]
        value, used = _read_match(token, following, preceding, exact)
        passed = end + used
        found.append(token)
        values.append(value)
    if not values:
        return _refused("missing", [])
    return _reading(values[0 if first else -1], ambiguous=len(set(values)) > 1, found=found)


def _read_match(
    token: str, following: str, preceding: str, scale: _Scale
) -> tuple[float | ScoreProblem, int]:
    """Return the reading of a captured token and how many characters of `following` it took."""
    token = token.strip(" \t\r\n*_`")
    bare = token.rstrip(_TRAILING)
    found = _VALUE.fullmatch(bare)
    if found is None or _continues(preceding):
        return "unreadable", 0
    unit = None if found["den"] or found["percent"] else _UNIT_AFTER.match(following)
    used = unit.end() if unit else 0
    rest = following[used:] if used else token[len(bare) :] + following
    if _is_continued(rest) or (not unit and _SPELT_UNIT.match(following)):
        return "unreadable", used
    minus = found["sign"] or (preceding.endswith("-") and not preceding[:-1].isalnum())
    number = _exact(found["number"])
    return _place(-number if minus else number, unit or found, scale), used


def _continues(preceding: str) -> bool:
    """Whether a token goes on with a number that began before it."""
    before, near = preceding[:-1], preceding[-1:]
    return near.isdigit() or (near in tuple(".,/-\u2013") and before.isdigit())


def _is_continued(following: str) -> bool:
    """Whether a number or word goes on right after a token."""
    near, after = following[:1], following[1:2]
    if near in tuple("_^/") or (near in tuple(".,:-\u2013") and after.isdigit()):
        return True
    return near != "" and unicodedata.category(near) in _JOINING


def _reading(value: float | ScoreProblem, *, ambiguous: bool, found: list[str]) -> ScoreReading:
    if isinstance(value, str):
        return _refused(value, found)
    return ScoreReading(score=value, ambiguous=ambiguous, found=_kept(found))


def _refused(problem: ScoreProblem, found: list[str]) -> ScoreReading:
    return ScoreReading(score=None, problem=problem, detail=_SENTENCES[problem], found=_kept(found))


def _kept(found: list[str]) -> tuple[str, ...]:
    return tuple(raw[:_KEPT_LENGTH] for raw in found[-_KEPT:])


def _exact_scale(scale: tuple[float, float]) -> _Scale:
    low, high = scale
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigurationError(
            f"the scale of a score is {scale!r}, expected two finite numbers, the lower first; "
            f"write (0, 10) for a score from 0 to 10"
        )
    return Fraction(str(low)), Fraction(str(high))
