"""Evaluations that could not decide, and what a loop does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    Reason,
    ScoreAtLeast,
    Status,
    Undecided,
    resume,
    run,
)
from loopwright.documents import load
from loopwright.errors import ConfigurationError, DocumentError
from loopwright.evaluators import check, gates, judge
from loopwright.journal.questions import answer, checked, pending
from loopwright.models import Models, ScriptedModel
from loopwright.testing import dry_run_sync

from .support import UNDECIDED, judged, play

HEAD = """
schema: loopwright/1
name: note
model: openai:any
steps:
  - name: write
    loop:
      execute: {set: "a short text"}
      evaluate: [{check: {min_words: 2}}, {judge: {criterion: It is good., self_test: false}}]
      until: [passed, {max_iterations: 4}]
"""


def loop_of(policy: Undecided, *marks: object, **options: Any) -> Loop:
    """Return a loop with these evaluations by iteration; the last one is repeated."""
    calls: list[object] = []

    def evaluate(_: object) -> Evaluation | None:
        calls.append(None)
        return judged(marks[min(len(calls), len(marks)) - 1])

    until = options.pop("until", Passed() | ScoreAtLeast(0.9) | MaxIterations(5))
    return Loop(lambda v: v, evaluate, until=until, name="w", undecided=policy, **options)


def test_without_a_policy_the_second_one_ends_the_loop() -> None:
    """The default is that of earlier versions, and its fingerprint too."""
    assert play(loop_of(Undecided(), UNDECIDED)).reason is Reason.EVALUATOR_UNUSABLE
    assert Loop(str, str, undecided=Undecided()).fingerprint == Loop(str, str).fingerprint
    assert Loop(str, str, undecided=Undecided(3)).fingerprint != Loop(str, str).fingerprint


def test_after_is_the_number_in_a_row() -> None:
    """A verdict in between starts the count again."""
    assert play(loop_of(Undecided(3), UNDECIDED)).iterations == 3
    mixed = play(loop_of(Undecided(3), UNDECIDED, UNDECIDED, False, UNDECIDED))
    assert mixed.reason is Reason.MAX_ITERATIONS


def test_reject_is_not_met_without_a_score() -> None:
    """From the second one in a row on, each is rejected until the judge decides again."""
    result = play(loop_of(Undecided(2, "reject"), 0.5, UNDECIDED, UNDECIDED, UNDECIDED, 0.6))
    rows = [(item.score, item.passed, item.undecided) for item in result.history]
    assert rows == [
        (0.5, None, False), (None, None, True), (None, False, False), (None, False, False),
        (0.6, None, False),
    ]  # fmt: skip
    assert [item.evaluation.unjudged for item in result.history][2:4] == [True, True]
    assert result.reason is Reason.MAX_ITERATIONS


@pytest.mark.parametrize(
    ("given", "status", "score", "passed"),
    [
        ({"passed": True}, Status.SATISFIED, None, True),
        (True, Status.SATISFIED, None, True),
        ({"score": 0.95}, Status.SATISFIED, 0.95, None),
        ({"passed": False, "reason": "too long"}, Status.SUSPENDED, None, False),
    ],
)
async def test_pause_asks_a_person_for_the_verdict(
    given: Any, status: Status, score: float | None, passed: bool
) -> None:
    """The run is suspended before the iteration is recorded; its record has the verdict of the person."""
    journal = MemoryJournal()
    loop = loop_of(Undecided(2, "pause"), UNDECIDED)
    first = await run(loop, "x", journal=journal, run_id="r")
    assert (first.status, len(first.history)) == (Status.SUSPENDED, 1)
    (question,) = await pending(journal, "r")
    assert (question.path, question.kind) == ("w/2/verdict", "verdict")
    assert question.request["output"] == "x"
    await answer(journal, "r", question.path, given, who="Ann")
    result = await resume(loop, "r", journal=journal)
    assert result.status is status
    item = result.history[1]
    assert (item.score, item.passed, item.undecided) == (score, passed, False)
    assert item.evaluation.votes[-1]["person"] == (given if given is not True else {"passed": True})
    assert item.feedback == (given.get("reason", "") if isinstance(given, dict) else "")


@pytest.mark.parametrize("wrong", [None, 1, "yes", {}, {"passed": 1}, {"score": 2}, {"approve": True},
                                   {"passed": True, "score": 1}, {"score": float("nan")}])  # fmt: skip
async def test_another_answer_is_refused(wrong: Any) -> None:
    """A wrong form is one sentence, and the question stays open."""
    journal = MemoryJournal()
    await run(loop_of(Undecided(1, "pause"), UNDECIDED), "x", journal=journal, run_id="r")
    (question,) = await pending(journal, "r")
    with pytest.raises(ConfigurationError, match="w/1/verdict"):
        checked(question, wrong)
    assert await pending(journal, "r") == [question]


def checked_gates(good: bool) -> Any:
    """Return gates of a check and a judge that cannot decide, without a model."""
    return gates(check(lambda text: good, name="form"), judge("It is good.", model="openai:any"))


@pytest.mark.parametrize(("good", "status"), [(True, "satisfied"), (False, "exhausted")])
def test_accept_check_lets_the_checks_decide(good: bool, status: str) -> None:
    """Only the deterministic evaluators count then; the record and a warning say so."""
    policy = Undecided(2, "accept_check")
    loop = Loop(
        str, checked_gates(good), until=Passed() | MaxIterations(3), name="w", undecided=policy
    )
    resources = {"models": Models(ScriptedModel([{"replies": ["hm"] * 40}]))}
    result = play(loop, "x", journal=MemoryJournal(), resources=resources)
    assert result.status.value == status
    if good:
        assert [item.undecided for item in result.history] == [True, False]
        assert result.history[1].evaluation.unjudged
        assert ["decided alone" in warning for warning in result.warnings] == [True]


def test_accept_check_needs_a_check() -> None:
    """Without a deterministic evaluator there is nothing to accept."""
    with pytest.raises(
        ConfigurationError, match="accept_check needs a deterministic evaluator and a judge"
    ):
        loop_of(Undecided(2, "accept_check"), True)


@pytest.mark.parametrize(
    ("then", "reason", "iterations"),
    [
        ("fail", "evaluator_unusable", 2),
        ("reject", "max_iterations", 4),
        ("accept_check", "condition_met", 2),
        ("pause", "approval", 1),
    ],
)
async def test_a_document_has_the_same_key(
    then: str, reason: str, iterations: int, tmp_path: Path
) -> None:
    """`undecided` in YAML is the option of the loop."""
    file = tmp_path / "note.yaml"
    file.write_text(HEAD + f"      undecided: {{after: 2, then: {then}}}\n")
    models = Models(ScriptedModel([{"replies": ["hm"] * 40}]))
    result = await run(
        load(file).step,
        "x",
        journal=MemoryJournal(),
        resources={"models": models, "model": "openai:any"},
    )
    (loop,) = result.loops.values()
    assert (result.reason.value, loop.iterations) == (reason, iterations)


def test_a_document_without_a_check_is_refused_with_its_place(tmp_path: Path) -> None:
    """`accept_check` without a check is an error at load."""
    text = HEAD.replace("{check: {min_words: 2}}, ", "") + "      undecided: {then: accept_check}\n"
    file = tmp_path / "note.yaml"
    file.write_text(text)
    with pytest.raises(
        DocumentError,
        match=r"steps\[0\]\.loop\.undecided: .*accept_check needs a deterministic evaluator and a judge",
    ):
        load(file)


def test_a_dry_run_answers_the_question() -> None:
    """A rule for the question is its answer."""
    rules = [
        {"step": "*/verdict", "output": True},
        {"step": "*/evaluate", "output": {"undecided": True}},
        {"output": "x"},
    ]
    loop = loop_of(Undecided(1, "pause"), UNDECIDED)
    assert dry_run_sync(loop, "x", replies=rules).satisfied
