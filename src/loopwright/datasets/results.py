"""The scores of the cases of a data set: their summary, the comparison with a baseline, and gates.

A row is a list `[ID, score, state, usage, digest]`. The score is None for a case that errored or is undecided.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypedDict

from .._statistics import compared, pass_all, pass_any, score_estimate
from ..engine.run_record import RunOptions
from ..errors import ConfigurationError
from ..journal import Entry
from ..journal.protocol import surviving
from ..records import NOTHING, Record, Result, Usage, codec, viewed
from ..records.codec import Json
from ..records.typed import Value
from .dataset import Dataset

__all__ = [
    "ERRORED",
    "FAILED",
    "PASSED",
    "UNDECIDED",
    "EvalResult",
    "Gate",
    "Scores",
    "means_of",
    "worst_of",
]

PASSED, FAILED, ERRORED, UNDECIDED, SKIPPED = "passed", "failed", "errored", "undecided", "skipped"
STATES = (PASSED, FAILED, ERRORED, UNDECIDED, SKIPPED)
FIGURES = ("dataset", "counts", "score", "metrics", "worst", "errors")  # of a summary
Row = Sequence[Json]
_ERRORS = 5  # that a summary shows
_SHARD = re.compile(r"[^/]+(?:/eval)?/cases/s([0-9]+)")


def worst_of(rows: Iterable[Json], most: int) -> list[Json]:
    """Return the rows with the lowest scores, equal ones in the order of the file."""
    return sorted(rows, key=lambda row: (row["score"], row["place"], row["repeat"]))[:most]


class Scores:
    """The scores of the cases of a data set while they are made.

    Args:
        dataset: the cases.
        repeat: how often each is run.
    """

    def __init__(self, dataset: Dataset, repeat: int) -> None:
        self.dataset, self.repeat = dataset, repeat
        self.total = len(dataset) * repeat
        self.errored = 0
        self.errors: list[Json] = []
        self._shards: dict[int, Mapping[str, Json]] = {}
        self._rows: dict[int, Collection[Row]] = {}

    def begin(self, number: int, rows: Mapping[tuple[str, int], Row]) -> None:
        """Add the rows of a shard that has begun, to which others will come."""
        self._rows[number] = rows.values()

    def fail(self, error: Json) -> None:
        """Count the error of a case."""
        self.errored += 1
        if len(self.errors) < _ERRORS:
            self.errors.append(error)

    def restore(self, number: int, shard: Mapping[str, Json]) -> None:
        """Add a shard from the journal."""
        self.complete(number, shard)
        self.errored += sum(row[2] == ERRORED for row in shard["rows"])
        self.errors = [*self.errors, *shard.get("errors", ())][:_ERRORS]

    def complete(self, number: int, shard: Mapping[str, Json]) -> None:
        """Add a shard whose cases have all ended."""
        self._shards[number], self._rows[number] = shard, shard["rows"]

    def rows(self) -> Iterator[Row]:
        """Iterate over the rows, in the order of the file where shards are complete."""
        for number in sorted(self._rows):
            yield from self._rows[number]

    @property
    def scored(self) -> int:
        """How many runs of cases have a score."""
        return sum(row[1] is not None for row in self.rows())

    def metrics(self) -> dict[str, float]:
        """Return the mean of each metric over the cases that have it."""
        sums: dict[str, list[tuple[float, int]]] = {}
        for number in sorted(self._shards):
            for name, (total, count) in self._shards[number].get("metrics", {}).items():
                sums.setdefault(name, []).append((total, count))
        return {
            name: math.fsum(total for total, _ in parts) / sum(count for _, count in parts)
            for name, parts in sorted(sums.items())
        }

    def by_case(self) -> dict[str, dict[str, float]]:
        """Return the means of each metric by case, which the shards of a loop have."""
        found: dict[str, dict[str, float]] = {}
        for number in sorted(self._shards):
            for name, means in self._shards[number].get("by_case", {}).items():
                found.setdefault(name, {}).update(means)
        return found

    def summary(self, used: str, most: int = _ERRORS) -> dict[str, Json]:
        """Return the scores as the JSON of an `EvalResult` has them."""
        counts = Counter(row[2] for row in self.rows())
        counts[SKIPPED] = self.total - counts.total()
        ran = self.total - counts[SKIPPED]
        worst = (row for shard in self._shards.values() for row in shard.get("worst", ()))
        data: dict[str, Json] = {
            "dataset": {
                "name": self.dataset.name, "digest": self.dataset.digest, "use": used,
                "cases": len(self.dataset), "ran": ran,
            },
            "counts": {state: counts[state] for state in STATES},
            "score": score_of([*self.rows()], self.dataset, self.repeat),
            "metrics": self.metrics(),
            "worst": [
                {key: item for key, item in row.items() if key != "place"}
                for row in worst_of(worst, most)
            ],
        }  # fmt: skip
        if self.errors:
            data["errors"] = self.errors
        return data


def score_of(rows: Sequence[Row], dataset: Dataset, repeat: int) -> dict[str, Json] | None:
    """Return the mean of the scores with its interval at 95 %; None without a score.

    Cases of one group, and repetitions of one case, are a cluster. With repetitions, `pass_any` is the share of cases that
    passed at least once (pass@k), `pass_all` the share that passed each time (pass^k).
    """
    scored = [row for row in rows if row[1] is not None]
    if not scored:
        return None
    weights = dict(zip(dataset.ids, dataset.weights, strict=True))
    values = _weighted([row[1] for row in scored], [weights[row[0]] for row in scored])
    groups = groups_of(dataset)
    # Marked, because a group may have the name of a case.
    clusters = [(1, groups[row[0]]) if row[0] in groups else (0, row[0]) for row in scored]
    method, estimate = score_estimate(values, clusters)
    data: dict[str, Json] = {
        "mean": fmean(values),
        "low": None if estimate is None else estimate.low,
        "high": None if estimate is None else estimate.high,
        "method": method if estimate is not None else "none",
        "n": len(values),
        "clusters": len(set(clusters)),
    }
    if repeat > 1:
        tries: dict[str, list[bool]] = {}
        for row in scored:
            tries.setdefault(row[0], []).append(row[2] == PASSED)
        # Of the cases whose repetitions all have a score.
        whole = [one for one in tries.values() if len(one) == repeat]
        if whole:
            data["pass_any"] = fmean(pass_any(sum(one), repeat, repeat) for one in whole)
            data["pass_all"] = fmean(pass_all(sum(one), repeat, repeat) for one in whole)
    return data


def groups_of(dataset: Dataset) -> dict[str, str]:
    """Return the groups of the cases that have one, by ID."""
    return {one: group for one, group in zip(dataset.ids, dataset.groups, strict=True) if group}


def _weighted(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return values whose plain mean and deviations are those of the weighted ones."""
    if len(set(weights)) == 1:
        return list(values)
    total = math.fsum(weights)
    mean = math.fsum(v * w for v, w in zip(values, weights, strict=True)) / total
    scale = len(values) / total
    return [mean + scale * w * (v - mean) for v, w in zip(values, weights, strict=True)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gate(Value):
    """What an evaluation must reach.

    Args:
        mean_at_least: the least mean score, from 0 to 1. Default: none.
        lower_at_least: the least lower limit of its interval. Default: none.
        max_drop: how far the paired difference to the baseline may fall below 0. Default: none.

    Raises:
        ConfigurationError: for a limit that is not a number from 0 to 1.

    Example:
        >>> Gate(mean_at_least=0.8)
        Gate(mean_at_least=0.8, lower_at_least=None, max_drop=None)
    """

    mean_at_least: float | None = None
    lower_at_least: float | None = None
    max_drop: float | None = None

    def __post_init__(self) -> None:
        for name in ("mean_at_least", "lower_at_least", "max_drop"):
            if (value := getattr(self, name)) is not None:
                codec.number(f"gate: {name}", value, minimum=0, maximum=1)


@viewed("dataset", "counts", "score", "metrics", "baseline", "gate", "worst", "errors")
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvalResult(Record):
    """How a task did on the cases of a data set.

    Args:
        run_id: the ID of the run.
        status: how the run ended.
        detail: the sentence of its end.
        dataset: `name`, `digest`, the splits in `use`, the number of `cases`, how many runs of cases `ran`, and
            for held-out cases the number of `looks` at them so far.
        counts: the number of runs of cases by state: passed, failed, errored, undecided, skipped.
        score: the `mean` score, `low` and `high` of its interval at 95 % (None below 2 cases, or 10 groups), its
            `method`, the number `n` of scores and that of `clusters`; None without a score.
        metrics: the mean of each metric.
        baseline: `run_id`, the number of `paired` and of `unpaired` cases, the mean `difference` with `low` and `high`,
            `wins`, `losses`, `ties`, and the exact `p` of scores of 0 and 1; None without a baseline.
        gate: whether all limits are met, `ok`, and the `failed` ones as sentences; None without a gate.
        worst: the cases with the lowest scores, with their feedback.
        errors: the first cases that errored, with their errors.
        usage: what the run spent.
        rows: a list `[ID, score, state, usage, digest]` for each run of a case; no part of the JSON.

    Example:
        >>> EvalResult("r1", "satisfied", counts={"passed": 3, "failed": 1}).counts["passed"]
        3
    """

    run_id: str
    status: str
    detail: str = ""
    dataset: Mapping[str, Json] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    score: Mapping[str, Json] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    baseline: Mapping[str, Json] | None = None
    gate: Mapping[str, Json] | None = None
    worst: Sequence[Json] = ()
    errors: Sequence[Json] = ()
    usage: Usage = NOTHING
    rows: Sequence[Sequence[Json]] = ()

    @classmethod
    def of(cls, result: Result, rows: Iterable[Sequence[Json]] = ()) -> EvalResult:
        """Return the result of a run of an evaluation, with the rows that its journal has; see `recorded_rows`."""
        parts = {
            name: result.output[name]
            for name in FIGURES
            if isinstance(result.output, Mapping) and name in result.output
        }
        return cls(
            result.run_id, result.status.value, result.detail, **parts, usage=result.usage, rows=[*rows]
        )  # fmt: skip

    @property
    def mean(self) -> float | None:
        """The mean score."""
        return None if self.score is None else float(self.score["mean"])

    def to_json(self) -> dict[str, Json]:
        """Return the result as a JSON object."""
        data: dict[str, Json] = {
            "run_id": self.run_id, "status": self.status, "dataset": dict(self.dataset), "counts": dict(self.counts),
            "score": self.score, "metrics": dict(self.metrics), "baseline": self.baseline, "gate": self.gate,
            "worst": list(self.worst), "usage": self.usage.to_json(),
        }  # fmt: skip
        if self.errors:
            data["errors"] = list(self.errors)
        return data

    def compared(self, baseline: EvalResult, groups: Mapping[str, str] | None = None) -> EvalResult:
        """Return the result with its comparison: paired by ID, where the cases have equal digests.

        Args:
            baseline: the result to compare with.
            groups: the groups of cases by ID, whose differences depend on each other. Default: none.
        """
        return replace(
            self,
            baseline={
                "run_id": baseline.run_id, **paired(baseline.rows, self.rows, groups or {})
            },
        )  # fmt: skip

    def gated(self, gate: Gate) -> EvalResult:
        """Return the result with the verdict of a gate. A limit without a value to compare is not met.

        Raises:
            ConfigurationError: for `max_drop` without a baseline.
        """
        score, failed = self.score or {}, []
        if gate.max_drop is not None and self.baseline is None:
            raise ConfigurationError("gate: max_drop needs a baseline to compare with; name a run")
        difference = (self.baseline or {}).get("difference")
        drop = None if gate.max_drop is None else 0 - gate.max_drop
        for name, value, least in (
            ("mean", score.get("mean"), gate.mean_at_least),
            ("lower limit", score.get("low"), gate.lower_at_least),
            ("difference", difference, drop),
        ):
            if least is not None and (value is None or value < least - 1e-9):
                shown = "unknown" if value is None else f"{value:.3f}"
                failed.append(f"the {name} is {shown}, and at least {least:.3f} is needed")
        return replace(self, gate={"ok": not failed, "failed": failed})


def recorded_rows(entries: Iterable[Entry]) -> list[Row]:
    """Return the rows of an evaluation from the entries of its run, in the order of the file."""
    return [row for shard in _recorded_shards(entries) for row in shard["rows"]]


def recorded_groups(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the groups of cases by ID from the entries of the run of their evaluation."""
    shards = _recorded_shards(entries)
    return {name: group for shard in shards for name, group in shard.get("groups", {}).items()}


def _recorded_shards(entries: Iterable[Entry]) -> list[Mapping[str, Json]]:
    shards = {}
    for entry in surviving([*entries]):
        place = _SHARD.fullmatch(entry.path) if entry.kind == "folded" else None
        if place is not None:
            shards[int(place[1])] = entry.value["value"]
    return [shards[number] for number in sorted(shards)]


def paired(
    before: Sequence[Row], now: Sequence[Row], groups: Mapping[str, str] | None = None
) -> dict[str, Json]:
    """Return the comparison of two lists of rows, by case; see `EvalResult.baseline`."""
    then, current = means_of(before), means_of(now)
    of_case = {key: groups[key[0]] for key in current if groups and key[0] in groups}
    return compared(then, current, of_case)._asdict()


def means_of(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """Return the mean score of each case by ID and digest."""
    scores: dict[tuple[str, str], list[float]] = {}
    for case_id, score, _, _, digest in rows:
        if score is not None:
            scores.setdefault((case_id, digest), []).append(score)
    return {key: fmean(values) for key, values in scores.items()}


class CaseOptions(TypedDict, total=False):
    """The options of a step that runs cases; `evaluate` explains them."""

    at_once: int
    repeat: int
    retry: int
    most_errors: float
    show: int


class EvaluateOptions(RunOptions, CaseOptions, total=False):
    """The options of `evaluate`, which explains them."""

    name: str
    use: Sequence[str]
    sample: int
    gate: Gate | None
    baseline: EvalResult | None
