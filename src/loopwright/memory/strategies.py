"""The order in which a loop tries its strategies, learned from its past runs.

1. A strategy succeeds in a chain that improved the best iteration of the loop. Each strategy has its successes s, its
   failures f and its mean cost c. The order is that of (s + 1) / (s + f + 2) / c, the highest first; equal ones keep
   the order in which they are declared.
2. A run counts half as much after 200 further runs.
3. Each strategy begins with two runs of its own, one success and one failure at the mean cost of all strategies. So
   without past runs the order is the declared one.

A failed strategy is followed by the next one, so each is tried again and again without any chance, and the order follows
from the counts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..records import Iteration

__all__ = ["StrategyCount", "Tried", "counted", "order_of", "tried_in"]

HALF_LIFE = 200  # runs


@dataclass(frozen=True, slots=True)
class Tried:
    """One chain of a run.

    Args:
        strategy: the name of its strategy.
        success: whether it improved the best iteration of the loop.
        usd: its cost in dollars.
        seconds: its active seconds.
    """

    strategy: str
    success: bool
    usd: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StrategyCount:
    """What past runs say about one strategy; each figure is a sum in which older runs count less.

    Args:
        successes, failures: the chains that improved the best iteration of the loop, and the others.
        usd, seconds: what they cost.
    """

    successes: float = 0.0
    failures: float = 0.0
    usd: float = 0.0
    seconds: float = 0.0

    @property
    def chains(self) -> float:
        """The successes and failures."""
        return self.successes + self.failures


def tried_in(iterations: Iterable[Iteration]) -> list[Tried]:
    """Return the chains of a run that have a strategy, in order.

    Args:
        iterations: the records of the run.
    """
    chains: dict[int, list[Iteration]] = {}
    for item in iterations:
        chains.setdefault(item.chain, []).append(item)
    best, tried = None, []
    for number in sorted(chains):
        items = chains[number]
        top = max((item.standing for item in items if item.standing is not None), default=None)
        success = top is not None and (best is None or top > best)
        best = top if success else best
        usd, seconds = sum(i.usage.usd for i in items), sum(i.seconds for i in items)
        tried.append(Tried(items[0].strategy, success, usd, seconds))
    # Any first chain is better than nothing, so it is a success only if no later one improves on it. Otherwise the
    # strategy that comes first would always stay first.
    if any(one.success for one in tried[1:]):
        tried[0] = replace(tried[0], success=False)
    return [one for one in tried if one.strategy]


def counted(runs: Iterable[Sequence[Tried]]) -> dict[str, StrategyCount]:
    """Return the count of each strategy.

    Args:
        runs: the chains of each past run, the newest run first.

    Example:
        >>> counted([[Tried("careful", False, 0.5), Tried("rewrite", True, 0.25)]])["rewrite"].successes
        1.0
    """
    counts: dict[str, StrategyCount] = {}
    for age, run in enumerate(runs):
        weight = 2 ** (-age / HALF_LIFE)
        for one in run:
            known = counts.get(one.strategy, StrategyCount())
            counts[one.strategy] = StrategyCount(
                known.successes + weight * one.success,
                known.failures + weight * (not one.success),
                known.usd + weight * one.usd,
                known.seconds + weight * one.seconds,
            )
    return counts


def order_of(names: Iterable[str], counts: Mapping[str, StrategyCount]) -> list[str]:
    """Return the names of strategies in the order in which a loop tries them.

    Args:
        names: the names, in the order of their declaration.
        counts: the count of each name that past runs have tried; others are ignored.

    Example:
        >>> order_of(["careful", "rewrite"], {})
        ['careful', 'rewrite']
        >>> order_of(["careful", "rewrite"], {"rewrite": StrategyCount(successes=3, usd=0.3)})
        ['rewrite', 'careful']
    """
    declared = list(names)
    known = {name: counts.get(name, StrategyCount()) for name in declared}
    # Without prices, as with a model of one's own, time is what a strategy costs.
    unit = "usd" if any(one.usd for one in known.values()) else "seconds"
    chains = sum(one.chains for one in known.values())
    mean = sum(getattr(one, unit) for one in known.values()) / chains if chains else 0.0

    def value(name: str) -> float:
        one = known[name]
        rate = (one.successes + 1) / (one.chains + 2)
        return rate / ((getattr(one, unit) + 2 * mean) / (one.chains + 2) if mean else 1.0)

    return sorted(declared, key=value, reverse=True)
