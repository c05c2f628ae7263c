"""The loop: what is refused when it is made, and what can be asked of one."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import (
    AllCriteriaMet,
    Budget,
    Context,
    Deadline,
    Failure,
    History,
    Iteration,
    Loop,
    MaxIterations,
    NoImprovement,
    OutputMatches,
    Passed,
    Reason,
    ScoreAtLeast,
    Stop,
    Timeout,
    Usage,
    sequence,
    step,
)
from loopwright.engine.loop import any_of
from loopwright.engine.loop_options import NO_GOAL, NO_GOAL_SENTENCE
from loopwright.errors import ConfigurationError

from .support import (
    ERROR,
    NAN,
    echo,
    history,
    inline,
    play,
    scripted,
    spend_one,
)

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
     "loop: min_iterations: 1001 is above the ceiling of 1000; use at most 1000"),
    (lambda: Loop(echo, retry_delay=NAN), "loop: retry_delay: nan is not finite"),
    (lambda: Loop(echo, retry_delay=-1),
     "loop: retry_delay: -1 is out of range; give a number at least 0"),
    (lambda: Loop(echo, until=0.9), "loop: until: 0.9 is not a condition; use one, or several with | or & between them"),
    (lambda: Loop(echo, guards="timeout"),
     "loop: guards: 'timeout' is not a condition; use one, or several with | or & between them"),
    (lambda: Loop(None), "None cannot be a step; use a function or a step"),
    (lambda: Loop(echo, name=5), "loop: name: 5 is not text"),
    (lambda: Loop(echo, on_iteration="print"), "loop: on_iteration: 'print' is not a function"),
    (lambda: Loop(echo, on_terminate=1), "loop: on_terminate: 1 is not a function"),
    (lambda: Loop(echo, name="a/b"),
     "loop: name: 'a/b' has a slash; it is part of paths"),
    (lambda: Loop(step(echo, name="a/b")),
     "loop: name: 'a/b' has a slash; it is part of paths"),
    (lambda: Loop(3), "3 cannot be a step; use a function or a step"),
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
    paid = step(echo, reserve=Usage(calls=1))
    loop = Loop(paid, until=Budget(calls=5, usd=1.0) | Budget(calls=3), guards=Budget(tokens=9))
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
        Loop(step(spend_one), until=MaxIterations(3), name="echo"),
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


NOTHING_RETURNED = (
    "its evaluator returned neither a score nor a verdict, so it cannot be satisfied; "
    "return a score from 0 to 1, True or False, or an Evaluation"
)


@pytest.mark.parametrize(
    ("evaluate", "until", "told"),
    [
        (None, ScoreAtLeast(0.8), "it has no evaluate, so score_at_least could not hold"),
        (lambda _: None, ScoreAtLeast(0.8), NOTHING_RETURNED),
        (lambda _: True, ScoreAtLeast(0.8), "no iteration had a score, so score_at_least could not hold"),
        (lambda _: None, Passed(), NOTHING_RETURNED),
        (lambda _: 0.9, AllCriteriaMet(), "no iteration had criteria, so all_criteria_met could not hold"),
        (lambda _: 0.1, ScoreAtLeast(0.8), ""),
        (lambda _: 0.1, ScoreAtLeast(0.8) | Passed(), ""),
        (None, ScoreAtLeast(0.8) | OutputMatches("done"), ""),
        (None, NoImprovement(3), ""),
        (lambda _: False, Passed(), ""),
    ],
)  # fmt: skip
def test_a_condition_that_could_never_hold_is_told(evaluate: Any, until: Any, told: str) -> None:
    """A loop whose rounds were spent on a condition that nobody supplies says which one it is."""
    result = play(Loop(echo, evaluate and inline(evaluate), until=until | MaxIterations(2)), 1)
    assert result.reason is Reason.MAX_ITERATIONS
    others = [text for text in result.warnings if not text.startswith("passed_unread")]
    assert others == ([f"condition_not_applicable: echo: {told}"] if told else [])


def test_a_score_where_only_passing_counts_is_told_as_a_missing_goal() -> None:
    """`no_goal`: `Passed()` over scores alone lacks the score that is enough, also where it was given."""
    result = play(Loop(echo, inline(lambda _: 0.9), until=Passed() | MaxIterations(2)), 1)
    assert result.warnings == (f"{NO_GOAL}: echo: {NO_GOAL_SENTENCE}",)


def test_a_single_failed_iteration_is_told_in_the_singular() -> None:
    """`all_failed`: the detail counts the iterations."""

    def fails(_: Any) -> Any:
        raise ValueError("no")

    told = [
        play(Loop(inline(fails), until=MaxIterations(limit), on_failure="continue"), 1).detail
        for limit in (1, 2)
    ]
    assert told == [
        "its only iteration failed: ValueError: no",
        "all 2 iterations failed, the last with: ValueError: no",
    ]


def test_a_warning_of_many_loops_is_told_once() -> None:
    """What holds for every loop of a run is one warning, with the path at which it held first."""
    until = Passed() | MaxIterations(2)
    first, second = (Loop(echo, inline(lambda _: None), until=until, name=n) for n in ("a", "b"))
    result = play(sequence(first, second), 1)
    assert result.warnings == (f"condition_not_applicable: sequence/a: {NOTHING_RETURNED}",)
