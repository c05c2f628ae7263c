"""Replay of loops with chains: their stalls follow from the record, with a baseline that only the first plan has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    NoImprovement,
    OnStall,
    run_sync,
    sequence,
)
from loopwright.engine.loop import loop_of_rules
from loopwright.insight import Backtest, Recording, Recordings, StoppingPolicy, recordings_of
from loopwright.insight.backtest import grid

SCORES = (0.4, 0.3, 0.2, 0.6, 0.5, 0.55, 0.1)


def recorded(*, composite: bool, baseline: bool, **options: Any) -> list[Any]:
    """Return the recordings of a run, with the loop of its recorded rules."""
    scores = iter((0.5, *SCORES) if baseline else SCORES)

    def score(output: Any, ctx: Context) -> float:
        return next(scores)

    evaluate: Any = sequence(lambda output: output, score) if composite else score
    loop = Loop(str, evaluate, until=MaxIterations(7), name="l", baseline=baseline, **options)
    journal = MemoryJournal()
    run_sync(loop, 1, journal=journal, run_id="r")

    async def read() -> list[Any]:
        info, entries = await journal.find("r"), await journal.entries("r")
        rules = info.source["bounds"]["loops"][0]["rules"]
        return list(recordings_of(info, entries, loop_of_rules("l", rules)))

    return asyncio.run(read())


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("baseline", [False, True])
@pytest.mark.parametrize("then", ["best", "fresh", "stop"])
def test_a_stop_by_a_stall_is_reproduced(composite: bool, baseline: bool, then: str) -> None:
    """The rule is that of the run, and a policy with any patience can be compared."""
    (one,) = recorded(composite=composite, baseline=baseline, on_stall=OnStall(then, 2, 1))
    assert isinstance(one, Recording), one
    test = Backtest(Recordings("l", [one]))
    for policy in (StoppingPolicy(NoImprovement(1)), *list(grid(4))[:20]):
        assert test.evaluate(policy, intervals=False).exact
