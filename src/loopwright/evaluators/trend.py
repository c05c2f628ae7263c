"""Where the scores of a loop are going: improving, degrading, stable or fluctuating."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..records import History, codec, reaches
from ..records.codec import Json

__all__ = ["Trend", "trend"]

STILL = 0.02  # a mean change of less is no change
SWING = 0.05  # changes of at least this much both up and down are fluctuation


@dataclass(frozen=True, slots=True)
class Trend:
    """Where scores are going.

    `kind` is `improving`, `degrading`, `stable` (the mean change is below 0.02 in size) or
    `fluctuating` (changes of 0.05 or more both up and down). `predicted` is how many more
    iterations reach the threshold if scores go on changing by `mean_delta`: 0 if the latest has
    reached it, None if they will not.
    """

    kind: str
    mean_delta: float
    deltas: tuple[float, ...]
    predicted: int | None

    def to_json(self) -> dict[str, Json]:
        """Return it as a JSON object."""
        return {
            "kind": self.kind,
            "mean_delta": self.mean_delta,
            "deltas": list(self.deltas),
            "predicted": self.predicted,
        }


def trend(scores: History | Iterable[float], threshold: float = 0.85) -> Trend:
    """Return where scores are going; of a history those of its eligible iterations.

    Fewer than two scores are stable. A mean change of exactly 0.02, and changes of exactly 0.05,
    count as changes; differences below a billionth do not.

    Raises:
        ConfigurationError: for a score or threshold that is no number from 0 to 1, such as NaN.

    >>> trend([0.4, 0.5, 0.6])
    Trend(kind='improving', mean_delta=0.1, deltas=(0.1, 0.1), predicted=3)
    """
    given = scores.scores if isinstance(scores, History) else list(scores)
    for number, score in enumerate(given, start=1):
        codec.number(f"trend: score {number}", score, least=0, most=1)
    codec.number("trend: threshold", threshold, least=0, most=1)
    deltas = tuple(round(b - a, 9) for a, b in itertools.pairwise(given))
    mean = round(math.fsum(deltas) / len(deltas), 9) if deltas else 0.0
    kind = _kind(deltas, mean)
    return Trend(kind, mean, deltas, _predicted(given, kind, mean, threshold))


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
    return max(1, math.ceil(round((threshold - scores[-1]) / mean, 9)))
