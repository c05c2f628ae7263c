"""How many steps of trainings early stopping saves, and how often it ends the best: `python -m benchmarks.search early`.

A loop trains once in each iteration, with the rule of `engine.early`. A curve falls by a power law from a start to a
level of its own, at a rate of its own, so that curves cross; each value has noise. Fixed seeds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

from loopwright._statistics import wilson
from loopwright.engine.early import Curve, Early

STEPS, EVERY, TRAININGS = 1000, 10, 20
LOOPS = 1000
# Names, the standard deviation of the levels, that of the noise, and the range of the rates.
KINDS: Sequence[tuple[str, float, float, tuple[float, float]]] = (
    ("levels differ, little noise", 0.10, 0.005, (0.9, 1.1)),
    ("levels and rates differ", 0.10, 0.01, (0.8, 1.2)),
    ("much noise", 0.10, 0.02, (0.9, 1.1)),
)


def training(
    chance: random.Random, levels: float, noise: float, rates: tuple[float, float]
) -> list[tuple[float, float]]:
    """Return the points of one training, each a step and a loss."""
    level, rate, start = chance.gauss(1.0, levels), chance.uniform(*rates), chance.uniform(1.5, 2.5)
    return [
        (step, level + start * (1 + step / 20) ** -rate + chance.gauss(0.0, noise))
        for step in range(EVERY, STEPS + 1, EVERY)
    ]


def simulate(
    early: Early, seed: int, kind: tuple[str, float, float, tuple[float, float]], loops: int
) -> tuple[float, int]:
    """Return the share of steps that were made, and the loops in which the best training was ended."""
    chance, made, ended = random.Random(seed), 0.0, 0
    for _ in range(loops):
        trainings = [training(chance, *kind[1:]) for _ in range(TRAININGS)]
        # Which one is best, its last value without noise would say; ten values together come close.
        best = min(trainings, key=lambda points: sum(value for _, value in points[-10:]))
        records: list[list[list[float]]] = []
        for points in trainings:
            curve = Curve(early, records, -1)
            last = next((step for step, value in points if curve.add(step, value)), STEPS)
            made += last / STEPS
            ended += points is best and bool(curve.stopped)
            records.append(curve.points)
    return made / loops / TRAININGS, ended


def main(loops: int = LOOPS) -> int:
    """Print the table; return 1 if a bound is missed."""
    missed = 0
    print(f"{loops} loops of {TRAININGS} trainings with {STEPS} steps, a value every {EVERY} steps")
    print(
        "share of the steps that was made (at most 60 %), of the loops that ended their best (at most 2 %)"
    )
    for early, bound in ((Early(from_=100), 0.6), (Early(from_=200, earlier=5), 1.0)):
        for seed, kind in enumerate(KINDS):
            share, ended = simulate(early, seed, kind, loops)
            low, high = wilson(ended / loops, loops)[1:]
            holds = share <= bound and ended / loops <= 0.02
            missed += not holds
            what = f"from {early.from_:g}, earlier {early.earlier}: {kind[0]}"
            lost = f"{ended / loops:6.2%} [{low:.2%}, {high:.2%}]"
            print(f"{'ok  ' if holds else 'OVER'} {what:48} {share:7.1%} {lost}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
