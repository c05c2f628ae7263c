"""The loop: loops in loops, and the hooks that watch them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from loopwright import (
    Budget,
    Condition,
    Context,
    History,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Stop,
    Timeout,
    Usage,
    Workflow,
    retry,
    run,
    step,
)
from loopwright.errors import ConfigurationError
from loopwright.testing import run_virtual

from .support import (
    ERROR,
    UNDECIDED,
    Script,
    echo,
    inline,
    play,
    scripted,
    spend_one,
)

# Section 12: nesting.


def test_an_inner_loop_is_a_step() -> None:
    """Leaving an inner loop never ends an outer one; both are in the result under their names."""
    inner = scripted([0.2, 0.9], name="inner", until=ScoreAtLeast(0.9))
    outer = Loop(inner, Script([0.1, 0.95]), name="outer", until=ScoreAtLeast(0.95))
    result = play(outer, "x")
    assert (result.status, result.iterations) == (Status.SATISFIED, 2)
    assert list(result.loops) == ["inner", "outer"]
    assert result.loops["outer"].history == result.history


def test_an_outer_timeout_binds_an_inner_loop() -> None:
    """H27: a child's deadline is the nearer of its own and its parent's."""
    inner = Loop(Script(["x"], seconds=2), name="inner", until=Timeout(60) | MaxIterations(100))
    outer = Loop(inner, name="outer", until=MaxIterations(3), guards=Timeout(7))
    result = play(outer)
    assert (result.reason, result.iterations) == (Reason.TIMEOUT, 1)
    assert result.seconds == pytest.approx(7)
    assert result.loops["inner"].reason is Reason.TIMEOUT
    assert result.loops["inner"].iterations == 4
    assert result.loops["inner"].history[-1].interrupted


def test_an_inner_timeout_does_not_end_the_outer_loop() -> None:
    """The inner loop is exhausted, the outer one goes on with what it has."""
    inner = Loop(Script(["x"], seconds=2), name="inner", until=Timeout(3) | MaxIterations(100))
    result = play(Loop(inner, name="outer", until=MaxIterations(2)))
    assert (result.reason, result.iterations, result.output) == (Reason.MAX_ITERATIONS, 2, "x")
    assert result.seconds == pytest.approx(6)


def test_of_two_deadlines_at_once_the_outer_one_stops() -> None:
    """Gates are asked from the outermost loop inwards."""
    inner = Loop(Script(["x"], seconds=9), name="inner", until=Timeout(5))
    result = play(Loop(inner, name="outer", until=Timeout(5)))
    assert (result.reason, result.iterations) == (Reason.TIMEOUT, 1)


def test_an_outer_budget_binds_inner_loops() -> None:
    """H27, I31: calls of an inner loop are reserved in the outer account too."""
    calls: list[int] = []

    async def execute(value: Any, ctx: Context) -> str:
        calls.append(1)
        ctx.spend(Usage(calls=1))
        return "x"

    inner = Loop(step(execute, reserve=Usage(calls=1)), name="inner", until=MaxIterations(4))
    result = play(Loop(inner, name="outer", until=MaxIterations(5), guards=Budget(calls=6)))
    assert (result.reason, len(calls), result.usage) == (Reason.BUDGET, 6, Usage(calls=6))
    assert result.loops["inner"].usage == Usage(calls=2)


def test_a_budget_binds_inner_rounds_that_reserve_nothing() -> None:
    """Section 2: a new round is admitted only while every enclosing budget has headroom."""
    inner = Loop(step(spend_one), name="inner", until=MaxIterations(50))
    result = play(Loop(inner, name="outer", until=MaxIterations(5), guards=Budget(calls=6)))
    assert (result.reason, result.usage) == (Reason.BUDGET, Usage(calls=6))
    alone = play(inner, budget=Budget(calls=3))
    assert (alone.status, alone.reason, alone.usage) == (
        Status.EXHAUSTED, Reason.BUDGET, Usage(calls=3),
    )  # fmt: skip


def test_a_guard_of_ones_own_is_asked_before_each_effect() -> None:
    """A guard that time can trip stops between the stages of a round."""

    @dataclass(frozen=True)
    class Late(Condition):
        def check(self, history: History) -> Stop | None:
            return Stop(Reason.TIMEOUT, "late") if history.elapsed >= 3 else None

    judge = Script([0.5])
    result = play(Loop(Script(["x"], seconds=3), judge, guards=Late()))
    assert (result.reason, result.detail, judge.calls) == (Reason.TIMEOUT, "late", [])
    assert result.history[0].interrupted
    assert result.history[0].output == "x"


def test_a_failed_inner_loop_fails_the_step() -> None:
    """An inner failure is the outer round's failure, with the inner reason as its kind."""
    inner = scripted([ERROR], name="inner")
    result = play(Loop(inner, name="outer", until=MaxIterations(2)))
    assert result.status is Status.FAILED
    assert result.history[0].error is not None
    assert result.history[0].error.kind == "error"
    assert result.history[0].error.path == "outer/1/execute"


def test_a_required_inner_loop_that_is_not_satisfied_fails_the_step() -> None:
    """required: true makes an exhausted inner loop an error of the outer round."""
    inner = scripted([0.1], name="inner", until=MaxIterations(1), required=True)
    result = play(Loop(inner, name="outer", until=MaxIterations(2)))
    assert result.detail == "iteration 1: execute: required, but 1 of 1 iterations used"


