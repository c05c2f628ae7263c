"""The judge: what it is asked, how its answer is read, and what a round makes of one that it cannot read."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import GARBAGE, SHORT, evaluation, looped, no, prompts_of, settled, unsure, yes

from loopwright import MemoryJournal, run
from loopwright.dialects.workflow_v2.compile import YesNo
from loopwright.evaluators import judge
from loopwright.evaluators.judge import Judge
from loopwright.evaluators.judge_questions import SHOWN, mark_of, shown
from loopwright.models import Models, Reply
from loopwright.prompts.settings import PromptSettings
from loopwright.records import Reason, Status
from loopwright.testing import run_virtual


@pytest.mark.parametrize(
    ("reply", "passed", "score"),
    [(yes(90), True, 0.9), (no(10), False, 0.1), (unsure(), False, 0.5), (no(90), False, 0.9)],
)
def test_a_verdict_is_yes_or_it_does_not_pass(reply: Any, passed: bool, score: float) -> None:
    """Yes passes; no and unsure do not; the score of 0 to 100 becomes one of 0 to 1."""
    found = evaluation(judge(SHORT), [reply])
    assert (found.passed, found.score, found.undecided) == (passed, score, False)


def test_a_yes_with_a_low_score_is_a_no_and_says_so() -> None:
    """Of a verdict and a score that contradict each other the stricter one counts."""
    found = evaluation(judge(SHORT), [yes(20)])
    assert found.passed is False
    assert found.votes == (
        {"condition": SHORT, "answer": "NO", "score": 0.2, "contradiction": True},
    )


def test_the_judge_is_told_goal_criterion_and_candidate() -> None:
    """Goal and criterion are verbatim, the candidate stands between two lines with its mark."""
    records: list[Any] = []
    model = settled([yes()], transcript=records.append)
    looped(judge("Has {{ braces }} & 'quotes'."), None, resources=model)
    (said,) = prompts_of(records)
    assert "Goal of the work:\nthe goal\n" in said
    assert "Criterion:\nHas {{ braces }} & 'quotes'.\n" in said
    (begin,) = [line for line in said.splitlines() if line.startswith("<<<")]
    assert f"{begin}\ndraft 1\n{begin[3:]}>>>" in said
    assert records[0]["temperature"] == 0


@given(st.text(), st.text())
def test_no_candidate_holds_its_own_mark(key: str, text: str) -> None:
    """The mark is made of a digest of the candidate, and is the same whenever it is made."""
    mark = mark_of(key, text)
    assert mark not in text
    assert mark == mark_of(key, text)
    assert mark != mark_of(key, text + mark)


def test_a_long_candidate_is_shown_with_a_note_of_what_is_left_out() -> None:
    """The judge sees the whole output, or its beginning and end and how much is missing."""
    text = "a" * SHOWN + "the end"
    assert shown("short") == "short"
    assert shown(text).startswith("aaa")
    assert shown(text).endswith("the end")
    assert "[… 7 characters omitted …]" in shown(text)


@pytest.mark.parametrize("value", ["", "  \n", None])
def test_an_empty_output_is_not_shown_to_a_judge(value: Any) -> None:
    """Nothing is no candidate: it fails without a call."""
    found = evaluation(judge(SHORT), [{"error": "permanent"}], value)
    assert (found.passed, found.score) == (False, 0.0)


# What cannot be read.


def test_an_answer_that_cannot_be_read_is_asked_for_once_more() -> None:
    """One re-ask, which says what was wrong; then the answer counts like any other."""
    records: list[Any] = []
    looped(judge(SHORT), None, resources=settled([GARBAGE, yes()], transcript=records.append))
    assert len(records) == 2
    asked = [message["content"] for message in records[1]["messages"][-2:]]
    assert asked[0] == GARBAGE
    assert asked[1].startswith(
        "Your verdict could not be read: no verdict was found in the reply. "
    )
    assert asked[1].endswith(" and nothing else.")


def test_what_stays_unreadable_is_undecided_and_ends_the_loop_the_second_time() -> None:
    """Undecided is neither met nor a score of 0; twice in a row the judge is unusable."""
    records: list[Any] = []
    result = looped(judge(SHORT), None, resources=settled([GARBAGE], transcript=records.append))
    assert [item.undecided for item in result.history] == [True, True]
    assert [item.score for item in result.history] == [None, None]
    assert result.reason is Reason.EVALUATOR_UNUSABLE
    assert result.output == "draft 2"
    assert len(records) == 4


def test_an_undecided_round_is_forgotten_by_the_next_good_one() -> None:
    """Only two undecided rounds in a row end a loop."""
    script = [GARBAGE, GARBAGE, no(), GARBAGE, GARBAGE, yes()]
    result = looped(judge(SHORT), script, rounds=5)
    assert [item.undecided for item in result.history] == [True, False, True, False]
    assert result.satisfied


@pytest.mark.parametrize(
    "reply", [{"error": "refused"}, {"text": "no", "finish": "content_filter"}]
)
def test_a_judge_that_refuses_is_undecided(reply: Any) -> None:
    """A refusal is an answer without a verdict: it is not asked again."""
    records: list[Any] = []
    result = looped(
        judge(SHORT), None, rounds=1, resources=settled([reply], transcript=records.append)
    )
    assert result.history[0].undecided
    assert len(records) == 1


@pytest.mark.parametrize("kind", ["permanent", "quota", "transient", "truncated"])
def test_an_error_of_the_judge_is_an_error(kind: str) -> None:
    """A judge that cannot be asked has not said no: the round has failed in `evaluate`."""
    journal = MemoryJournal()
    result = looped(judge(SHORT), [{"error": kind}], journal=journal)
    error = result.history[0].error
    assert error is not None
    assert (error.stage, result.status, result.history[0].passed) == (
        "evaluate",
        Status.FAILED,
        None,
    )


def test_on_failure_continue_goes_on_after_an_error_of_the_judge() -> None:
    """The error is on record and handed on; the next round is judged again."""
    result = looped(judge(SHORT), [{"error": "permanent"}, yes()], on_failure="continue")
    assert [item.error is not None for item in result.history] == [True, False]
    assert result.satisfied


def test_a_judge_never_fails_over() -> None:
    """Scores of two models cannot be compared, so the second model is not asked."""
    records: list[Any] = []
    both = judge(SHORT, model=["openai:gpt-4o", "openai:other"])
    looped(both, None, resources=settled([{"error": "permanent"}], transcript=records.append))
    assert {record["model"] for record in records} == {"gpt-4o"}


class Prose:
    """A model that knows of no schemas: it answers with the text that `answer` makes of a prompt."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def complete(self, request: Any, *, on_text: Any = None) -> Reply:
        return Reply(self.answer(request.prompt))


