"""The metrics of a loop: their direction and unit, the one that orders iterations, acceptance, and repetition.

1. An iteration is accepted if its objective is better than that of the last accepted one by more than
   `min_delta`. The first one is compared with the evaluation of the baseline, if there is one.
2. The decision is part of the record, so that a resumed run reads it and the best is the last accepted one.
3. A metric makes no score, unless `score` says how.
4. An evaluator may measure several times, so that the noise of its metrics averages out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from ..errors import ConfigurationError, nearest
from ..records import (
    MAXIMISE,
    MINIMISE,
    Evaluation,
    History,
    Iteration,
    Measure,
    Origin,
    Result,
    as_evaluation,
    exceeds,
)
from ..records.codec import Json, integer, number
from ..records.typed import Value
from .composites import attempt, combined
from .context import Context
from .step import CompositeStep, Step, digest_of, fingerprinted

if TYPE_CHECKING:
    from .confirmation import Confirm

__all__ = [
    "TAKES",
    "LoopMetrics",
    "Metric",
    "MetricScore",
    "Repeated",
    "metrics_of",
]


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
        for nth in range(1, max(count for count, _ in self.repeats.values()) + 1):
            name = f"measure-{nth}"
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


DIRECTIONS = (MINIMISE, MAXIMISE)


@dataclass(frozen=True, eq=False, repr=False)
class Metric(Value):
    """How a loop orders, repeats and shows a metric.

    Args:
        direction: `minimise` or `maximise`. Default: "", a metric that is only recorded and shown.
        unit: Its unit, for display, such as `s`. Default: none.
        min_delta: The smallest change, in its unit, that is an improvement. Default: 0.
        repeats: How often an output is evaluated for it, at least 1. Default: 1.
        take: The value of several measurements: `median`, `mean`, `min` or `max`. Default: `median`.

    Raises:
        ConfigurationError: For an unknown word, or a number out of range.

    Example:
        >>> Metric("minimise", unit="s", repeats=3).take
        'median'
    """

    direction: str = ""
    unit: str = ""
    min_delta: float = 0.0
    repeats: int = 1
    take: str = "median"

    def __post_init__(self) -> None:
        if self.direction and self.direction not in DIRECTIONS:
            raise ConfigurationError(
                f"metrics: {self.direction!r} is not a direction; use minimise or maximise"
                f"{nearest(str(self.direction), DIRECTIONS)}"
            )
        if not isinstance(self.unit, str):
            raise ConfigurationError(f"metrics: unit: {self.unit!r} is not text")
        number("metrics: min_delta", self.min_delta, minimum=0)
        integer("metrics: repeats", self.repeats, minimum=1)
        if self.take not in TAKES:
            raise ConfigurationError(
                f"metrics: take: {self.take!r} is none of {', '.join(TAKES)}{nearest(str(self.take), TAKES)}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class MetricScore(Value):
    """A score from 0 to 1 that is linear in a metric.

    A value outside of the range scores 0 or 1, and `details["clamped"]` of the evaluation is true.

    Args:
        metric: The name of the metric.
        worst: Its value with the score 0.
        best: Its value with the score 1.

    Raises:
        ConfigurationError: If the two values are equal or not finite.

    Example:
        >>> MetricScore("val_loss", worst=3.0, best=1.0).of(Evaluation(metrics={"val_loss": 1.5})).score
        0.75
    """

    metric: str
    worst: float
    best: float

    def __post_init__(self) -> None:
        for name in ("worst", "best"):
            number(f"score: {name}", getattr(self, name), minimum=-math.inf)
        if self.worst == self.best:
            raise ConfigurationError(
                f"score: worst and best are both {self.worst:g}; use the metric's values for the scores 0 and 1"
            )

    def of(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation with the score of its metric; without the metric, without a score."""
        value = evaluation.metrics.get(self.metric)
        if value is None:
            return replace(evaluation, score=None)
        share = (value - self.worst) / (self.best - self.worst)
        score = min(1.0, max(0.0, share))
        details = dict(evaluation.details)
        if score != share:
            details["clamped"] = True
        return replace(evaluation, score=score, details=details)


