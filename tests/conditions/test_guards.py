"""The statistics behind the guards: cycles, near duplicates, drawdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.support import texts
from loopwright.conditions.progress import (
    cycle_period,
    drawdown_limit,
    shingles,
    similarity,
    strictly_falling,
)


@pytest.mark.parametrize(
    ("horizon", "limit"),
    [(1, 1.71), (4, 1.71), (5, 2.03), (6, 2.26), (7, 2.405), (8, 2.55), (9, 2.645), (10, 2.74),
     (15, 3.05), (20, 3.24), (100, 3.24)],
)  # fmt: skip
def test_the_drawdown_limit_follows_its_table(horizon: int, limit: float) -> None:
    """h(T) of the notes on stopping, interpolated between, constant outside."""
    assert drawdown_limit(horizon) == pytest.approx(limit)


@given(st.integers(2, 50))
def test_a_longer_run_allows_a_deeper_fall(horizon: int) -> None:
    """h(T) never shrinks with the horizon."""
    assert drawdown_limit(horizon) <= drawdown_limit(horizon + 1)


@pytest.mark.parametrize(
    ("scores", "window", "falls"),
    [([0.9, 0.8, 0.7], 3, True), ([0.9, 0.8, 0.8], 3, False), ([0.9, 0.8], 3, False),
     ([0.1, 0.9, 0.8, 0.7], 3, True), ([0.9, 0.7, 0.8], 3, False), ([], 2, False)],
)  # fmt: skip
def test_falling_strictly_is_a_fall_at_every_step(
    scores: list[float], window: int, falls: bool
) -> None:
    """H26: each of the last `window` scores lies below the one before; fewer never fall."""
    assert strictly_falling(scores, window) is falls


@pytest.mark.parametrize(
    ("labels", "period"),
    [("", 0), ("A", 0), ("AA", 1), ("AB", 0), ("ABA", 0), ("ABAB", 2), ("XABAB", 2), ("ABCABC", 3),
     ("ABCDABCD", 4), ("ABCDEABCDE", 0), ("AAB", 0), ("ABB", 1), ("ABABC", 0)],
)  # fmt: skip
def test_a_cycle_is_the_same_period_twice_at_the_end(labels: str, period: int) -> None:
    """H25: A-B-A is no cycle; periods up to 4 are found when they have come round twice."""
    assert cycle_period(list(labels)) == period


@given(st.lists(st.integers(), unique=True, min_size=1, max_size=4), st.lists(st.integers(100)))
def test_every_period_up_to_four_is_found(cycle: list[int], before: list[int]) -> None:
    """A cycle of period p is found at its 2p-th output, whatever came before, at p or below."""
    labels = [str(n) for n in [*before, *cycle, *cycle]]
    assert 1 <= cycle_period(labels) <= len(cycle)
    assert cycle_period([str(n) for n in cycle]) == 0


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        ("one two three four five", "one two three four five", 1.0),
        ("One, two: three four FIVE", "one two three four five", 1.0),
        ("one two three four five", "one two three four six", 1 / 3),
        ("short text", "short text", 1.0),
        ("short text", "other text", 0.0),
        ("", "", 1.0),
        ("+", "-", 0.0),
        ("...", "...", 1.0),
        ("", "words", 0.0),
    ],
)
def test_similarity_is_the_share_of_common_word_runs(a: str, b: str, share: float) -> None:
    """Jaccard over runs of four words; texts without words are compared as they are."""
    assert similarity(shingles(a), shingles(b)) == pytest.approx(share)


@given(texts, texts)
def test_similarity_is_a_share_and_goes_both_ways(a: str, b: str) -> None:
    """It lies in [0, 1], is symmetric, and 1 for equal texts."""
    x, y = shingles(a), shingles(b)
    assert 0 <= similarity(x, y) == similarity(y, x) <= 1
    assert similarity(x, x) == 1


def test_nothing_is_similar_to_nothing() -> None:
    """Two empty sets are equal, so they are similar."""
    assert similarity(frozenset(), frozenset()) == 1.0
