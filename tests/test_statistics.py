"""Statistics match reference values from SciPy to 1e-9, and intervals cover what they claim."""

from __future__ import annotations

import json
import math
import random
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from loopwright import _statistics as statistics

REFERENCE = json.loads((Path(__file__).parent / "data" / "statistics.json").read_text("utf-8"))
NEAR = {"abs": 1e-9, "rel": 1e-9}


@pytest.mark.parametrize(
    "name", ["beta_cdf", "t_cdf", "t_quantile", "binomial_upper", "majority_error"]
)
def test_functions_match_reference_values(name: str) -> None:
    for *arguments, expected in REFERENCE[name]:
        assert getattr(statistics, name)(*arguments) == pytest.approx(expected, **NEAR), arguments


def test_wilson_interval_matches_reference_values() -> None:
    for successes, n, low, high in REFERENCE["wilson"]:
        share, *limits = statistics.wilson(successes / n, n)
        assert share == successes / n
        assert limits == pytest.approx([low, high], **NEAR)


def test_t_interval_of_a_mean_matches_reference_values() -> None:
    mean = statistics.mean_estimate(REFERENCE["mean"]["values"])
    assert mean is not None
    assert [mean.low, mean.high] == pytest.approx(
        [REFERENCE["mean"]["low"], REFERENCE["mean"]["high"]], **NEAR
    )


def test_scores_of_zero_and_one_get_a_wilson_interval() -> None:
    assert statistics.mean_estimate([1, 0, 1, 1]) == statistics.wilson(0.75, 4)
    same = statistics.mean_estimate([0.7] * 9)
    assert same == pytest.approx(statistics.wilson(0.7, 9))
    assert statistics.mean_estimate([0.7]) is None


def test_clustered_interval_needs_ten_groups_and_covers_dependent_values() -> None:
    assert statistics.clustered_mean([0.5, 0.6], ["a", "b"]) is None
    chance, covered, draws = random.Random(3), 0, 400
    for _ in range(draws):
        values, groups = [], []
        for group in range(12):
            shared = chance.gauss(0.5, 0.1)
            values += [shared + chance.gauss(0, 0.1) for _ in range(5)]
            groups += [group] * 5
        estimate = statistics.clustered_mean(values, groups)
        assert estimate is not None
        covered += estimate.low <= 0.5 <= estimate.high
    assert covered / draws >= 0.93


def test_paired_bootstrap_is_repeatable_and_draws_groups() -> None:
    chance = random.Random(1)
    differences = [chance.gauss(0.02, 0.05) for _ in range(60)]
    one = statistics.paired_bootstrap(differences, seed=4)
    assert one == statistics.paired_bootstrap(differences, seed=4)
    assert one is not None
    assert one.low < one.value < one.high
    assert statistics.paired_bootstrap([0.1, 0.2], groups=["a", "a"]) is None
    assert statistics.paired_bootstrap([0.0, 0.0, 0.0]) == (0.0, 0.0, 0.0)


def test_certification_needs_the_published_numbers_of_labels() -> None:
    assert [statistics.certified_errors(0.10, e) for e in (0, 1, 2)] == [29, 46, 61]
    assert [statistics.certified_errors(0.05, e) for e in (0, 1, 2)] == [59, 93, 124]


def test_agreement_of_votes() -> None:
    assert statistics.kappa(20, 5, 15, 10) == pytest.approx(0.4)
    assert statistics.kappa(9, 0, 0, 0) is None
    assert statistics.flip_rate([(2, 1, 1), (3, 0, 1)]) == pytest.approx(2 / 6)
    assert statistics.flip_rate([(1, 0, 4)]) is None
    assert statistics.correlation_of_votes(0.0, 0.2) == 1.0
    assert statistics.correlation_of_votes(0.32, 0.2) == pytest.approx(0.0)
    assert statistics.correlation_of_votes(0.1, 0.0) is None


def test_majority_of_many_votes_keeps_the_persistent_error() -> None:
    for icc, percent in ((0.3, 7.9), (0.47, 11.7), (0.78, 14.6)):
        assert statistics.majority_error(0.15, icc, 61) == pytest.approx(percent / 100, abs=0.004)
    assert statistics.majority_error(0.15, 1.0, 61) == 0.15


def test_noise_is_estimated_from_neighbouring_scores() -> None:
    chance = random.Random(5)
    series = [[chance.gauss(0.6, 0.07) for _ in range(10)] for _ in range(200)]
    noise = statistics.noise_of(series)
    assert noise is not None
    assert math.isclose(noise, 0.07, rel_tol=0.1)
    assert statistics.noise_of([[0.5]]) is None


