"""Online bin packing: a rule that chooses the bin of each item, as a table of scores by the gap that is left.

Items come one after the other and are never moved. The rule puts an item into the bin whose gap, as a share of the
bin, has the highest score, or into a new bin if that scores higher. Best Fit, the usual rule, prefers the smallest gap.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from typing import Any

from loopwright import Context

STEPS = 100  # a gap of the whole bin has this index in the table
BEST_FIT = [-float(gap) for gap in range(STEPS + 1)]


@functools.cache
def items_of(kind: str, seed: object, count: int, size: int, low: int, high: int) -> list[int]:
    """Return the items of a case: `count` sizes from a distribution, the same for the same seed."""
    draw = random.Random(f"{kind} {seed}")
    if kind == "weibull":  # scale 45, shape 3, as FunSearch has it
        sizes = (round(draw.weibullvariate(45, 3)) for _ in range(count))
        return [min(size, max(1, one)) for one in sizes]
    return [draw.randint(low, high) for _ in range(count)]


def bins_used(items: Sequence[int], size: int, table: Sequence[float]) -> int:
    """Return how many bins a rule needs."""
    score = [table[STEPS * gap // size] for gap in range(size + 1)]
    order = sorted(range(size + 1), key=lambda gap: (-score[gap], gap))
    rooms, used = [0] * (size + 1), 0  # open bins by the room that they have
    for item in items:
        room = size
        for gap in order:
            if score[gap] < score[size - item]:
                break
            if item + gap < size and rooms[item + gap]:
                room = item + gap
                break
        if room == size:
            used += 1
        else:
            rooms[room] -= 1
        if room > item:
            rooms[room - item] += 1
    return used


def pack(table: list[float] | None, ctx: Context) -> dict[str, int]:
    """Pack the items of the case by a rule, at the beginning Best Fit; return the bins and the fewest possible."""
    inputs = ctx.case.inputs
    kind, seed, count = inputs["kind"], inputs["seed"], inputs["count"]
    items = items_of(kind, seed, count, inputs["bin"], *inputs.get("sizes", (0, 0)))
    fewest = math.ceil(sum(items) / inputs["bin"])
    return {"bins": bins_used(items, inputs["bin"], table or BEST_FIT), "fewest": fewest}


def excess(packed: dict[str, int]) -> dict[str, Any]:
    """Return the bins above the fewest possible, in percent, and the share of the fewest as the score."""
    percent = 100 * (packed["bins"] / packed["fewest"] - 1)
    return {
        "score": packed["fewest"] / packed["bins"],
        "feedback": f"{packed['bins']} bins, {percent:.1f} % above the fewest possible",
        "metrics": {"excess": percent},
    }


def mutate(table: list[float] | None, ctx: Context) -> list[float]:
    """Change a rule as a seeded program, where an agent would: avoid a band of gaps, or shift a range of scores."""
    draw, changed = ctx.random, list(table or BEST_FIT)
    if draw.random() < 0.5:
        first = draw.randrange(10)
        for gap in range(first, first + draw.randrange(5, 45)):
            changed[gap] = -1000.0 - gap  # a new bin scores higher
        return changed
    first, change = draw.randrange(STEPS + 1), draw.choice([-1, 1]) * draw.choice([5, 20, 60, 200])
    for gap in range(first, min(STEPS, first + draw.randrange(40)) + 1):
        changed[gap] += change
    return changed
