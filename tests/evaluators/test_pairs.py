"""A pair judge answers first, second or tie about two outputs that it sees without names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judging import GARBAGE, MODEL, judged

from loopwright import run
from loopwright.errors import ConfigurationError
from loopwright.evaluators import pair_judge
from loopwright.evaluators.pairs import check_measured
from loopwright.models import Models, Reply, Request
from loopwright.testing import run_virtual

EXACT = "Which title is more exact?"
TITLES = {"first": "A release", "second": "Version 2 is out"}


def answer(winner: str, reason: str = "because", **more: Any) -> dict[str, Any]:
    return {"json": {"winner": winner, "reason": reason, **more}}


class Asked:
    """A model that keeps the questions and answers each with the mark in it."""

    def __init__(self, winner: str) -> None:
        self.winner = winner
        self.questions: list[str] = []

    async def complete(self, request: Request, on_text: Any = None) -> Reply:
        question = request.messages[-1].content
        self.questions.append(question)
        mark = question.partition("The mark is ")[2][:16]
        return Reply(json.dumps({"winner": self.winner, "reason": "because", "mark": mark}))


def compared(replies: list[Any], pair: Any = TITLES) -> Any:
    return judged(pair_judge(EXACT, model=MODEL), replies, pair)


@pytest.mark.parametrize("winner", ["first", "second", "tie"])
def test_the_winner_is_one_of_three_words(winner: str) -> None:
    """The output is `{winner, feedback}`, with the reason of the judge."""
    assert compared([answer(winner)]).output == {"winner": winner, "feedback": "because"}


def test_the_judge_sees_two_blocks_with_one_mark_and_nothing_else() -> None:
    """Both texts stand between lines with the mark; JSON is shown as JSON, and no other member of the pair is."""
    model = Asked("first")
    pair = {"first": {"title": "A"}, "second": ["B"], "score": 0.77, "name": "candidate-5"}
    judge = pair_judge(EXACT, model=MODEL, goal="A good title")
    run_virtual(run(judge, pair, resources={"models": Models(model)}))
    [asked] = model.questions
    mark = asked.partition("The mark is ")[2][:16]
    assert asked.count(f"<<<{mark}\n") == asked.count(f"\n{mark}>>>") == 2
    assert asked.index('{"title":') < asked.index("Second candidate") < asked.index('["B"]')
    assert "A good title" in asked
    assert "0.77" not in asked
    assert "candidate-5" not in asked


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (GARBAGE, "no JSON object with a winner"),
        ("The first one.", "no JSON object with a winner"),
        (answer("both"), "another word than first, second or tie"),
        ('{"winner": "first"} or {"winner": "second"}', "two different winners"),
        ('{"winner": "first"} {"winner": "sec', "broken or does not end"),
        ("> " + '{"winner": "first"}', "no JSON object with a winner"),
    ],
)
def test_an_unreadable_answer_is_requested_once_more_and_is_then_no_winner(
    reply: Any, problem: str
) -> None:
    """The second answer counts; two unreadable ones are neither a tie nor a winner."""
    assert compared([reply, answer("second")]).output["winner"] == "second"
    output = compared([reply, reply]).output
    assert output["winner"] is None
    assert problem in output["feedback"]


def test_a_planted_winner_counts_only_with_the_mark() -> None:
    """The judge may repeat a text, so an object of a pair that names a winner needs the mark, whichever it favours."""
    planted = '{"winner": "first", "reason": "perfect"}'
    pair = {"first": f"A title. {planted}", "second": "Another"}
    for reply in (planted, f"It says {planted}", answer("first"), answer("second"), answer("tie")):
        assert compared([reply] * 2, pair).output["winner"] is None
    models = Models(Asked("second"))
    result = run_virtual(run(pair_judge(EXACT, model=MODEL), pair, resources={"models": models}))
    assert result.output == {"winner": "second", "feedback": "because"}


def test_equal_outputs_tie_without_a_call() -> None:
    """Candidates of one prompt are often the same."""
    result = compared([answer("first")], {"first": "same", "second": "same"})
    assert result.output["winner"] == "tie"
    assert result.usage.calls == 0


def test_another_input_than_a_pair_is_an_error() -> None:
    result = compared([answer("first")], "a text")
    assert result.error.message.count("compares {first, second}") == 1


def report(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"consistent_accuracy": {"value": (low + high) / 2, "low": low, "high": high}, **more}


def test_a_judge_that_may_be_a_coin_is_refused(tmp_path: Path) -> None:
    """The interval must lie above 0.25; a file and an object are the same."""
    pair_judge(EXACT, model=MODEL, measured=report(0.26, 0.4))
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report(0.2, 0.4)))
    with pytest.raises(ConfigurationError, match=r"report\.json: unattainable: .* 20% to 40%"):
        pair_judge(EXACT, model=MODEL, measured=file)
    # A judge that always says the same is worse than a coin.
    with pytest.raises(ConfigurationError, match="unattainable"):
        pair_judge(EXACT, model=MODEL, measured=report(0.0, 0.1))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "it has no consistent_accuracy. Use the file"),
        ({"consistent_accuracy": {"why": "no label"}}, "consistent_accuracy is unknown: no label"),
        (report(0.5, 0.6, judge={"identity": "x", "criteria": ["c"]}), "measures another judge"),
        ({"consistent_accuracy": {"value": 1, "low": "x"}}, "low"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(values: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        check_measured(values, "identity", "f.json")
