"""The functions of estimate.yaml: the square root of a number by Newton's method, one step per iteration.

Each effect appends a line to the file in the variable LEDGER, so that the demo can count repeated effects.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from loopwright import Context, Iteration, step

SECONDS = 0.02  # of an effect, in place of a model call


@step(fingerprint="estimate.improve/1", idempotent=True)
async def improve(value: dict[str, float], ctx: Context) -> dict[str, float]:
    """Return the next estimate."""
    if ledger := os.environ.get("LEDGER"):
        with Path(ledger).open("a") as file:
            file.write(f"{ctx.run_id} {ctx.path}\n")
    await asyncio.sleep(SECONDS)
    number, estimate = value["number"], value.get("estimate", 1.0)
    return {"number": number, "estimate": (estimate + number / estimate) / 2}


def rate(value: dict[str, float]) -> float:
    """Return how near the square of the estimate is to the number, from 0 to 1."""
    error = abs(value["estimate"] ** 2 - value["number"]) / value["number"]
    return 1 / (1 + error)


def continued(last: Iteration) -> dict[str, float]:
    """Return the last output as the next input."""
    return last.output
