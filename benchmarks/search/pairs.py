"""Judges of pairs with known accuracy and bias: how often the intervals of `measure judge --pairs` cover the truth.

`python -m benchmarks.search.pairs` prints the share of draws in which each interval at 95 % covers the true value, and
exits with 1 if one is below 93 %. A draw is a file of 200 labelled pairs, each asked in both orders.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

from loopwright.evaluators.pairs import WINNERS
from loopwright.insight import PairCase, measure_pairs

CASES, DRAWS, BOUND = 200, 1_000, 0.93
FIGURES = ("consistent_accuracy", "consistency", "first_share")


@dataclass(frozen=True)
class Simulated:
    """A judge that follows the position in some pairs, and in the others answers each time for itself.

    Args:
        accuracy: The chance that an answer that does not follow the position is right.
        first: The share of pairs in which it says `first` in both orders.
        second: The share of pairs in which it says `second` in both orders.
        tie: The share of pairs whose label is `tie`.
    """

    accuracy: float
    first: float = 0.0
    second: float = 0.0
    tie: float = 0.0

    def pairs(self, chance: random.Random, count: int) -> list[PairCase]:
        """Return labelled pairs with the answers of this judge."""
        return [self._pair(chance, number) for number in range(count)]

    def _pair(self, chance: random.Random, number: int) -> PairCase:
        label = "tie" if chance.random() < self.tie else chance.choice(WINNERS[:2])
        side = chance.random()
        if side < self.first + self.second:
            word = "first" if side < self.first else "second"
            answers: tuple[str, ...] = (word, word)
        else:
            other = {"first": "second", "second": "first", "tie": "tie"}[label]
            answers = self._answer(chance, label), self._answer(chance, other)
        return PairCase(str(number), "a", "b", label, answers=answers)

    def _answer(self, chance: random.Random, right: str) -> str:
        if chance.random() < self.accuracy:
            return right
        return chance.choice([word for word in WINNERS if word != right])

    def truth(self) -> dict[str, float]:
        """Return the true values: two answers agree if both are right, or both wrong with the same winner."""
        seen, error = 1 - self.first - self.second, 1 - self.accuracy
        sides = (1 - self.tie) * (self.accuracy + error / 2) / 2 + self.tie * error / 2
        return {
            "consistent_accuracy": seen * self.accuracy**2,
            "consistency": seen * (self.accuracy**2 + error**2 / 2),
            "first_share": self.first + seen * sides,
        }


JUDGES = [
    Simulated(1 / 3), Simulated(0.6), Simulated(0.8), Simulated(0.9, tie=0.2), Simulated(0.97),
    Simulated(0.8, first=0.2), Simulated(0.9, first=0.5), Simulated(0.9, first=0.9),
    Simulated(0.8, first=0.1, second=0.4), Simulated(0.9, first=0.45, second=0.45, tie=0.1),
]  # fmt: skip


def coverage(judge: Simulated, draws: int, seed: int = 1) -> dict[str, float]:
    """Return the share of draws in which the interval of each figure covers its true value."""
    truth, chance = judge.truth(), random.Random(seed)
    covered = dict.fromkeys(FIGURES, 0)
    for _ in range(draws):
        report = measure_pairs(judge.pairs(chance, CASES)).to_json()
        for name in FIGURES:
            covered[name] += report[name]["low"] <= truth[name] <= report[name]["high"]
    return {name: count / draws for name, count in covered.items()}


def main() -> int:
    """Print the table; 1 if an interval covers too seldom."""
    began = time.monotonic()
    print(
        f"{CASES} pairs, {DRAWS:,} draws, seed 1: true value, and share of intervals that cover it (≥ {BOUND:.0%})"
    )
    print(f"{'accuracy':>8} {'first':>6} {'second':>6} {'tie':>5}  " + "  ".join(f"{n:>19}" for n in FIGURES))  # fmt: skip
    missed = 0
    for judge in JUDGES:
        truth, shares = judge.truth(), coverage(judge, DRAWS)
        missed += sum(share < BOUND for share in shares.values())
        cells = "  ".join(f"{truth[name]:>10.3f} {shares[name]:>8.1%}" for name in FIGURES)
        print(f"{judge.accuracy:8.2f} {judge.first:6.2f} {judge.second:6.2f} {judge.tie:5.2f}  {cells}")  # fmt: skip
    print(f"{missed} of {len(JUDGES) * len(FIGURES)} below, {time.monotonic() - began:.0f} s")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
