"""Evaluations: how an evaluator's answer is read, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.support import texts
from loopwright import Criterion, Evaluation, Iteration, Loop, ScoreAtLeast, run_sync
from loopwright.errors import EvaluationError
from loopwright.journal import MemoryJournal
from loopwright.records import as_evaluation

# Evaluations.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"feedback": "nul\0", "votes": [(1,)]}, Evaluation(feedback="nul", votes=([1],))),
        (Evaluation(0.5), Evaluation(0.5)),
        (None, Evaluation()),
        (True, Evaluation(passed=True)),
        (False, Evaluation(passed=False)),
        (0.25, Evaluation(0.25)),
        (1, Evaluation(1.0)),
        (0, Evaluation(0.0)),
        ({"score": 0.5, "feedback": "more"}, Evaluation(0.5, feedback="more")),
        ({"confidence": 0.5, "passed": None}, Evaluation(0.5)),
        ({"undecided": True}, Evaluation(undecided=True)),
        ({"undecided": "yes"}, Evaluation()),
        ({"feedback": None, "improvements": None, "criteria": None, "votes": None}, Evaluation()),
        ({"improvements": ["a", None]}, Evaluation(improvements=("a", ""))),
        ({"words": 3, 4: "x"}, Evaluation(details={"words": 3, "4": "x"})),
        ({"score": 1, "metrics": {"ms": 7, "mb": 0.5}}, Evaluation(1.0, metrics={"ms": 7, "mb": 0.5})),
        ({"metrics": {"ms": 7}}, Evaluation(metrics={"ms": 7})),
        ({"score": 1, "metrics": "many"}, Evaluation(1.0, details={"metrics": "many"})),
        ({"score": 1, "metrics": {"ok": True}}, Evaluation(1.0, details={"metrics": {"ok": True}})),
        ({"score": 1, "metrics": None}, Evaluation(1.0)),
        ({"criteria": [{"name": "n", "passed": True, "gap": None}, Criterion("m", False, "g")]},
         Evaluation(criteria=(Criterion("n", True), Criterion("m", False, "g")))),
    ],
)  # fmt: skip
def test_an_evaluators_answer_is_read(given: Any, expected: Evaluation) -> None:
    """A score, a verdict, an object or nothing: each shape has one meaning."""
    assert as_evaluation(given) == expected


END = "; return a score from 0 to 1, True or False, or an Evaluation"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("0.9", "a str is not an evaluation" + END),
        ([], "a list is not an evaluation" + END),
        ({"passed": "NO"}, "passed: 'NO' is not true or false" + END),
        ({"score": "0.5"}, "score: '0.5' is not a number" + END),
        ({"score": True}, "score: True is not a number" + END),
        ({"feedback": 3}, "feedback: 3 is not text" + END),
        ({"improvements": [3]}, "improvements: 3 is not text" + END),
        ({"criteria": [{"name": "n"}]},
         "criteria: {'name': 'n'} needs a name and passed: true or false" + END),
        (1.5, "score: 1.5 is not a finite number from 0 to 1; divide by the scale you use"),
        (85, "score: 85 is not a finite number from 0 to 1; divide by the scale you use"),
        (math.nan, "score: nan is not a finite number from 0 to 1; divide by the scale you use"),
        (-0.1, "score: -0.1 is not a finite number from 0 to 1; divide by the scale you use"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_is_an_evaluation_error(given: Any, message: str) -> None:
    """The error names the field, and is none that a retry could help."""
    with pytest.raises(EvaluationError) as caught:
        as_evaluation(given)
    assert str(caught.value) == message
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "given",
    [{"improvements": 3}, {"improvements": "text"}, {"criteria": 3}, {"criteria": {"a": 1}},
     {"votes": 3}, {"score": 1 << 2000}, {"votes": True}, {"votes": [{1}]}],
    ids=str,
)  # fmt: skip
def test_a_list_that_is_none_is_an_evaluation_error(given: Any) -> None:
    """I28: an object of the wrong shape inside is unreadable, not a crash; text is not a list."""
    with pytest.raises(EvaluationError):
        as_evaluation(given)


atoms = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | texts | st.just(b"x")
anything = atoms | st.lists(atoms, max_size=2)
objects = st.dictionaries(
    st.sampled_from(
        ["score", "passed", "feedback", "criteria", "votes", "improvements", "undecided", "metrics"]
    ),
    anything | st.lists(st.fixed_dictionaries({"name": anything, "passed": st.booleans()})),
    max_size=2,
)


@pytest.mark.parametrize(
    "metrics", [{"ms": "7"}, {"ms": math.inf}, {"ms": True}, [7], "ms"], ids=str
)
def test_metrics_are_finite_numbers_by_name(metrics: Any) -> None:
    """An Evaluation refuses other metrics; the error names the field."""
    with pytest.raises(EvaluationError, match="metrics: ") as caught:
        Evaluation(1.0, metrics=metrics)
    assert caught.value.kind == ("bad_metric" if metrics == {"ms": math.inf} else "bad_evaluation")


def test_metrics_are_recorded_and_every_reader_has_a_copy() -> None:
    """A metric goes to the journal and back as the same number, and a reader changes its own copy only."""
    measured = {"ms": 7, "share": 0.25}
    journal = MemoryJournal()

    def judge(output: str) -> Evaluation:
        return Evaluation(1.0, metrics=measured)

    def spoil(item: Iteration) -> None:
        assert item.evaluation is not None
        item.evaluation.metrics["ms"] = 8  # type: ignore[index]

    loop = Loop(str.upper, judge, until=ScoreAtLeast(0.9), on_iteration=spoil)
    for _ in range(2):
        result = run_sync(loop, "a", journal=journal, run_id="r")
        evaluation = result.history[0].evaluation
        assert evaluation is not None
        assert evaluation.metrics == measured
        assert [type(number) for number in evaluation.metrics.values()] == [int, float]
        assert evaluation.to_json()["metrics"] == measured


def test_a_misspelled_field_is_a_warning() -> None:
    """Unknown fields are details; one that is nearly the name of a field is reported with that name."""
    result = run_sync(Loop(str.upper, lambda text: {"scroe": 0.9}, max_iterations=1), "a")
    assert any(
        text.startswith("unknown_fields: ") and "'score'" in text for text in result.warnings
    )
    result = run_sync(Loop(str.upper, lambda text: {"words": 9}, max_iterations=1), "a")
    assert not any(text.startswith("unknown_fields") for text in result.warnings)
    assert result.history[0].evaluation == Evaluation(details={"words": 9})


@given(anything | objects)
def test_reading_an_evaluation_is_total(given: Any) -> None:
    """I16, I19: whatever an evaluator returns is a score in [0, 1] or an EvaluationError."""
    try:
        found = as_evaluation(given)
    except EvaluationError:
        return
    assert found.score is None or (math.isfinite(found.score) and 0 <= found.score <= 1)
    assert found.passed in (None, True, False)
    assert as_evaluation(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


@pytest.mark.parametrize("zero", [-0.0, {"score": -0.0}, Evaluation(-0.0)])
def test_minus_zero_becomes_zero(zero: Any) -> None:
    """I16: -0.0 is stored as 0.0."""
    score = as_evaluation(zero).score
    assert score == 0
    assert math.copysign(1, score) == 1


@pytest.mark.parametrize("score", [True, "0.5", math.nan, math.inf, -0.1, 1.1, 10**30])
def test_an_evaluation_holds_no_score_off_its_scale(score: Any) -> None:
    """I16: an Evaluation cannot be made with a score that is not a finite number in [0, 1]."""
    with pytest.raises(EvaluationError, match="is not a finite number from 0 to 1"):
        Evaluation(score)
