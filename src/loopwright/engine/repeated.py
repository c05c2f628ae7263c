"""An evaluator that is run several times, so that the noise of its metrics averages out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from ..records import Evaluation, Result, as_evaluation
from ..records.codec import Json
from .context import Context
from .outcomes import attempt, combined
from .step import CompositeStep, Step, digest_of, fingerprinted

__all__ = ["TAKES", "Repeated"]


def _median(values: Sequence[float]) -> float:
    # Not from `statistics`, whose import takes longer than that of the engine.
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


TAKES: Mapping[str, Callable[[Sequence[float]], float]] = MappingProxyType(
    {"median": _median, "mean": _mean, "min": min, "max": max}
)


class Repeated(CompositeStep[object, Evaluation]):
    """An evaluator that measures its metrics repeatedly. Each measurement is an effect, `measure-1`, ….

    Args:
        inner: The evaluator.
        repeats: By metric, the number of measurements and which value counts. The others keep their first
            value.
    """

    keeps_types: ClassVar[bool] = True

    def __init__(self, inner: Step, repeats: Mapping[str, tuple[int, str]]) -> None:
        self.inner = inner
        self.repeats = dict(repeats)
        self.name = inner.name

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("repeated", self.inner.fingerprint, repr(sorted(self.repeats.items())))

    @property
    def scores_only(self) -> bool:
        """Whether the evaluator never gives a verdict."""
        return self.inner.scores_only

    def parts(self) -> Iterable[Step]:
        return [self.inner]

    async def run(self, value: Json, ctx: Context) -> Result:
        """Measure until each metric has its number of values; stop at a failed check."""
        results: list[Evaluation] = []
        ended = []
        for number in range(1, max(count for count, _ in self.repeats.values()) + 1):
            name = f"measure-{number}"
            result = await attempt(ctx, name, self.inner, value)
            results.append(as_evaluation(result.output))
            ended.append((name, self.inner, result))
            # A check before the measurement failed, so the others would fail too.
            if results[-1].passed is False or results[-1].undecided:
                return combined(self.name, results[-1], ended, ctx)
        return combined(self.name, self._merged(results), ended, ctx)

    def _merged(self, results: Sequence[Evaluation]) -> Evaluation:
        values: dict[str, float] = dict(results[0].metrics)
        samples: dict[str, Json] = {}
        for name, (count, take) in self.repeats.items():
            measured = [item.metrics[name] for item in results[:count] if name in item.metrics]
            if measured:
                values[name] = TAKES[take](measured)
                samples[name] = list(measured)
        last = results[-1]
        return replace(last, metrics=values, details={**last.details, "samples": samples})
