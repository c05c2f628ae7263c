"""Strategies are tried in the order of success for their cost, as past runs of the loop show it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations
from statistics import fmean

import pytest

from loopwright.memory.strategies import StrategyCount, Tried, counted, order_of, tried_in
from loopwright.records import Evaluation, Iteration, Usage


def test_without_past_runs_the_order_is_the_declared_one() -> None:
    """Also if past runs tried only strategies that the loop no longer has."""
    assert order_of(["b", "a", "c"], {}) == ["b", "a", "c"]
    assert order_of(["b", "a"], {"gone": StrategyCount(successes=9, usd=1)}) == ["b", "a"]


def test_the_order_is_success_for_the_cost() -> None:
    """(s + 1) / (s + f + 2) by the mean cost; two runs at the mean cost of all stand before the first."""
    counts = {
        "dear": StrategyCount(successes=9, failures=1, usd=100.0),
        "cheap": StrategyCount(successes=5, failures=5, usd=10.0),
        "weak": StrategyCount(failures=10, usd=10.0),
    }
    # The mean cost is 4: dear 10/12 by 108/12, cheap 6/12 by 18/12, weak 1/12 by 18/12.
    assert order_of(["weak", "dear", "cheap"], counts) == ["cheap", "dear", "weak"]
    # A new one has 1/2 by 4, and comes before dear.
    assert order_of(["weak", "dear", "new", "cheap"], counts) == ["cheap", "new", "dear", "weak"]


def test_without_prices_the_cost_is_time() -> None:
    counts = counted([[Tried("slow", True, seconds=60.0), Tried("quick", True, seconds=1.0)]])
    assert order_of(["slow", "quick"], counts) == ["quick", "slow"]


def test_a_run_counts_half_after_200_runs() -> None:
    """So a loop whose world changes learns again."""
    runs = [[Tried("a", False, 1.0)]] * 200 + [[Tried("a", True, 3.0)]]
    count = counted(runs)["a"]
    assert count.successes == pytest.approx(0.5)
    assert count.usd - count.failures == pytest.approx(1.5)


def record(number: int, chain: int, score: float | None, **more: object) -> Iteration:
    item = Iteration(
        number, evaluation=Evaluation(score), usage=Usage(calls=1, usd=0.5), seconds=2.0
    )
    return replace(item, chain=chain, strategy="ab"[chain % 2 - 1], **more)


def test_a_chain_that_improved_the_best_is_a_success() -> None:
    """Its cost is that of all of its iterations, and failed ones do not count as better."""
    items = [
        record(1, 1, 0.5),
        record(2, 1, 0.6),
        record(3, 2, 0.55),
        record(4, 3, 0.7),
        record(5, 3, 0.1),
    ]
    tried = tried_in(items)
    assert [(one.strategy, one.success) for one in tried] == [
        ("a", False),
        ("b", False),
        ("a", True),
    ]
    assert [(one.usd, one.seconds) for one in tried] == [(1.0, 4.0), (0.5, 2.0), (1.0, 4.0)]
    assert not tried_in([*items[:3], record(4, 3, 0.9, truncated=True)])[2].success


def test_the_first_chain_is_a_success_if_nothing_improves_on_it() -> None:
    """Better than nothing is not enough."""
    items = [record(1, 1, 0.5), record(2, 2, 0.4)]
    assert [one.success for one in tried_in(items)] == [True, False]
    assert [one.success for one in tried_in([*items, record(3, 3, 0.6)])] == [False, False, True]


def test_iterations_without_a_strategy_are_left_out() -> None:
    assert tried_in([Iteration(1, evaluation=Evaluation(0.5))]) == []


def expected(order: list[str], chances: dict[str, float], costs: dict[str, float]) -> float:
    """Return the mean cost of trying strategies in an order until one succeeds."""
    total, reached = 0.0, 1.0
    for name in order:
        total += reached * costs[name]
        reached *= 1 - chances[name]
    return total


def drawn(draw: random.Random, counts: dict[str, StrategyCount], names: list[str]) -> list[str]:
    """Return an order by Thompson sampling: a draw of each success rate in place of its mean."""

    def value(name: str) -> float:
        one = counts.get(name, StrategyCount())
        cost = one.usd / one.chains if one.chains else 1.0
        return draw.betavariate(one.successes + 1, one.failures + 1) / cost

    return sorted(names, key=value, reverse=True)


def learned(seed: int, *, thompson: bool) -> tuple[float, float, float]:
    """Return the mean cost of the second half of 80 runs, of the best order and of the declared one."""
    draw = random.Random(seed)
    names = list("abcd")
    chances = {name: draw.uniform(0.1, 0.9) for name in names}
    costs = {name: draw.uniform(0.5, 3.0) for name in names}
    runs: list[list[Tried]] = []
    spent = []
    for _ in range(80):
        counts = counted(runs)
        order = drawn(draw, counts, names) if thompson else order_of(names, counts)
        spent.append(expected(order, chances, costs))
        run = []
        for name in order:
            run.append(Tried(name, draw.random() < chances[name], costs[name]))
            if run[-1].success:
                break
        runs.insert(0, run)
    best = min(expected(list(order), chances, costs) for order in permutations(names))
    return fmean(spent[40:]), best, expected(names, chances, costs)


def test_the_learned_order_costs_what_the_best_one_does() -> None:
    """Over 20 sets of strategies: within 4 % of the best order and of Thompson sampling, far below the declared one."""
    greedy, best, declared = (
        fmean(v) for v in zip(*(learned(s, thompson=False) for s in range(20)), strict=True)
    )
    thompson = fmean(learned(seed, thompson=True)[0] for seed in range(20))
    assert best <= greedy <= 1.04 * best
    assert greedy <= 1.04 * thompson
    assert greedy <= 0.9 * declared
