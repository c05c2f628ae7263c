"""Hooks, listeners and conditions of users: what goes wrong in them is reported by name (issue 11, section 2)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from loopwright import (
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Stop,
    Workflow,
    run,
    step,
)
from loopwright.conditions import AllOf, Condition
from loopwright.errors import ConfigurationError
from loopwright.testing import run_virtual

from .support import Script, play, scripted


class Unprintable(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


RAISED = [
    functools.partial(RuntimeError, "no hook"), Unprintable, functools.partial(SystemExit, 3),
    KeyboardInterrupt, functools.partial(asyncio.CancelledError, "mine"),
]  # fmt: skip


@pytest.mark.parametrize("make", RAISED)
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_what_a_hook_raises_is_a_warning_with_its_name(
    make: Callable[[], BaseException], later: bool, kept: bool
) -> None:
    """I13: no exception of a hook ends the engine: the result is that of the loop without it."""
    error = make()

    def broken(_: Any) -> None:
        raise error

    async def broken_later(_: Any) -> None:
        await asyncio.sleep(0)
        raise error

    hook = broken_later if later else broken
    loop = scripted([0.1, 0.9], until=ScoreAtLeast(0.9), on_iteration=hook, on_terminate=hook)
    result = play(loop, journal=MemoryJournal() if kept else None)
    assert result.satisfied and result.iterations == 2
    name = type(error).__name__
    first, second = result.warnings
    assert first.startswith(f"hook_failed: refine: on_iteration failed: {name}")
    assert second.startswith(f"hook_failed: refine: on_terminate failed: {name}")


@pytest.mark.parametrize("make", RAISED)
def test_what_a_listener_raises_is_a_warning(make: Callable[[], BaseException]) -> None:
    """I13: nor does any exception of a listener."""
    error = make()

    def listen(_: Any) -> None:
        raise error

    result = play(scripted([0.9], until=ScoreAtLeast(0.9)), listeners=[listen])
    assert result.satisfied
    assert any(type(error).__name__ in warning for warning in result.warnings)


# Conditions of users.


@dataclass(frozen=True)
class Broken(Condition):
    """A condition that answers what it was made with, or raises it."""

    answer: Any

    def check(self, history: Any) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("make", RAISED)
@pytest.mark.parametrize("place", ["until", "guards"])
def test_a_condition_that_raises_ends_the_run_as_failed(
    make: Callable[[], BaseException], place: str
) -> None:
    """Rule: the status is failed, the detail names loop and condition, and the traceback is on record."""
    error = make()
    journal = MemoryJournal()
    loop = Loop(Script(["x"]), name="refine", **{place: Broken(error)})
    result = play(loop, journal=journal, run_id="r")
    name = type(error).__name__
    assert (result.status, result.reason) == (Status.FAILED, Reason.ERROR)
    assert result.detail.startswith(f"the condition Broken failed: {name}")
    assert result.error is not None and result.error.path == "refine"
    assert result.error is not None and result.error.exception.endswith(name)
    assert (
        "in check" in result.error.traceback
        and "loopwright/conditions" not in result.error.traceback
    )
    again = play(loop, journal=journal, run_id="r")
    assert again.error == result.error and again.loops["refine"].error == result.error


@pytest.mark.parametrize("answer", [True, "stop", 0, object()])
def test_a_condition_that_returns_something_else_ends_the_run_as_failed(answer: Any) -> None:
    """Rule: the message says what was returned and what is expected."""
    result = play(Loop(Script(["x"]), name="refine", until=Broken(answer)), journal=MemoryJournal())
    assert (result.status, result.reason) == (Status.FAILED, Reason.ERROR)
    assert f"the condition Broken returned {type(answer).__name__}" in result.detail
    assert "return Stop(Reason.CONDITION_MET" in result.detail


def test_a_failed_condition_inside_an_and_is_not_a_success() -> None:
    """Rule: a condition that failed never counts as one that held."""
    both = AllOf((ScoreAtLeast(0.5), Broken(ValueError("no"))))
    result = play(scripted([0.9], until=both))
    assert result.status is Status.FAILED and "Broken failed: ValueError: no" in result.detail


class Later(Condition):
    """A condition that is no dataclass and not registered."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.helper = lambda: None

    def check(self, history: Any) -> Stop | None:
        return Stop(Reason.CONDITION_MET, "enough") if len(history) >= self.count else None


def test_a_condition_may_be_a_plain_class() -> None:
    """Rule: a user's condition needs neither a dataclass nor a registration, with a journal neither."""
    journal = MemoryJournal()
    result = play(Loop(Script(["x"]), until=Later(2), name="l"), journal=journal, run_id="r")
    assert result.satisfied and result.iterations == 2
    assert Later(2).to_json() == {
        "python": f"{__name__}:Later", "count": 2, "helper": "<function>",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("my_reason", "'my_reason' is not a Reason; use Reason.CONDITION_MET"),
        ("condition_meet", "did you mean 'condition_met'?"),
        (True, "True is not a Reason"),
        (None, "None is not a Reason"),
    ],
)
def test_a_stop_without_a_reason_says_what_is_expected(given: Any, message: str) -> None:
    """Rule: `Stop("my_reason")` raises a ConfigurationError with the nearest reason."""
    with pytest.raises(ConfigurationError) as caught:
        Stop(given)
    assert message in str(caught.value)
    assert Stop("stopped").reason is Reason.STOPPED  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="detail: 3 is not text"):
        Stop(Reason.STOPPED, 3)  # type: ignore[arg-type]


# A cancel from outside.


def seconds(_: Any) -> Any:
    """Return what to await: far longer than any of these tests waits."""
    return asyncio.sleep(100)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("how", ["task", "timeout"])
def test_cancelling_the_task_calls_on_terminate_once(kept: bool, how: str) -> None:
    """I13: a cancel from outside is told to on_terminate, once, and reaches the canceller."""
    told: list[Result] = []

    async def execute(value: Any, ctx: Any) -> Any:
        if ctx.iteration == 2:
            await asyncio.sleep(100)
        return value

    inner = Loop(
        step(execute), Script([0.5]), until=MaxIterations(3), name="inner", on_terminate=told.append
    )
    outer = Loop(inner, until=MaxIterations(2), name="outer", on_terminate=told.append)
    journal = MemoryJournal() if kept else None

    async def story() -> None:
        work = run(Workflow("w", {"outer": outer}), "in", journal=journal, run_id="r")
        if how == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await work
        else:
            task = asyncio.ensure_future(work)
            await asyncio.sleep(5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    run_virtual(story())
    assert [(r.name, r.status, r.reason) for r in told] == [
        ("inner", Status.CANCELLED, Reason.CANCELLED),
        ("outer", Status.CANCELLED, Reason.CANCELLED),
    ]
    assert told[0].iterations == 1 and told[0].output == "in"
    if journal is not None:  # the run can be resumed
        assert run_virtual(journal.find("r")).status == "interrupted"


def test_a_cancel_during_on_terminate_does_not_call_it_again() -> None:
    """I13: exactly once, also when the hook itself is cut short."""
    told: list[Status] = []

    async def slow(result: Result) -> None:
        told.append(result.status)
        await asyncio.sleep(100)

    async def story() -> None:
        loop = Loop(Script(["x"]), Script([True]), until=Passed(), on_terminate=slow)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await run(loop, journal=MemoryJournal())

    run_virtual(story())
    assert told == [Status.SATISFIED]
