"""Peers on the test functions: `python evalset.py ENGINE SEEDS [EVALUATIONS [FUNCTION …]]`, a JSON line for each run.

- `optuna`: its default sampler.
- `tpe-cma`: the default sampler for half of the evaluations, then CMA-ES of `cma` from the best point, with restarts.
- `cma`: CMA-ES with restarts with twice the population (IPOP), from random points.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from _test_functions import FUNCTIONS, Function

warnings.simplefilter("ignore")
import cma  # noqa: E402
import optuna  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)


def by_optuna(function: Function, seed: int, evaluations: int) -> tuple[float, list[float]]:
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: optuna.Trial) -> float:
        ends = enumerate(function.ranges)
        return function.of([trial.suggest_float(f"x{nth}", *pair) for nth, pair in ends])

    study.optimize(objective, n_trials=evaluations)
    best = [study.best_params[f"x{nth}"] for nth in range(len(function.ranges))]
    return study.best_value, best


def by_cma(
    function: Function, seed: int, evaluations: int, start: list[float] | None = None
) -> float:
    chance, best, used, popsize = random.Random(seed), float("inf"), 0, 0
    ranges = function.ranges

    def of(unit: list[float]) -> float:
        return function.of([a + u * (b - a) for u, (a, b) in zip(unit, ranges, strict=True)])

    while used < evaluations:
        point = [chance.random() for _ in ranges]
        if start is not None:
            point = [(v - a) / (b - a) for v, (a, b) in zip(start, ranges, strict=True)]
        options = {
            "bounds": [0, 1],
            "seed": chance.getrandbits(31) + 1,
            "verbose": -9,
            "verb_log": 0,
            "maxfevals": evaluations - used,
        }
        # From a good point a small step; each restart doubles the population, as IPOP does.
        if popsize:
            options["popsize"] = popsize
        strategy = cma.CMAEvolutionStrategy(point, 0.3 if start is None else 0.1, options)
        while not strategy.stop() and used < evaluations:
            points = strategy.ask()[: evaluations - used]
            values = [of(list(map(float, unit))) for unit in points]
            used += len(points)
            best = min(best, *values)
            if len(points) < strategy.popsize:
                break
            strategy.tell(points, values)
        popsize, start = 2 * strategy.popsize, None
    return best


def main(engine: str, seeds: int, evaluations: int, names: list[str]) -> None:
    for name in names or FUNCTIONS:
        function = FUNCTIONS[name]
        for seed in range(1, seeds + 1):
            began = time.process_time()
            if engine == "optuna":
                best, _ = by_optuna(function, seed, evaluations)
            elif engine == "cma":
                best = by_cma(function, seed, evaluations)
            else:
                first, start = by_optuna(function, seed, evaluations // 2)
                best = min(first, by_cma(function, seed, evaluations - evaluations // 2, start))
            row = {
                "engine": engine, "function": name, "seed": seed, "evaluations": evaluations,
                "regret": best - function.lowest, "seconds": round(time.process_time() - began, 2),
                "versions": {one: version(one) for one in ("optuna", "cma", "numpy")},
            }  # fmt: skip
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int((sys.argv[3:] or ["2000"])[0]), sys.argv[4:])
