"""The scores of the cases of a data set: their summary, the comparison with a baseline, and gates.

A row is a list `[ID, score, state, usage, digest]`. The score is None for a case that errored or is undecided.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from .._statistics import clustered_mean, mean_estimate
from ..errors import ConfigurationError
from ..records import NOTHING, Record, Result, Usage, codec, viewed
from ..records.codec import Json
from ..records.typed import Value
from .dataset import Dataset

__all__ = ["ERRORED", "FAILED", "PASSED", "UNDECIDED", "EvalResult", "Gate", "Scores", "worst_of"]

PASSED, FAILED, ERRORED, UNDECIDED, SKIPPED = "passed", "failed", "errored", "undecided", "skipped"
STATES = (PASSED, FAILED, ERRORED, UNDECIDED, SKIPPED)
Row = Sequence[Json]
_ERRORS = 5  # that a summary shows


def worst_of(rows: Iterable[Json], most: int) -> list[Json]:
    """Return the rows with the lowest scores, in the order of the file: of all, and of those that are open."""
    ordered = sorted(rows, key=lambda row: row["score"])
    open_ones = [row for row in ordered if row["open"]][:most]
    return ordered[:most] + [row for row in open_ones if row not in ordered[:most]]


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
        self._begun: dict[int, Mapping[object, Row]] = {}

    def begin(self, number: int, rows: Mapping[object, Row]) -> None:
        """Add the rows of a shard that has begun, to which others will come."""
        self._begun[number] = rows

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
        self._begun.pop(number, None)
        self._shards[number] = shard

    def rows(self) -> Iterator[Row]:
        """Iterate over the rows, in the order of the file where shards are complete."""
        for number in sorted({*self._shards, *self._begun}):
            if (shard := self._shards.get(number)) is not None:
                yield from shard["rows"]
            else:
                yield from self._begun[number].values()

    @property
    def scored(self) -> int:
        """How many runs of cases have a score."""
        return sum(row[1] is not None for row in self.rows())

    def worst(self, most: int) -> list[Json]:
        """Return the cases with the lowest scores, of all and of those whose feedback may be read."""
        shards = (self._shards[number] for number in sorted(self._shards))
        return worst_of((row for shard in shards for row in shard.get("worst", ())), most)

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

    def summary(self, used: str, most: int = _ERRORS) -> dict[str, Json]:
        """Return the scores as the JSON of an `EvalResult` has them."""
        counts = Counter(row[2] for row in self.rows())
        counts[SKIPPED] = self.total - counts.total()
        ran = self.total - counts[SKIPPED]
        data: dict[str, Json] = {
            "dataset": {
                "name": self.dataset.name, "digest": self.dataset.digest, "use": used,
                "cases": len(self.dataset), "ran": ran,
            },
            "counts": {state: counts[state] for state in STATES},
            "score": score_of([*self.rows()], self.dataset, self.repeat),
            "metrics": self.metrics(),
            "worst": [
                {key: item for key, item in row.items() if key != "open"}
                for row in self.worst(most)[:most]
            ],
        }  # fmt: skip
        if self.errors:
            data["errors"] = self.errors
        return data


def score_of(rows: Sequence[Row], dataset: Dataset, repeat: int) -> dict[str, Json] | None:
    """Return the mean of the scores with its interval at 95 %; None without a score.

    Cases of one group, and repetitions of one case, are a cluster.
    """
    scored = [row for row in rows if row[1] is not None]
    if not scored:
        return None
    weights = dict(zip(dataset.ids, dataset.weights, strict=True))
    values = _weighted([row[1] for row in scored], [weights[row[0]] for row in scored])
    clusters = _clusters(scored, dataset)
    if repeat > 1 or len(set(clusters)) < len(clusters):
        method, estimate = "clustered t", clustered_mean(values, clusters)
    else:
        method, estimate = "t", mean_estimate(values)
        if len(set(values)) == 1 or all(value in (0, 1) for value in values):
            method = "wilson"
    return {
        "mean": fmean(values),
        "low": None if estimate is None else estimate.low,
        "high": None if estimate is None else estimate.high,
        "method": method if estimate is not None else "none",
        "n": len(values),
        "clusters": len(set(clusters)),
    }


def _weighted(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return values whose plain mean and deviations are those of the weighted ones."""
    if len(set(weights)) == 1:
        return list(values)
    total = math.fsum(weights)
    mean = math.fsum(v * w for v, w in zip(values, weights, strict=True)) / total
    scale = len(values) / total
    return [mean + scale * w * (v - mean) for v, w in zip(values, weights, strict=True)]


def _clusters(rows: Sequence[Row], dataset: Dataset) -> list[str]:
    groups = dict(zip(dataset.ids, dataset.groups, strict=True))
    # Unlike any ID, so that a group is not taken for a case of its name.
    return [f"group {group}" if (group := groups[row[0]]) else row[0] for row in rows]
