"""The loop: timeouts, deadlines and the call in flight, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from loopwright import Deadline, Loop, Reason, Result, ScoreAtLeast, Status, Timeout, run
from loopwright.testing import VirtualClock, run_virtual

from .support import (
    Script,
    play,
)

# Section 10: time.


def test_a_timeout_cancels_the_call_in_flight() -> None:
    """H12, F24: a 50 s call under a timeout of 5 s ends at 5 s, recorded as interrupted."""
    result = play(Loop(Script(["x"], seconds=50), until=Timeout(5)), "in")
    assert result.seconds == pytest.approx(5)
    assert (result.status, result.reason, result.detail) == (
        Status.EXHAUSTED, Reason.TIMEOUT, "5 s used",
    )  # fmt: skip
    item = result.history[0]
    assert (item.interrupted, item.output, item.input) == (True, None, "in")
    assert item.error is not None
    assert (item.error.stage, item.error.kind, item.error.message) == (
        "execute", "interrupted", "5 s used",
    )  # fmt: skip


def test_a_timeout_keeps_what_was_good() -> None:
    """What earlier rounds produced is the result, whatever the interrupted one was doing."""
    execute = Script(["x"], seconds=4)
    result = play(Loop(execute, Script([0.3]), until=ScoreAtLeast(0.9), guards=Timeout(10)))
    assert (result.iterations, result.output, result.history[-1].interrupted) == (3, "x", True)


def test_a_coroutine_that_swallows_cancellation_is_left_behind() -> None:
    """Section 10: a call that will not go is given half a second, then left; the loop ends in time."""

    async def stubborn(value: Any) -> str:
        for _ in range(100):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
        return "never"

    result = play(Loop(stubborn, until=Timeout(5)))
    assert result.reason is Reason.TIMEOUT
    assert result.seconds == pytest.approx(5.5)


def test_a_call_that_ends_in_an_error_while_it_is_cancelled_is_interrupted() -> None:
    """An error or a value that comes after the deadline changes nothing."""

    async def untidy(value: Any) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("while cleaning up")

    async def late(value: Any) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "too late"

    for body in (untidy, late):
        result = play(Loop(body, until=Timeout(5)))
        assert (result.reason, result.output) == (Reason.TIMEOUT, None)


def test_an_output_that_comes_exactly_at_the_deadline_can_satisfy() -> None:
    """Section 3: satisfied comes before timeout when both hold."""
    result = play(Loop(Script(["x"], seconds=2), Script([1.0]), until=ScoreAtLeast(1) | Timeout(5)))
    assert result.satisfied


def test_a_wall_clock_deadline_ends_the_loop() -> None:
    """Deadline is a moment of the wall clock; the call in flight is cancelled there."""

    async def work() -> Result:
        at = "2030-03-17T17:46:50+00:00"  # ten seconds after the virtual wall clock begins
        loop = Loop(Script(["x"], seconds=4), until=Deadline(at))
        return await run(loop, clock=VirtualClock())

    result = run_virtual(work())
    assert (result.reason, result.iterations) == (Reason.DEADLINE, 3)
    assert result.seconds == pytest.approx(10)
    assert result.detail == "it is past 2030-03-17T17:46:50+00:00"


@pytest.mark.parametrize(("jump", "reason", "least", "most"), [
    (3600, Reason.DEADLINE, 4, 8), (-3600, Reason.DEADLINE, 9.9, 10.1),
])  # fmt: skip
def test_the_remaining_time_never_grows_by_a_clock_jump(
    jump: float, reason: Reason, least: float, most: float
) -> None:
    """I42, M8: setting the wall clock back gives a deadline no second more; forward, it is past."""
    clock = VirtualClock()

    async def execute(value: Any) -> str:
        await asyncio.sleep(4)
        if clock.monotonic() == 4:
            clock.jump(jump)
        return "x"

    async def work() -> Result:
        loop = Loop(execute, until=Deadline("2030-03-17T17:46:50+00:00"))
        return await run(loop, clock=clock)

    result = run_virtual(work())
    assert result.reason is reason
    assert least <= result.seconds <= most


def test_a_timeout_does_not_look_at_the_wall_clock() -> None:
    """H12: a jump of a day neither stops nor extends a loop with a timeout."""
    clock = VirtualClock()

    async def execute(value: Any) -> str:
        clock.jump(86_400 if clock.monotonic() < 4 else -172_800)
        await asyncio.sleep(3)
        return "x"

    async def work() -> Result:
        return await run(Loop(execute, until=Timeout(10)), clock=clock)

    result = run_virtual(work())
    assert (result.reason, result.seconds) == (Reason.TIMEOUT, pytest.approx(10))


def test_no_call_starts_at_or_after_the_deadline() -> None:
    """I6: a round that ends exactly at the deadline is the last; nothing more is begun."""
    execute = Script(["x"], seconds=5)
    judge = Script([0.1])
    result = play(Loop(execute, judge, until=Timeout(5)))
    assert (len(execute.calls), len(judge.calls)) == (1, 0)
    assert result.reason is Reason.TIMEOUT
