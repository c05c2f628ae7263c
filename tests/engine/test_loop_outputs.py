"""The loop: what an evaluation means, which output is kept, and what is reported of it."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import (
    AllCriteriaMet,
    Context,
    Criterion,
    Evaluation,
    Loop,
    MaxIterations,
    NoImprovement,
    OutputMatches,
    Passed,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Timeout,
)
from loopwright.errors import StepError

from .kept_files import TextSource
from .support import (
    ERROR,
    NAN,
    UNDECIDED,
    Script,
    echo,
    inline,
    play,
    scripted,
    verdict,
)

# Section 6: evaluation.


def test_undecided_moves_only_its_own_counter() -> None:
    """I17: an unreadable judge is neither satisfied nor a score of 0; two in a row end the loop."""
    once = play(scripted([0.5, UNDECIDED, 0.5, 0.5], until=NoImprovement(2)))
    assert (once.iterations, once.reason) == (4, Reason.NO_IMPROVEMENT)
    twice = play(scripted([0.5, UNDECIDED, UNDECIDED, 0.9], until=ScoreAtLeast(0.9)))
    assert (twice.status, twice.reason, twice.iterations, twice.output) == (
        Status.FAILED, Reason.EVALUATOR_UNUSABLE, 3, "output 0.5",
    )  # fmt: skip
    assert twice.detail == "the evaluation was undecided 2 times in a row"


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (NAN, "not_json", "output: nan is not a finite number"),
        (float("inf"), "not_json", "output: inf is not a finite number"),
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
    """An output that could not be judged is recorded and never the best; without any output that was
    judged it is the result's, because a draft is better than none (decision 0035)."""
    result = play(Loop(echo, Script([StepError("no")]), until=MaxIterations(1)), "text")
    assert result.history[0].output == "text"
    assert result.best is None
    assert result.output == "text"


def test_a_judged_output_is_preferred_to_one_that_nobody_judged() -> None:
    """I14, I27: while one iteration is eligible, a later failed evaluation changes no output."""
    judge = Script([0.2, StepError("no")])
    loop = Loop(Script(["a", "b"]), judge, until=MaxIterations(2), on_failure="continue")
    assert play(loop, "text").output == "a"


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
    ([UNDECIDED, ERROR, UNDECIDED], "best", "output undecided"),
    ([ERROR, ERROR], "best", None),
]


@pytest.mark.parametrize(("marks", "keep", "kept"), KEPT, ids=str)
def test_an_unsatisfied_loop_returns_its_best_or_its_last(
    marks: list[Any], keep: str, kept: Any
) -> None:
    """I14, I15, I27, H15, F12: all zero still has a best; a failed or undecided iteration is
    neither, and its output is returned only where no other can be (decision 0035)."""
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


# Judging again.


def judged_again(*votes: Any, **fields: Any) -> Result:
    """Run a loop of one round whose judge gives these votes, with two fresh ones at the end."""
    fields.setdefault("until", MaxIterations(1))
    loop = Loop(Script(["x"]), Script([verdict(v) for v in votes]), name="l", rejudge=2, **fields)
    return play(loop)


def test_the_output_is_judged_again_on_its_own_files() -> None:
    """In place at the end are the files of the last iteration, which is not always the best."""
    source = TextSource()

    def write(value: Any, ctx: Context) -> int:
        source.text.now = str(scores[ctx.iteration - 1])
        return ctx.iteration

    scores = (0.2, 0.9, 0.4)
    loop = Loop(
        write, lambda _: float(source.text.now), lambda last: 0, MaxIterations(3), rejudge=2, name="l",
        workspace=source,
    )  # fmt: skip
    result = play(loop, 0)
    assert (result.output, result.reported_score, source.text.now) == (2, 0.9, "0.9")


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
    assert (
        result.warnings[0]
        == "rejudge_failed: l: its output could not be judged again: the judge broke"
    )
    slow = Loop(
        Script(["x"]), Script([0.9], seconds=2), name="l", rejudge=2, until=MaxIterations(1),
        guards=Timeout(5),
    )  # fmt: skip
    late = play(slow)
    assert (late.reason, late.reported_score) == (Reason.MAX_ITERATIONS, 0.9)
    assert late.warnings[0] == "rejudge_failed: l: its output could not be judged again: 5 s used"


def test_what_an_inner_loop_had_is_not_lost_when_an_outer_guard_cuts_it() -> None:
    """Section 7: where nothing of the outer loop is eligible, the inner one's output is the result."""
    inner = Loop(Script(["x"], seconds=2), Script([0.4]), name="inner", until=MaxIterations(9))
    result = play(Loop(inner, name="outer", until=Timeout(5)))
    assert (result.reason, result.output, result.best) == (Reason.TIMEOUT, "x", None)
    assert result.history[0].output == "x"
    assert result.history[0].interrupted


def test_the_detail_of_an_unusable_evaluator_says_what_was_wrong_last() -> None:
    """`evaluator_unusable`: the sentence at the end has the reason of the last undecided evaluation."""

    def undecided(_: Any) -> Evaluation:
        return Evaluation(undecided=True, feedback="the judge could\nnot be read")

    result = play(Loop(echo, inline(undecided), until=Passed() | MaxIterations(4)), "text")
    assert result.detail == (
        "the evaluation was undecided 2 times in a row: the judge could not be read"
    )
