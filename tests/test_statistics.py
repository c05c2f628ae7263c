"""Statistics match reference values from SciPy to 1e-9, and intervals cover what they claim."""

from __future__ import annotations

import json
import math
import random
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
