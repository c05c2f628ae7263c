"""How often confirmation accepts a change that is none, and how many real changes it keeps: `python -m benchmarks.search confirm`.

Each run is a loop of 30 iterations with the rule of `engine.confirmation`. The noise has the standard deviation 1; a
change has no effect or raises the true value. Fixed seeds; the intervals are those of Wilson.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from loopwright._statistics import wilson
from loopwright.engine.confirmation import Confirm, Sample, Standing, confirmation
from loopwright.records.codec import Json

ITERATIONS, RUNS, ALPHA = 30, 2000, 0.05
POOL = 1 << 19  # values that are drawn once; a measurement is a piece of them
# Raised, lowered, raised again: the limit from an iteration on.
CHANGED = {4: 60, 10: 18, 13: 45, 20: 30}
EFFECTS: Sequence[float] = (0.1, 0.25, 0.5, 1.0, 2.0)
# By size of the data set, where 0 is a metric, and changes of the limit.
SIZES: Sequence[tuple[int, Mapping[int, int]]] = (
    (0, {}), (0, CHANGED), (5, {}), (20, {}), (20, CHANGED), (100, {}), (500, {}),
)  # fmt: skip


class Noise:
    """Values of one distribution with mean 0 and standard deviation 1."""

    def __init__(self, name: str, seed: int, pool: int = POOL) -> None:
        self.name, self.chance = name, random.Random(f"{name} {seed}")
        draw = self._normal if name == "normal" else self._t5
        self._pool = [draw() for _ in range(pool)]

    def _normal(self) -> float:
        return self.chance.gauss(0.0, 1.0)

    def _t5(self) -> float:
        # The variance of t with 5 degrees of freedom is 5/3.
        chi = self.chance.gammavariate(2.5, 2.0)
        return self.chance.gauss(0.0, 1.0) / math.sqrt(chi / 5) / math.sqrt(5 / 3)

    def values(self, count: int) -> list[float]:
        """Return some values."""
        at = self.chance.randrange(len(self._pool) - count)
        return self._pool[at : at + count]


@dataclass
class Counts:
    """What happened in the iterations of some runs."""

    runs: int = 0
    false_runs: int = 0
    measurements: int = 0
    iterations: int = 0
    offered: dict[float, int] = field(default_factory=dict)
    kept: dict[float, int] = field(default_factory=dict)
    errors: list[float] = field(default_factory=list)  # recorded less true value of what was kept


def simulate(
    noise: Noise,
    effects: Callable[[int], float],
    *,
    runs: int,
    cases: int = 0,
    limits: Mapping[int, int] = {},
    sign: int = 1,
) -> Counts:
    """Run loops whose iteration n changes the true value by `effects(n)`.

    Args:
        noise: that of a value, or of each case.
        effects: the change of an iteration, in the good direction.
        runs: how many loops.
        cases: the size of the data set; 0 is a metric.
        limits: the limit of iterations from an iteration on.
        sign: 1 if higher values are better, else -1.
    """
    confirm, counts, ids = Confirm(ALPHA), Counts(), [f"c{number}" for number in range(cases)]

    def measure(true: float) -> Sample:
        counts.measurements += 1
        if not cases:
            return sign * true + noise.values(1)[0]
        return {
            case: sign * true + value for case, value in zip(ids, noise.values(cases), strict=True)
        }

    for _ in range(runs):
        standing, true, limit, false = Standing(ALPHA, ITERATIONS), 0.0, ITERATIONS, False
        before = counts.measurements
        for item in range(ITERATIONS + 1):
            effect = effects(item) if item else 0.0
            limit = limits.get(item, limit)
            deciding = confirmation(
                confirm, standing, measure(true + effect),
                item=item, limit=limit, sign=sign, min_delta=0.0,
            )  # fmt: skip
            record = _driven(deciding, {"base": true, "candidate": true + effect}, measure)
            standing.add(item, record)
            if not item:
                counts.measurements = before  # of the baseline, and of no iteration
                continue
            if effect:
                counts.offered[effect] = counts.offered.get(effect, 0) + 1
            if not record["accepted"]:
                continue
            true += effect
            if effect:
                counts.kept[effect] = counts.kept.get(effect, 0) + 1
                counts.errors.append(sign * fmean(record["candidate"]) - true)
            false = false or not effect
        counts.false_runs += false
    counts.runs, counts.iterations = runs, runs * ITERATIONS
    return counts


def _driven(
    deciding: Generator[str, Sample, dict[str, Json]],
    true: Mapping[str, float],
    measure: Callable[[float], Sample],
) -> dict[str, Json]:
    """Return the record of a confirmation, with measurements of the true values."""
    try:
        side = next(deciding)
        while True:
            side = deciding.send(measure(true[side]))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def nothing(_: int) -> float:
    """No iteration changes anything."""
    return 0.0


def every_fifth(effect: float) -> Callable[[int], float]:
    """Every fifth iteration improves the true value."""
    return lambda item: 0.0 if item % 5 else effect


class Table:
    """Rows with bounds, of which it counts the missed ones."""

    missed = 0

    def at_most(self, what: str, value: float, bound: float, note: str = "") -> None:
        self._row(value <= bound, f"{what:58} {value:7.3f} (at most {bound:g})  {note}")

    def at_least(self, what: str, value: float, bound: float, note: str = "") -> None:
        self._row(value >= bound, f"{what:58} {value:7.3f} (at least {bound:g})  {note}")

    def _row(self, holds: bool, text: str) -> None:
        self.missed += not holds
        print(f"{'ok  ' if holds else 'OVER'} {text}", flush=True)


def main(runs: int = RUNS) -> int:
    """Print the tables; return 1 if a bound is missed."""
    table, noises = Table(), [Noise("normal", 1), Noise("t, 5 degrees", 2)]
    print(
        f"{ITERATIONS} iterations that change nothing, {runs} runs: share of runs that accept any"
    )
    print("  (measurements: the first evaluation and all new ones, without those of the baseline)")
    for noise in noises:
        for cases, limits in SIZES:
            counts = simulate(noise, nothing, runs=runs, cases=cases, limits=limits)
            share, each = counts.false_runs / runs, counts.measurements / counts.iterations
            what = f"{cases} cases" if cases else "a metric"
            what += f", {noise.name}{', the limit changes 4 times' if limits else ''}"
            low, high = wilson(share, runs)[1:]
            table.at_most(what, share, ALPHA, f"[{low:.3f}, {high:.3f}]")
            table.at_most("  measurements an iteration", each, 6)
    print(
        "a metric, every fifth iteration is better: share of these that is kept, and what is on record"
    )
    for noise in noises:
        for effect, least in ((1.0, 0.0), (2.0, 0.80), (3.0, 0.97)):
            counts = simulate(noise, every_fifth(effect), runs=runs // 4, sign=-1)
            share = counts.kept.get(effect, 0) / counts.offered[effect]
            note = f"{counts.measurements / counts.iterations:.1f} measurements an iteration"
            table.at_least(f"+{effect:g} sigma, {noise.name}", share, least, note)
            if least:
                error = abs(fmean(counts.errors))
                table.at_most("  |mean of recorded less true|, in sigma", error, 0.2)
    print("a data set: share of improvements that is kept, by the noise of one case")
    print("  cases " + "".join(f"{f'+{effect:g} sigma':>13}" for effect in EFFECTS))
    for cases in (5, 10, 20, 50, 100, 200, 500):
        few = max(1, min(200, max(40, 20_000 // cases)) * runs // RUNS)
        found = [simulate(noises[0], every_fifth(e), runs=few, cases=cases) for e in EFFECTS]
        shares = [sum(one.kept.values()) / sum(one.offered.values()) for one in found]
        print(f"{cases:7} " + "".join(f"{share:13.2f}" for share in shares), flush=True)
    return int(table.missed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
