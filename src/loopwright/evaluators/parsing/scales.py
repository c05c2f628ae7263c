"""A score of 0 to 100 in an object of a judge: never taken for one of 0 to 1, nor the other way round."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

__all__ = ["of_100"]

_TEXT = re.compile(
    r"\s*(?P<number>-?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*"
    r"(?:(?P<whole>(?:/|out of|of)\s*100(?:\.0+)?)|(?P<percent>%|percent|per cent)|points?)?\s*\.?\s*",
    re.IGNORECASE,
)


def of_100(value: Any, *, one: bool = True) -> tuple[float | None, str, str]:
    """Return a score from 0 to 1, what is wrong with it ("" if nothing), and a note.

    A fraction between 0 and 1 is no score of 100: it is noted and left out. `one` says whether a bare 1
    is 1 of 100; where it might be 1 of 1 it is a problem.

    >>> of_100("85/100"), of_100(0.9)[0], of_100(850)[1]
    ((0.85, '', ''), None, '850 is not from 0 to 100')
    """
    if value is None:
        return None, "", ""
    stated = False
    if isinstance(value, str):
        found = _TEXT.fullmatch(value)
        if found is None:
            return None, f"{value[:40]!r} is no number from 0 to 100", ""
        number = Fraction(found["number"])
        stated = bool(found["whole"] or found["percent"])
    elif isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None, "it is no number from 0 to 100", ""
    elif not -1e9 < value < 1e9:
        return None, "it is not from 0 to 100", ""
    else:
        number = Fraction(str(value))
    if not 0 <= number <= 100:
        return None, f"{float(number):g} is not from 0 to 100", ""
    if 0 < number < 1 and not stated:
        return None, "", f"a score of {float(number):g} is left out: asked for was one of 0 to 100"
    if number == 1 and not one and not stated:
        return None, "1 may mean 1 of 100 or 1 of 1", ""
    return float(number / 100), "", ""
