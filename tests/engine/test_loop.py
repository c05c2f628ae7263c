"""The loop: order of an iteration, precedence of a decision, failure, best and last, hooks."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import pytest

from loopwright import (
    AllCriteriaMet,
    Budget,
    Condition,
    Context,
    Criterion,
    Deadline,
    Degrading,
    Evaluation,
    Failure,
    History,
    Iteration,
    Loop,
    MaxIterations,
    MemoryJournal,
    NoImprovement,
    OutputMatches,
    Passed,
    PhaseLimit,
    Reason,
    RepeatedOutput,
    Result,
    ScoreAtLeast,
    Status,
    Stop,
    Timeout,
    Usage,
    run,
    step,
)
from loopwright.errors import ConfigurationError, StepError
from loopwright.loop import DEFAULT_LIMIT, any_of
from loopwright.testing import VirtualClock, run_virtual

from .support import (
    ERROR,
    NAN,
    UNDECIDED,
    Script,
    echo,
    history,
    inline,
    play,
    scripted,
    verdict,
)

# Section 2: the order of one iteration.


def test_adapt_is_the_first_act_of_the_next_round() -> None:
    """I12, H17, F11: a run of n iterations adapts n - 1 times, and none is bought and thrown away."""
    order: list[str] = []

    async def execute(value: int) -> int:
        order.append(f"execute {value}")
        return value

    async def evaluate(output: int) -> float:
        order.append(f"evaluate {output}")
        return output / 10

    async def adapt(last: Iteration) -> int:
        order.append(f"adapt {last.number}")
        return last.output + 1

    result = play(Loop(execute, evaluate, adapt, until=ScoreAtLeast(0.3)), 1)
    assert order == [
        "execute 1", "evaluate 1", "adapt 1", "execute 2", "evaluate 2", "adapt 2", "execute 3",
        "evaluate 3",
    ]  # fmt: skip
    assert (result.status, result.output, result.iterations) == (Status.SATISFIED, 3, 3)


def test_without_adapt_the_input_stays() -> None:
    """A loop without adapt gives every round the same input."""
    execute = Script(["a", "b", "c"])
    play(Loop(execute, until=MaxIterations(3)), "same")
    assert execute.calls == ["same", "same", "same"]


def test_adapt_is_given_the_initial_and_the_current_input() -> None:
    """H18, F1, F2, F3: adapt gets the whole last iteration, and the context the first input."""
    seen: list[Any] = []

    async def adapt(last: Iteration, ctx: Context) -> Any:
        seen.append((ctx.initial, last.input, last.output, ctx.input))
        return {"transcript": ctx.initial["transcript"], "round": last.number + 1}

    play(Loop(Script(["x", "y", "z"]), adapt=adapt, until=MaxIterations(3)), {"transcript": "t"})
    assert seen == [
        ({"transcript": "t"}, {"transcript": "t"}, "x", {"transcript": "t"}),
        ({"transcript": "t"}, {"transcript": "t", "round": 2}, "y",
         {"transcript": "t", "round": 2}),
    ]  # fmt: skip


def test_the_output_at_the_limit_is_evaluated_too() -> None:
    """Every produced output is evaluated, and success on the last permitted iteration is success."""
    result = play(scripted([0.1, 0.9], until=ScoreAtLeast(0.9) | MaxIterations(2)))
    assert (result.status, result.reason, result.also) == (
        Status.SATISFIED, Reason.CONDITION_MET, (Reason.MAX_ITERATIONS,),
    )  # fmt: skip


def test_at_least_one_round_is_run() -> None:
    """F8, H2: a threshold of 0 is met by the first output, never before there is one."""
    result = play(scripted([0.0], until=ScoreAtLeast(0.0)))
    assert (result.status, result.output, result.iterations) == (
        Status.SATISFIED, "output 0.0", 1,
    )  # fmt: skip


# Section 3: precedence.


@dataclass(frozen=True)
class At(Condition):
    """Stops for one reason from a number of iterations on."""

    reason: Reason
    number: int = 1
    early: bool = True  # type: ignore[misc]

    def check(self, history: History) -> Stop | None:
        return Stop(self.reason, self.reason.value) if len(history) >= self.number else None


ORDER = [
    Reason.CONDITION_MET, Reason.CANCELLED, Reason.DEADLINE, Reason.TIMEOUT, Reason.BUDGET,
    Reason.REPEATED_OUTPUT, Reason.DEGRADING, Reason.NO_IMPROVEMENT, Reason.MAX_ITERATIONS,
]  # fmt: skip


@pytest.mark.parametrize("first", range(len(ORDER)), ids=lambda i: ORDER[i].value)
def test_the_first_reason_that_holds_is_the_one(first: int) -> None:
    """Section 3: of several that hold together the first is the reason, all others are reported."""
    rest = ORDER[first:]
    tree = any_of(*(At(reason) for reason in reversed(rest)))
    result = play(Loop(echo, until=tree), "x")
    assert result.reason is rest[0]
    assert list(result.also) == rest[1:]


def test_real_conditions_rank_as_their_reasons_do() -> None:
    """Budget before repeat before decline before plateau before limit, all in one round."""
    spend = step(_spend_one)
    loop = Loop(
        spend, Script([0.9, 0.5, 0.1]),
        until=NoImprovement(2) | Degrading(rule="strict") | RepeatedOutput() | MaxIterations(3),
        guards=Budget(calls=3), adapt=inline(lambda last: last.number), min_iterations=3,
    )  # fmt: skip
    result = play(loop, 0)
    assert [result.reason, *result.also] == [
        Reason.BUDGET, Reason.REPEATED_OUTPUT, Reason.DEGRADING, Reason.NO_IMPROVEMENT,
        Reason.MAX_ITERATIONS,
    ]  # fmt: skip


async def _spend_one(value: Any, ctx: Context) -> str:
    ctx.spend(Usage(calls=1))
    return "always the same"


@pytest.mark.parametrize(
    ("reason", "delayed"),
    [(Reason.CONDITION_MET, True), (Reason.REPEATED_OUTPUT, True), (Reason.DEGRADING, True),
     (Reason.NO_IMPROVEMENT, True)],
)  # fmt: skip
def test_min_iterations_delays_what_may_end_early(reason: Reason, delayed: bool) -> None:
    """F5, H3: it counts completed iterations and delays success, repeats, decline and plateau."""
    result = play(Loop(echo, until=At(reason) | MaxIterations(9), min_iterations=3), "x")
    assert (result.reason, result.iterations) == (reason, 3)


def test_min_iterations_never_delays_a_hard_guard() -> None:
    """Limits, timeouts and budgets act before min_iterations is reached."""
    limit = play(Loop(echo, until=MaxIterations(2), min_iterations=5), "x")
    assert (limit.reason, limit.iterations) == (Reason.MAX_ITERATIONS, 2)
    slow = play(Loop(Script(["x"], seconds=4), until=Timeout(10), min_iterations=5))
    assert slow.reason is Reason.TIMEOUT
    spent = play(Loop(step(_spend_one), until=Budget(calls=2), min_iterations=5))
    assert (spent.reason, spent.iterations) == (Reason.BUDGET, 2)


def test_passed_is_one_input_to_termination() -> None:
    """F6, F7, H3: `passed` does not skip min_iterations, an "and", or the hooks; its reason is its own."""
    heard: list[Any] = []
    result = play(
        scripted(
            [True, True, True], until=Passed() & At(Reason.CONDITION_MET, 2), min_iterations=2,
            on_terminate=heard.append,
        )
    )  # fmt: skip
    assert (result.iterations, result.reason) == (2, Reason.CONDITION_MET)
    assert result.detail == "iteration 2 passed its evaluation and condition_met"
    assert len(heard) == 1
    unheard = play(scripted([Evaluation(0.3, passed=True)], until=Passed() | ScoreAtLeast(0.9)))
    assert unheard.detail == "iteration 1 passed its evaluation"


def test_success_is_what_the_condition_says() -> None:
    """F9, H4, H5: an "or" threshold of 0.5 reached by 0.6 is success; no second threshold is hidden."""
    low = play(scripted([0.6], until=ScoreAtLeast(0.5) | ScoreAtLeast(0.9)))
    assert (low.status, low.detail) == (Status.SATISFIED, "score 0.6 is at least 0.5")
    two = play(scripted([0.65], until=ScoreAtLeast(0.6) | ScoreAtLeast(0.9) | MaxIterations(3)))
    assert two.satisfied
    stalled = play(scripted([0.75, 0.75, 0.75], until=NoImprovement(2)))
    assert (stalled.status, stalled.output) == (Status.EXHAUSTED, "output 0.75")


def test_a_limit_inside_an_and_is_a_limit_all_the_same() -> None:
    """F10, H6, I9: "score and max_iterations" cannot run on when the score stays low."""
    result = play(scripted([0.1], until=ScoreAtLeast(0.9) & MaxIterations(3)))
    assert (result.status, result.reason, result.iterations) == (
        Status.EXHAUSTED, Reason.MAX_ITERATIONS, 3,
    )  # fmt: skip
    both = play(scripted([0.1, 0.1, 0.95], until=ScoreAtLeast(0.9) & MaxIterations(3)))
    assert both.status is Status.SATISFIED
    timed = play(Loop(Script(["x"], seconds=2), until=Passed() & Timeout(5)))
    assert timed.reason is Reason.TIMEOUT


def test_no_loop_is_unbounded() -> None:
    """H1: without a limit a loop gets the default of 10; the ceiling is 1000."""
    result = play(scripted([0.1], until=ScoreAtLeast(0.9)))
    assert (result.iterations, DEFAULT_LIMIT) == (10, 10)
    assert Loop(echo).limit == 10
    assert Loop(echo, min_iterations=15).limit == 15
    assert Loop(echo, until=MaxIterations(7) | PhaseLimit(4)).limit == 4
    assert play(Loop(echo), "x").iterations == 10
    long = play(Loop(echo, until=MaxIterations(1000)), "x")
    assert (long.status, long.iterations) == (Status.EXHAUSTED, 1000)


def test_a_good_round_followed_by_failures_ends() -> None:
    """H1: errors that go on for ever end the loop although they count for no plateau."""
    marks = [0.6, *[ERROR] * 20]
    result = play(scripted(marks, until=NoImprovement(2), on_failure="continue"))
    assert (result.reason, result.iterations, result.output) == (
        Reason.REPEATED_FAILURE, 4, "output 0.6",
    )  # fmt: skip


def test_a_limit_ends_with_a_result_and_the_best_output() -> None:
    """F15, H7: running out raises nothing and keeps what was best."""
    result = play(scripted([0.2, 0.7, 0.3], until=MaxIterations(3)))
    assert (result.status, result.output, result.best and result.best.number) == (
        Status.EXHAUSTED, "output 0.7", 2,
    )  # fmt: skip


# Section 6: evaluation.


def test_undecided_moves_only_its_own_counter() -> None:
    """I17: an unreadable judge is neither satisfied nor a score of 0; two in a row end the loop."""
    once = play(scripted([0.5, UNDECIDED, 0.5, 0.5], until=NoImprovement(2)))
    assert (once.iterations, once.reason) == (4, Reason.NO_IMPROVEMENT)
    twice = play(scripted([0.5, UNDECIDED, UNDECIDED, 0.9], until=ScoreAtLeast(0.9)))
    assert (twice.status, twice.reason, twice.iterations, twice.output) == (
        Status.FAILED, Reason.EVALUATOR_UNUSABLE, 3, "output 0.5",
    )  # fmt: skip
    assert twice.detail == "the judge could not be read 2 times in a row"


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (NAN, "not_json", "output: nan is not a JSON value"),
        (float("inf"), "not_json", "output: inf is not a JSON value"),
        (1.5, "bad_score", "score: 1.5 is not a finite number from 0 to 1"),
        ("0.9", "bad_evaluation", "a str is not an evaluation"),
        ({"score": 0.5, "improvements": 3}, "bad_evaluation", "improvements: 3 is not a list"),
        (StepError("judge is down", kind="transient"), "transient", "judge is down"),
        (ValueError("boom"), "ValueError", "ValueError: boom"),
    ],
    ids=str,
)
def test_an_unusable_evaluation_is_a_failure_of_the_judge(
    answer: Any, kind: str, message: str
) -> None:
    """F3, H15, I16, I28: NaN and nonsense are errors of the evaluate stage, never a score or a crash."""
    result = play(Loop(echo, Script([answer]), until=ScoreAtLeast(0.0)), "text")
    assert (result.status, result.reason) == (Status.FAILED, Reason.ERROR)
    failure = result.history[0].error
    assert failure is not None
    assert (failure.stage, failure.kind) == ("evaluate", kind)
    assert failure.message.startswith(message)
    assert result.detail == f"iteration 1: evaluate: {failure.message}"


def test_worker_check_and_judge_errors_are_three_facts() -> None:
    """Section 6: the record says which stage failed, and where."""
    fails = Script([StepError("no", path="")])
    stages = []
    for fields in (
        {"execute": fails},
        {"execute": echo, "evaluate": fails},
        {"execute": echo, "adapt": fails, "until": MaxIterations(2)},
    ):
        result = play(Loop(name="refine", **fields), "x")
        failure = result.history[-1].error
        assert failure is not None
        stages.append((failure.stage, failure.path))
    assert stages == [
        ("execute", "refine/1/execute"), ("evaluate", "refine/1/evaluate"),
        ("adapt", "refine/2/adapt"),
    ]  # fmt: skip


def test_a_failed_evaluation_keeps_its_output_on_record() -> None:
    """An output that could not be judged is recorded, but is neither best nor last."""
    result = play(Loop(echo, Script([StepError("no")]), until=MaxIterations(1)), "text")
    assert result.history[0].output == "text"
    assert result.output is None


def test_criteria_are_recorded_and_can_end_the_loop() -> None:
    """The checklist is complete when every criterion of the latest evaluation is met."""
    met = [Criterion("short", True), Criterion("polite", True)]
    half = [Criterion("short", True), Criterion("polite", False, "say please")]
    result = play(
        scripted(
            [Evaluation(criteria=tuple(half)), Evaluation(criteria=tuple(met))],
            until=AllCriteriaMet(),
        )
    )
    assert (result.status, result.iterations) == (Status.SATISFIED, 2)


def test_a_marker_in_the_output_can_end_the_loop() -> None:
    """OutputMatches needs no evaluator."""
    execute = Script(["thinking", "TASK_COMPLETE: 42"])
    result = play(Loop(execute, until=OutputMatches("^TASK_COMPLETE:")))
    assert (result.status, result.output) == (Status.SATISFIED, "TASK_COMPLETE: 42")


# Section 7: best and last.

KEPT = [
    ([0.2, 0.8, 0.5], "best", "output 0.8"),
    ([0.2, 0.8, 0.5], "last", "output 0.5"),
    ([0.5, 0.5, 0.5], "best", 0),
    ([0.0, 0.0, 0.0], "best", 0),
    ([0.0, 0.0, 0.0], "last", 2),
    ([ERROR, 0.1, ERROR], "best", "output 0.1"),
    ([ERROR, 0.1, ERROR], "last", "output 0.1"),
    ([0.9, ERROR, UNDECIDED], "last", "output 0.9"),
    ([None, None, None], "best", 2),
    ([None, None, None], "last", 2),
    ([False, False, False], "best", 2),
    ([UNDECIDED, ERROR, UNDECIDED], "best", None),
]


@pytest.mark.parametrize(("marks", "keep", "kept"), KEPT, ids=str)
def test_an_unsatisfied_loop_returns_its_best_or_its_last(
    marks: list[Any], keep: str, kept: Any
) -> None:
    """I14, I15, I27, H15, F12: all zero still has a best; failed and undecided rounds are neither."""
    outputs = [StepError("no") if m == ERROR else f"output {m}" for m in marks]
    if isinstance(kept, int):
        outputs = list(range(3))
    loop = scripted(
        marks, execute=Script(outputs), keep=keep, until=MaxIterations(3), on_failure="continue"
    )
    assert play(loop).output == kept


def test_a_satisfied_loop_returns_the_output_that_satisfied() -> None:
    """H15: `passed` returns its own output although an earlier one scored higher."""
    result = play(
        scripted([Evaluation(0.9), Evaluation(0.4, passed=True)], until=Passed() | MaxIterations(5))
    )
    assert result.status is Status.SATISFIED
    assert result.output == result.history[1].output
    assert result.best is result.history[0]


def test_an_empty_output_is_an_output() -> None:
    """F13, H16: an empty text, 0 and False are outputs, not the absence of one."""
    for output in ("", 0, False, [], {}):
        result = play(Loop(Script([output]), Script([0.5]), until=MaxIterations(2)))
        assert result.output == output
        assert result.output is not None
        assert result.best is not None


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
    inner = Loop(step(_spend_one), name="inner", until=MaxIterations(50))
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
    assert str(caught.value) == "loop: l9: loops nest 9 deep; 8 is the most"


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
        "refine: a hook failed: RuntimeError: no hook", "refine: a hook failed: KeyError: 'later'",
    )  # fmt: skip


def test_a_record_is_not_changed_after_it_was_told() -> None:
    """H17, F17: what on_iteration was given is what the history holds at the end."""
    heard: list[Any] = []
    result = play(
        scripted([0.1, 0.9], until=ScoreAtLeast(0.9), adapt=inline(lambda last: "new"),
                 on_iteration=lambda item: heard.append((item, item.to_json())))
    )  # fmt: skip
    assert [item.to_json() for item, _ in heard] == [data for _, data in heard]
    assert [item for item, _ in heard] == list(result.history)


# Judging again.


def judged_again(*votes: Any, **fields: Any) -> Result:
    """Run a loop of one round whose judge gives these votes, with two fresh ones at the end."""
    fields.setdefault("until", MaxIterations(1))
    loop = Loop(Script(["x"]), Script([verdict(v) for v in votes]), name="l", rejudge=2, **fields)
    return play(loop)


def test_the_reported_score_is_the_mean_of_fresh_votes() -> None:
    """The score of a choice is its luckiest; votes that had no part in it are reported beside it."""
    result = judged_again(0.9, 0.5, 0.25)
    assert (result.best and result.best.score, result.reported_score) == (0.9, 0.375)
    assert result.to_json()["reported_score"] == 0.375
    assert result.loop_json()["reported_score"] == 0.375
    assert judged_again(0.9, UNDECIDED, 0.25).reported_score == 0.25
    assert judged_again(0.9, UNDECIDED, UNDECIDED).reported_score is None
    assert play(scripted([0.9], until=MaxIterations(1))).reported_score is None


def test_fresh_votes_are_not_bought_where_nothing_is_left_to_judge_with() -> None:
    """Without an output, an evaluator, time or money there is no reported score, and no call."""
    assert judged_again(ERROR).reported_score is None
    assert play(Loop(echo, rejudge=2, until=MaxIterations(1)), "x").reported_score is None
    late = Loop(Script(["x"], seconds=2), Script([0.4]), rejudge=2, until=Timeout(5))
    assert play(late).reported_score is None


def test_a_judge_that_fails_at_the_end_changes_nothing_but_a_warning() -> None:
    """The loop has ended; what judging again runs into is a warning."""
    result = judged_again(0.9, ERROR)
    assert (result.reason, result.reported_score) == (Reason.MAX_ITERATIONS, None)
    assert result.warnings == ("l: its output could not be judged again: the judge broke",)
    slow = Loop(
        Script(["x"]), Script([0.9], seconds=2), name="l", rejudge=2, until=MaxIterations(1),
        guards=Timeout(5),
    )  # fmt: skip
    late = play(slow)
    assert (late.reason, late.reported_score) == (Reason.MAX_ITERATIONS, 0.9)
    assert late.warnings == ("l: its output could not be judged again: 5 s used",)


def test_what_an_inner_loop_had_is_not_lost_when_an_outer_guard_cuts_it() -> None:
    """Section 7: where nothing of the outer loop is eligible, the inner one's output is the result."""
    inner = Loop(Script(["x"], seconds=2), Script([0.4]), name="inner", until=MaxIterations(9))
    result = play(Loop(inner, name="outer", until=Timeout(5)))
    assert (result.reason, result.output, result.best) == (Reason.TIMEOUT, "x", None)
    assert result.history[0].output == "x"
    assert result.history[0].interrupted


