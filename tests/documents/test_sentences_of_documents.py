"""Sentences in `until` of documents: the same as in Python, with the settings of the document, and shown by `check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from documents.playing import crashed_everywhere, loaded, play
from engine.support import play as play_loop
from loopwright import Budget, Judged, Loop, MaxIterations, Reason, ScoreAtLeast
from loopwright.errors import DocumentError
from loopwright.evaluators import judge
from loopwright.ui.cli import main

YES = '{"verdict": "yes", "score": 90, "reason": "It does."}'
NO = '{"verdict": "no", "score": 10, "reason": "It does not."}'
LOOP = """
  - name: describe
    loop:
      execute: {prompt: "Describe {{ loop.initial }}. {{ loop.verdicts }}"}
"""
EITHER = f"""{LOOP}
      until: ["It names a colour.", "It names a number."]
      max_iterations: 3
"""
BOTH = f"""{LOOP}
      evaluate: {{score: {{of: {{prompt: "Rate, as score: N/10: {{{{ value }}}}"}}}}}}
      until:
        any_of:
          - all_of: [{{score_at_least: 0.8}}, "It names a colour."]
          - {{no_improvement: {{patience: 2}}}}
      max_iterations: 4
"""


def loop_in(found: Any) -> Loop:
    """Return the only loop of a document."""
    (step,) = found.step.parts()
    while not isinstance(step, Loop):
        (step,) = step.parts()
    return step


def test_a_list_of_sentences_ends_with_the_first_yes(tmp_path: Path) -> None:
    """No and yes satisfy the loop; the second sentence sees nothing of the first."""
    replies = [
        {"step": "*until/1*", "replies": [NO]},
        {"step": "*until/2*", "replies": [YES]},
        {"replies": ["Two houses."]},
    ]
    result = play(loaded(tmp_path, EITHER), replies, "a house")
    assert (result.reason, result.loops["describe"].iterations) == (Reason.CONDITION_MET, 1)
    item = result.loops["describe"].history[0]
    assert {text: v["passed"] for text, v in item.evaluation.verdicts.items()} == {
        "It names a colour.": False, "It names a number.": True,
    }  # fmt: skip
    assert (item.score, item.passed) == (None, None)


def test_a_score_and_a_sentence_can_be_met(tmp_path: Path) -> None:
    """The example of the page on conditions: the judge is asked only when the score is enough."""
    replies = [
        {"step": "*until/1*", "replies": [NO, YES]},
        {"step": "*evaluate*", "replies": ["score: 5/10", "score: 8/10", "score: 9/10"]},
        {"replies": ["A house.", "A tall house.", "A red house."]},
    ]
    result = play(loaded(tmp_path, BOTH), replies, "a house")
    history = result.loops["describe"].history
    assert (result.reason, [item.score for item in history]) == (
        Reason.CONDITION_MET, [0.5, 0.8, 0.9],
    )  # fmt: skip
    assert [list(item.evaluation.verdicts) for item in history] == [
        [], ["It names a colour."], ["It names a colour."],
    ]  # fmt: skip
    assert history[1].feedback == "score: 8/10\nIt names a colour: It does not."


@pytest.mark.parametrize("text", [EITHER, BOTH], ids=["either", "both"])
def test_a_run_killed_at_any_write_ends_as_one_without(text: str, tmp_path: Path) -> None:
    """Documents with sentences resume from every entry of their journal."""
    # By path, because a script begins again in a resumed run.
    replies = [
        {"step": "*/3/until/1*", "replies": [YES]},
        {"step": "*/until/*", "replies": [NO]},
        {"step": "*evaluate*", "replies": ["score: 9/10"]},
        {"replies": ["A house."]},
    ]
    crashed_everywhere(loaded(tmp_path, text), replies, "a house")


def test_a_document_and_python_have_the_same_tree(tmp_path: Path) -> None:
    """A text with a space, `judged` and `Judged` are one condition; the judge has the settings of the document."""
    text = f"""{LOOP}
      evaluate: {{check: {{min_words: 1}}}}
      until: ["It is kind.", {{judged: It is short.}}, {{judged: {{sentence: It is so., model: "openai:gpt-4o-mini"}}}}]
      max_iterations: 3
