"""Replay at size: 10,000 runs against 280 policies, and its claims on simulated runs.

`make bench-insight` prints a line for each figure with its bound, and fails if one is missed.
"""

from __future__ import annotations

import random
import sys
import time

from loopwright import Evaluation, Loop, MaxIterations, NoImprovement, ScoreAtLeast, Usage
from loopwright.insight import Backtest, Recording, Recordings, StoppingPolicy
from loopwright.insight.policies import grid
from loopwright.records import History, Iteration

LIMIT = 8


def recordings(count: int, until, *, seed: int = 1) -> Recordings:
    """Return recordings of a loop whose scores rise to a plateau, made without a journal."""
    loop = Loop(lambda v: v, lambda v: v, until=until | MaxIterations(LIMIT), name="write")
    items = []
    for number in range(count):
        chance = random.Random(seed * 1_000_003 + number)
        best, history, prefixes, stop = chance.uniform(0.6, 1.0), History(), [], None
        while stop is None:
            t = len(history) + 1
            quality = best - (best - 0.4) * 0.6**t
            score = min(1.0, max(0.0, quality + chance.gauss(0, 0.05)))
            evaluation = Evaluation(score, metrics={"audit": quality})
            item = Iteration(t, output=f"draft {t}", evaluation=evaluation)
            history = history.with_iteration(item, float(t), Usage(2 * t, 20 * t, 0, 0.01 * t))
            prefixes.append(history)
            stop = loop.decide(history)
        items.append(
            Recording(f"r{number}", "write", loop, prefixes, stop, stopped_at=len(prefixes))
        )
    return Recordings("write", items)


def report(name: str, value: float, bound: float, *, below: bool = True) -> bool:
    good = value <= bound if below else value >= bound
    print(
        f"{name:58} {value:10.3f}  {'≤' if below else '≥'} {bound:g}  {'ok' if good else 'MISSED'}"
    )
    return good


def speed() -> bool:
    data = recordings(10_000, NoImprovement(3))
    policies = [policy for _ in range(2) for policy in grid(LIMIT)][:280]
    began = time.process_time()
    backtest = Backtest(data)
    for policy in policies:
        backtest.evaluate(policy, intervals=False)
    seconds = time.process_time() - began
    return report("10,000 runs with 280 policies: CPU seconds", seconds, 60)


def coverage(draws: int = 200) -> bool:
    """The paired interval of a shorter limit contains the true difference."""
    policy = StoppingPolicy(ScoreAtLeast(0.8) | MaxIterations(3))
    truth = Backtest(recordings(20_000, MaxIterations(LIMIT), seed=99)).evaluate(policy)
    covered = 0
    for seed in range(draws):
        result = Backtest(recordings(100, MaxIterations(LIMIT), seed=seed)).evaluate(policy)
        low, high = result.difference.low, result.difference.high
        covered += low <= truth.difference.value <= high
    return report(
        f"paired bootstrap, {draws} draws of 100 runs: coverage", covered / draws, 0.90, below=False
    )


def censoring() -> bool:
    """No policy with more than 5 % censored runs has an estimate."""
    data = recordings(300, ScoreAtLeast(0.75))
    backtest = Backtest(data)
    wrong = 0
    for policy in grid(LIMIT):
        result = backtest.evaluate(policy, intervals=False)
        unjudged = result.censored > 0.05 * len(data.items)
        wrong += unjudged and (result.quality is not None or result.calls is not None)
        wrong += any(p.quality is not None for p in result.pairs if p.iterations is None)
    return report("estimates for censored policies", wrong, 0)


def main() -> int:
    return 0 if all([speed(), coverage(), censoring()]) else 1


if __name__ == "__main__":
    sys.exit(main())