def test_scores_have_the_interval_of_their_kind() -> None:
    """Wilson for 0/1, t for others, clustered where groups repeat; none below 10 groups."""
    ten = [n // 2 for n in range(20)]
    spread = [0.1, 0.4, 0.8, 0.9] * 5
    assert statistics.score_estimate(spread) == ("t", statistics.mean_estimate(spread))
    assert statistics.score_estimate(spread, range(20))[0] == "t"
    assert statistics.score_estimate(spread, ten) == (
        "clustered t",
        statistics.clustered_mean(spread, ten),
    )
    assert statistics.score_estimate([1.0, 0.0] * 5, ["a", "b"] * 5) == ("clustered t", None)
    # No limit is outside of 0 to 1.
    high = [1.0, 1.0, 0.9]
    assert statistics.score_estimate(high)[1] == (29 / 30, pytest.approx(0.823, abs=1e-3), 1.0)
    assert statistics.score_estimate([0.0] * 19 + [0.1], ten)[1].low == 0.0
    # Copies of one value add nothing to it.
    single = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    twice = [value for value in single for _ in range(2)]
    method, doubled = statistics.score_estimate(twice, [n // 2 for n in range(24)])
    assert method == "clustered wilson"
    assert doubled is not None
    plain = statistics.wilson(10 / 12, 12)
    assert doubled.low < plain.low < plain.high < doubled.high
    # Equal scores of all groups are no certainty.
    method, same = statistics.score_estimate([1.0] * 20, ten)
    assert same is not None
    assert (method, same.low < 0.8, same.high) == ("clustered wilson", True, pytest.approx(1.0))


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 0.97])
def test_shares_of_groups_are_covered(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 groups of 5 scores of 0 and 1 with correlation .5; `benchmarks.search.intervals` has the full figures."""
    # The quantile of one number of groups takes most of the time.
    monkeypatch.setattr(statistics, "t_quantile", cache(statistics.t_quantile))
    chance, covered, draws = random.Random(5), 0, 250
    for _ in range(draws):
        owns = [chance.betavariate(share, 1 - share) for _ in range(30)]
        values = [float(chance.random() < own) for own in owns for _ in range(5)]
        _, estimate = statistics.score_estimate(values, [n // 5 for n in range(150)])
        assert estimate is not None
        covered += estimate.low <= share <= estimate.high
    assert covered / draws >= 0.91  # 0.93 less a standard error


def test_comparison_counts_pairs_and_what_does_not_pair() -> None:
    before = {"a": 0.0, "b": 1.0, "c": 1.0, "old": 0.0}
    now = {"a": 1.0, "b": 1.0, "c": 0.0, "new": 1.0, "other": 1.0}
    one = statistics.compared(before, now)
    assert (one.paired, one.unpaired, one.difference) == (3, 3, 0.0)
    assert (one.wins, one.losses, one.ties, one.p, one.low) == (1, 1, 1, 1.0, None)
    assert statistics.compared({"a": 0.5}, {"a": 1.0}).p is None
    # The test takes cases for independent, and those of a group are not.
    assert statistics.compared(before, now, dict.fromkeys(before, "g")).p is None
    assert statistics.compared(before, now, {"a": "g", "b": "h"}).p == 1.0
    assert statistics.compared({}, {"a": 1.0}) == (0, 1, None, None, None, 0, 0, 0, None)
    many = {n: n % 7 / 10 for n in range(60)}
    changed = {n: value + 0.1 + n % 3 / 100 for n, value in many.items()}
    free = statistics.compared(many, changed)
    grouped = statistics.compared(many, changed, {n: n % 3 for n in many})
    assert free.low is not None
    assert free.difference == pytest.approx(0.11)
    assert free.low < 0.11 < (free.high or 0)
    assert (grouped.difference, grouped.low) == (free.difference, None)


def test_mcnemar_is_the_exact_binomial_test() -> None:
    for wins, losses in ((0, 0), (1, 0), (5, 0), (7, 7), (30, 12), (3, 190)):
        n, fewer = wins + losses, min(wins, losses)
        tail = sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n
        assert statistics.mcnemar(wins, losses) == pytest.approx(min(1.0, 2 * tail), **NEAR)


def test_pass_at_k_is_the_share_of_subsets() -> None:
    """Of all k of n tries: the share with a pass, and the share that all pass."""
    for n, passed, k in ((4, 1, 2), (5, 3, 3), (6, 0, 2), (6, 6, 4), (3, 2, 1)):
        subsets = list(combinations([True] * passed + [False] * (n - passed), k))
        assert statistics.pass_any(passed, n, k) == pytest.approx(
            sum(map(any, subsets)) / len(subsets)
        )
        assert statistics.pass_all(passed, n, k) == pytest.approx(
            sum(map(all, subsets)) / len(subsets)
        )
