"""One step in a way of its own: tried again, or within a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    Reason,
    Status,
    Timeout,
    retry,
    step,
    with_timeout,
)
from loopwright.errors import ConfigurationError, StepError

from .support import DyingJournal, Script, echo, exhausted, named, play

# Retrying.


def test_retrying_tries_at_most_so_many_times() -> None:
    """I23, I26: an inner step that always fails is called exactly `attempts` times."""
    for attempts in (1, 2, 5):
        inner = Script([StepError("no")])
        result = play(retry(inner, attempts=attempts))
        assert (result.status, len(inner.calls)) == (Status.FAILED, attempts)


def test_retrying_waits_as_told_and_with_jitter_otherwise() -> None:
    """I25: never less than `retry_after`, else uniform up to the doubled delay, at most `longest`."""
    told = Script([StepError("busy", retry_after=20.0), "x"])
    assert play(retry(told), random=lambda: 0.0).seconds == 20
    doubled = Script([StepError("no")] * 4 + ["x"])
    made = retry(doubled, attempts=5, delay=2, longest=5)
    assert play(made, random=lambda: 1.0).seconds == 2 + 4 + 5 + 5


def test_a_pause_ends_at_the_deadline() -> None:
    """I25, I42: no wait goes past the nearest deadline, and no attempt is made after it."""
    inner = Script([StepError("no", retry_after=600.0)])
    result = play(Loop(retry(inner), until=Timeout(10)))
    assert (result.reason, result.seconds, len(inner.calls)) == (Reason.TIMEOUT, 10, 1)


def test_a_satisfied_attempt_is_the_result() -> None:
    """A loop inside keeps its own result; an exhausted one is no failure to retry."""
    result = play(retry(exhausted("inner")))
    assert (result.status, result.iterations) == (Status.EXHAUSTED, 1)
    required = exhausted("inner", required=True)
    made = retry(required, attempts=2, delay=0)
    assert made.required
    assert play(made).status is Status.FAILED


def test_a_wait_that_was_over_is_not_waited_again() -> None:
    """A resumed run does not pause before an attempt that is already on record."""
    inner = Script([StepError("no"), "x"])
    journal = DyingJournal(4)
    with pytest.raises(asyncio.CancelledError):
        play(retry(inner, delay=10), journal=journal, run_id="r", random=lambda: 1.0)
    journal.at = 0
    result = play(retry(inner, delay=10), journal=journal, run_id="r", random=lambda: 1.0)
    assert (result.output, result.seconds) == ("x", 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 0}, "retry: attempts: 0 is too small; give at least 1"),
        ({"delay": -1}, "retry: delay: -1 is out of range; give a number at least 0"),
        ({"longest": -1}, "retry: longest: -1 is out of range; give a number at least 0"),
    ],
)
def test_a_retry_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    """I10: attempts and waits are checked when the step is made."""
    with pytest.raises(ConfigurationError) as caught:
        retry(echo, **options)
    assert str(caught.value) == message


# Limited.


def test_a_limited_step_fails_over_its_time() -> None:
    """Over its own seconds a step is cancelled and fails; within them it is what it is."""
    result = play(with_timeout(named("slow", "x", seconds=9), 5))
    assert (result.status, result.seconds) == (Status.FAILED, 5)
    assert result.detail == "slow: slow took longer than its 5 s"
    assert play(with_timeout(named("quick", "x", seconds=4), 5)).output == "x"
    with pytest.raises(ConfigurationError, match="timeout: seconds: 0 is out of range"):
        with_timeout(echo, 0)


def test_a_limit_can_be_retried() -> None:
    """Each attempt has the whole time to itself."""
    inner = Script(["x"], seconds=9)
    result = play(retry(with_timeout(step(inner, name="s"), 5), delay=0))
    assert (result.status, len(inner.calls), result.seconds) == (Status.FAILED, 3, 15)


def test_a_limit_around_a_loop_ends_the_loop() -> None:
    """The loop inside is cut and recorded, and the limited step fails."""
    loop = Loop(Script(["x"], seconds=2), name="inner", until=MaxIterations(9), required=True)
    made = with_timeout(loop, 5)
    assert made.required
    result = play(made)
    assert (result.status, result.loops["inner"].iterations) == (Status.FAILED, 3)
    assert result.loops["inner"].reason is Reason.TIMEOUT


def test_an_outer_deadline_passes_through_a_limit() -> None:
    """The step's own limit is not to blame for the loop's."""
    result = play(Loop(with_timeout(named("slow", "x", seconds=60), 30), until=Timeout(5)))
    assert (result.reason, result.seconds) == (Reason.TIMEOUT, 5)


def test_the_time_of_a_limit_goes_on_over_a_crash() -> None:
    """I42: a limited step that was begun before a crash has what was left of its time, not all."""
    done: list[int] = []

    async def act(value: Any, ctx: Context) -> int:
        for number in range(4):
            await ctx.call(f"part-{number}", step(Script(["x"], seconds=3)), number)
            done.append(number)
        return 1

    journal = DyingJournal(5)
    made = with_timeout(step(act, name="s"), 7)
    with pytest.raises(asyncio.CancelledError):
        play(made, journal=journal, run_id="r")
    journal.at = 0
    result = play(made, journal=journal, run_id="r")
    assert (result.status, result.seconds) == (Status.FAILED, 7)
