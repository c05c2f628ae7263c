"""Effects and their gates: no call begins too late, and none goes on too long."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import pytest

from loopwright import (
    Budget,
    Condition,
    Context,
    History,
    Loop,
    MaxIterations,
    Reason,
    Stop,
    Timeout,
    Usage,
    Workflow,
    parallel,
    step,
)
from loopwright.journal import MemoryLog

from .support import (
    Script,
    SlowJournal,
    play,
)

# Deadlines and cancellation.


def test_a_deadline_that_passes_while_waiting_for_budget_stops_the_call() -> None:
    """I6: a call that waited for its turn past the deadline is not begun."""

    async def hold(value: Any, ctx: Context) -> str:
        await asyncio.sleep(20)
        return "held"

    second = Script(["x"])
    both = parallel(
        step(hold, name="hold", reserve=Usage(calls=2)),
        step(second, name="second", reserve=Usage(calls=1)),
    )
    loop = Loop(both, name="l", until=Timeout(5), guards=Budget(calls=2))
    result = play(loop)
    assert (result.reason, second.calls, result.seconds) == (
        Reason.TIMEOUT, [], pytest.approx(5),
    )  # fmt: skip


def test_a_turn_that_comes_exactly_at_the_deadline_is_not_taken() -> None:
    """I6: the gates are asked again after waiting, and what was promised is given back."""

    async def hold(value: Any, ctx: Context) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return "held"

    second = Script(["x"])
    both = parallel(
        step(hold, name="hold", reserve=Usage(calls=2)),
        step(second, name="second", reserve=Usage(calls=1)),
    )
    result = play(Loop(both, name="l", until=Timeout(5), guards=Budget(calls=2)))
    assert (result.reason, second.calls) == (Reason.TIMEOUT, [])
    assert result.usage.calls <= 2


def test_a_slow_store_does_not_let_a_call_begin_after_the_deadline() -> None:
    """I6: when durability takes longer than the time that is left, the call is not made."""
    act = Script(["x"])
    result = play(Loop(act, until=Timeout(0.5)), journal=SlowJournal(), run_id="r")
    assert (result.reason, act.calls) == (Reason.TIMEOUT, [])


def test_a_branch_cancelled_while_its_intent_is_written_gives_its_promise_back() -> None:
    """I34: a sibling's failure in that moment leaves no reservation behind to wait for."""

    async def fails(value: Any) -> str:
        await asyncio.sleep(0.5)
        raise ValueError("no")

    async def spends(value: Any, ctx: Context) -> str:
        ctx.spend(Usage(calls=1))
        return "x"

    class Later(SlowJournal):
        async def open(self, *args: Any, **options: Any) -> MemoryLog:
            log = await super().open(*args, **options)
            sync, count = log.sync, 0

            def second_is_slow() -> Any:
                nonlocal count
                count += 1
                return sync() if count == 2 else None

            log.sync = second_is_slow  # type: ignore[method-assign]
            return log

    both = parallel(step(fails, name="a"), step(spends, name="b", reserve=Usage(calls=2)))
    loop = Loop(both, on_failure="continue", until=MaxIterations(2), guards=Budget(calls=3))
    result = play(loop, journal=Later(), run_id="r")
    assert (result.reason, result.usage.calls) == (Reason.ALL_FAILED, 1)


def test_a_step_that_exits_is_a_failure_under_a_deadline_too() -> None:
    """SystemExit in a step is recorded; it does not end the event loop."""
    for guards in (None, Timeout(60)):
        result = play(Loop(Script([SystemExit(3)]), guards=guards))
        assert result.history[0].error is not None
        assert result.history[0].error.kind == "SystemExit"


def test_a_clock_that_disagrees_with_the_timer_still_names_the_right_loop() -> None:
    """When a timer fires a hair early, the loop with the nearest deadline is the one that stops."""

    class Early:
        """A clock that is a hair behind the event loop's timers."""

        def monotonic(self) -> float:
            return asyncio.get_running_loop().time() * (1 - 1e-7)

        def wall(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    inner = Loop(Script(["x"], seconds=60), name="inner", guards=Timeout(50))
    outer = Loop(inner, name="outer", until=MaxIterations(1), guards=Timeout(5))
    result = play(outer, clock=Early())
    assert (result.reason, result.detail) == (Reason.TIMEOUT, "5 s used")
    assert result.loops["inner"].detail == "5 s used"


def test_a_turn_that_was_not_taken_is_given_back() -> None:
    """I34: what was promised to a call that then may not begin is free for the next one."""

    async def hold(value: Any, ctx: Context) -> str:
        await asyncio.sleep(5)
        return "held"

    async def cheap(value: Any, ctx: Context) -> str:
        return "cheap"

    @dataclass(frozen=True)
    class Late(Condition):
        def check(self, history: History) -> Stop | None:
            return Stop(Reason.TIMEOUT, "late") if history.elapsed >= 3 else None

    late = Script(["x"])
    inner = Loop(step(late, name="late", reserve=Usage(calls=2)), name="inner", guards=Late())
    made = Workflow(
        "w",
        {
            "hold": step(hold, reserve=Usage(calls=2)),
            "inner": inner,
            "after": step(cheap, reserve=Usage(calls=2)),
        },
        needs={"after": ["hold", "inner"]},
        at_once=2,
    )
    result = play(made, budget=Budget(calls=2))
    assert result.steps["after"] == "cheap"
    assert (late.calls, result.loops["inner"].detail) == ([], "late")