def mark_in(prompt: str) -> str:
    return prompt.split("<<<")[1][:16]


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        (lambda p: f"It holds.\nVERDICT {mark_in(p)}: YES", True),
        (lambda p: f"It does not.\n**VERDICT {mark_in(p)}: no**", False),
        (lambda p: '```json\n{"verdict": "yes", "score": 80, "reason": "r"}\n```', True),
        (lambda p: '{"verdict": "yes", "score": 0.8}', True),
        (lambda p: '{"verdict": "yes", "score": 800}', None),
        (lambda p: '{"verdict": true, "score": 80}', True),
        (lambda p: '{"verdict": "maybe", "score": 80}', None),
        (lambda p: "VERDICT: YES", None),
        (lambda p: "YES", None),
        (lambda p: f"VERDICT {mark_in(p)}: YES\nbut I am not sure", None),
    ],
)
def test_a_judge_without_schemas_signs_its_last_line(answer: Any, passed: bool | None) -> None:
    """A JSON object or the signed last line is a verdict; anything else cannot be read."""
    resources = {"models": Models(Prose(answer), known_prices=False), "model": "openai:any"}
    found: Any = run_virtual(run(judge(SHORT), "text", resources=resources)).output
    assert found.passed is passed
    assert found.undecided is (passed is None)


def test_a_signed_line_counts_where_the_schema_was_not_met() -> None:
    """What misses the schema may still be signed: the fault carries the text."""
    mark = mark_of(_key("r", "l/1/evaluate"), "draft 1")
    result = looped(judge(SHORT), [f"Fine.\nVERDICT {mark}: YES"])
    assert result.satisfied
    assert result.usage.calls == 1


def _key(run_id: str, path: str) -> str:
    return hashlib.sha256(f"{run_id}\n{path}".encode()).hexdigest()[:32]


def test_yes_no_is_asked_in_the_words_of_the_dialect() -> None:
    """One message without a system prompt, the answer read as the first word that stands alone."""
    made = Judge({"c": SHORT}, model_settings=PromptSettings(("openai:m",)), question=YesNo())
    found = evaluation(made, ["YES, it is."])
    assert (found.passed, found.score) == (True, None)
    (message,) = YesNo().messages(SHORT, "goal", "text", "mark")
    assert message.content.startswith(f'Evaluate this condition: "{SHORT}"')
