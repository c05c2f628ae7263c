"""Statistics of recorded outputs and scores, for two conditions: repeated outputs, falling scores.

Sources: the drawdown table is the result of a simulation of runs without a trend and with normal noise,
at 5 % false alarms. The strict rule is the loop controller's "three falls in a row". The similarity of
texts is the Jaccard index of their word shingles (Broder 1997).
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Sequence

# The drawdown of two-score means, in sigmas, that 5 % of runs of T iterations without a trend exceed.
_HORIZONS = (4, 5, 6, 8, 10, 15, 20)
_LIMITS = (1.71, 2.03, 2.26, 2.55, 2.74, 3.05, 3.24)


def drawdown_limit(horizon: int) -> float:
    """Return h(T), the drawdown in sigmas with 5 % false alarms, for T = `horizon` iterations.

    It is interpolated between the horizons of the table, and constant outside of them.
    """
    if horizon <= _HORIZONS[0]:
        return _LIMITS[0]
    if horizon >= _HORIZONS[-1]:
        return _LIMITS[-1]
    right = bisect.bisect_left(_HORIZONS, horizon)
    low, high = _HORIZONS[right - 1], _HORIZONS[right]
    share = (horizon - low) / (high - low)
    return _LIMITS[right - 1] + share * (_LIMITS[right] - _LIMITS[right - 1])


def strictly_falling(scores: Sequence[float], window: int) -> bool:
    """Return whether each of the last `window` scores is below the one before."""
    recent = scores[-window:]
    return len(recent) == window and all(b < a for a, b in itertools.pairwise(recent))


def cycle_period(labels: Sequence[str], maximum: int = 4) -> int:
    """Return the shortest period up to `maximum` whose last two cycles are equal, or 0.

    >>> cycle_period(["a", "b", "a", "b"]), cycle_period(["a", "b", "c"])
    (2, 0)
    """
    for period in range(1, maximum + 1):
        if len(labels) >= 2 * period and labels[-period:] == labels[-2 * period : -period]:
            return period
    return 0


def shingles(text: str, size: int = 4) -> frozenset[tuple[str, ...]]:
    """Return the set of `size`-word sequences of a text, case folded.

    A text with fewer words is one sequence, a text without words is its own sequence.
    """
    words = re.findall(r"\w+", text.casefold()) or [text]
    if len(words) <= size:
        return frozenset({tuple(words)})
    return frozenset(tuple(words[i : i + size]) for i in range(len(words) - size + 1))


def similarity(a: frozenset[tuple[str, ...]], b: frozenset[tuple[str, ...]]) -> float:
    """Return the Jaccard similarity of two shingle sets, from 0 to 1."""
    return len(a & b) / len(a | b) if a or b else 1.0