@dataclass(frozen=True, eq=False, repr=False)
class LoopMetrics(Value):
    """The metrics of one loop.

    Args:
        metrics: The declared metrics by name.
        objective: The name of the metric that orders the iterations, or "".
        objectives: The names of all objectives, the first one included.
        score: How a metric becomes the score, or None.
        confirm: How a better value is confirmed before it is accepted, or None.
    """

    metrics: Mapping[str, Metric]
    objective: str = ""
    score: MetricScore | None = None
    confirm: Confirm | None = field(default=None, repr=False)
    objectives: tuple[str, ...] = field(default=(), repr=False)

    @property
    def repeats(self) -> dict[str, tuple[int, str]]:
        """By name, how often a metric is measured and which value counts, for those measured repeatedly."""
        return {
            name: (item.repeats, item.take)
            for name, item in self.metrics.items()
            if item.repeats > 1
        }

    def scored(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation with the score that its metric makes, or with its score as the metric `score`."""
        if "score" in self.metrics and evaluation.score is not None:
            metrics = {"score": evaluation.score, **evaluation.metrics}
            evaluation = replace(evaluation, metrics=metrics)
        return evaluation if self.score is None else self.score.of(evaluation)

    def rank(self, values: Mapping[str, float]) -> float | None:
        """Return the value of the objective so that higher ones are better; None without it."""
        if self.objective not in values:
            return None
        least = self.metrics[self.objective].direction == MINIMISE
        return -values[self.objective] if least else values[self.objective]

    def origin(self, baseline: Evaluation | None) -> Origin:
        """Return what the first iterations of a loop with an objective are compared with."""
        rank = None if baseline is None else self.rank(baseline.metrics)
        min_delta = self.metrics[self.objective].min_delta
        return Origin(baseline, rank, min_delta, self.confirm is not None)

    def judged(self, item: Iteration, history: History, baseline: Evaluation | None) -> Iteration:
        """Return an iteration with its measures, and whether it is accepted."""
        if item.evaluation is not None and (self.score is not None or "score" in self.metrics):
            item = replace(item, evaluation=self.scored(item.evaluation))
        # A value changes from that of the last accepted iteration, or of the baseline.
        if self.objective and (best := history.best) is not None:
            baseline = best.evaluation
        record = self.confirmation(item)
        base = {} if baseline is None else dict(baseline.metrics)
        if record is not None and "of" in record:
            base[self.objective] = record["of"]
        values = {} if item.evaluation is None else item.evaluation.metrics
        measures = tuple(
            Measure(
                name,
                values[name],
                unit=metric.unit,
                direction=metric.direction,
                change=values[name] - base[name] if name in base else None,
                objective=name in self.objectives and self.objective in values,
            )
            for name, metric in self._ordered.items()
            if name in values
        )
        if not self.objective:
            return replace(item, measures=measures)
        objective = next((measure for measure in measures if measure.objective), None)
        if self.confirm is None:
            accepted = self._better(objective)
        else:
            accepted = record is not None and record["accepted"]
        return replace(item, measures=measures, accepted=accepted and item.sound)

    @property
    def _ordered(self) -> dict[str, Metric]:
        # Of several objectives, the first measure of an iteration is the one that orders it.
        first = self.objectives if len(self.objectives) > 1 else ()
        return {name: self.metrics[name] for name in (*first, *self.metrics)}

    def confirmation(self, item: Iteration) -> dict[str, Json] | None:
        """Return the record of the confirmation of an iteration, or None."""
        if self.confirm is None or item.evaluation is None or (item.number and not item.sound):
            return None
        return item.evaluation.details.get("confirm")

    def _better(self, measure: Measure | None) -> bool:
        if measure is None:
            return False
        if measure.change is None:
            return True
        gain = -measure.change if measure.direction == MINIMISE else measure.change
        least = self.metrics[self.objective].min_delta
        return exceeds(gain, least)


def metrics_of(
    metrics: Mapping[str, str | Metric] | None,
    objective: str | Sequence[str],
    score: object,
    confirm: Confirm | None = None,
) -> LoopMetrics | None:
    """Return the metrics that a loop declares, checked; None without any.

    Raises:
        ConfigurationError: For an invalid declaration, or an objective that is not a declared metric with a
            direction.
    """
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ConfigurationError(
            f"loop: metrics: {metrics!r:.60} is not a mapping; use metrics={{'val_loss': 'minimise'}}"
        )
    declared = {
        str(name): item if isinstance(item, Metric) else Metric(item)
        for name, item in (metrics or {}).items()
    }
    if isinstance(score, Mapping):
        fields = dict(score)
        try:
            score = MetricScore(**fields)
        except TypeError:
            raise ConfigurationError(
                f"loop: score: it has the fields {', '.join(map(str, fields))}; use metric, worst and best"
            ) from None
    if score is not None and not isinstance(score, MetricScore):
        raise ConfigurationError(
            f"loop: score: {score!r:.60} is not a MetricScore; use MetricScore('val_loss', worst=3.0, best=0.8)"
        )
    names = [objective] if isinstance(objective, str) else objective
    if not isinstance(names, Sequence) or not names:
        raise ConfigurationError(
            f"loop: objective: {objective!r} names no metric; use a name, or a list of names"
        )
    chosen = [_objective(declared, name) for name in names]
    if len(set(chosen)) < len(chosen):
        raise ConfigurationError(f"loop: objective: {', '.join(chosen)} has a name twice")
    if not declared and score is None:
        return None
    return LoopMetrics(declared, chosen[0], score, confirm, tuple(filter(None, chosen)))


def _objective(declared: Mapping[str, Metric], objective: str) -> str:
    ordering = [name for name, metric in declared.items() if metric.direction]
    if not isinstance(objective, str):
        raise ConfigurationError(f"loop: objective: {objective!r} is not the name of a metric")
    if objective:
        if objective not in declared:
            raise ConfigurationError(
                f"loop: objective: {objective!r} is not a declared metric"
                f"{nearest(objective, declared) or '; add it to metrics, with minimise or maximise'}"
            )
        if objective not in ordering:
            raise ConfigurationError(
                f"loop: objective: the metric {objective!r} has no direction; add minimise or maximise"
            )
        return objective
    if len(ordering) > 1:
        raise ConfigurationError(
            f"loop: {' and '.join(ordering)} have a direction; name the one that orders the loop as objective, or "
            "several, of which the first one does"
        )
    return ordering[0] if ordering else ""
