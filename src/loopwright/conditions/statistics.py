"""The statistics behind two guards: repeated outputs and falling scores.

Pure functions of what was recorded. The drawdown rule and its table are those of the project's
notes on stopping (simulated flat runs, 5 % false alarms); the strict rule is the loop controller's
"three falls in a row".
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Sequence

__all__ = ["cycle_period", "drawdown_limit", "shingles", "similarity", "strictly_falling"]

# Drawdown of two-score means, in units of sigma, that a flat run of T iterations exceeds in 5 % of runs.
_HORIZONS = (4, 5, 6, 8, 10, 15, 20)
_LIMITS = (1.71, 2.03, 2.26, 2.55, 2.74, 3.05, 3.24)


def drawdown_limit(horizon: int) -> float:
    """Return h(T): the drawdown in sigmas for 5 % false alarms on a flat run of `horizon`
    iterations.

    Between the tabled horizons it is interpolated, outside them the nearest one stands.
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
    """Whether the last `window` scores each lie below the one before."""
    recent = scores[-window:]
    return len(recent) == window and all(b < a for a, b in itertools.pairwise(recent))


def cycle_period(labels: Sequence[str], longest: int = 4) -> int:
    """Return the shortest period p <= `longest` whose last two cycles are equal, or 0.

    >>> cycle_period(["a", "b", "a", "b"]), cycle_period(["a", "b", "c"])
    (2, 0)
    """
    for period in range(1, longest + 1):
        if len(labels) >= 2 * period and labels[-period:] == labels[-2 * period : -period]:
            return period
    return 0


def shingles(text: str, size: int = 4) -> frozenset[tuple[str, ...]]:
    """Return the set of `size`-word runs of a text, case folded; a shorter text is one run.

    A text without words is compared as it is.
    """
    words = re.findall(r"\w+", text.casefold()) or [text]
    if len(words) <= size:
        return frozenset({tuple(words)})
    return frozenset(tuple(words[i : i + size]) for i in range(len(words) - size + 1))


def similarity(a: frozenset[tuple[str, ...]], b: frozenset[tuple[str, ...]]) -> float:
    """Return the Jaccard similarity of two shingle sets, from 0 to 1."""
    return len(a & b) / len(a | b) if a or b else 1.0
