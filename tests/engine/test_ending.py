"""Ending a run from inside, by one of its steps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopwright import (
    Budget,
    Context,
    Loop,
    MaxIterations,
    Status,
    Usage,
    Workflow,
    parallel,
    step,
)

from .support import (
    Script,
    echo,
    play,
)


def test_a_step_may_end_the_run_it_is_in() -> None:
    """I6: without a journal too, nothing is begun after a cancel and what is in flight is cut."""
    never = Script(["x"])

    async def ends(value: Any, ctx: Context) -> str:
        await asyncio.sleep(1)
        ctx.run.cancel("enough")
        return "x"

    after = play(Workflow("w", {"ends": ends, "never": never}))
    assert (after.status, after.detail, never.calls) == (Status.CANCELLED, "enough", [])
    slow = Script(["x"], seconds=60)
    module_path_of = play(parallel(step(ends, name="ends"), step(slow, name="slow")))
    assert (module_path_of.status, module_path_of.seconds) == (Status.CANCELLED, 1)


@pytest.mark.parametrize("later", [0, 1])
def test_a_loop_that_keeps_nothing_can_be_ended_from_inside(later: float) -> None:
    """I6: the stages of a loop without a journal are not begun after a cancel, and are cut by one."""
    execute = Script(["x"], seconds=2)

    async def adapt(last: Any, ctx: Context) -> str:
        if later:
            asyncio.get_running_loop().call_later(later, ctx.run.cancel)
        else:
            ctx.run.cancel()
        return "next"

    result = play(Loop(execute, adapt=adapt, until=MaxIterations(9)))
    assert (result.status, result.iterations) == (Status.CANCELLED, 2)
    assert (len(execute.calls), result.seconds) == (1 + later, 2 + later)


def test_asking_twice_to_end_a_run_ends_it_once() -> None:
    """The first cancel counts, with its reason; one after the end is nothing."""
    held: list[Any] = []

    async def ends(value: Any, ctx: Context) -> None:
        held.append(ctx.run)
        ctx.run.cancel("first")
        ctx.run.cancel("second")

    assert play(ends).status is Status.SATISFIED  # it was over when it was asked to end
    assert play(Workflow("w", {"ends": ends, "never": echo})).detail == "first"

    async def keeps(value: Any, ctx: Context) -> str:
        held.append(ctx.run)
        return "x"

    result = play(keeps)
    held[-1].cancel()
    assert result.status is Status.SATISFIED


def test_a_turn_that_comes_with_a_cancel_is_not_taken() -> None:
    """I6: whoever waits for budget when the run is cancelled makes no call, in any interleaving."""

    async def ends(value: Any, ctx: Context) -> str:
        await asyncio.sleep(1)
        ctx.run.cancel()
        return "x"

    for seed in range(20):
        second = Script(["x"])
        made = Workflow(
            "w", {"ends": step(ends, name="ends", reserve=Usage(2)),
                  "late": Workflow("late", {"pause": Script(["x"], seconds=0.5), "call": step(
                      second, name="second", reserve=Usage(1))}, needs={"call": ["pause"]})},
            at_once=2,
        )  # fmt: skip
        result = play(made, seed=seed, budget=Budget(calls=2))
        assert (result.status, second.calls) == (Status.CANCELLED, [])