# Load.

REFUSED = [
    (lambda: Loop(echo, on_failure="stop"),
     "loop: on_failure: 'stop' is none of halt, continue, retry"),
    (lambda: Loop(echo, on_failure="retri"),
     "loop: on_failure: 'retri' is none of halt, continue, retry; did you mean 'retry'?"),
    (lambda: Loop(echo, keep="first"), "loop: keep: 'first' is none of best, last"),
    (lambda: Loop(echo, max_retries=-1), "loop: max_retries: -1 is too small; give at least 0"),
    (lambda: Loop(echo, min_iterations=0),
     "loop: min_iterations: 0 is too small; give at least 1"),
    (lambda: Loop(echo, min_iterations=1001),
     "loop: min_iterations: 1001 is above the ceiling of 1000; give at most 1000"),
    (lambda: Loop(echo, retry_delay=NAN), "loop: retry_delay: nan is not finite"),
    (lambda: Loop(echo, retry_delay=-1),
     "loop: retry_delay: -1 is out of range; give a number at least 0"),
    (lambda: Loop(echo, until=0.9), "loop: until: 0.9 is not a condition"),
    (lambda: Loop(echo, guards="timeout"), "loop: guards: 'timeout' is not a condition"),
    (lambda: Loop(echo, name="a/b"),
     "loop: name: 'a/b' has a slash; it is part of paths"),
    (lambda: Loop(step(echo, name="a/b")),
     "loop: name: 'a/b' has a slash; it is part of paths"),
    (lambda: Loop(3), "3 cannot be a step; give a function or a step"),
    (lambda: Loop(lambda a, b, c: a),
     "<lambda> takes 3 arguments; a step takes a value, or a value and a context"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_a_loop_that_cannot_mean_anything_is_refused(make: Any, message: str) -> None:
    """I10: what is wrong with a loop is said when it is made, with its place and what was expected."""
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert str(caught.value) == message


def test_a_loop_takes_the_tightest_of_its_budgets() -> None:
    """Several budgets bind unit by unit."""
    loop = Loop(echo, until=Budget(calls=5, usd=1.0) | Budget(calls=3), guards=Budget(tokens=9))
    assert loop.budget == Budget(calls=3, tokens=9, usd=1.0)
    assert Loop(echo).budget is None


def test_a_loop_has_the_nearest_of_its_deadlines() -> None:
    """Several timeouts and deadlines: the nearest counts."""
    loop = Loop(
        echo, until=Timeout(9) | Timeout(4),
        guards=Deadline("2030-01-01T00:00:00+00:00") | Deadline("2031-01-01T00:00:00+00:00"),
    )  # fmt: skip
    assert loop.seconds == 4
    assert loop.wall == Deadline("2030-01-01T00:00:00+00:00").timestamp()


def test_any_of_leaves_out_what_is_missing() -> None:
    """None where there is nothing, the one where there is one, an "or" of several."""
    assert any_of(None, None) is None
    assert any_of(None, Passed()) == Passed()
    assert any_of(Passed(), None, Timeout(3)) == Passed() | Timeout(3)


def test_a_loops_fingerprint_follows_its_meaning() -> None:
    """I41: another limit, step or policy is another fingerprint; the same loop is the same."""
    base = Loop(echo, until=MaxIterations(3))
    assert base.fingerprint == Loop(echo, until=MaxIterations(3)).fingerprint
    for other in (
        Loop(echo, until=MaxIterations(4)),
        Loop(echo, until=MaxIterations(3), keep="last"),
        Loop(echo, until=MaxIterations(3), min_iterations=2),
        Loop(echo, evaluate=echo, until=MaxIterations(3)),
        Loop(echo, until=MaxIterations(3), name="other"),
        Loop(step(_spend_one), until=MaxIterations(3), name="echo"),
    ):
        assert other.fingerprint != base.fingerprint


def test_a_decision_is_made_on_a_hand_made_history() -> None:
    """I7: `decide` is a pure function of what was recorded."""
    loop = scripted([0.1], until=ScoreAtLeast(0.9) | MaxIterations(3))
    assert loop.decide(history(0.1)) is None
    assert loop.decide(history(0.1, 0.95)) == Stop(
        Reason.CONDITION_MET, "score 0.95 is at least 0.9"
    )
    assert loop.decide(history(0.1, ERROR)) == Stop(Reason.ERROR, "iteration 2: execute: it broke")


def test_a_round_that_was_cut_short_is_no_failure_of_the_loop() -> None:
    """An interrupted record decides nothing: what cut it short does."""
    cut = Iteration(1, error=Failure("execute", "interrupted", "5 s used"), interrupted=True)
    assert scripted([0.1], until=MaxIterations(3)).decide(History([cut])) is None


def test_a_round_knows_where_it_is() -> None:
    """A step sees its run, iteration, history, last record and inputs through its context."""
    seen: list[Any] = []

    async def execute(value: Any, ctx: Context) -> int:
        seen.append(
            (ctx.iteration, len(ctx.history), ctx.last and ctx.last.output, ctx.initial, ctx.input)
        )
        assert ctx.run_id == "here"
        return ctx.iteration

    loop = Loop(execute, adapt=inline(lambda last: "next"), until=MaxIterations(3))
    play(loop, "first", run_id="here")
    assert seen == [
        (1, 0, None, "first", "first"), (2, 1, 1, "first", "next"), (3, 2, 2, "first", "next"),
    ]  # fmt: skip
