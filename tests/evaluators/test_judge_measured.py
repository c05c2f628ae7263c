"""A judge that votes as measured: its leads, its refusals, and the warning of a judge that is used nevertheless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judging import SHORT, judged, looped, no, yes

from loopwright import Judged, Loop, MaxIterations
from loopwright.documents import load
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.evaluators import judge
from loopwright.evaluators.judge import Votes, best_rule, unattainable

GRID = [
    (sensitivity / 100, specificity / 100, icc / 10)
    for sensitivity in (70, 80, 90, 95)
    for specificity in (70, 80, 90, 95)
    for icc in (0, 3, 6, 9)
]
DOCUMENT = """
schema: loopwright/1
name: note
model: openai:any
steps:
- name: write
  loop:
    execute: {set: "a text"}
    evaluate: {judge: {criterion: It is short., measured: report.json, OPTIONS}}
    until: [passed, {max_iterations: 3}]
"""


def report(sensitivity: float, specificity: float, icc: float, **more: Any) -> dict[str, Any]:
    rows = {"sensitivity": sensitivity, "specificity": specificity, "icc": icc}
    return {**{name: {"value": value} for name, value in rows.items()}, **more}


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_a_judge_loads_exactly_where_the_programme_reaches_alpha(alpha: float) -> None:
    """Over a grid of rates: refused at load where no rule keeps the error, else the rule of the advice."""
    for rates in GRID:
        rule = best_rule(*rates, alpha=alpha)
        if rule is None:
            with pytest.raises(ConfigurationError, match="unattainable: no rule of up to 7 votes"):
                judge(SHORT, measured=report(*rates), alpha=alpha)
            assert unattainable(*rates, alpha=alpha)
        else:
            assert judge(SHORT, measured=report(*rates), alpha=alpha).votes == rule.votes


def test_correlated_votes_need_more_votes() -> None:
    """With a persistent share the rule asks for a larger lead, and accepts fewer good outputs."""
    free, shared = best_rule(0.9, 0.9, 0.0), best_rule(0.9, 0.9, 0.5)
    assert free is not None
    assert shared is not None
    assert shared.votes.accept > free.votes.accept
    assert shared.false_reject > free.false_reject
    assert judge(SHORT, measured=report(0.9, 0.9, 0.5)).votes == shared.votes


def test_the_judge_votes_as_measured() -> None:
    """It asks until the measured lead is reached."""
    evaluator = judge(SHORT, measured=report(0.95, 0.8, 0.0))
    assert evaluator.votes == Votes(3, 3, 7)
    result = judged(evaluator, [yes(), no(), yes(), yes(), yes()])
    assert (result.output.passed, result.usage.calls) == (True, 5)


def test_a_measured_judge_of_a_sentence_is_asked_as_it_was_measured() -> None:
    """Without its score it would be another judge; any other judge beside a sentence is asked for none."""
    measured = judge(SHORT, measured=report(0.95, 0.8, 0.0))
    others = judge("It is kind.", impossible=True)
    until = Judged(SHORT, judge=measured) | Judged("It is kind.", judge=others) | MaxIterations(1)
    loop = Loop(str, name="l", until=until)
    assert loop.sentences[SHORT] is measured
    asked = loop.sentences["It is kind."]
    assert list(asked.model_settings.schema["required"]) == ["verdict", "reason", "mark"]
    assert "impossible" in asked.model_settings.schema["properties"]["verdict"]["enum"]
    assert "score" not in asked.question.answer


def test_an_unattainable_judge_can_be_accepted_with_a_warning() -> None:
    """Every result says that the error is not kept."""
    evaluator = judge(SHORT, measured=report(0.7, 0.7, 0.9), accept_unattainable=True)
    assert evaluator.votes == Votes(7, 1, 7)
    result = looped(evaluator, [no()] * 3)
    assert ["unattainable: no rule" in w for w in result.warnings] == [True]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"icc": {"why": "too few: 40 of 100 cases"}}, "icc is unknown: too few: 40 of 100 cases"),
        ({"icc": None}, "it has no icc"),
        ({"sensitivity": {"value": float("nan")}}, "sensitivity"),
        (
            {"judge": {"identity": "0", "criteria": ["It is long."]}},
            "another judge \\('It is long.'\\)",
        ),
    ],
)
def test_a_report_that_does_not_fit_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    """One sentence names the figure."""
    with pytest.raises(ConfigurationError, match=sentence):
        judge(SHORT, measured={**report(0.9, 0.9, 0.1), **wrong})


@pytest.mark.parametrize("content", ["[1]", "{", "\x00"])
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    """The sentence names the file."""
    file = tmp_path / "report.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match="report.json: it is not"):
        judge(SHORT, measured=file)
    with pytest.raises(ConfigurationError, match="none.json: it cannot be read"):
        judge(SHORT, measured=tmp_path / "none.json")


def test_leads_beside_a_measurement_are_refused() -> None:
    """The measurement decides them."""
    with pytest.raises(ConfigurationError, match="measured decides the leads"):
        judge(SHORT, measured=report(0.9, 0.9, 0.1), accept_lead=2)


def test_a_report_of_this_judge_fits_whatever_its_votes() -> None:
    """The identity leaves out the voting rule."""
    mine = {"judge": {"identity": judge(SHORT, model="x:y", max_votes=5).identity}}
    rule = best_rule(0.9, 0.9, 0.1)
    assert rule is not None
    assert judge(SHORT, model="x:y", measured={**report(0.9, 0.9, 0.1), **mine}).votes == rule.votes


def written(folder: Path, options: str, values: Any) -> Path:
    (folder / "report.json").write_text(json.dumps(values))
    file = folder / "note.yaml"
    file.write_text(DOCUMENT.replace("OPTIONS", options))
    return file


@pytest.mark.parametrize(
    ("options", "values", "sentence"),
    [
        (
            "alpha: 0.05",
            report(0.7, 0.7, 0.9),
            "9:59: .*measured: report.json: unattainable: no rule",
        ),
        ("alpha: 0.05", [1], "report.json is not a JSON object"),
        ("accept_lead: 2", report(0.9, 0.9, 0.1), "measured decides the leads"),
        ("alpha: 2", report(0.9, 0.9, 0.1), "alpha"),
    ],
)
def test_a_document_is_refused_with_the_place(
    tmp_path: Path, options: str, values: Any, sentence: str
) -> None:
    """Problems of the report are problems of the document."""
    with pytest.raises(DocumentError, match=sentence):
        load(written(tmp_path, options, values))


def test_a_document_carries_the_report(tmp_path: Path) -> None:
    """The contents are kept with the documents, so a run continues when the file is gone."""
    loaded = load(written(tmp_path, "alpha: 0.05", report(0.95, 0.8, 0.0)))
    assert str(tmp_path / "report.json") in loaded.source["documents"]["files"]
    assert load(written(tmp_path, "alpha: 0.1, accept_unattainable: true", report(0.7, 0.7, 0.9)))


def test_alpha_without_a_measurement_is_refused(tmp_path: Path) -> None:
    """It has no meaning alone."""
    file = written(tmp_path, "alpha: 0.05", {})
    file.write_text(file.read_text().replace("measured: report.json, ", ""))
    with pytest.raises(DocumentError, match="alpha needs measured"):
        load(file)
