"""The judge: several criteria, each with its gap, and presets with their weights."""

from __future__ import annotations

from typing import Any

import pytest
from judging import GARBAGE, PRESET, evaluation, judged, no, yes

from loopwright.dialects.orka.presets import PresetQuestion
from loopwright.errors import ConfigurationError
from loopwright.evaluators import judge, rubric, score
from loopwright.evaluators.judge_questions import preset_question
from loopwright.models import Reply


def test_criteria_are_judged_one_by_one_and_their_gaps_are_the_feedback() -> None:
    """Each has its verdict; the score is the mean, and what is missing is what adapt is told."""
    rules = [
        {"step": "*/It is short.", "replies": [yes(80)]},
        {"step": "*/It has a date.", "replies": [no(20, "no date")]},
    ]
    found = evaluation(judge("It is short.", "It has a date."), rules)
    assert (found.passed, found.score) == (False, 0.5)
    assert found.feedback == "It has a date.: no date"
    assert found.improvements == ("It has a date.: no date",)
    assert [(c.name, c.passed, c.gap) for c in found.criteria] == [
        ("It is short.", True, ""), ("It has a date.", False, "no date"),
    ]  # fmt: skip


def test_own_criteria_have_weights_and_their_names_in_the_record() -> None:
    """The score is the weighted mean, and each criterion is judged under its own name."""
    rules = [
        {"step": "*/It is short.", "replies": [yes(80)]},
        {"step": "*/It has a date.", "replies": [no(20, "no date")]},
    ]
    weights = {"It is short.": 3, "It has a date.": 1}
    found = evaluation(judge("It is short.", "It has a date.", weights=weights), rules)
    assert found.score == 0.65
    with pytest.raises(ConfigurationError, match="no criterion 'It is shrt.'; did you mean"):
        judge("It is short.", "It has a date.", weights={"It is shrt.": 3})


def test_one_unreadable_criterion_leaves_the_whole_undecided() -> None:
    """A mean over what could be read would not compare with the other rounds."""
    rules = [
        {"step": "*/It is short.*", "replies": [yes()]},
        {"step": "*/It has a date.*", "replies": [GARBAGE]},
    ]
    found = evaluation(judge("It is short.", "It has a date."), rules)
    assert found.undecided
    assert found.feedback.startswith("It has a date.: the judge could not be read")


def booleans(failing: tuple[str, ...] = (), reason: str = "r") -> dict[str, Any]:
    return {"json": {**{name: name not in failing for name in PRESET.weights}, "reason": reason}}


@pytest.mark.parametrize(
    ("failing", "score", "passed"),
    [
        ((), 1.0, True),
        (("relevance.stays_on_topic",), 0.95, True),
        (("completeness.comprehensive_answer",), 0.82, False),
        (("accuracy.factually_correct", "accuracy.addresses_question"), 0.6, False),
        (tuple(PRESET.weights), 0.0, False),
    ],
)
def test_a_preset_is_one_call_with_a_weighted_score(
    failing: tuple[str, ...], score: float, passed: bool
) -> None:
    """Booleans by criterion, summed by weight; passed from the preset's own approval line (0.85)."""
    result = judged(judge(preset="quality/moderate"), [booleans(failing)])
    found: Any = result.output
    assert (found.score, found.passed) == (pytest.approx(score), passed)
    assert found.improvements == failing
    assert {c.name for c in found.criteria if not c.passed} == set(failing)
    assert result.usage.calls == 1


def test_weights_go_over_those_of_a_preset_and_still_sum_to_one() -> None:
    """The rest keeps its proportions."""
    made = preset_question("quality/strict", {"relevance.stays_on_topic": 1.0})
    assert sum(made.weights.values()) == pytest.approx(1)
    assert max(made.weights, key=lambda name: made.weights[name]) == "relevance.stays_on_topic"


@pytest.mark.parametrize(
    ("name", "weights", "said"),
    [
        ("quality", None, "context/level"),
        ("qualty/strict", None, "did you mean 'quality'"),
        ("quality/strickt", None, "did you mean 'strict'"),
        (
            "quality/strict",
            {"relevance.stay_on_topic": 1},
            "did you mean 'relevance.stays_on_topic'",
        ),
    ],
)
def test_a_wrong_preset_is_told_with_the_nearest(name: str, weights: Any, said: str) -> None:
    """A name nobody knows is an error before anything runs."""
    with pytest.raises(ConfigurationError, match=r"did you mean|context/level") as told:
        judge(preset=name, weights=weights)
    assert said in str(told.value)


def test_a_preset_answer_without_half_of_the_criteria_cannot_be_read() -> None:
    """What names other criteria is not an evaluation by this preset."""
    found = PRESET.read(Reply('{"accuracy.factually_correct": true}'), "text", "m")
    assert found.verdict.answer == "unparsable"


def test_neither_or_both_of_criteria_and_preset_is_refused() -> None:
    """A judge is asked one kind of question."""
    for given_ in ((), ("a",)):
        with pytest.raises(ConfigurationError, match="either criteria or a preset"):
            judge(*given_, preset="quality/strict" if given_ else "")
    assert isinstance(PRESET, PresetQuestion)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: judge(["a", "b"]), r"judge: \['a', 'b'\] is not a criterion"),  # type: ignore[arg-type]
        (lambda: judge(5), "judge: 5 is not a criterion"),  # type: ignore[arg-type]
        (lambda: judge("  "), "judge: '  ' is not a criterion"),
        (lambda: rubric(["a"]), r"rubric: \['a'\] is not a criterion"),  # type: ignore[arg-type]
        (lambda: score(label=5), "score: label: 5 is not a text"),  # type: ignore[arg-type]
        (lambda: score(scale=10), "score: scale: 10 is not two numbers"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_an_evaluator_of_something_else_is_refused(make: Any, told: str) -> None:
    """What is no sentence, label or scale is told when the evaluator is made."""
    with pytest.raises(ConfigurationError, match=told):
        make()
