"""Intervals, agreement of judges and exact error rates; the standard library only.

Each formula stands here once. Intervals are two-sided at 95 % unless a level is passed. The reference
values in `tests/data/statistics.json` come from SciPy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple, TypeVar

__all__ = [
    "Comparison",
    "Estimate",
    "beta_cdf",
    "binomial_upper",
    "bootstrap",
    "certified_errors",
    "clustered_mean",
    "compared",
    "correlation_of_votes",
    "effective_votes",
    "flip_rate",
    "kappa",
    "majority_error",
    "mcnemar",
    "mean_estimate",
    "noise_of",
    "paired_bootstrap",
    "pass_all",
    "pass_any",
    "pooled_sd",
    "score_estimate",
    "t_cdf",
    "t_quantile",
    "wilson",
]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

LEVEL = 0.95
RESAMPLES = 1000
MIN_GROUPS = 10  # a clustered interval of fewer groups is too narrow
# The median of |a - b| of two normal values with sigma 1.
_MEDIAN_DIFFERENCE = 0.954


class Estimate(NamedTuple):
    """A value with the limits of its interval."""

    value: float
    low: float
    high: float


class Comparison(NamedTuple):
    """Scores against earlier scores of the same cases."""

    paired: int
    unpaired: int  # cases that only one side has
    difference: float | None  # the mean of now - before; None without a pair
    low: float | None  # the limits of its interval; None below 10 groups
    high: float | None
    wins: int
    losses: int
    ties: int
    p: float | None  # of the exact test of McNemar; None if a score is not 0 or 1


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b).

    By the continued fraction of the modified Lentz method (Press et al., "Numerical Recipes", 6.4).

    Example:
        >>> round(beta_cdf(0.5, 2, 2), 12)
        0.5
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The fraction converges quickly on this side only.
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    # By logarithms, because the gamma function overflows above 171.
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x)) / a
    return front / _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    # Lentz replaces a zero denominator by a number too small to change the result.
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    # It converges in about sqrt(max(a, b)) steps; the limit only bounds extreme arguments.
    for step in range(1, 1000):
        m, odd = divmod(step, 2)
        if odd:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + term * d) or tiny)
        c = (1 + term / c) or tiny
        value *= c * d
        # Close to the precision of a float, so further steps change nothing.
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where an increasing function is 0, by bisection to the last digit."""
    # It ends when no float is left between both limits, so it needs no tolerance.
    while low < (middle := (low + high) / 2) < high:
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_cdf(t: float, df: float) -> float:
    """Return the distribution function of Student's t.

    Example:
        >>> t_cdf(0.0, 5)
        0.5
    """
    tail = beta_cdf(df / (df + t * t), df / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(p: float, df: float) -> float:
    """Return the quantile of Student's t for 0 < p < 1.

    Example:
        >>> round(t_quantile(0.975, 10), 6)
        2.228139
    """
    if p < 0.5:
        return -t_quantile(1 - p, df)
    high = 1.0
    while t_cdf(high, df) < p:
        high *= 2
    return _root(lambda t: t_cdf(t, df) - p, 0.0, high)


def wilson(share: float, n: int, level: float = LEVEL) -> Estimate:
    """Return a share of n cases with its interval (Wilson, 1927).

    Example:
        >>> [round(x, 4) for x in wilson(0.9, 100)]
        [0.9, 0.8256, 0.9448]
    """
    return _wilson(share, n, NormalDist().inv_cdf((1 + level) / 2))


def _wilson(share: float, n: float, z: float) -> Estimate:
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    # At the ends the formula has a rounding error, and a limit outside 0 to 1 has no meaning.
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half))


