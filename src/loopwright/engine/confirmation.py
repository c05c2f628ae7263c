"""When a better measurement counts: a test of new measurements, whose error holds over all iterations of a loop.

1. The evaluation of an output only says whether a test is worth it: the best of many noisy values is the luckiest.
2. For the test, the output and the last accepted iteration, its base, are measured anew and in turns, in stages.
3. Every stage of every iteration may err with its part of `alpha`. Together they err with at most `alpha`.
4. The noise of a metric is pooled over all measurements of the loop. Of a data set, the differences by case are
   the sample.

Everything here is a pure function of measurements; `confirming` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

from .._statistics import pooled_sd, t_cdf
from ..errors import ConfigurationError
from ..records import exceeds
from ..records.codec import Json, integer, number
from ..records.typed import Value

__all__ = [
    "Confirm",
    "Sample",
    "Standing",
    "compared",
    "confirmation",
]

# One measurement: a value, or those of the cases of a data set by their IDs.
Sample = float | Mapping[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class Confirm(Value):
    """How a loop confirms that the objective of an iteration is better, before the iteration is accepted.

    Args:
        alpha: The probability, above 0 and below 1, that a complete run accepts any iteration that is not better.
            Default: 0.05.
        stages: The numbers of new measurements, of the iteration and of its base each, after which the test is
            made, rising. Default: 3, 6 and 12; 1, 2 and 3 of a data set.
        baseline: How often the first base is measured, at least 1. Default: 5; 1 of a data set.

    Raises:
        ConfigurationError: For a number out of range, or stages that do not rise.

    Example:
        >>> Confirm(stages=[2, 4]).stages
        (2, 4)
    """

    alpha: float = 0.05
    stages: Sequence[int] = ()
    baseline: int | None = None

    def __post_init__(self) -> None:
        number("confirm: alpha", self.alpha, minimum=0, above=True)
        if self.alpha >= 1:
            raise ConfigurationError(f"confirm: alpha: {self.alpha:g} is not below 1; use 0.05")
        if isinstance(self.stages, str) or not isinstance(self.stages, Sequence):
            raise ConfigurationError(
                f"confirm: stages: {self.stages!r} is not a list; use [3, 6, 12]"
            )
        stages = [integer("confirm: stages", stage, minimum=1) for stage in self.stages]
        if any(after <= before for before, after in pairwise(stages)):
            raise ConfigurationError(f"confirm: stages: {stages} does not rise; use [3, 6, 12]")
        object.__setattr__(self, "stages", tuple(stages))
        if self.baseline is not None:
            integer("confirm: baseline", self.baseline, minimum=1)


def _value(sample: Sample) -> float:
    """Return the value of one measurement: of a data set, the mean of its cases."""
    return fmean(sample.values()) if isinstance(sample, Mapping) else sample


def compared(
    base: Sequence[Sample],
    candidate: Sequence[Sample],
    groups: Iterable[Sequence[float]],
    *,
    sign: int,
    min_delta: float,
    level: float,
) -> tuple[bool | None, float | None, int]:
    """Compare equally many new measurements of a base and a candidate.

    Args:
        base, candidate: the measurements, at least one each.
        groups: all other measurements of the loop, each group of one output.
        sign: 1 if higher values are better, else -1.
        min_delta: the smallest gain that counts.
        level: the probability of an error that this test may have.

    Returns:
        Whether the candidate is better, or None if more measurements can decide; the probability of such a gain
        without an improvement, or None without noise; its degrees of freedom.
    """
    gains: Sequence[float] = ()
    if isinstance(candidate[0], Mapping):
        ours, theirs = _by_case(candidate), _by_case(base)
        gains = [sign * (ours[case] - theirs[case]) for case in ours if case in theirs]
        gain, (spread, df) = fmean(gains or [0.0]), pooled_sd([gains])
        error = spread / math.sqrt(len(gains) or 1)
    else:
        new, old = list(map(_value, candidate)), list(map(_value, base))
        gain, (spread, df) = sign * (fmean(new) - fmean(old)), pooled_sd([*groups, old, new])
        error = spread * math.sqrt(2 / len(new))
    # Compared with the level, it is exact where the quantile of a small level is not.
    p = t_cdf(-gain / error, df) if df and error else None
    if df and not error:
        # Equal gains seem certain to t. By chance, all of n cases gain with 1/2^n.
        p = 1.0 if gain <= 0 else 0.5 ** len(gains) if gains else 0.0
    if gain <= 0 or gain < error / 2:
        return False, p, df
    return (p is not None and p < level and exceeds(gain, min_delta)) or None, p, df


def _by_case(samples: Sequence[Any]) -> Mapping[str, float]:
    """Return the mean of each case over the repetitions that have it."""
    if len(samples) == 1:
        return dict(samples[0])
    cases = dict.fromkeys(case for sample in samples for case in sample)
    return {case: fmean(s[case] for s in samples if case in s) for case in cases}


@dataclass
class Standing:
    """What the records of a loop say before its next confirmation.

    Args:
        alpha: the probability of an error in all tests together.
        limit: the limit of iterations that the loop was declared with.
    """

    alpha: float
    limit: int
    base: int | None = None  # the number of the last accepted iteration; 0 is the baseline
    values: list[float] = field(default_factory=list)  # all measurements of the base
    groups: list[Sequence[float]] = field(default_factory=list)
    used: float = 0.0  # the part of alpha that tests have used
    share: float = 0.0  # the part of an iteration, under the limit

    def __post_init__(self) -> None:
        self.share = self.alpha / self.limit

    def add(self, item: int, record: Mapping[str, Json]) -> None:
        """Add the record of a confirmation, `details["confirm"]` of an iteration; the baseline has the number 0."""
        base, candidate = record.get("base", ()), record.get("candidate", ())
        self.groups += [group for group in (base, candidate) if len(group) > 1]
        if record["accepted"]:
            self.base, self.values = item, list(candidate)
        else:
            self.values += base
        if tests := record.get("tests"):
            self.limit, self.share = record["limit"], record["level"] * record["stages"]
            self.used += record["level"] * tests

    def share_at(self, item: int, limit: int) -> float:
        """Return the part of alpha of an iteration.

        Under another limit, what no test has used is divided among the iterations that are left.
        """
        if limit == self.limit:
            return self.share
        return max(0.0, self.alpha - self.used) / max(1, limit - item + 1)


def confirmation(
    confirm: Confirm,
    standing: Standing,
    screening: Sample,
    *,
    item: int,
    limit: int,
    sign: int,
    min_delta: float,
) -> Generator[str, Sample | None, dict[str, Json]]:
    """Decide on an iteration: yield `base` or `candidate` to be measured, and return the record.

    A measurement without a sound value, None, ends it: nothing is accepted by luck.

    Args:
        confirm: the declaration.
        standing: what the records of the loop say.
        screening: the first evaluation of the iteration.
        item: the number of the iteration.
        limit: the limit of iterations at present.
        sign: 1 if higher values are better, else -1.
        min_delta: the smallest gain that counts.
    """
    first, cases = _value(screening), isinstance(screening, Mapping)
    if standing.base is None:
        # Nothing is better or worse than it, so it becomes the base.
        several = [first]
        while len(several) < (confirm.baseline or (1 if cases else 5)):
            if (sample := (yield "base")) is None:
                # The input is the beginning, however well it can be measured.
                return {"accepted": item == 0, "candidate": several, "missing": "base"}
            several.append(_value(sample))
        return {"accepted": True, "candidate": several}
    of = fmean(standing.values)
    record: dict[str, Json] = {"accepted": False, "screening": first, "of": of}
    if (gain := sign * (first - of)) <= 0:
        return record
    spread, df = pooled_sd(standing.groups)
    if df and not spread and not cases:
        accepted = exceeds(gain, min_delta)
        return {**record, "accepted": accepted, "candidate": [first], "exact": True}
    stages = confirm.stages or ((1, 2, 3) if cases else (3, 6, 12))
    level = standing.share_at(item, limit) / len(stages)
    record |= {"limit": limit, "stages": len(stages), "level": level, "tests": 0}
    new: dict[str, list[Sample]] = {"base": [], "candidate": []}
    better: bool | None = None
    for count in range(1, stages[-1] + 1):
        for side, samples in new.items():
            if (sample := (yield side)) is None:
                record["missing"], better = side, False
                break
            samples.append(sample)
            record[side] = list(map(_value, samples))
        if better is None and count in stages:
            better, record["p"], record["df"] = compared(
                new["base"],
                new["candidate"],
                standing.groups,
                sign=sign,
                min_delta=min_delta,
                level=level,
            )
            record["tests"] += 1
        if better is not None:
            break
    return {**record, "accepted": better is True, "of": fmean(record.get("base", [of]))}
