"""How many calls new chains save at equal quality: `python -m benchmarks.search restarts`.

A writer makes a draft and refines it: a chain has a ceiling of its own, each refinement closes a part of the distance to
it, and some make the draft worse. A judge scores with noise, and its feedback differs each time. The yardstick is a loop
with a patience of 2. The other loops end at a threshold or a limit; one of them begins a fresh chain after 2 stalls. Of
each kind, the one with the fewest calls counts that is as good as the yardstick. Loops, stalls and plans are decided by
the engine. Fixed seeds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from loopwright import (
    Evaluation,
    History,
    Iteration,
    Loop,
    MaxIterations,
    NoImprovement,
    OnStall,
    ScoreAtLeast,
)
from loopwright.engine.plan import next_plan

TASKS = 3000
LIMIT = 12
THRESHOLDS = tuple(round(0.8 + 0.01 * step, 2) for step in range(16))
NOISES = (0.03, 0.05, 0.08)  # standard deviations of one score
BOUND = 0.70
SEED = 27


@dataclass
class Writer:
    """Writes and refines the drafts of one task."""

    chance: random.Random
    task: float

    def first(self) -> tuple[float, float]:
        """Return the quality of a new draft, and the ceiling of its chain."""
        ceiling = min(0.98, self.task + self.chance.gauss(0.0, 0.10))
        return ceiling - abs(self.chance.gauss(0.10, 0.05)), ceiling

    def refined(self, quality: float, ceiling: float) -> float:
        """Return the quality of the next draft: closer to the ceiling, or worse."""
        if self.chance.random() < 0.2:
            return quality - abs(self.chance.gauss(0.0, 0.05))
        return quality + (ceiling - quality) * self.chance.uniform(0.2, 0.7)


def loop_of(*conditions: Any, fresh: bool) -> Loop[Any, Any]:
    """Return a loop of which only the decisions count."""
    until = conditions[0]
    for condition in conditions[1:]:
        until |= condition
    stall = OnStall("fresh", patience=2, restarts=LIMIT) if fresh else None
    return Loop(lambda value: value, lambda output: 0.0, until=until, on_stall=stall)


def histories(task: int, noise: float, *, fresh: bool) -> list[tuple[History, list[float]]]:
    """Return the history after each iteration of a loop that never ends, with the true qualities so far."""
    chance = random.Random(f"{SEED} {task}")
    writer = Writer(chance, chance.gauss(0.84, 0.05))
    loop, history = loop_of(MaxIterations(LIMIT), fresh=fresh), History()
    drafts: dict[int, tuple[float, float]] = {}
    found, qualities = [], list[float]()
    for number in range(1, LIMIT + 1):
        parent, chain = number - 1, 1
        if loop.policies is not None:
            plan = next_plan(history, loop.policies, f"{task}/{number}")
            parent, chain = plan.parent, plan.chain
        if parent:
            quality, ceiling = drafts[parent]
            drafts[number] = writer.refined(quality, ceiling), ceiling
        else:
            drafts[number] = writer.first()
        quality = min(1.0, max(0.0, drafts[number][0]))
        score = min(1.0, max(0.0, quality + chance.gauss(0.0, noise)))
        said = f"{chance.random()} is missing"
        item = Iteration(
            number,
            evaluation=Evaluation(score, feedback=said),
            parent=None if parent == number - 1 else parent,
            chain=chain,
        )
        history = history.continued(item)
        qualities = [*qualities, quality]
        found.append((history, qualities))
    return found


def ended(
    loop: Loop[Any, Any], runs: Iterable[list[tuple[History, list[float]]]]
) -> list[tuple[int, float]]:
    """Return after how many iterations a loop ends each run, and the true quality of its output."""
    rows = []
    for run in runs:
        for history, qualities in run:
            if loop.decide(history) is not None:
                assert history.best is not None
                rows.append((history.length, qualities[history.best.number - 1]))
                break
    return rows


Run = list[tuple[History, list[float]]]


def cheapest(runs: list[Run], quality: float, *, fresh: bool) -> tuple[float, str]:
    """Return the fewest mean calls of a threshold and a limit that reach a mean quality, and which ones these are."""
    best = (float("inf"), "none")
    for threshold in THRESHOLDS:
        loop = loop_of(ScoreAtLeast(threshold), MaxIterations(LIMIT), fresh=fresh)
        stops = [stop for stop, _ in ended(loop, runs)]
        for limit in range(1, LIMIT + 1):
            calls = [min(stop, limit) for stop in stops]
            reached = fmean(output(run, at) for run, at in zip(runs, calls, strict=True))
            if reached >= quality:
                best = min(best, (fmean(calls), f"score {threshold:g}, limit {limit}"))
    return best


def output(run: Run, at: int) -> float:
    """Return the true quality of the output of a run that ends after so many iterations."""
    history, qualities = run[at - 1]
    assert history.best is not None
    return qualities[history.best.number - 1]


def simulate(noise: float, tasks: int) -> tuple[list[str], float]:
    """Return the rows of a table for one judge, and the share of calls with fresh chains."""
    plain = [histories(task, noise, fresh=False) for task in range(tasks)]
    anew = [histories(task, noise, fresh=True) for task in range(tasks)]
    yardstick = ended(loop_of(NoImprovement(2), MaxIterations(LIMIT), fresh=False), plain)
    calls, quality = fmean(row[0] for row in yardstick), fmean(row[1] for row in yardstick)
    rows, share = [f"noise {noise:g}: patience 2 {calls:5.2f} calls, quality {quality:.3f}"], 1.0
    for name, runs, fresh in (("no new chain", plain, False), ("fresh chains", anew, True)):
        needed, which = cheapest(runs, quality, fresh=fresh)
        share = needed / calls
        rows.append(f"    {name:14} {needed:5.2f} calls {share:6.1%}  ({which})")
    return rows, share


def main(tasks: int = TASKS) -> int:
    """Print the table; return 1 if a bound is missed."""
    missed = 0
    print(
        f"{tasks} tasks, at most {LIMIT} iterations; fresh chains at most {BOUND:.0%} of the calls"
    )
    for noise in NOISES:
        rows, share = simulate(noise, tasks)
        missed += share > BOUND
        print("ok  " if share <= BOUND else "OVER", "\n".join(rows), flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
