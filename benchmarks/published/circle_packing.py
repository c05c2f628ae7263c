"""Circle packing: 26 circles in the unit square, the sum of their radii, verified at tolerance 0.

The "agent" is a seeded program: it perturbs a packing, and the general solver SLSQP of scipy improves it. After
iterations without progress the loop starts a new chain from a random packing. The verifier reads coordinates as
exact fractions, so an overlap of one unit in the last place counts as an overlap.

    python -m benchmarks.published.circle_packing [SEEDS]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import linprog, minimize

from loopwright import Context, Evaluation, Loop, MaxIterations, Metric, OnStall, Result, run

CIRCLES = 26
ITERATIONS = 450
PATIENCE = 15
BOUND = (
    2.6359  # what the best seed must reach; FICO Xpress and AlphaEvolve publish 2.63592 and 2.63586
)
SHRUNK = 1e-13  # what every radius loses, so that rounding leaves no overlap
FIRST, SECOND = np.triu_indices(CIRCLES, 1)
PAIRS = len(FIRST)

Packing = list[list[float]]  # of each circle x, y and the radius


def constraints(z: np.ndarray) -> np.ndarray:
    """Return what must not be negative: the gaps between circles, and between circles and sides."""
    x, y, r = z.reshape(3, CIRCLES)
    gaps = (x[FIRST] - x[SECOND]) ** 2 + (y[FIRST] - y[SECOND]) ** 2 - (r[FIRST] + r[SECOND]) ** 2
    return np.concatenate([gaps, x - r, 1 - x - r, y - r, 1 - y - r])


def derivatives(z: np.ndarray) -> np.ndarray:
    """Return the Jacobian of `constraints`."""
    x, y, r = z.reshape(3, CIRCLES)
    matrix = np.zeros((PAIRS + 4 * CIRCLES, 3 * CIRCLES))
    row, n = np.arange(PAIRS), np.arange(CIRCLES)
    for values, offset, second in ((x, 0, -1), (y, CIRCLES, -1), (r, 2 * CIRCLES, 1)):
        difference = values[FIRST] + second * values[SECOND]
        sign = -1 if second == 1 else 1
        matrix[row, offset + FIRST] = 2 * sign * difference
        matrix[row, offset + SECOND] = 2 * sign * second * difference
    for side, (offset, direction) in enumerate(((0, 1), (0, -1), (CIRCLES, 1), (CIRCLES, -1))):
        matrix[PAIRS + side * CIRCLES + n, offset + n] = direction
        matrix[PAIRS + side * CIRCLES + n, 2 * CIRCLES + n] = -1
    return matrix


OBJECTIVE = np.concatenate([np.zeros(2 * CIRCLES), -np.ones(CIRCLES)])


def solved(centres: np.ndarray) -> Packing:
    """Return the packing that the solver finds from these centres: the largest radii, then all moved together."""
    x, y = centres.reshape(2, CIRCLES)
    rows = np.zeros((PAIRS, CIRCLES))
    rows[np.arange(PAIRS), FIRST] = rows[np.arange(PAIRS), SECOND] = 1
    sides = np.minimum.reduce([x, 1 - x, y, 1 - y])
    radii = linprog(
        -np.ones(CIRCLES),
        A_ub=rows,
        b_ub=np.hypot(x[FIRST] - x[SECOND], y[FIRST] - y[SECOND]),
        bounds=[(0, side) for side in sides],
        method="highs",
    ).x
    found = minimize(
        lambda z: float(OBJECTIVE @ z),
        np.concatenate([centres, radii]),
        jac=lambda z: OBJECTIVE,
        constraints=[{"type": "ineq", "fun": constraints, "jac": derivatives}],
        bounds=[(0, 1)] * (2 * CIRCLES) + [(0, 0.5)] * CIRCLES,
        method="SLSQP",
        options={"maxiter": 200, "ftol": 1e-12},
    ).x
    # The solver misses its constraints by some units of its tolerance, so the radii are computed again.
    x, y = np.clip(found[: 2 * CIRCLES], 0, 1).reshape(2, CIRCLES)
    r = np.clip(found[2 * CIRCLES :], 0, np.minimum.reduce([x, 1 - x, y, 1 - y]))
    distance = np.hypot(x[FIRST] - x[SECOND], y[FIRST] - y[SECOND])
    excess = np.maximum(r[FIRST] + r[SECOND] - distance, 0).max()
    r = np.maximum(r - excess - SHRUNK, 0)
    return [[float(value) for value in row] for row in zip(x, y, r, strict=True)]


def propose(parent: Packing | None, ctx: Context) -> Packing:
    """Return a packing near the parent's, or a random one at the start of a chain."""
    draw = np.random.default_rng(ctx.random.getrandbits(64))
    if parent is None:
        return solved(draw.random(2 * CIRCLES))
    centres = np.array([[row[0] for row in parent], [row[1] for row in parent]])
    if draw.random() < 0.5:
        chosen = draw.choice(CIRCLES, draw.integers(1, 4), replace=False)
        centres[:, chosen] = draw.random((2, len(chosen)))
    else:
        centres = np.clip(centres + draw.normal(0, 0.03, centres.shape), 0.01, 0.99)
    return solved(centres.ravel())


