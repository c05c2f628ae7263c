"""Replay at size: 10,000 runs against 280 policies, and its claims on simulated runs.

`make bench-insight` prints a line for each figure with its bound, and fails if one is missed.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
import time
from statistics import fmean, stdev

from loopwright import (
    Evaluation,
    Impossible,
    Loop,
    MaxIterations,
    NoImprovement,
    ScoreAtLeast,
    Usage,
)
from loopwright.engine.loop_options import explores
from loopwright.evaluators.judge import Votes, error_rates, unattainable
from loopwright.insight import (
    Backtest,
    JudgeCase,
    Recording,
    Recordings,
    StoppingPolicy,
    measure_judge,
)
from loopwright.insight.backtest import grid
from loopwright.records import History, Iteration

LIMIT = 8


def recordings(count: int, until, *, seed: int = 1, explore: float = 0.0) -> Recordings:
    """Return recordings of a loop whose scores rise to a plateau, made without a journal."""
    loop = Loop(
        lambda v: v, lambda v: v, until=until | MaxIterations(LIMIT), name="write", explore=explore
    )
    items = []
    for number in range(count):
        chance = random.Random(seed * 1_000_003 + number)
        best, history, prefixes, stop = chance.uniform(0.6, 1.0), History(), [], None
        chosen, stopped_at = explores(f"s{seed}-r{number}", explore), 0
        while stop is None or (chosen and len(history) < LIMIT):
            t = len(history) + 1
            quality = best - (best - 0.4) * 0.6**t
            score = min(1.0, max(0.0, quality + chance.gauss(0, 0.05)))
            evaluation = Evaluation(score, metrics={"audit": quality})
            item = Iteration(t, output=f"draft {t}", evaluation=evaluation)
            history = history.with_iteration(item, float(t), Usage(2 * t, 20 * t, 0, 0.01 * t))
            prefixes.append(history)
            if stop is None:
                stop, stopped_at = loop.decide(history), t
        items.append(
            Recording(f"r{number}", "write", loop, prefixes, stop, chosen, stopped_at=stopped_at)
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


def exploring(logs: int = 500, runs: int = 200) -> bool:
    """The estimate of a later stop from 10 % explored runs has no bias against full-length runs."""
    policy = StoppingPolicy(MaxIterations(LIMIT))
    errors, judged = [], 0
    for seed in range(logs):
        result = Backtest(recordings(runs, ScoreAtLeast(0.75), seed=seed, explore=0.1)).evaluate(
            policy, intervals=False
        )
        truth = Backtest(recordings(runs, MaxIterations(LIMIT), seed=seed)).evaluate(
            policy, intervals=False
        )
        if result.quality is not None:
            judged += 1
            errors.append(result.quality.value - truth.quality.value)
    mean = abs(fmean(errors))
    error = stdev(errors) / math.sqrt(len(errors))
    report(
        f"explore, standard error of the bias ({judged} of {logs} logs judged)", error, 0.005 / 3
    )
    return report(f"explore, {logs} logs of {runs} runs: |bias|", mean, 0.005)


# A simulated judge, and what its rates imply for the values of the report: with one half of the labels true,
# kappa is (.875 - .5) / .5, and icc is that of both labels together by 1 - f / (2e(1 - e)).
SENSITIVITY, SPECIFICITY, PERSISTENT = 0.9, 0.85, 0.5
ERRORS = (1 - SENSITIVITY, 1 - SPECIFICITY)
FLIPS = fmean(2 * e * (1 - e) * (1 - PERSISTENT) for e in ERRORS)
TRUTH = {
    "sensitivity": SENSITIVITY,
    "specificity": SPECIFICITY,
    "kappa": 1 - 2 * fmean(ERRORS),
    "flip_rate": FLIPS,
    "icc": 1 - FLIPS / (2 * fmean(ERRORS) * (1 - fmean(ERRORS))),
}
COVERAGE = {
    100: {"sensitivity": 0.93, "specificity": 0.93, "kappa": 0.90, "flip_rate": 0.90},
    200: {
        "sensitivity": 0.93,
        "specificity": 0.93,
        "kappa": 0.915,
        "flip_rate": 0.915,
        "icc": 0.92,
    },
}


def judges(draws: int = 1000) -> bool:
    """Intervals of a simulated judge with known rates cover them. Each draw is the seed of its cases."""
    good = True
    for count, bounds in COVERAGE.items():
        hits = dict.fromkeys(bounds, 0)
        for seed in range(draws):
            report_of_draw = measure_judge(judge_cases(seed, count)).to_json()
            for name in bounds:
                row = report_of_draw[name]
                hits[name] += row["low"] <= TRUTH[name] <= row["high"]
        for name, bound in bounds.items():
            title = f"judge of {count} cases with 3 votes, {draws} draws: {name}"
            good &= report(title, hits[name] / draws, bound, below=False)
    return good


def judge_cases(seed: int, count: int) -> list[JudgeCase]:
    """Return cases of a judge with these rates, whose votes on one case are correlated."""
    chance, cases = random.Random(seed), []
    scale = 1 / PERSISTENT - 1
    for number in range(count):
        label = number % 2 == 0
        error = 1 - (SENSITIVITY if label else SPECIFICITY)
        wrong = chance.betavariate(error * scale, (1 - error) * scale)
        votes = tuple((chance.random() < wrong) != label for _ in range(3))
        cases.append(JudgeCase(f"c{number}", "text", label, votes))
    return cases


def unattainable_judges() -> bool:
    """On a grid of rates, a judge is refused exactly where no rule of the exact programme keeps alpha."""
    wrong = 0
    for se, sp, icc, alpha in itertools.product(
        (0.7, 0.8, 0.9, 0.95), (0.7, 0.8, 0.9, 0.95), (0.0, 0.3, 0.6, 0.9), (0.01, 0.05, 0.1)
    ):
        kept = any(
            error_rates(1 - sp, rule, icc).accept <= alpha
            and error_rates(se, rule, icc).accept >= 0.5
            for rule in RULES
        )
        wrong += bool(unattainable(se, sp, icc, alpha=alpha)) is kept
    return report("unattainable, 192 judges: wrong sentences", wrong, 0)


RULES = [
    Votes(accept, reject, most)
    for most in range(1, 8)
    for accept in range(1, most + 1)
    for reject in range(1, most + 1)
]


def impossible() -> bool:
    """No sequence of verdicts ends a loop as impossible before iteration 4, or on a single look."""
    wrong, never = 0, Evaluation(impossible=True)
    for pattern in itertools.product((None, False, never), repeat=6):
        history, looks = History(), 0
        for number, verdict in enumerate(pattern, 1):
            evaluation = (
                Evaluation(undecided=True)
                if verdict is None
                else verdict or Evaluation(passed=False)
            )
            history = history.with_iteration(Iteration(number, evaluation=evaluation), 0.0, Usage())
            if evaluation.impossible:
                looks += number >= 3
            elif not evaluation.undecided:
                looks = 0
            ended = Impossible().check(history) is not None
            wrong += ended is not (evaluation.impossible and looks >= 2)
            wrong += ended and number < 4
    return report("impossible, 729 sequences: wrong ends", wrong, 0)


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


CHECKS = (speed, coverage, censoring, exploring, judges, unattainable_judges, impossible)


def main() -> int:
    results = [check() for check in CHECKS]  # a list: each figure is printed, missed or not
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
