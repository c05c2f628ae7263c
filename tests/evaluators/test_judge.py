"""The judge: what it is asked, how its answer is read, and what a round makes of it."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import judged, looped, no, prompts_of, settled, unsure, yes

from loopwright import MemoryJournal, run
from loopwright.conditions import Budget
from loopwright.errors import ConfigurationError
from loopwright.evaluators.check import check
from loopwright.evaluators.gates import gates
from loopwright.evaluators.judge import Judge, judge
from loopwright.evaluators.questions import SHOWN, Preset, YesNo, mark_of, preset_question, shown
from loopwright.evaluators.votes import Votes, lead_error, outlook, unattainable, votes_of
from loopwright.models import Models, Reply
from loopwright.prompts import Asking
from loopwright.records import Evaluation, Reason, Status
from loopwright.testing import run_virtual

SHORT = "It is short."
PRESET = preset_question("quality/moderate")
GARBAGE = "I would rather say yes, but then again"


def evaluation(judge: Any, replies: Any, value: Any = "a draft") -> Evaluation:
    found = judged(judge, replies, value).output
    assert isinstance(found, Evaluation)
    return found


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
    assert "That could not be read" in prompts_of(records)[1]


def test_what_stays_unreadable_is_undecided_and_ends_the_loop_the_second_time() -> None:
    """Undecided is neither met nor a score of 0; twice in a row the judge is unusable."""
    records: list[Any] = []
    result = looped(judge(SHORT), None, resources=settled([GARBAGE], transcript=records.append))
    assert [item.undecided for item in result.history] == [True, True]
    assert [item.score for item in result.history] == [None, None]
    assert result.reason is Reason.EVALUATOR_UNUSABLE
    assert result.output is None
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
        (lambda p: '{"verdict": "yes", "score": 0.8}', None),
        (lambda p: '{"verdict": "yes", "score": 800}', None),
        (lambda p: '{"verdict": true, "score": 80}', None),
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


# Several criteria.


def test_criteria_are_judged_one_by_one_and_their_gaps_are_the_feedback() -> None:
    """Each has its verdict; the score is the mean, and what is missing is what adapt is told."""
    rules = [
        {"step": "*/criterion-1", "replies": [yes(80)]},
        {"step": "*/criterion-2", "replies": [no(20, "no date")]},
    ]
    found = evaluation(judge("It is short.", "It has a date."), rules)
    assert (found.passed, found.score) == (False, 0.5)
    assert found.feedback == "It has a date.: no date"
    assert found.improvements == ("It has a date.: no date",)
    assert [(c.name, c.passed, c.gap) for c in found.criteria] == [
        ("It is short.", True, ""), ("It has a date.", False, "no date"),
    ]  # fmt: skip


def test_one_unreadable_criterion_leaves_the_whole_undecided() -> None:
    """A mean over what could be read would not compare with the other rounds."""
    rules = [
        {"step": "*/criterion-1*", "replies": [yes()]},
        {"step": "*/criterion-2*", "replies": [GARBAGE]},
    ]
    found = evaluation(judge("It is short.", "It has a date."), rules)
    assert found.undecided
    assert found.feedback.startswith("It has a date.: the judge could not be read")


# Presets.


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
    """What names other criteria is no evaluation by this preset."""
    found = PRESET.read(Reply('{"accuracy.factually_correct": true}'), "text", "m")
    assert found.verdict.answer == "unparsable"


# Votes.


@given(
    yes=st.floats(0, 1), icc=st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    accept=st.integers(1, 3), reject=st.integers(1, 3), extra=st.integers(0, 4),
)  # fmt: skip
def test_the_programme_of_votes_is_a_chance(
    yes: float, icc: float, accept: int, reject: int, extra: int
) -> None:
    """Chances are in [0, 1] and the mean number of votes is between 1 and the most."""
    rule = Votes(accept, reject, max(accept, reject) + extra)
    found = outlook(yes, rule, icc)
    assert -1e-12 <= found.accept <= 1 + 1e-12
    assert 1 - 1e-12 <= found.votes <= rule.most + 1e-12


@pytest.mark.parametrize("icc", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("rule", [Votes(3, 1, 7), Votes(2, 2, 5), Votes(1, 1, 1), Votes(2, 1, 2)])
@pytest.mark.parametrize("mean", [0.15, 0.5, 0.85])
def test_the_exact_programme_agrees_with_simulated_votes(
    rule: Votes, mean: float, icc: float
) -> None:
    """20,000 looks of a simulated judge are within 4.5 standard errors of the exact chance."""
    rng = random.Random(f"{rule} {mean} {icc}")
    count, accepted, asked = 20_000, 0, 0
    for _ in range(count):
        own = mean
        if icc:
            own = rng.betavariate(mean * (1 - icc) / icc, (1 - mean) * (1 - icc) / icc)
        lead = votes = 0
        while True:
            votes += 1
            lead += 1 if rng.random() < own else -1
            if votes == rule.most or rule.decided(lead, votes):
                break
        accepted += lead >= rule.accept
        asked += votes
    found = outlook(mean, rule, icc)
    error = (found.accept * (1 - found.accept) / count) ** 0.5
    assert abs(accepted / count - found.accept) <= 4.5 * error + 1e-9
    assert abs(asked / count - found.votes) <= 4.5 * rule.most / count**0.5


@pytest.mark.parametrize("lead", [1, 2, 3])
@pytest.mark.parametrize("accuracy", [0.7, 0.85, 0.95])
def test_the_programme_meets_the_closed_form(accuracy: float, lead: int) -> None:
    """Lead by d, asked without end, errs with 1 / (1 + (p/q)^d) after d(1-2e)/(2p-1) votes."""
    error, votes = lead_error(accuracy, lead)
    found = outlook(1 - accuracy, Votes(lead, lead, 301))
    assert found.accept == pytest.approx(error, abs=1e-6)
    assert found.votes == pytest.approx(votes, abs=1e-3)


def test_a_lead_of_three_and_a_first_no_cost_little() -> None:
    """A judge of 85 % who needs three yes in the lead ships 4.4 % of ten bad drafts in 1.4 votes."""
    found = outlook(0.15, Votes(3, 1, 7))
    assert 1 - (1 - found.accept) ** 10 == pytest.approx(0.044, abs=0.001)
    assert found.votes == pytest.approx(1.39, abs=0.01)


def test_unattainable_says_when_votes_cannot_help() -> None:
    """At 5 % and 7 votes an 85 % judge can support it up to a persistent share below 0.6."""
    told = [bool(unattainable(0.85, 0.85, share / 10)) for share in range(11)]
    assert told == [False] * 6 + [True] * 5
    assert "second judge" in unattainable(0.85, 0.85, 0.6)


@given(st.lists(st.sampled_from([yes(), no(), unsure()]), min_size=7, max_size=7))
def test_votes_end_as_soon_as_a_side_leads_by_enough(script: list[Any]) -> None:
    """No vote is bought after the decision, and never is a first no accepted with reject_lead 1."""
    result = judged(judge(SHORT, accept_lead=3, max_votes=7), script)
    found: Any = result.output
    answers = [vote["answer"] for vote in found.votes]
    leads = [
        answers[: n + 1].count("YES") - answers[: n + 1].count("NO") for n in range(len(answers))
    ]
    rule = Votes(3, 1, 7)
    assert result.usage.calls == len(answers) <= 7
    assert not any(rule.decided(lead, n) for n, lead in enumerate(leads[:-1], start=1))
    assert len(answers) == 7 or rule.decided(leads[-1], len(answers))
    assert found.passed is (leads[-1] >= 3)
    assert not (answers[0] == "NO" and found.passed)


@pytest.mark.parametrize(
    ("script", "passed", "calls"),
    [([no(), yes()], False, 1), ([yes(), yes()], True, 2), ([yes(), no()], False, 2)],
)
def test_confirm_asks_again_before_it_accepts(script: Any, passed: bool, calls: int) -> None:
    """The first no ends the look; a yes must be said twice."""
    result = judged(judge(SHORT, confirm=True), script)
    found: Any = result.output
    assert (found.passed, result.usage.calls) == (passed, calls)


@pytest.mark.parametrize("given_", [(3, 4, 1), (1, 1, 2), (0, 1, 1)])
def test_a_lead_that_so_few_votes_cannot_give_is_refused(given_: tuple[int, int, int]) -> None:
    """It could never be accepted, or never be rejected."""
    most, accept, reject = given_
    with pytest.raises(ConfigurationError, match="votes"):
        votes_of(most, accept, reject, confirm=False)


# What stands above a judge, and beside it.


def test_a_check_that_fails_is_never_overruled() -> None:
    """The judge is not even asked, and what fails a gate scores 0."""
    result = looped(gates(check(contains="date"), judge(SHORT)), [yes(100)])
    assert result.status is Status.EXHAUSTED
    assert [item.score for item in result.history] == [0, 0, 0]
    assert result.usage.calls == 0


def test_the_reported_score_is_the_mean_of_fresh_votes_on_the_winner() -> None:
    """Judged again after the end; the score by which it was chosen stays what it was."""
    script = [no(60), no(80), no(70), yes(60), no(50)]
    journal = MemoryJournal()
    result = looped(judge(SHORT), script, rejudge=2, journal=journal)
    assert result.reported_score == pytest.approx(0.55)
    assert result.best is not None
    assert (result.best.number, result.best.score) == (2, 0.8)
    assert result.output == "draft 2"
    shown_ = result.to_json()
    assert shown_["loops"]["l"]["reported_score"] == pytest.approx(0.55)
    again = looped(judge(SHORT), [{"error": "permanent"}], rejudge=2, journal=journal)
    assert again.to_json() == shown_


def test_fresh_votes_that_do_not_fit_the_budget_are_a_warning() -> None:
    """The loop has ended, and what it has is not lost for a second opinion."""
    result = looped(judge(SHORT), [yes(90)], rejudge=2, budget=Budget(calls=1))
    assert result.satisfied
    assert result.reported_score is None
    assert "could not be judged again" in " ".join(result.warnings)


def test_a_self_test_warns_of_a_judge_that_accepts_anything() -> None:
    """Known-bad outputs are shown once, in the first round, for a warning each."""
    result = looped(judge(SHORT, self_test=True), [yes(), no(), yes(), no(), yes()])
    warned = [w for w in result.warnings if "accepts" in w]
    assert len(warned) == 2
    assert result.usage.calls == 5


def test_work_and_judging_are_counted_apart() -> None:
    """What is spent under `evaluate` is judging, all else is work; a replay counts the same."""
    journal = MemoryJournal()
    result = looped(judge(SHORT), [no(), yes()], journal=journal)
    shown_ = result.to_json()["usage_by"]
    assert shown_["judging"]["calls"] == 2
    assert shown_["work"]["calls"] == 0
    again = looped(judge(SHORT), [no()], journal=journal)
    assert again.to_json()["usage_by"] == shown_


def test_yes_no_is_asked_in_the_words_of_the_dialect() -> None:
    """One message without a system prompt, the answer read as the first word that stands alone."""
    made = Judge({"c": SHORT}, asking=Asking(("openai:m",)), question=YesNo())
    found = evaluation(made, ["YES, it is."])
    assert (found.passed, found.score) == (True, None)
    (message,) = YesNo().messages(SHORT, "goal", "text", "mark")
    assert message.content.startswith(f'Evaluate this condition: "{SHORT}"')


def test_neither_or_both_of_criteria_and_preset_is_refused() -> None:
    """A judge is asked one kind of question."""
    for given_ in ((), ("a",)):
        with pytest.raises(ConfigurationError, match="either criteria or a preset"):
            judge(*given_, preset="quality/strict" if given_ else "")
    assert isinstance(PRESET, Preset)
