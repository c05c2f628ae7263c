"""Scores: read where they were said to stand; what cannot be read is undecided and never 0."""

from __future__ import annotations

from typing import Any

import pytest
from checking import found, same

from loopwright import Evaluation, Loop, MaxIterations, Passed, ScoreAtLeast, run_sync
from loopwright.errors import ConfigurationError
from loopwright.evaluators import score


@pytest.mark.parametrize(
    ("options", "output", "expected"),
    [
        ({}, "Good.\nSCORE: 0.85", 0.85),
        ({}, "score: 8/10", 0.8),
        ({"scale": (0, 10)}, "Score = 7", 0.7),
        ({"scale": (1, 5)}, "Score: 5", 1.0),
        ({"label": "quality"}, "score: 0.1\nquality: 93%", 0.93),
        ({"label": None}, " 0.5 ", 0.5),
        ({}, 0.25, 0.25),
        ({"scale": (0, 100)}, 93.7, 0.937),
        ({}, {"score": 0.5, "why": "…"}, 0.5),
        ({}, {"score": "8/10"}, 0.8),
        ({}, '{"score": 0.5, "why": "score: 0.9"}', 0.5),
        ({}, '```json\n{"score": 0.5}\n```', 0.5),
        ({"pattern": r"(\d+)/10"}, "10/10", 1.0),
        ({"pattern": r"(\d+)/10"}, "it is 9/10 of all", 0.9),
        ({"pattern": r"rated (\d)"}, "Rated 1. RATED 0", 0.0),
        ({"pattern": r"\d of (\d)", "scale": (0, 5)}, "part 5 of 5", 1.0),
        ({"pattern": r"0\.\d+"}, "about 0.75 I would say", 0.75),
        ({"pattern": r"[()](?:x|(?P<n>\d))\\?\(?"}, "(1", 1.0),
        ({"pattern": r"grade:\s*([0-9.]+)"}, "grade: 0.9.", 0.9),
        ({"pattern": r"(?<=is )([0-9.]+)"}, "it is 0.4 now", 0.4),
    ],
)
def test_a_score_is_read_where_it_was_said_to_stand(
    options: dict[str, Any], output: Any, expected: float
) -> None:
    """By label, by pattern, as a member or as the whole output, on the declared scale."""
    evaluation = found(score(**options), output)
    assert (evaluation.score, evaluation.passed) == (expected, None)


@pytest.mark.parametrize(
    ("options", "output", "problem"),
    [
        ({}, "no number", "missing"),
        ({}, "Score: 1,234", "unreadable"),
        ({}, "Score: 0.8-0.9", "unreadable"),
        ({}, "Score: 1.5", "out_of_range"),
        ({}, {"grade": 1}, "missing"),
        ({}, {"score": None}, "unreadable"),
        ({}, True, "unreadable"),
        ({}, 2, "out_of_range"),
        ({"scale": (0, 10)}, -1, "out_of_range"),
        ({"label": None}, {"a": 1}, "missing"),
        ({"pattern": r"(\d)|x"}, "x", "missing"),
        ({"pattern": r"got (\d+)"}, "got 0,85", "unreadable"),
    ],
)
def test_what_cannot_be_read_is_undecided_and_never_0(
    options: dict[str, Any], output: Any, problem: str
) -> None:
    """The feedback names the problem, the vote keeps what was found."""
    evaluation = found(score(**options), output)
    assert (evaluation.undecided, evaluation.score, evaluation.passed) == (True, None, None)
    assert evaluation.feedback
    assert evaluation.votes[0]["problem"] == problem


def test_differing_scores_are_noted_and_the_last_holds() -> None:
    """An ambiguous reply is a reply; the note is in the record."""
    evaluation = found(score(), "score: 0.2\nscore: 0.9")
    assert evaluation.score == 0.9
    assert evaluation.votes == ({"found": ["0.2", "0.9"], "ambiguous": True},)
    assert found(score(), "score: 0.9\nscore: 0.9").votes == ()


def test_a_score_may_be_that_of_a_step() -> None:
    """`of` is asked about the output; its reply is read, and is the feedback."""
    loop = Loop(
        same,
        score(of=lambda text: f"{text} is weak\nscore: 0.3"),
        until=Passed() | MaxIterations(1),
    )
    result = run_sync(loop, "It")
    evaluation = result.history[0].evaluation
    assert evaluation == Evaluation(0.3, feedback="It is weak\nscore: 0.3")


@pytest.mark.parametrize(
    "options", [{"label": ""}, {"scale": (1, 0)}, {"pattern": "("}, {"scale": (0, float("nan"))}]
)
def test_a_score_that_could_not_be_read_is_refused(options: dict[str, Any]) -> None:
    """Label, scale and pattern are checked when the evaluator is made."""
    with pytest.raises(ConfigurationError):
        score(**options)


def test_an_unreadable_judge_ends_the_loop_as_unusable() -> None:
    """Undecided twice in a row is a failed loop and not a score of 0."""
    result = run_sync(Loop(same, score(), until=ScoreAtLeast(0.5)), "no number")
    assert (result.status, result.reason, result.iterations) == ("failed", "evaluator_unusable", 2)
