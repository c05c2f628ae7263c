"""Recorded runs of a simulated writer: scores that rise to a plateau, with the noise of a judge."""

from __future__ import annotations

import random

from loopwright import Evaluation, Loop, Usage, run
from loopwright.insight import LeftOut, Recordings, recordings_of
from loopwright.journal import open_journal


def writer(seed: int, until, *, audit: bool = False, failing: float = 0.0, **options) -> Loop:
    """Return a loop whose draft t has the quality q - (q - .4) * .6^t, seen with noise .05."""
    chance = random.Random(seed)
    best = chance.uniform(0.7, 1.0)

    async def draft(value, ctx):
        ctx.spend(Usage(2, 10, 10, 0.01))
        if chance.random() < failing:
            raise ValueError("the draft is lost")
        return f"draft {ctx.iteration} {chance.random()}"

    def score(output, ctx):
        quality = best - (best - 0.4) * 0.6**ctx.iteration
        noisy = min(1.0, max(0.0, quality + chance.gauss(0, 0.05)))
        return Evaluation(noisy, metrics={"audit": quality} if audit else {})

    return Loop(draft, score, until=until, name="write", **options)


async def recorded(count: int, until, *, seed: int = 0, **options) -> Recordings:
    """Return the recordings of `count` runs, each with its own writer."""
    journal = open_journal("memory:")
    items, left_out = [], []
    for number in range(count):
        loop = writer(seed * 10_000 + number, until, **options)
        await run(loop, "topic", journal=journal, run_id=f"r{number}")
        info = await journal.find(f"r{number}")
        for one in recordings_of(info, await journal.entries(info.run_id), loop):
            (left_out if isinstance(one, LeftOut) else items).append(one)
    await journal.close()
    return Recordings("write", items, left_out)
