"""How far texts agree: by the words that they share, which needs no model and is the same everywhere."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

__all__ = ["agreement"]

_WORD = re.compile(r"[^\W_]+")
_MOST = 100_000  # characters of a text that count


def agreement(texts: Sequence[str]) -> float:
    """Return the mean cosine of the word counts of each two texts, from 0 to 1; of fewer than two texts it is 0.

    Source of the formula: the vector space model of Salton, Wong and Yang (1975), with words as they are written.

    >>> agreement(["buy the red car", "buy the red car"]), agreement(["buy it", "leave that"])
    (1.0, 0.0)
    """
    counted = [Counter(_WORD.findall(text[:_MOST].casefold())) for text in texts]
    pairs = [_cosine(a, b) for a, b in combinations(counted, 2)]
    return round(min(1.0, math.fsum(pairs) / len(pairs)), 4) if pairs else 0.0


def _cosine(a: Counter[str], b: Counter[str]) -> float:
    lengths = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return sum(count * b[word] for word, count in a.items()) / lengths if lengths else 0.0
