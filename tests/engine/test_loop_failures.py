"""The loop: halt, continue and retry, and what is recorded of an error."""

from __future__ import annotations

import pytest

from loopwright import (
    Evaluation,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    ScoreAtLeast,
    Status,
)
from loopwright.errors import StepError

from .support import (
    ERROR,
    Script,
    echo,
    play,
    scripted,
)

# Section 8: failure.


def test_halt_ends_at_the_first_error() -> None:
    """The default: an error ends the loop as failed, with what it has and the error in the record."""
    result = play(scripted([0.5, ERROR, 0.9], until=ScoreAtLeast(0.9)))
    assert (result.status, result.reason, result.iterations, result.output) == (
        Status.FAILED, Reason.ERROR, 2, "output 0.5",
    )  # fmt: skip
    assert result.detail == "iteration 2: execute: it broke"


def test_continue_hands_the_error_to_adapt() -> None:
    """Section 8, F13, F14: one record per round, failed or not; the error is adapt's feedback."""
    told: list[str] = []

    async def adapt(last: Iteration) -> str:
        told.append(last.feedback)
        return f"after {last.number}"

    result = play(
        scripted(
            [Evaluation(0.1, feedback="longer"), ERROR, 0.9], adapt=adapt, on_failure="continue",
            until=ScoreAtLeast(0.9),
        ),
        "start",
    )  # fmt: skip
    assert told == ["longer", "it broke"]
    assert [item.input for item in result.history] == ["start", "after 1", "after 2"]
    assert [item.error is None for item in result.history] == [True, False, True]
    assert result.satisfied


def test_a_failing_adapt_makes_no_second_record() -> None:
    """F14: an error of adapt is the error of the round that it opens, with the input as it was."""
    result = play(
        Loop(
            Script(["a", "b", "c"]), adapt=Script([StepError("no idea"), "new"]),
            on_failure="continue", until=MaxIterations(3),
        ),
        "start",
    )  # fmt: skip
    assert [(item.number, item.input) for item in result.history] == [
        (1, "start"), (2, "start"), (3, "new"),
    ]  # fmt: skip
    assert result.history[1].error is not None
    assert result.history[1].error.stage == "adapt"


def test_three_failures_in_a_row_end_the_loop() -> None:
    """I26: `continue` terminates, and a good round between resets the count."""
    marks = [0.1, ERROR, ERROR, 0.2, ERROR, ERROR, ERROR, 0.9]
    result = play(scripted(marks, on_failure="continue", until=ScoreAtLeast(0.9)))
    assert (result.reason, result.iterations, result.output) == (
        Reason.REPEATED_FAILURE, 7, "output 0.2",
    )  # fmt: skip
    assert result.detail == "3 iterations in a row failed, the last with: it broke"


def test_a_loop_of_which_every_round_failed_has_failed() -> None:
    """H20: all failed is `failed`, never `exhausted`; the limit is still named."""
    result = play(scripted([ERROR], on_failure="continue", until=MaxIterations(2)))
    assert (result.status, result.reason, result.also, result.output) == (
        Status.FAILED, Reason.ALL_FAILED, (Reason.MAX_ITERATIONS,), None,
    )  # fmt: skip
    assert result.detail == "all 2 iterations failed, the last with: it broke"


def test_retry_consumes_no_iteration() -> None:
    """H19, I26: three attempts by default, then halt; the rounds are counted once."""
    execute = Script([StepError("1"), StepError("2"), "third"])
    result = play(Loop(execute, on_failure="retry", until=MaxIterations(1)))
    assert (result.output, result.iterations, len(execute.calls)) == ("third", 1, 3)
    stuck = Script([StepError("again")])
    ended = play(Loop(stuck, on_failure="retry", until=MaxIterations(4)))
    assert (ended.status, ended.reason, ended.iterations, len(stuck.calls)) == (
        Status.FAILED, Reason.ERROR, 1, 3,
    )  # fmt: skip


def test_max_retries_is_the_number_of_further_attempts() -> None:
    """max_retries=0 tries once, 5 tries six times."""
    for retries in (0, 1, 5):
        execute = Script([StepError("again")])
        play(Loop(execute, on_failure="retry", max_retries=retries, until=MaxIterations(4)))
        assert len(execute.calls) == retries + 1


def test_retry_waits_with_full_jitter() -> None:
    """Attempt k+1 waits uniform(0, delay * 2^k): at most 0.5 s, then at most 1 s."""
    execute = Script([StepError("1"), StepError("2"), "x"])
    loop = Loop(execute, on_failure="retry", until=MaxIterations(1))
    assert play(loop, random=lambda: 1.0).seconds == pytest.approx(1.5)
    assert play(loop, random=lambda: 0.0).seconds == 0


def test_a_permanent_error_is_not_retried() -> None:
    """I24: an error that says it cannot be helped gets one attempt."""
    execute = Script([StepError("forbidden", kind="permanent", retryable=False)])
    result = play(Loop(execute, on_failure="retry", until=MaxIterations(4)))
    assert (len(execute.calls), result.reason) == (1, Reason.ERROR)


def test_retry_and_judge_and_adapt() -> None:
    """Every stage is tried again: a judge that fails once costs no iteration."""
    judge = Script([StepError("1"), 0.2, 0.9])
    adapt = Script([StepError("1"), "next"])
    result = play(Loop(echo, judge, adapt, on_failure="retry", until=ScoreAtLeast(0.9)), "x")
    assert (result.satisfied, result.iterations, len(judge.calls), len(adapt.calls)) == (
        True, 2, 3, 2,
    )  # fmt: skip


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError("k"), SystemExit(3), ValueError()])
def test_what_a_function_raises_is_recorded_by_its_type(error: BaseException) -> None:
    """Any exception of a step, SystemExit too, is a failure with its type as kind."""
    result = play(Loop(Script([error]), until=MaxIterations(1)))
    failure = result.history[0].error
    assert failure is not None
    assert failure.kind == type(error).__name__
    assert failure.message.startswith(type(error).__name__)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even a message")


def test_an_error_that_cannot_be_printed_is_recorded_by_its_type() -> None:
    """I28: an exception whose text raises is a failure like any other."""
    result = play(Loop(Script([Unprintable()]), until=MaxIterations(1)))
    assert result.history[0].error is not None
    assert result.history[0].error.message == "Unprintable"


def test_the_text_of_an_error_is_cleaned() -> None:
    """What no store can hold does not reach the record through an error's message."""
    for error in (ValueError("nul\0 and \ud800"), StepError("nul\0 and \ud800")):
        result = play(Loop(Script([error]), until=MaxIterations(1)), journal=MemoryJournal())
        assert result.history[0].error is not None
        assert result.history[0].error.message.endswith("nul and \ufffd")
