"""Several models that must agree: what a vote is, who wins, and what happens without agreement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from documents.playing import crashed_everywhere, loaded, play
from loopwright.dialects.workflow_v2.steps import VERDICTS, votes_of
from loopwright.errors import DocumentError

GATE = """\
  - name: gate
    consensus:
      prompt: "Is {{{{ input }}}} good? Answer KEEP or DROP"
      voters: [{{model: "openai:m"}}, {{model: "anthropic:m"}}, {{model: "gemini:m"}}]
      {more}
"""


def voters(*answers: Any) -> list[dict[str, Any]]:
    """Return the replies of voters in order."""
    return [{"step": f"*/voter-{i}", "replies": [a]} for i, a in enumerate(answers, start=1)]


@pytest.mark.parametrize(
    ("answers", "offered", "votes", "outputs"),
    [
        (["YES", "no", "Yes."], [], ["YES", "NO", "YES"], ["YES", "NO", "YES"]),
        (["**APPROVED** as it is", "approve"], [], ["APPROVED", "APPROVED"], ["APPROVED", "APPROVE"]),
        (["Failed: two tests", "FAIL"], [], ["FAIL", "FAIL"], ["FAILED", "FAIL"]),
        (["KEEP it", "drop it"], ["KEEP", "DROP"], ["KEEP", "DROP"], ["KEEP", "DROP"]),
        (["KEEP it", "KEEP me"], [], ["KEEP IT", "KEEP ME"], ["KEEP it", "KEEP me"]),
        (["Well, it is fine", "Well, it is bad"], [], ["WELL, IT IS FINE", "WELL, IT IS BAD"], None),
        (["It was a success", "SUCCESS!"], [], ["SUCCESS", "SUCCESS"], ["It was a success", "SUCCESS!"]),
        (["success, no failure", "FAIL"], [], ["SUCCESS", "FAIL"], ["SUCCESS", "FAIL"]),
        (["a success with a failure", "all FAIL"], [], ["FAIL", "FAIL"], None),
        (["  a  B\n", "A b"], [], ["A B", "A B"], None),
        (["yes", ""], [], ["YES", ""], ["yes", ""]),
        (["a yes", "no"], [], ["A YES", "NO"], ["a yes", "no"]),
        (["A", "B", "C", "D"], ["A", "B", "C", "D"], ["A", "B", "C", "D"], None),
    ],
)  # fmt: skip
def test_a_vote_is_a_verdict_where_all_give_one(
    answers: list[str], offered: list[str], votes: list[str], outputs: list[str] | None
) -> None:
    """All answers begin with a verdict: they vote by it. Else SUCCESS, FAIL, or the whole text."""
    assert votes_of(answers, offered) == (votes, answers if outputs is None else outputs)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_votes_are_total_and_in_order(answers: list[str]) -> None:
    """Any texts give one vote each, equal texts equal votes."""
    votes, outputs = votes_of(answers)
    assert len(votes) == len(outputs) == len(answers)
    assert all(votes[i] == votes[answers.index(answer)] for i, answer in enumerate(answers))


@given(st.sampled_from(sorted(VERDICTS)), st.sampled_from(["", ".", ", because", "\n\nwhy: it is"]))
def test_what_follows_a_verdict_changes_nothing(word: str, rest: str) -> None:
    """The explanation after a verdict has no vote."""
    assert votes_of([word, word.lower() + rest])[0] == [VERDICTS[word]] * 2


@pytest.mark.parametrize(
    ("require", "answers", "status"),
    [
        ("unanimous", "yyy", "satisfied"), ("unanimous", "yyn", "failed"),
        ("2/3", "yyn", "satisfied"), ("2/3", "yxn", "failed"),
        ("majority", "yny", "satisfied"), ("majority", "yxn", "failed"),
    ],
)  # fmt: skip
def test_how_many_must_agree(tmp_path: Path, require: str, answers: str, status: str) -> None:
    """All, two thirds, or more than half of the answers."""
    said = {"y": "Yes", "n": "No", "x": "It depends"}
    replies = voters(*(said[a] for a in answers))
    result = play(loaded(tmp_path, GATE.format(more=f"require: {require}")), replies, "it")
    assert result.status == status
    if status == "satisfied" and "x" not in answers:
        assert result.output == "YES"
    if status == "failed":
        assert f"no consensus: {require} is required" in result.detail


def test_ties_go_to_the_vote_that_was_given_first(tmp_path: Path) -> None:
    """Of as many votes the first in the list wins, whoever answered first."""
    text = GATE.format(more="require: 2/3").replace(', {model: "gemini:m"}', "")
    result = play(loaded(tmp_path, text), voters({"text": "KEEP", "after": 9}, "drop"))
    assert "the answers are 'KEEP' 1, 'DROP' 1" in result.detail


def test_all_are_asked_at_once(tmp_path: Path) -> None:
    """The time is that of the slowest."""
    slow = {"text": "KEEP", "after": 9}
    result = play(loaded(tmp_path, GATE.format(more="")), voters(slow, slow, slow))
    assert result.seconds == pytest.approx(9)
    assert (result.output, result.usage.calls) == ("KEEP", 3)


def test_voters_without_an_answer_are_left_out(tmp_path: Path) -> None:
    """Two answers are enough, with a warning; one is not, and allow_failures: false takes none."""
    broken = {"error": "permanent"}
    found = loaded(tmp_path, GATE.format(more=""))
    result = play(found, voters("keep", broken, "keep"))
    assert result.output == "KEEP"
    assert "a voter gave no answer and is left out" in result.warnings[0]
    result = play(found, voters("keep", broken, broken))
    assert "2 of 3 voters gave no answer" in result.detail
    strict = loaded(tmp_path, GATE.format(more="allow_failures: false"))
    assert "1 of 3 voters gave no answer" in play(strict, voters("keep", broken, "keep")).detail


def test_no_consensus_is_not_tried_again(tmp_path: Path) -> None:
    """Asking the same again would give the same: on_failure: retry asks once."""
    text = GATE.format(more="require: unanimous") + "    on_failure: retry\n"
    result = play(loaded(tmp_path, text), voters("keep", "drop", "keep"))
    assert (result.status, result.usage.calls) == ("failed", 3)


def test_a_crash_anywhere_changes_nothing(tmp_path: Path) -> None:
    """I35: killed at every journal write and taken up again, the result is the same."""
    replies = voters("keep", {"error": "permanent"}, "keep")
    crashed_everywhere(loaded(tmp_path, GATE.format(more="")), replies)


def test_a_voter_without_a_model_is_a_problem(tmp_path: Path) -> None:
    """A voter has a model of its own, or that of the document."""
    text = "schema: loopwright/1\nname: main\nsteps:\n" + GATE.format(more="")
    files = {"main.yaml": text.replace('{model: "gemini:m"}', "{temperature: 0}")}
    with pytest.raises(DocumentError, match=r"voters\[2\]: no model is set"):
        loaded(tmp_path, files)
