"""The phased agent: the time and the tokens that it may use."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from phased_steps import agent, counted, limits, play

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    PhasedAgent,
    Reason,
    Status,
    Timeout,
    Usage,
    step,
)


def test_the_duration_cancels_the_call_in_flight_and_keeps_what_there_is() -> None:
    """The deadline is one for all phases, and acts inside a round."""
    cancelled: list[str] = []

    async def slow(given: Any, ctx: Context) -> Any:
        try:
            await asyncio.sleep(4)
        except asyncio.CancelledError:
            cancelled.append(ctx.path)
            raise
        return f"slow {ctx.iteration}"

    result = play(agent(execution=slow, max_duration_seconds=10))
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.TIMEOUT)
    assert cancelled == ["agent/execution/3/execute"]
    assert (result.output, counted(result), result.seconds) == ("slow 2", [2, 3, 0], 10.0)


def test_a_loop_around_the_agent_binds_it() -> None:
    """The timeout of an outer loop ends the agent too, and its output is not lost."""

    async def slow(given: Any, ctx: Context) -> Any:
        await asyncio.sleep(4)
        return f"slow {ctx.iteration}"

    result = play(
        Loop(agent(execution=slow), guards=Timeout(10), until=MaxIterations(3), name="outer")
    )
    assert (result.reason, result.output) == (Reason.TIMEOUT, "slow 2")


def spending(tokens: int) -> Any:
    """Return a step that spends tokens, and reserves them first."""
    usage = Usage(calls=1, input_tokens=tokens)

    async def spend(given: Any, ctx: Context) -> Any:
        ctx.spend(usage)
        return f"{given['phase']} {ctx.iteration}"

    return step(spend, reserve=usage)


@pytest.mark.parametrize("rollover", [False, True])
def test_tokens_are_shared_out_by_phase(rollover: bool) -> None:
    """10, 40 and 50 % each: a phase without tokens left is followed by the next.

    A round that was begun and whose call did not fit counts, as in every loop.
    """
    made = PhasedAgent(
        spending(100), spending(190), spending(150), **limits(9, 9, 9),
        token_budget=1000, token_rollover=rollover,
    )  # fmt: skip
    result = play(made)
    assert counted(result) == [1, 2 + 1, 3 + 1]
    assert result.reason is Reason.BUDGET
    assert made.tokens == {"planning": 100, "execution": 400, "refinement": 500}


def test_what_a_phase_leaves_over_can_roll_over() -> None:
    """Planning and execution spend little: refinement gets the rest of theirs."""
    fields: Any = {**limits(1, 1, 9), "token_budget": 1000}
    phases = (spending(50), spending(100), spending(150))
    assert counted(play(PhasedAgent(*phases, **fields))) == [1, 1, 3 + 1]
    again = play(PhasedAgent(*phases, **fields, token_rollover=True))
    assert counted(again) == [1, 1, 5 + 1]
