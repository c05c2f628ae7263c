"""Ending a run: by a person who asks for it, or by cancelling its task."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from loopwright import (
    Budget,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Timeout,
    Usage,
    Workflow,
    parallel,
    resume,
    retry,
    run,
    step,
)
from loopwright.errors import StepError
from loopwright.testing import run_virtual

from .support import (
    Script,
    SlowJournal,
    echo,
    play,
)


async def cancelled_at(
    seconds: float, made: Any, journal: MemoryJournal | None = None, **options: Any
) -> Result:
    """Run a step and ask for its cancellation at a second."""
    journal = journal or MemoryJournal()
    options.setdefault("random", lambda: 1.0)
    task = asyncio.ensure_future(run(made, "in", journal=journal, run_id="r", **options))
    await asyncio.sleep(seconds)
    assert await journal.cancel("r")
    return await task


CANCELLED = {
    "a call": Loop(Script(["x"], seconds=9), name="l", until=MaxIterations(3)),
    "a call with a deadline": Loop(Script(["x"], seconds=9), name="l", guards=Timeout(60)),
    "a pause between attempts": Loop(
        retry(Script([StepError("no")]), delay=60), name="l", until=MaxIterations(3)
    ),
    "parallel calls": Loop(
        parallel(step(Script(["x"], seconds=9), name="a"), step(Script(["y"], seconds=9), name="b")),
        name="l",
    ),
    "an inner loop": Loop(Loop(Script(["x"], seconds=9), name="inner"), name="l"),
    "a wait for budget": Loop(
        parallel(
            step(Script(["x"], seconds=9), name="a", reserve=Usage(2)),
            step(Script(["y"], seconds=9), name="b", reserve=Usage(2)),
        ),
        name="l", guards=Budget(calls=4),
    ),
    "loops side by side": Loop(
        parallel(
            Loop(Script(["x"], seconds=9), name="i"), Loop(Script(["x"], seconds=9), name="j")
        ),
        name="l",
    ),
}  # fmt: skip


@pytest.mark.parametrize("where", CANCELLED)
def test_a_cancelled_run_ends_as_cancelled_wherever_it_is(where: str) -> None:
    """Section 4: cancelling is a result with status cancelled; the round in flight is interrupted."""
    result = run_virtual(cancelled_at(4, CANCELLED[where]))
    assert (result.status, result.reason, result.iterations) == (
        Status.CANCELLED, Reason.CANCELLED, 1,
    )  # fmt: skip
    assert result.detail == "cancelled by a person"
    assert result.history[0].interrupted
    assert result.seconds <= 5


@pytest.mark.parametrize("made", [
    Script(["x"], seconds=9),
    parallel(step(Script(["x"], seconds=9), name="a"), step(Script(["y"], seconds=9), name="b")),
    Workflow("w", {"a": Script(["x"], seconds=9)}),
    Workflow("w", {"a": Script(["x"], seconds=9), "b": Script(["x"], seconds=9)}, at_once=2),
    retry(Script([StepError("no")]), delay=60),
], ids=["function", "parallel", "workflow", "concurrent workflow", "retrying"])  # fmt: skip
def test_a_cancelled_step_of_any_kind_ends_as_cancelled(made: Any) -> None:
    """The root step may be anything; asking for its end gives a result, not an exception."""
    result = run_virtual(cancelled_at(4, made))
    assert (result.status, result.reason) == (Status.CANCELLED, Reason.CANCELLED)


def test_a_cancelled_run_stays_cancelled() -> None:
    """I3, I40: asking again for a cancelled run returns it; only a rewind opens it."""
    journal = MemoryJournal()
    first = run_virtual(cancelled_at(4, CANCELLED["a call"], journal))
    again = play(CANCELLED["a call"], journal=journal, run_id="r")
    assert again.to_json() == first.to_json()


def test_a_call_that_swallows_its_cancellation_is_the_last_one() -> None:
    """I6: after a cancel no call starts, whatever the one in flight made of it."""

    async def swallows(value: Any) -> str:
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            return "still here"
        return "x"

    judge = Script([0.1])
    result = run_virtual(cancelled_at(4, Loop(swallows, judge, name="l")))
    assert (result.status, judge.calls) == (Status.CANCELLED, [])


def test_success_comes_before_a_cancel_of_the_same_moment() -> None:
    """Section 3: a record that satisfies is success although the run was cancelled meanwhile."""

    async def swallows(value: Any) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(9)
        return "good"

    result = run_virtual(cancelled_at(4, Loop(swallows, until=ScoreAtLeast(0) | MaxIterations(1))))
    assert result.reason is Reason.MAX_ITERATIONS


def test_a_cancel_from_inside_a_step_leaves_its_caller_alone() -> None:
    """Cancelling ends the run and nothing else: who awaited it goes on undisturbed."""
    journal = MemoryJournal()

    async def act(value: Any) -> str:
        await journal.cancel("r")
        return "x"

    async def work() -> Any:
        result = await run(Loop(act, name="l"), journal=journal, run_id="r")
        await asyncio.sleep(1)
        await asyncio.sleep(1)
        task = asyncio.current_task()
        assert task is not None
        return result, task.cancelling()

    result, cancelling = run_virtual(work())
    assert (result.status, cancelling) == (Status.CANCELLED, 0)


@pytest.mark.parametrize("hook", ["on_iteration", "on_terminate"])
def test_a_cancel_during_a_hook_ends_as_cancelled_or_as_it_was(hook: str) -> None:
    """I13: a hook that is cut short by a cancel is told once, and the run ends with a result."""
    heard: list[Any] = []

    async def slow(item: Any) -> None:
        heard.append(item)
        await asyncio.sleep(9)

    loop = Loop(Script(["x"], seconds=1), name="l", until=MaxIterations(1), **{hook: slow})
    result = run_virtual(cancelled_at(4, loop))
    assert len(heard) == 1
    assert result.reason is Reason.MAX_ITERATIONS
    more = Loop(Script(["x"], seconds=1), name="l", until=MaxIterations(9), on_iteration=slow)
    assert run_virtual(cancelled_at(4, more)).status is Status.CANCELLED


@pytest.mark.parametrize("journal", [MemoryJournal, SlowJournal])
@pytest.mark.parametrize("seconds", [1.5, 2.5, 3.5, 4.5])
def test_a_run_whose_task_is_cancelled_in_a_hook_is_interrupted(
    journal: Any, seconds: float
) -> None:
    """A cancellation from outside passes through hooks and through the wait for durability."""
    store = journal()

    async def slow(item: Any) -> None:
        await asyncio.sleep(9)

    async def work() -> None:
        loop = Loop(Script(["x"], seconds=1), name="l", until=MaxIterations(9), on_iteration=slow)
        task = asyncio.ensure_future(run(loop, journal=store, run_id="r"))
        await asyncio.sleep(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.find("r")).status == "interrupted"

    run_virtual(work())


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5, 4.5])
def test_a_cancel_while_the_store_writes_still_ends_as_cancelled(seconds: float) -> None:
    """Section 4, I13: it ends with a result, and its hook hears of what the store has, not before."""
    journal = SlowJournal()
    heard: list[tuple[int, int]] = []

    def hook(item: Iteration) -> None:
        written = journal.log._run.entries[: journal.log.durable]
        heard.append((item.number, sum(entry.kind == "iteration" for entry in written)))

    loop = Loop(Script(["x"], seconds=1), name="l", until=MaxIterations(9), on_iteration=hook)
    result = run_virtual(cancelled_at(seconds, loop, journal))
    assert result.status is Status.CANCELLED
    assert heard == [(n, n) for n in range(1, result.iterations + 1)]


def test_a_cancel_that_comes_too_late_changes_nothing() -> None:
    """When the end is being written the run is over; cancelling then neither fails nor reopens it."""
    journal = SlowJournal()

    async def work() -> Result:
        task = asyncio.ensure_future(run(echo, "in", journal=journal, run_id="r"))
        await asyncio.sleep(1.5)
        await journal.cancel("r")
        return await task

    result = run_virtual(work())
    assert (result.status, result.output) == (Status.SATISFIED, "in")


def test_a_run_that_is_cancelled_from_outside_can_be_resumed() -> None:
    """Cancelling the task, as a signal handler does, interrupts: nothing ends, a resume goes on."""
    journal = MemoryJournal()
    execute = Script(["x"], seconds=3)
    loop = Loop(execute, name="l", until=MaxIterations(3))

    async def work() -> Result:
        task = asyncio.ensure_future(run(loop, journal=journal, run_id="r"))
        await asyncio.sleep(4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        info = await journal.find("r")
        assert (info.status, info.active) == ("interrupted", 4)
        await asyncio.sleep(1000)
        return await resume(loop, "r", journal=journal)

    result = run_virtual(work())
    assert (result.iterations, len(execute.calls)) == (3, 4)
    assert result.seconds == pytest.approx(10)


def test_time_spent_in_a_pause_that_was_interrupted_counts() -> None:
    """I42: the seconds a run was alive count against its timeout, with or without a call in flight."""
    journal = MemoryJournal()
    loop = Loop(retry(Script([StepError("no")]), delay=100), name="l", guards=Timeout(10))

    async def work() -> tuple[Result, float]:
        task = asyncio.ensure_future(run(loop, journal=journal, run_id="r", random=lambda: 1.0))
        await asyncio.sleep(8)
        task.cancel()
        await asyncio.wait([task])
        result = await resume(loop, "r", journal=journal, random=lambda: 1.0)
        return result, asyncio.get_running_loop().time()

    result, alive = run_virtual(work())
    assert (result.reason, result.seconds) == (Reason.TIMEOUT, pytest.approx(10))
    assert alive == pytest.approx(10)


def test_who_is_cancelled_twice_is_cancelled() -> None:
    """A cancel of the run does not use up a cancellation of the task that awaits it."""
    journal = MemoryJournal()

    async def work() -> bool:
        loop = Loop(Script(["x"], seconds=9), name="l")
        task = asyncio.ensure_future(run(loop, journal=journal, run_id="r"))
        await asyncio.sleep(1)
        await journal.cancel("r")
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert run_virtual(work())
