"""Test functions of optimisers: iterations of 4 candidates, where `tpe` hands over to `cma`, and `cma` to `random`, when a loop stalls.

The functions are Tripod and those nine of `_test_functions` on which Optuna alone had the largest median regret, before ours
was run on any of them (3 seeds, 500 evaluations: `peers/evalset.py`). The rows of the peers were measured once, and are kept
in `peers/evalset.jsonl` with their versions. A regret is the difference of the best value from the lowest one, in the
median of random points; below 1e-6 a function counts as solved. The settings of ours were chosen on other functions.

    python -m benchmarks.published.evalset [--seeds 10] [--iterations 250] [FUNCTION …]
    python -m benchmarks.published.evalset --peers     # runs the peers in their environment, an hour
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.published._test_functions import FUNCTIONS, scale
from loopwright import Evaluation, Loop, OnStall, Optimise, run_sync, step

ITERATIONS, CANDIDATES, SEEDS = 250, 4, 10
BY = ("tpe", "cma", "random")
PATIENCE = 10  # iterations without a better value, after which the next optimiser takes over
SOLVED = 1e-6
CHOSEN = (
    "tripod", "michalewicz", "drop_wave", "schwefel", "griewank", "ackley", "rastrigin", "trefethen",
    "styblinski_tang", "salomon",
)  # fmt: skip
PEERS = Path(__file__).with_name("peers")
ROWS = PEERS / "evalset.jsonl"


def search(name: str, seed: int, iterations: int) -> float:
    """Return the regret of one run of the real loop."""
    function = FUNCTIONS[name]
    space = {
        f"x{nth}": {"float": [float(low), float(high)]}
        for nth, (low, high) in enumerate(function.ranges)
    }

    @step(fingerprint="function/1", inline=True)
    def value_of(point: Mapping[str, float]) -> float:
        return function.of([point[f"x{nth}"] for nth in range(len(space))])

    @step(fingerprint="measure/1", inline=True)
    def measured(value: float) -> Evaluation:
        return Evaluation(metrics={"value": value})

    loop = Loop(
        value_of, measured, name="search", metrics={"value": "minimise"}, max_iterations=iterations,
        candidates=CANDIDATES, optimise=Optimise(space, by=BY), on_stall=OnStall("best", patience=PATIENCE, restarts=1000),
    )  # fmt: skip
    result = run_sync(loop, seed=seed)
    values = [row.metrics["value"] for item in result.history for row in item.candidates]
    assert len(values) == iterations * CANDIDATES
    return min(values) - function.lowest


def one(job: tuple[str, int, int]) -> tuple[str, int, float, float]:
    began = time.process_time()
    return *job[:2], search(*job), time.process_time() - began


def p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p value of Wilcoxon's signed ranks, exact, with mean ranks for ties and without zeros."""
    kept = sorted((abs(d), d > 0) for d in differences if d)
    # Ranks times two are integers.
    ranks = [1 + sum(2 * (other < size) + (other == size) for other, _ in kept) for size, _ in kept]
    ways = {0: 1}
    for rank in ranks:
        ways = {
            total: ways.get(total, 0) + ways.get(total - rank, 0)
            for total in {*ways, *(total + rank for total in ways)}
        }
    found = sum(rank for rank, (_, up) in zip(ranks, kept, strict=True) if up)
    low = min(found, sum(ranks) - found)
    return min(1.0, 2 * sum(n for total, n in ways.items() if total <= low) / 2 ** len(ranks))


def verdicts(
    ours: Mapping[str, Mapping[int, float]], other: Mapping[str, Mapping[int, float]]
) -> dict[str, str]:
    """Return by function whether ours is better or worse than a peer, at 5 % after Holm's correction."""
    found: dict[str, tuple[float, float]] = {}
    for name, row in ours.items():
        both = [seed for seed in row if seed in other.get(name, {})]
        # What is solved is equal.
        pairs = [[max(rows[name][seed], SOLVED) for rows in (ours, other)] for seed in both]
        differences = [mine - theirs for mine, theirs in pairs]
        found[name] = (
            p_value(differences),
            sum(d < 0 for d in differences) - sum(d > 0 for d in differences),
        )
    result, open_ = {}, True
    for nth, (name, (p, wins)) in enumerate(sorted(found.items(), key=lambda item: item[1][0])):
        open_ = open_ and p * (len(found) - nth) <= 0.05
        result[name] = (
            f"{'better' if wins > 0 else 'worse'} ({p:.4f})" if open_ else f"equal ({p:.2f})"
        )
    return result


def kept_rows() -> dict[str, dict[str, dict[int, float]]]:
    """Return the regrets of the peers by engine, function and seed."""
    rows: dict[str, dict[str, dict[int, float]]] = {}
    for line in ROWS.read_text(encoding="utf-8").splitlines() if ROWS.exists() else ():
        row = json.loads(line)
        by_seed = rows.setdefault(row["engine"], {}).setdefault(row["function"], {})
        by_seed[row["seed"]] = row["regret"] / scale(row["function"])
    return rows


def measure_peers(seeds: int, iterations: int, names: Iterable[str]) -> None:
    """Run the peers in their environment, and keep their rows."""
    python = PEERS / ".venv" / "bin" / "python"
    with ROWS.open("w", encoding="utf-8") as file:
        for engine in ("cma", "tpe-cma", "optuna"):
            words = [
                str(python),
                str(PEERS / "evalset.py"),
                engine,
                str(seeds),
                str(iterations * CANDIDATES),
                *names,
            ]
            subprocess.run(words, stdout=file, check=True)


def main() -> int:
    """Print a table of median regrets, and compare with Optuna alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("functions", nargs="*")
    options = parser.parse_args()
    names = options.functions or CHOSEN
    if options.peers:
        measure_peers(options.seeds, options.iterations, names)
    jobs = [
        (name, seed, options.iterations) for name in names for seed in range(1, options.seeds + 1)
    ]
    ours: dict[str, dict[int, float]] = {name: {} for name in names}
    seconds = 0.0
    with get_context("spawn").Pool(2) as pool:
        for name, seed, regret, used in pool.imap_unordered(one, jobs):
            ours[name][seed] = regret / scale(name)
            seconds += used
    peers = kept_rows()
    said = verdicts(ours, peers.get("optuna", {}))
    print(
        f"{options.seeds} seeds, {options.iterations} x {CANDIDATES} evaluations, {seconds / 60:.1f} CPU minutes of ours"
    )
    print("| function | dimensions | ours | " + " | ".join(peers) + " | against optuna (p) |")
    print("|---|--:|--:|" + "--:|" * len(peers) + "---|")
    for name in names:
        cells: list[Any] = [name, len(FUNCTIONS[name].ranges)]
        for rows in (ours, *peers.values()):
            values = list(rows.get(name, {}).values())
            cells.append(f"{statistics.median(values):.2g}" if values else "")
        print("| " + " | ".join(map(str, [*cells, said[name]])) + " |")
    better, worse = (
        sum(text.startswith(word) for text in said.values()) for word in ("better", "worse")
    )
    print(f"better than Optuna alone on {better}, worse on {worse} of {len(names)}")
    print(f"the aim of better on 7 or more is {'reached' if better >= 7 else 'missed'}")
    return int(better < 7 or worse > 1)


if __name__ == "__main__":
    sys.exit(main())