def faults(packing: Packing) -> Iterator[str]:
    """Iterate over what is wrong with a packing, computed with exact fractions."""
    if len(packing) != CIRCLES:
        yield f"{len(packing)} circles instead of {CIRCLES}"
        return
    exact = [tuple(Fraction(value) for value in row) for row in packing]
    for number, (x, y, r) in enumerate(exact):
        if r < 0 or x - r < 0 or x + r > 1 or y - r < 0 or y + r > 1:
            yield f"circle {number} leaves the square"
        for other, (a, b, s) in enumerate(exact[:number]):
            if (x - a) ** 2 + (y - b) ** 2 < (r + s) ** 2:
                yield f"circles {other} and {number} overlap"


def verify(packing: Packing) -> Evaluation:
    """Return the sum of the radii of a valid packing; an invalid one has no value."""
    if wrong := next(faults(packing), ""):
        return Evaluation(passed=False, feedback=wrong)
    return Evaluation(metrics={"sum_of_radii": float(sum(Fraction(row[2]) for row in packing))})


def search(iterations: int = ITERATIONS) -> Loop[Any, Any]:
    """Return the loop: continue from the best packing of the chain, begin anew after a stall."""
    return Loop(
        propose,
        verify,
        lambda parent: parent.output,
        MaxIterations(iterations),
        name="circles",
        metrics={"sum_of_radii": Metric("maximise", min_delta=1e-6)},
        refine_from="best",
        on_stall=OnStall("fresh", patience=PATIENCE, restarts=iterations),
        keep="best",
    )


def value_of(result: Result[Any]) -> float:
    """Return the sum of radii of the best packing of a run, verified again."""
    evaluation = verify(result.output)
    if evaluation.passed is False:
        raise SystemExit(f"the result is not valid: {evaluation.feedback}")
    return evaluation.metrics["sum_of_radii"]


def main(seeds: int) -> int:
    """Print a row for each seed, and the best; return 1 if it misses the bound."""
    values = []
    print("seed  sum of radii  iterations  chains  best at  minutes")
    for seed in range(seeds):
        began = time.monotonic()
        result = asyncio.run(run(search(), None, seed=seed, run_id=f"circles-{seed}"))
        minutes = (time.monotonic() - began) / 60
        values.append(value_of(result))
        chains = max(item.chain for item in result.history)
        best = result.best.number if result.best is not None else 0
        print(
            f"{seed:4}  {values[-1]:.9f}   {result.iterations:10}  {chains:6}  {best:7}  {minutes:7.2f}",
            flush=True,
        )
    print(
        f"best {max(values):.9f} (at least {BOUND}), median {statistics.median(values):.9f}; a plain solver "
        "without a model reaches it too"
    )
    return int(max(values) < BOUND)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
