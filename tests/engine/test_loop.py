"""The loop: the order of an iteration and the precedence of a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from loopwright import (
    Budget,
    Condition,
    Context,
    Degrading,
    Evaluation,
    History,
    Iteration,
    Loop,
    MaxIterations,
    NoImprovement,
    Passed,
    PhaseLimit,
    Reason,
    RepeatedOutput,
    ScoreAtLeast,
    Status,
    Stop,
    Timeout,
    step,
)
from loopwright.engine.loop import any_of
from loopwright.engine.loop_options import DEFAULT_LIMIT

from .support import (
    ERROR,
    Script,
    echo,
    inline,
    play,
    scripted,
    spend_one,
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
    spend = step(spend_one)
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
    spent = play(Loop(step(spend_one), until=Budget(calls=2), min_iterations=5))
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