def mean_estimate(values: Sequence[float], level: float = LEVEL) -> Estimate | None:
    """Return the mean of scores from 0 to 1: Wilson for values of 0 and 1 or without spread, else t.

    None for fewer than two values.
    """
    n = len(values)
    if n < 2:
        return None
    mean, sd = fmean(values), stdev(values)
    # Without spread t gives an interval of width 0, which claims certainty.
    if sd == 0 or all(value in (0, 1) for value in values):
        return wilson(min(1.0, max(0.0, mean)), n, level)
    half = t_quantile((1 + level) / 2, n - 1) * sd / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half)


def clustered_mean(
    values: Sequence[float], groups: Sequence[Hashable], level: float = LEVEL
) -> Estimate | None:
    """Return the mean of values that depend on each other within groups.

    se² = G / (G - 1) · Σ_g (Σ_i (x_gi - mean))² / n², with t of G - 1 degrees of freedom (Liang and
    Zeger, 1986). None below 10 groups, where the interval is too narrow.
    """
    n, mean = len(values), fmean(values)
    sums: dict[Hashable, float] = {}
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums.get(group, 0.0) + value - mean
    count = len(sums)
    if count < MIN_GROUPS:
        return None
    squares = math.fsum(total * total for total in sums.values())
    half = t_quantile((1 + level) / 2, count - 1) * math.sqrt(count / (count - 1) * squares) / n
    return Estimate(mean, mean - half, mean + half)


