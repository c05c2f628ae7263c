"""The trend of a loop's scores, and how similar texts are by their words or characters, without a model."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from ..engine.step import FunctionStep, digest_of
from ..errors import ConfigurationError
from ..records import Criterion, Evaluation, History, codec, reaches
from ..records.codec import Json

__all__ = [
    "Trend",
    "agreement",
    "similarity",
    "trend",
]

_WORD = re.compile(r"[^\W_]+")
_CHARACTERS = (
    100_000  # the part of a text that is compared, which bounds the time for hostile output
)


def agreement(texts: Sequence[str]) -> float:
    """Return how far several texts agree: the mean cosine similarity of each pair's word counts.

    Formula: for word counts a and b, sum(a_i b_i) / (|a| |b|), the vector space model of Salton, Wong and
    Yang, "A vector space model for automatic indexing" (1975). Case is ignored; the first 100,000
    characters of each text count.

    Args:
        texts: The texts.

    Returns:
        A number from 0 (no common word) to 1 (the same words equally often), to 4 decimals. 0 for fewer
        than two texts.

    Example:
        >>> agreement(["buy the red car", "buy the red car"]), agreement(["buy it", "leave that"])
        (1.0, 0.0)
    """
    counts = [Counter(_WORD.findall(text[:_CHARACTERS].casefold())) for text in texts]
    pairs = []
    for a, b in combinations(counts, 2):
        lengths = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
        common = sum(count * b[word] for word, count in a.items())
        pairs.append(common / lengths if lengths else 0.0)
    # The square roots of equal counts may give a cosine slightly above 1.
    return round(min(1.0, math.fsum(pairs) / len(pairs)), 4) if pairs else 0.0


def similarity(
    expected: str, *, at_least: float | None = None, name: str = "similarity"
) -> FunctionStep:
    """Make an evaluator that scores how similar an output is to an expected text.

    Formula: 2 |A and B| / (|A| + |B|) for the multisets A and B of adjacent character pairs, the
    coefficient of Dice, "Measures of the amount of ecologic association between species" (1945). It takes
    linear time. Case and white space at the ends are ignored, other white space counts as one blank. An
    output that is not text is compared as JSON. The first 100,000 characters of each text count.

    Args:
        expected: The expected text.
        at_least: The score from which an output passes. Default: no verdict.
        name: The name of the criterion. Default: "similarity".

    Returns:
        A step from an output to an Evaluation with a score from 0 to 1, to 4 decimals. Equal texts score
        1, texts without a common pair 0.

    Raises:
        ConfigurationError: For a blank text, or a limit outside 0 to 1.

    Example:
        >>> from loopwright import run_sync
        >>> run_sync(similarity("The cat sat."), "The cat sat down.").output.score
        0.7407
        >>> run_sync(similarity("The cat sat.", at_least=0.9), "the  cat sat.").output.passed
        True
    """
    if not isinstance(expected, str) or not expected.strip():
        raise ConfigurationError(f"{name}: {expected!r} is not an expected text. Use a text.")
    if at_least is not None:
        codec.number(f"{name}: at_least", at_least, minimum=0, maximum=1)
    target = _normal(expected)

    async def evaluate(value: Json) -> Evaluation:
        text, share = _normal(codec.text_of(value)), 1.0
        # Texts of one character have no pairs, but equal ones are similar.
        if text != target:
            a, b = Counter(pairwise(text)), Counter(pairwise(target))
            total = a.total() + b.total()
            share = round(2 * (a & b).total() / total, 4) if total else 0.0
        if at_least is None:
            return Evaluation(share)
        passed = reaches(share, at_least)
        gap = (
            ""
            if passed
            else f"the similarity to the expected text is {share:g}, below {at_least:g}"
        )
        improvements = () if passed else (gap,)
        return Evaluation(share, passed, gap, improvements, (Criterion(name, passed, gap),))

    step = FunctionStep(
        evaluate, name=name, fingerprint=digest_of("similarity", target, repr(at_least))
    )
    # A loop with this evaluator needs a success condition; without one the engine warns (`no_goal`).
    step.scores_only = at_least is None
    return step


def _normal(text: str) -> str:
    return " ".join(text[:_CHARACTERS].casefold().split())


# Source of both limits: the scorer that `rubric` names.
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
    Changes are rounded to 9 decimals.

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
    if deltas and max(deltas) >= SWING and min(deltas) <= -SWING:
        kind = "fluctuating"
    elif abs(mean) < STILL:
        kind = "stable"
    else:
        kind = "improving" if mean > 0 else "degrading"
    predicted = None
    if values and reaches(values[-1], threshold):
        predicted = 0
    elif kind == "improving":
        # The threshold is not reached yet, so at least one more iteration is needed.
        predicted = max(1, math.ceil(round((threshold - values[-1]) / mean, 9)))
    return Trend(kind, mean, deltas, predicted)
