"""How right the fields are, for resumes whose right answers are known: `python measure.py`."""

from __future__ import annotations

import re
from typing import Any


def accuracy(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """Return the mean over six fields: 0 or 1 for a text, F1 for a list; 1 for what rightly lacks."""
    scores = [float(_plain(found[key]) == _plain(expected[key])) for key in ("name", "email")]
    phones = [re.sub(r"\D", "", given["phone"]) for given in (found, expected)]
    scores.append(float(phones[0] == phones[1]))
    scores += [f1(found[key], expected[key]) for key in ("skills", "experience", "education")]
    return sum(scores) / len(scores)


def f1(found: list[Any], expected: list[Any]) -> float:
    """Return the harmonic mean of precision and recall of a list, in any order; 1 if both are
    empty."""
    first, second = {_plain(item) for item in found}, {_plain(item) for item in expected}
    return 2 * len(first & second) / (len(first) + len(second)) if first or second else 1.0


def _plain(item: Any) -> str:
    text = "; ".join(map(str, item.values())) if isinstance(item, dict) else str(item)
    return re.sub(r"\s+", " ", text).strip().lower()