def pooled_sd(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """Return the standard deviation within groups that may have different means, and its degrees of freedom.

    Both are 0 if no group has two values.

    Example:
        >>> pooled_sd([[1.0, 3.0], [10.0, 12.0], [5.0]])
        (1.4142135623730951, 2)
    """
    several = [group for group in groups if len(group) > 1]
    df = sum(len(group) - 1 for group in several)
    squares = math.fsum(
        (value - mean) ** 2 for group in several for mean in [fmean(group)] for value in group
    )
    return (math.sqrt(squares / df) if df else 0.0), df


def score_estimate(
    values: Sequence[float], groups: Sequence[Hashable] | None = None, level: float = LEVEL
) -> tuple[str, Estimate | None]:
    """Return the method and the mean of scores from 0 to 1, with limits in that range; None where there are too few.

    Without groups, or if each value has its own: Wilson for values of 0 and 1 or without spread, else t. With groups:
    `clustered t`; for values of 0 and 1 or without spread, where it covers too little near 0 and 1, Wilson over the
    number of independent values with the same standard error, and t in place of z (after Korn and Graubard, 1998).

    Example:
        >>> score_estimate([1.0, 0.0, 1.0, 1.0]) == ("wilson", wilson(0.75, 4))
        True
    """
    n, mean = len(values), fmean(values)
    binary = all(value in (0, 1) for value in values)
    count = n if groups is None else len(set(groups))
    if groups is None or count == n:
        same = binary or len(set(values)) == 1
        return "wilson" if same else "t", _bounded(mean_estimate(values, level))
    estimate = clustered_mean(values, groups, level)
    if estimate is None or not (binary or estimate.high == estimate.low):
        return "clustered t", _bounded(estimate)
    t = t_quantile((1 + level) / 2, count - 1)
    error = (estimate.high - mean) / t
    # Equal sums of all groups say nothing on the error, so each group counts once.
    independent = min(n, mean * (1 - mean) / error**2) if error > 1e-12 else count
    return "clustered wilson", _wilson(min(1.0, max(0.0, mean)), independent, t)


def _bounded(estimate: Estimate | None) -> Estimate | None:
    # The mean of scores has no other value.
    if estimate is None:
        return None
    return Estimate(estimate.value, max(0.0, estimate.low), min(1.0, estimate.high))


def compared(
    before: Mapping[K, float], now: Mapping[K, float], groups: Mapping[K, Hashable] | None = None
) -> Comparison:
    """Compare scores by case: the mean difference with clustered t, and wins, losses and ties.

    Args:
        before: the earlier scores by case.
        now: the later scores by case.
        groups: the group of a case, for those that have one. Default: each case for itself.

    Example:
        >>> compared({"a": 0.0, "b": 1.0, "c": 0.0}, {"a": 1.0, "b": 1.0}).wins
        1
    """
    pairs = [case for case in now if case in before]
    changes = [now[case] - before[case] for case in pairs]
    # Marked, because a group may have the name of a case.
    clusters = [(1, groups[case]) if groups and case in groups else (0, case) for case in pairs]
    estimate = clustered_mean(changes, clusters) if pairs else None
    wins, losses = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    binary = all(value in (0, 1) for case in pairs for value in (before[case], now[case]))
    return Comparison(
        len(pairs),
        len(before.keys() ^ now.keys()),
        fmean(changes) if pairs else None,
        None if estimate is None else estimate.low,
        None if estimate is None else estimate.high,
        wins,
        losses,
        len(pairs) - wins - losses,
        # Cases of a group depend on each other, and the test takes them for independent.
        mcnemar(wins, losses) if binary and 0 < len(set(clusters)) == len(pairs) else None,
    )


def mcnemar(wins: int, losses: int) -> float:
    """Return the two-sided p of so many wins and losses if both are equally likely (McNemar, exact).

    Example:
        >>> round(mcnemar(5, 0), 12)
        0.0625
    """
    n, fewer = wins + losses, min(wins, losses)
    # The sum of the binomial distribution, without its large numbers.
    return 1.0 if wins == losses else min(1.0, 2 * beta_cdf(0.5, n - fewer, fewer + 1))


def pass_any(passed: int, n: int, k: int) -> float:
    """Return pass@k, the chance that of k tries at least one passes, from n tries of a case (Chen et al., 2021).

    Example:
        >>> pass_any(1, 4, 2), pass_all(3, 4, 2)
        (0.5, 0.5)
    """
    return 1 - math.comb(n - passed, k) / math.comb(n, k)


def pass_all(passed: int, n: int, k: int) -> float:
    """Return pass^k, the chance that k tries all pass, from n tries of a case (Yao et al., 2024)."""
    return math.comb(passed, k) / math.comb(n, k)


def bootstrap(
    cases: Sequence[T],
    statistic: Callable[[Sequence[T]], float | None],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> tuple[float, float] | None:
    """Return the percentile interval of a statistic of cases, drawn with replacement.

    A draw without a value is skipped.
    """
    # A generator of its own: the same recordings give the same interval, whatever else draws.
    chance = random.Random(seed)
    drawn = (statistic(chance.choices(cases, k=len(cases))) for _ in range(resamples))
    values = sorted(value for value in drawn if value is not None)
    if len(values) < 2:
        return None
    tail = (1 - level) / 2
    return _quantile(values, tail), _quantile(values, 1 - tail)


def _quantile(ordered: Sequence[float], p: float) -> float:
    """Return a quantile of sorted values by linear interpolation."""
    place = p * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def paired_bootstrap(
    differences: Sequence[float],
    *,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate | None:
    """Return the mean of paired differences; resamples draw groups, or single differences.

    None for fewer than two groups.
    """
    sums: dict[Hashable, tuple[float, int]] = {}
    for place, value in enumerate(differences):
        key: Hashable = place if groups is None else groups[place]
        total, n = sums.get(key, (0.0, 0))
        sums[key] = total + value, n + 1
    if len(sums) < 2:
        return None
    mean = fmean(differences)
    parts = list(sums.values())
    # No resample can differ, and two policies that stop alike are compared often.
    if all(total == 0 for total, _ in parts):
        return Estimate(0.0, 0.0, 0.0)

    def drawn(chosen: Sequence[tuple[float, int]]) -> float:
        return math.fsum(total for total, _ in chosen) / sum(n for _, n in chosen)

    limits = bootstrap(parts, drawn, seed=seed, resamples=resamples, level=level)
    return None if limits is None else Estimate(mean, *limits)


def binomial_upper(errors: int, n: int, delta: float = 0.05) -> float:
    """Return the one-sided upper limit of a share at confidence 1 - delta (Clopper and Pearson, 1934).

    The default is the upper limit of the two-sided interval at 90 %.

    Example:
        >>> binomial_upper(0, 29) < 0.1, binomial_upper(0, 20) < 0.1
        (True, False)
    """
    if errors >= n:
        return 1.0
    return _root(lambda p: beta_cdf(p, errors + 1, n - errors) - (1 - delta), 0.0, 1.0)


def certified_errors(alpha: float, errors: int = 0, delta: float = 0.05) -> int:
    """Return how many labels certify an error share of `alpha` with this number of errors."""
    n = errors + 1
    while binomial_upper(errors, n, delta) > alpha:
        n += 1
    return n


def kappa(tp: int, fp: int, tn: int, fn: int) -> float | None:
    """Return Cohen's kappa (1960); None if one side always gives the same answer to all cases.

    Example:
        >>> round(kappa(20, 5, 15, 10), 12)
        0.4
    """
    n = tp + fp + tn + fn
    if n == 0:
        return None
    agreed = (tp + tn) / n
    expected = ((tp + fp) * (tp + fn) + (tn + fn) * (tn + fp)) / (n * n)
    return None if expected == 1 else (agreed - expected) / (1 - expected)


def flip_rate(votes: Iterable[tuple[int, int, int]]) -> float | None:
    """Return the share of pairs of votes on the same case that differ; None without a pair.

    Each row has the yes votes and no votes of a case, and the number of such cases.

    Example:
        >>> flip_rate([(2, 1, 3), (3, 0, 5)])
        0.25
    """
    differing = pairs = 0
    for yes, no, cases in votes:
        differing += cases * yes * no
        pairs += cases * math.comb(yes + no, 2)
    return differing / pairs if pairs else None


def correlation_of_votes(flips: float, error: float) -> float | None:
    """Return icc = 1 - f / (2e(1 - e)), the persistent share of a judge's error, from 0 to 1.

    None for a judge without an error, or with errors only.
    """
    spread = 2 * error * (1 - error)
    return None if spread == 0 else min(1.0, max(0.0, 1 - flips / spread))


def effective_votes(votes: int, icc: float) -> float:
    """Return the number of independent votes that give the information of correlated ones.

    Formula: n / (1 + (n - 1) icc), the design effect of Kish, "Survey Sampling" (1965).

    Example:
        >>> effective_votes(3, 0.0), effective_votes(3, 0.5), effective_votes(3, 1.0)
        (3.0, 1.5, 1.0)
    """
    return votes / (1 + (votes - 1) * icc)


def majority_error(error: float, icc: float, votes: int) -> float:
    """Return the error of the majority of an odd number of correlated votes.

    The number of wrong votes is beta-binomial with mean `error` and correlation `icc`.

    Example:
        >>> round(majority_error(0.15, 0.0, 3), 6)
        0.06075
    """
    if icc >= 1 or error in (0, 1):
        return error
    needed = range(votes // 2 + 1, votes + 1)
    # Independent votes: beta-binomial with infinite parameters, which is binomial.
    if icc <= 0:
        return math.fsum(
            math.comb(votes, k) * error**k * (1 - error) ** (votes - k) for k in needed
        )
    a, b = error * (1 - icc) / icc, (1 - error) * (1 - icc) / icc
    base = _log_beta(a, b)
    return math.fsum(
        math.comb(votes, k) * math.exp(_log_beta(a + k, b + votes - k) - base) for k in needed
    )


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def noise_of(series: Sequence[Sequence[float]]) -> float | None:
    """Return the standard deviation of one score, from the differences of neighbouring scores.

    The median of |y_t - y_{t-1}| divided by 0.954. None without two neighbouring scores.
    """
    # The median, because an improvement is a large step and is not noise.
    steps = sorted(abs(b - a) for scores in series for a, b in pairwise(scores))
    return _quantile(steps, 0.5) / _MEDIAN_DIFFERENCE if steps else None
