"""Checks by functions: the ways to answer, and what becomes of one that breaks."""

from __future__ import annotations

from typing import Any

import pytest
from checking import error, found

from loopwright import Criterion, Evaluation
from loopwright.errors import StepError
from loopwright.evaluators import check


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, Evaluation(1.0, True, criteria=(Criterion("f", True),))),
        (
            False,
            Evaluation(
                0.0,
                False,
                "f: it does not hold",
                ("f: it does not hold",),
                (Criterion("f", False, "it does not hold"),),
            ),
        ),
        (Criterion("tone", True), Evaluation(1.0, True, criteria=(Criterion("tone", True),))),
        (0.4, Evaluation(0.4)),
        (Evaluation(0.4, None, "so so"), Evaluation(0.4, None, "so so")),
        ({"confidence": 0.5, "passed": True}, Evaluation(0.5, True)),
    ],
)
def test_a_function_may_answer_in_many_ways(answer: Any, expected: Evaluation) -> None:
    """True, False, a Criterion, a score, an Evaluation or an object are read as one."""
    assert found(check(lambda value: answer, name="f"), "x") == expected


def test_a_function_may_give_a_list_of_criteria() -> None:
    """Each is kept, and all must hold."""
    parts = [Criterion("a", True), Criterion("b", False, "no b")]
    evaluation = found(check(lambda value: parts), "x")
    assert (evaluation.criteria, evaluation.feedback) == (tuple(parts), "b: no b")


@pytest.mark.parametrize(("value", "passed"), [(0.79, False), (0.8, True), (1, True)])
def test_a_score_passes_from_where_it_was_said(value: float, passed: bool) -> None:
    """With at_least a score has a verdict, and says by how much it fell short."""
    evaluation = found(check(lambda _: value, name="f", at_least=0.8), "x")
    assert (evaluation.score, evaluation.passed) == (value, passed)
    assert evaluation.feedback == ("" if passed else "f: scores 0.79, below 0.8")


def test_a_verdict_of_its_own_outranks_at_least() -> None:
    """An evaluation that has a verdict keeps it."""
    evaluation = Evaluation(0.2, True)
    assert found(check(lambda _: evaluation, at_least=0.9), "x") == evaluation


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda value: None,
            "check f returned None. Return True or False, a score or an Evaluation.",
        ),
        (lambda value: 1 / 0, "check f raised ZeroDivisionError: division by zero"),
        (lambda value: value["a"], "check f raised TypeError: string indices must be integers"),
    ],
)
def test_a_function_that_breaks_is_a_check_error(function: Any, message: str) -> None:
    """An error of the check is not "not passed"."""
    kind, said = error(check(function, name="f"))
    assert (kind, said[: len(message)]) == ("check_error", message)


def test_an_error_that_names_its_kind_keeps_it() -> None:
    """A StepError of the function is passed on as it is."""

    def quota(value: Any) -> bool:
        raise StepError("the account is empty", kind="quota", retryable=False)

    assert error(check(quota)) == ("quota", "the account is empty")


def test_a_function_may_ask_its_context_and_be_async() -> None:
    """The forms of a step are those of a check."""

    async def later(value: Any, ctx: Any) -> bool:
        return bool(ctx.path == "same/1/evaluate" and value == "x")

    assert found(check(later), "x").passed