def test_loops_nested_deeper_than_eight_are_refused() -> None:
    """Section 12: nesting deeper than 8 is refused before anything runs."""
    made = Loop(echo, name="l1")
    for depth in range(2, 9):
        made = Loop(made, name=f"l{depth}", until=MaxIterations(1))
    assert play(made, "x").output == "x"
    with pytest.raises(ConfigurationError) as caught:
        Loop(made, name="l9")
    assert str(caught.value) == "loop: l9: loops are nested 9 deep; the limit is 8"


# I13: hooks.


def test_on_iteration_fires_once_per_record_in_order() -> None:
    """I13: each record is told once, when it is committed; failed and interrupted ones too."""
    heard: list[Any] = []

    async def hook(item: Iteration) -> None:
        await asyncio.sleep(0)
        heard.append(item)

    loop = scripted(
        [0.1, ERROR, 0.9], on_failure="continue", until=ScoreAtLeast(0.9), on_iteration=hook
    )
    result = play(loop)
    assert heard == list(result.history)
    heard.clear()
    cut = play(Loop(Script(["x"], seconds=9), until=Timeout(5), on_iteration=heard.append))
    assert heard == list(cut.history)


ENDINGS = {
    "satisfied": lambda hook: scripted([0.9], until=ScoreAtLeast(0.9), on_terminate=hook),
    "exhausted": lambda hook: scripted([0.1], until=MaxIterations(1), on_terminate=hook),
    "failed": lambda hook: scripted([ERROR], on_terminate=hook),
    "unusable": lambda hook: scripted([UNDECIDED, UNDECIDED], on_terminate=hook),
    "timeout": lambda hook: Loop(Script(["x"], seconds=9), until=Timeout(5), on_terminate=hook),
    "outer": lambda hook: Loop(
        Loop(Script(["x"], seconds=9), name="inner", on_terminate=hook), until=Timeout(5)
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_on_terminate_fires_once_on_every_path(ending: str) -> None:
    """I3, I13, F16, H17: one terminal event, after the fact, on pass, limit, failure and timeout alike."""
    heard: list[Result] = []
    journal = MemoryJournal()
    result = play(ENDINGS[ending](heard.append), journal=journal, run_id="run")
    assert len(heard) == 1
    assert heard[0].status in Status
    entries = run_virtual(journal.entries("run"))
    assert [e.path for e in entries if e.kind == "ended"][-1] == ""
    assert entries[-1].kind == "ended"
    assert result.status is heard[0].status or ending == "outer"


def test_a_failing_hook_changes_nothing() -> None:
    """I13: what a hook raises is a warning; the loop ends as it would have."""

    def broken(_: Any) -> None:
        raise RuntimeError("no hook")

    async def broken_later(_: Any) -> None:
        raise KeyError("later")

    plain = scripted([0.1, 0.9], until=ScoreAtLeast(0.9))
    hooked = scripted(
        [0.1, 0.9], until=ScoreAtLeast(0.9), on_iteration=broken, on_terminate=broken_later
    )
    one, two = play(plain), play(hooked)
    assert (one.status, one.output, one.history) == (two.status, two.output, two.history)
    assert two.warnings == (
        "hook_failed: refine: on_iteration failed: RuntimeError: no hook",
        "hook_failed: refine: on_terminate failed: KeyError: 'later'",
    )


def test_a_record_is_not_changed_after_it_was_told() -> None:
    """H17, F17: what on_iteration was given is what the history holds at the end."""
    heard: list[Any] = []
    result = play(
        scripted([0.1, 0.9], until=ScoreAtLeast(0.9), adapt=inline(lambda last: "new"),
                 on_iteration=lambda item: heard.append((item, item.to_json())))
    )  # fmt: skip
    assert [item.to_json() for item, _ in heard] == [data for _, data in heard]
    assert [item for item, _ in heard] == list(result.history)


async def test_two_loops_of_one_name_in_two_places_are_both_told() -> None:
    """The first goes by its name, the other by its place, live, resumed and read from the journal."""

    def made() -> Workflow:
        inner = {
            f"part-{n}": Loop(lambda value: value, until=MaxIterations(n), name="refine")
            for n in (1, 2)
        }
        return Workflow(
            "both", {name: Workflow("w", {"refine": loop}) for name, loop in inner.items()}
        )  # fmt: skip

    journal = MemoryJournal()
    first = await run(made(), "x", journal=journal, run_id="r")
    assert {name: loop.iterations for name, loop in first.loops.items()} == {
        "refine": 1, "both/part-2/refine": 2,
    }  # fmt: skip
    assert await run(made(), journal=journal, run_id="r") == first
    await journal.rewind("r", "both/part-2")
    assert (await run(made(), journal=journal, run_id="r")).loops.keys() == first.loops.keys()


async def test_a_loop_that_is_tried_again_is_told_by_its_latest_attempt() -> None:
    """Attempts are no other places: one loop is in the result, as it ended, also when it is read again."""
    calls = iter(["broken", "broken", "fine"])

    async def work(value: str) -> str:
        if next(calls) == "broken":
            raise ValueError("no")
        return value

    loop = Loop(work, lambda _: 1.0, until=ScoreAtLeast(0.5), name="refine")
    again, journal = retry(loop, attempts=3, delay=0), MemoryJournal()
    first = await run(again, "x", journal=journal, run_id="r")
    assert {name: loop.status for name, loop in first.loops.items()} == {"refine": Status.SATISFIED}
    assert await run(again, journal=journal, run_id="r") == first
