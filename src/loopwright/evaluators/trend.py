"""The trend of a loop's scores: improving, degrading, stable or fluctuating."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..records import History, codec, reaches
from ..records.codec import Json

__all__ = ["Trend", "trend"]

# Both limits are those of the loop controller's confidence scorer.
STILL = 0.02  # a smaller mean change is stable
SWING = 0.05  # changes of at least this size in both directions are fluctuation


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of scores. See `trend`.

    Args:
        kind: `improving`, `degrading`, `stable` or `fluctuating`.
        mean_delta: The mean change per iteration.
        deltas: The change of each iteration.
        predicted: The number of further iterations until the threshold, if scores continue to change by
            `mean_delta`. 0 if the latest score reaches it, None if it will not be reached.
    """

    kind: str
    mean_delta: float
    deltas: tuple[float, ...]
    predicted: int | None

    def to_json(self) -> dict[str, Json]:
        """Return a JSON object."""
        return {
            "kind": self.kind,
            "mean_delta": self.mean_delta,
            "deltas": list(self.deltas),
            "predicted": self.predicted,
        }


def trend(scores: History | Iterable[float], threshold: float = 0.85) -> Trend:
    """Return the trend of scores: improving, degrading, stable or fluctuating.

    `fluctuating` means changes of 0.05 or more in both directions. Otherwise the mean change decides:
    `stable` below 0.02 in size, `improving` above 0, `degrading` below. Fewer than two scores are stable.
    Changes are rounded to 9 decimals. The limits are those of the loop controller's confidence scorer.

    Args:
        scores: Scores from 0 to 1 in order, or a history, of which the eligible iterations count.
        threshold: The score to predict. Default: 0.85.

    Returns:
        The trend.

    Raises:
        ConfigurationError: For a score or threshold that is not a number from 0 to 1, such as NaN.

    Example:
        >>> trend([0.4, 0.5, 0.6])
        Trend(kind='improving', mean_delta=0.1, deltas=(0.1, 0.1), predicted=3)
    """
    values = scores.scores if isinstance(scores, History) else list(scores)
    for number, score in enumerate(values, start=1):
        codec.number(f"trend: score {number}", score, minimum=0, maximum=1)
    codec.number("trend: threshold", threshold, minimum=0, maximum=1)
    # Rounded, so that 0.85 - 0.80 counts as the swing of 0.05 that a user sees.
    deltas = tuple(round(b - a, 9) for a, b in itertools.pairwise(values))
    mean = round(math.fsum(deltas) / len(deltas), 9) if deltas else 0.0
    kind = _kind(deltas, mean)
    return Trend(kind, mean, deltas, _predicted(values, kind, mean, threshold))


def _kind(deltas: tuple[float, ...], mean: float) -> str:
    if deltas and max(deltas) >= SWING and min(deltas) <= -SWING:
        return "fluctuating"
    if abs(mean) < STILL:
        return "stable"
    return "improving" if mean > 0 else "degrading"


def _predicted(scores: list[float], kind: str, mean: float, threshold: float) -> int | None:
    if scores and reaches(scores[-1], threshold):
        return 0
    if kind != "improving":
        return None
    # The threshold is not reached yet, so at least one more iteration is needed.
    return max(1, math.ceil(round((threshold - scores[-1]) / mean, 9)))
