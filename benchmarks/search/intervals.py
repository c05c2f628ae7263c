"""How often the 95 % intervals of evaluations cover the true mean: scores of Beta distributions, 0/1, and groups.

0/1 scores without groups are computed exactly, as a sum over the binomial distribution. The others are simulated in
batches until the standard error is at most a third of the distance to the bound. The seeds are fixed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import NamedTuple

from loopwright import _statistics
from loopwright._statistics import score_estimate

BOUND = 0.93
CORRELATION = 0.5
BATCH = 500
MOST = 40_000  # intervals of one row

Draw = Callable[[Random], float]
BETAS = {"Beta(8,2)": (8, 2), "Beta(2,5)": (2, 5)}
SHARES = (0.5, 0.8, 0.9, 0.97)
SIZES = (20, 50, 200)


class Row(NamedTuple):
    """A distribution, how many scores there are, and the share of intervals that cover its mean."""

    name: str
    cases: str
    cover: float
    error: float
    intervals: int


def exact(p: float, n: int) -> Row:
    """Return the coverage of 0/1 scores by the sum over all outcomes."""
    cover = 0.0
    for ones in range(n + 1):
        _, estimate = score_estimate([1.0] * ones + [0.0] * (n - ones))
        assert estimate is not None
        if estimate.low <= p <= estimate.high:
            cover += math.comb(n, ones) * p**ones * (1 - p) ** (n - ones)
    return Row(f"0/1 at {p:g}", str(n), cover, 0.0, n + 1)


def simulated(name: str, cases: str, trial: Callable[[Random], bool], most: int) -> Row:
    """Return the coverage of a trial, which draws scores and says whether their interval covers the mean."""
    random = Random(f"{name} {cases}")
    covered = done = 0
    while True:
        covered += sum(trial(random) for _ in range(BATCH))
        done += BATCH
        cover = covered / done
        error = math.sqrt(max(cover * (1 - cover), 1 / done) / done)
        if done >= most or (done >= 4 * BATCH and error * 3 <= abs(cover - BOUND)):
            return Row(name, cases, cover, error, done)


def independent(a: float, b: float, n: int) -> Callable[[Random], bool]:
    """Return a trial with n independent scores of a Beta distribution."""

    def trial(random: Random) -> bool:
        _, estimate = score_estimate([random.betavariate(a, b) for _ in range(n)])
        assert estimate is not None
        return estimate.low <= a / (a + b) <= estimate.high

    return trial


def grouped(
    mean: float, groups: int, group: Callable[[Random], list[float]]
) -> Callable[[Random], bool]:
    """Return a trial with groups of 5 scores."""

    def trial(random: Random) -> bool:
        values = [value for _ in range(groups) for value in group(random)]
        _, estimate = score_estimate(values, [place // 5 for place in range(len(values))])
        assert estimate is not None
        return estimate.low <= mean <= estimate.high

    return trial


def of_beta(a: float, b: float) -> Callable[[Random], list[float]]:
    """Return a group whose scores are each the shared one with probability √.5, so that they correlate with .5."""
    root = math.sqrt(CORRELATION)

    def group(random: Random) -> list[float]:
        shared = random.betavariate(a, b)
        return [shared if random.random() < root else random.betavariate(a, b) for _ in range(5)]

    return group


def of_share(p: float) -> Callable[[Random], list[float]]:
    """Return a group of 0/1 scores with a share of its own: beta-binomial with intraclass correlation .5."""
    scale = (1 - CORRELATION) / CORRELATION

    def group(random: Random) -> list[float]:
        own = random.betavariate(p * scale, (1 - p) * scale)
        return [float(random.random() < own) for _ in range(5)]

    return group


def rows(most: int = MOST) -> Iterator[Row]:
    """Yield the coverage of each distribution and number of cases."""
    for name, (a, b) in BETAS.items():
        for n in SIZES:
            yield simulated(name, str(n), independent(a, b, n), most)
    for p in SHARES:
        for n in SIZES:
            yield exact(p, n)
    for name, (a, b) in BETAS.items():
        for groups in (12, 30):
            trial = grouped(a / (a + b), groups, of_beta(a, b))
            yield simulated(name, f"5 x {groups}", trial, most)
    for p in SHARES:
        yield simulated(f"0/1 at {p:g}", "5 x 30", grouped(p, 30, of_share(p)), most)


def main() -> int:
    """Print the table; 1 if an interval covers less than the bound."""
    # It takes most of the time, and has a handful of different arguments here.
    _statistics.t_quantile = cache(_statistics.t_quantile)
    print(f"{'scores':<12} {'cases':<8} {'cover':>8} {'± se':>8} {'intervals':>10}")
    missed = 0
    for row in rows():
        low = row.cover < BOUND
        missed += low
        print(
            f"{row.name:<12} {row.cases:<8} {row.cover:>8.2%} {row.error:>8.2%} {row.intervals:>10,}"
            f"{'  below the bound' if low else ''}",
            flush=True,
        )
    print(f"bound: {BOUND:.0%} each; {f'{missed} missed' if missed else 'kept'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
