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

from .._statistics import pooled_sd, t_cdf
from ..errors import ConfigurationError
from ..records import exceeds
from ..records.codec import Json, integer, number
from ..records.typed import Value

__all__ = [
    "Confirm",
    "Sample",
    "Standing",
    "Verdict",
    "compared",
    "confirmation",
    "value_of",
]

# One measurement: a value, or those of the cases of a data set by their IDs.
Sample = float | Mapping[str, float]
STAGES, STAGES_OF_CASES = (3, 6, 12), (1, 2, 3)
BASELINE = 5


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

    def stages_of(self, sample: Sample) -> Sequence[int]:
        """Return the stages for measurements of this kind."""
        return self.stages or (STAGES_OF_CASES if isinstance(sample, Mapping) else STAGES)

    def baseline_of(self, sample: Sample) -> int:
        """Return how often the first base of this kind is measured."""
        return self.baseline or (1 if isinstance(sample, Mapping) else BASELINE)


def value_of(sample: Sample) -> float:
    """Return the value of one measurement: of a data set, the mean of its cases."""
    return fmean(sample.values()) if isinstance(sample, Mapping) else sample


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison says.

    Args:
        state: `accepted`, `refused`, or `open` if more measurements can decide.
        gain: the difference of the means in the good direction.
        p: the probability of such a gain without an improvement; None if the values have no noise.
        df: its degrees of freedom.
    """

    state: str
    gain: float
    p: float | None = None
    df: int = 0


def compared(
    base: Sequence[Sample],
    candidate: Sequence[Sample],
    groups: Iterable[Sequence[float]],
    *,
    sign: int,
    min_delta: float,
    level: float,
) -> Verdict:
    """Return the verdict on equally many new measurements of a base and a candidate.

    Args:
        base, candidate: the measurements, at least one each.
        groups: all other measurements of the loop, each group of one output.
        sign: 1 if higher values are better, else -1.
        min_delta: the smallest gain that counts.
        level: the probability of an error that this test may have.
    """
    if isinstance(candidate[0], Mapping):
        gains = _by_case(base, candidate, sign)
        count = len(gains)
        gain = fmean(gains) if gains else 0.0
        spread, df = pooled_sd([gains])
        error = spread / math.sqrt(max(count, 1))
        # Without spread t is certain of any gain; by chance, all cases gain with 1/2^n.
        certain = 0.5**count
    else:
        ours, theirs = list(map(value_of, candidate)), list(map(value_of, base))
        gain = sign * (fmean(ours) - fmean(theirs))
        spread, df = pooled_sd([*groups, theirs, ours])
        error = spread * math.sqrt(2 / len(ours))
        certain = 0.0
    if gain <= 0 or gain < error / 2:
        return Verdict("refused", gain, _p(gain, error, df, certain), df)
    p = _p(gain, error, df, certain)
    accepted = p is not None and p < level and exceeds(gain, min_delta)
    return Verdict("accepted" if accepted else "open", gain, p, df)


def _p(gain: float, error: float, df: int, certain: float) -> float | None:
    if not df:
        return None
    if error == 0:
        return certain if gain > 0 else 1.0
    # Equal to a comparison with the quantile, and exact for small levels.
    return t_cdf(-gain / error, df)


def _by_case(base: Sequence[Sample], candidate: Sequence[Sample], sign: int) -> list[float]:
    """Return the gain of each case that both sides have measured, in the order of the cases."""
    ours, theirs = _means(candidate), _means(base)
    return [sign * (value - theirs[case]) for case, value in ours.items() if case in theirs]


def _means(samples: Sequence[Sample]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for sample in samples:
        assert isinstance(sample, Mapping)
        for case, value in sample.items():
            values.setdefault(case, []).append(value)
    return {case: fmean(several) for case, several in values.items()}


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

    @property
    def exact(self) -> bool:
        """Whether all measurements of the same output were equal."""
        spread, df = pooled_sd(self.groups)
        return df > 0 and spread == 0

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
    first = value_of(screening)
    if standing.base is None:
        # Nothing is better or worse than it, so it becomes the base.
        several = [first]
        while len(several) < confirm.baseline_of(screening):
            if (sample := (yield "base")) is None:
                # The input is the beginning, however well it can be measured.
                return {"accepted": item == 0, "candidate": several, "missing": "base"}
            several.append(value_of(sample))
        return {"accepted": True, "candidate": several}
    of = fmean(standing.values)
    record: dict[str, Json] = {"accepted": False, "screening": first, "of": of}
    gain = sign * (first - of)
    if gain <= 0:
        return record
    cases = isinstance(screening, Mapping)
    if standing.exact and not cases:
        accepted = exceeds(gain, min_delta)
        return {**record, "accepted": accepted, "candidate": [first], "exact": True}
    stages = confirm.stages_of(screening)
    level = standing.share_at(item, limit) / len(stages)
    record |= {"limit": limit, "stages": len(stages), "level": level, "tests": 0}
    base: list[Sample] = []
    candidate: list[Sample] = []
    for count in stages:
        while len(candidate) < count:
            for side, samples in (("base", base), ("candidate", candidate)):
                if (sample := (yield side)) is None:
                    return {**record, **_measured(base, candidate), "missing": side}
                samples.append(sample)
        verdict = compared(
            base, candidate, standing.groups, sign=sign, min_delta=min_delta, level=level
        )
        record |= {"tests": record["tests"] + 1, "df": verdict.df, "p": verdict.p}
        if verdict.state != "open":
            break
    accepted = verdict.state == "accepted"
    return {**record, **_measured(base, candidate), "accepted": accepted}


def _measured(base: Sequence[Sample], candidate: Sequence[Sample]) -> dict[str, Json]:
    """Return the part of a record with the new measurements, and the value that the candidate is compared with."""
    theirs, ours = list(map(value_of, base)), list(map(value_of, candidate))
    return {"base": theirs, "candidate": ours, **({"of": fmean(theirs)} if theirs else {})}
