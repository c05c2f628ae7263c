"""Scores from 0 to 100 in the JSON object of a judge, never confused with scores from 0 to 1."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

__all__ = ["of_100"]

# Every repetition is bounded: the text comes from a model and may be hostile.
_TEXT = re.compile(
    r"\s*(?P<number>-?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*"
    r"(?:(?P<whole>(?:/|out of|of)\s*100(?:\.0+)?)|(?P<percent>%|percent|per cent)|points?)?\s*\.?\s*",
    re.IGNORECASE,
)


def of_100(value: Any, *, one_of_100: bool = True) -> tuple[float | None, str, str]:
    """Return a score from 0 to 1, the problem ("" without one), and a note.

    A fraction between 0 and 1 is not on the scale of 100. It is left out, with a note. `one_of_100` says whether
    a bare 1 means 1 of 100. Otherwise it is a problem, because it may mean 1 of 1.

    Example:
        >>> of_100("85/100"), of_100(0.9)[0], of_100(850)[1]
        ((0.85, '', ''), None, '850 is not from 0 to 100')
    """
    # A verdict without a score is complete, so a missing score is not a problem.
    if value is None:
        return None, "", ""
    # "0.5 %" and "1/100" name their scale; a bare number does not.
    has_scale = False
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is None:
            return None, f"{value[:40]!r} is no number from 0 to 100", ""
        number = Fraction(match["number"])
        has_scale = bool(match["whole"] or match["percent"])
    # bool is a subclass of int, and NaN is the only value that differs from itself.
    elif isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None, "it is no number from 0 to 100", ""
    # Fraction(str(1e300)) would have 300 digits.
    elif not -1e9 < value < 1e9:
        return None, "it is not from 0 to 100", ""
    else:
        # From the digits, not from the binary value: 0.1 must stay one tenth.
        number = Fraction(str(value))
    if not 0 <= number <= 100:
        return None, f"{float(number):g} is not from 0 to 100", ""
    if 0 < number < 1 and not has_scale:
        return None, "", f"a score of {float(number):g} is left out: asked for was one of 0 to 100"
    if number == 1 and not one_of_100 and not has_scale:
        return None, "1 may mean 1 of 100 or 1 of 1", ""
    return float(number / 100), "", ""