"""
    found = loop_in(loaded(tmp_path, text))
    tree = (
        Judged("It is kind.") | Judged("It is short.")
        | Judged("It is so.", model="openai:gpt-4o-mini") | MaxIterations(3)
    )  # fmt: skip
    assert found.until == tree
    models = [judge.model_settings.models for judge in found.sentences.values()]
    assert [names[0] for names in models] == [
        "openai:gpt-4o",
        "openai:gpt-4o",
        "openai:gpt-4o-mini",
    ]


def test_only_a_judge_of_its_own_is_asked_for_a_score(tmp_path: Path) -> None:
    """A sentence beside another gives a verdict and a reason; alone, it is the judge that it always was."""
    for loop in (
        loop_in(loaded(tmp_path, EITHER)),
        Loop(str, name="l", until=Judged("It is so.") | Judged("It is kind.") | MaxIterations(1)),
    ):
        for asked in loop.sentences.values():
            assert list(asked.model_settings.schema["required"]) == ["verdict", "reason", "mark"]
            messages = asked.question.messages("It is so.", "", "A text.", "0123456789abcdef")
            assert "score" not in " ".join(message.content for message in messages)
    alone = Loop(str, name="l", until=Judged("It is so.") | MaxIterations(1))
    assert alone.evaluate.fingerprint == judge("It is so.").fingerprint
    assert "score" in alone.evaluate.model_settings.schema["required"]


def test_sentences_are_refused_in_guards_and_without_a_check(tmp_path: Path) -> None:
    """A guard cannot wait for a judge, and `accept_check` needs a check."""
    guards = f"{LOOP}\n      guards: [{{judged: It is good.}}]\n"
    with pytest.raises(DocumentError, match="move it to until"):
        loaded(tmp_path, guards)
    policy = f"{EITHER}\n      undecided: {{after: 1, then: accept_check}}\n"
    with pytest.raises(DocumentError, match="accept_check needs a deterministic evaluator"):
        loaded(tmp_path, policy)


def test_check_shows_how_the_tree_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan says "or" and "and", when each sentence is asked, and that a check closes them all."""
    text = BOTH.replace(
        "evaluate: {score", "evaluate:\n        - check: {min_words: 1}\n        - {score"
    )
    found = loaded(tmp_path, text)
    assert found.plan()["until"] == [
        "describe ends when: (score_at_least(threshold=0.8) and 1 'It names a colour.') or "
        "no_improvement(patience=2) or max_iterations(limit=4)",
        "describe asks 1 after evaluate, if score_at_least(threshold=0.8) holds",
        "describe asks nothing about an output that a check refused",
    ]
    codes = {note.code for note in loaded(tmp_path, EITHER).lints()}
    assert "no_score" in codes
    main(["check", str(tmp_path / "main.yaml"), "--json", "--offline"])
    plan = json.loads(capsys.readouterr().out)["documents"][0]["plan"]
    assert plan["until"][1:] == [
        "describe asks 1 after evaluate", "describe asks 2 after evaluate, if 1 is not met",
    ]  # fmt: skip
    # Both sentences at most, each asked again once if it cannot be read.
    assert plan["worst_case_calls"] == 3 * (1 + 2 * 2)


# The controller, and verdicts that no condition reads.


def test_a_verdict_that_no_condition_reads_is_a_warning_once() -> None:
    """In a native loop `passed: true` beside a score that is too low goes on, with one warning."""

    def passes(_: str) -> dict[str, Any]:
        return {"confidence": 0.5, "passed": True}

    result = play_loop(
        Loop(str, passes, until=ScoreAtLeast(0.85) | MaxIterations(3), name="w"), "x"
    )
    assert (result.reason, result.iterations) == (Reason.MAX_ITERATIONS, 3)
    assert sum("no condition reads that" in note for note in result.warnings) == 1


@pytest.mark.parametrize("key", ["termination", "until"])
def test_the_json_of_a_controller_includes_passed(key: str, tmp_path: Path) -> None:
    """A confidence that is too low does not hold a loop whose judge says yes."""
    condition = "{type: combined, operator: AND, conditions: [{type: confidence, threshold: 0.95}, {type: max_iterations, limit: 3}]}"
    text = f"{LOOP}\n      evaluate: {{judge: It is good.}}\n      {key}: {condition}\n"
    result = play(
        loaded(tmp_path, text), [{"step": "*evaluate*", "replies": [YES]}, {"replies": ["a"]}], "x"
    )
    assert (result.reason, result.loops["describe"].iterations) == (Reason.CONDITION_MET, 1)


def test_check_notes_a_verdict_that_no_condition_reads(tmp_path: Path) -> None:
    """A judge beside a score only; with `passed` there is no note."""
    text = (
        f"{LOOP}\n      evaluate: {{judge: It is good.}}\n      until: [{{score_at_least: 0.9}}]\n"
    )
    assert "passed_unread" in {note.code for note in loaded(tmp_path, text).lints()}
    with_passed = text.replace("until: [", "until: [passed, ")
    assert "passed_unread" not in {note.code for note in loaded(tmp_path, with_passed).lints()}


def test_max_failures_takes_none(tmp_path: Path) -> None:
    """A loop that continues goes on to its limit, and has failed if every iteration did."""
    text = (
        f"{LOOP}\n      on_failure: continue\n      max_failures: none\n      max_iterations: 6\n"
    )
    result = play(loaded(tmp_path, text), [{"replies": [{"error": "permanent"}]}], "x")
    assert (result.reason, result.loops["describe"].iterations) == (Reason.ALL_FAILED, 6)
    with pytest.raises(DocumentError):
        loaded(tmp_path, text.replace("none", "never"))


def test_a_sentence_that_cannot_be_paid_ends_the_iteration(tmp_path: Path) -> None:
    """With calls for execute only, the iteration is interrupted before its sentence, and the loop ends by its budget."""
    found = loaded(tmp_path, EITHER)
    result = play(found, [{"replies": ["A house."]}], "a house", budget=Budget(calls=1))
    (item,) = result.loops["describe"].history
    assert (result.reason, item.interrupted, item.error.stage) == (Reason.BUDGET, True, "until")
    assert item.output == "A house."


def test_sentences_of_inner_loops_and_of_lists_are_their_own(tmp_path: Path) -> None:
    """Each loop asks at its own path; an inner yes does not end the loop around it."""
    text = """
  - name: all
    each:
      items: [one, two]
      execute:
        loop:
          execute:
            loop:
              execute: {prompt: "Write {{ input }}."}
              until: ["It is short.", "It is kind."]
          until: [{all_of: ["It is true.", "It is new."]}, {max_iterations: 2}]
"""
    replies = [
        {"step": "*/1/until/2*", "replies": [NO]},
        {"step": "*/until/*", "replies": [YES]},
        {"replies": ["a text"]},
    ]
    found = loaded(tmp_path, text)
    result = play(found, replies)
    assert (result.status.value, result.loops["all"].iterations) == ("satisfied", 2)
    crashed_everywhere(found, replies)
