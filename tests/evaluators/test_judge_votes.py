"""The judge: votes and what they cost, and what stands above a judge and beside it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import SHORT, judged, looped, no, unsure, yes

from loopwright import MemoryJournal
from loopwright.conditions import Budget
from loopwright.errors import ConfigurationError
from loopwright.evaluators import check, gates, judge
from loopwright.evaluators.judge import (
    Votes,
    best_rule,
    error_of_lead,
    error_rates,
    unattainable,
    votes_of,
)
from loopwright.records import Status

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
    found = error_rates(yes, rule, icc)
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
    found = error_rates(mean, rule, icc)
    error = (found.accept * (1 - found.accept) / count) ** 0.5
    assert abs(accepted / count - found.accept) <= 4.5 * error + 1e-9
    assert abs(asked / count - found.votes) <= 4.5 * rule.most / count**0.5


@pytest.mark.parametrize("lead", [1, 2, 3])
@pytest.mark.parametrize("accuracy", [0.7, 0.85, 0.95])
def test_the_programme_meets_the_closed_form(accuracy: float, lead: int) -> None:
    """Lead by d, asked without end, errs with 1 / (1 + (p/q)^d) after d(1-2e)/(2p-1) votes."""
    error, votes = error_of_lead(accuracy, lead)
    found = error_rates(1 - accuracy, Votes(lead, lead, 301))
    assert found.accept == pytest.approx(error, abs=1e-6)
    assert found.votes == pytest.approx(votes, abs=1e-3)


def test_a_lead_of_three_and_a_first_no_cost_little() -> None:
    """A judge of 85 % who needs three yes in the lead ships 4.4 % of ten bad drafts in 1.4 votes."""
    found = error_rates(0.15, Votes(3, 1, 7))
    assert 1 - (1 - found.accept) ** 10 == pytest.approx(0.044, abs=0.001)
    assert found.votes == pytest.approx(1.39, abs=0.01)


def test_unattainable_says_when_votes_cannot_help() -> None:
    """By the exact programme, an 85 % judge keeps 5 % in 7 votes up to a persistent share of 0.6."""
    told = [bool(unattainable(0.85, 0.85, share / 10)) for share in range(11)]
    assert told == [False] * 7 + [True] * 4
    assert "second judge" in unattainable(0.85, 0.85, 0.7)


@pytest.mark.parametrize("icc", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("accuracy", [0.7, 0.8, 0.9, 0.95])
def test_unattainable_is_exactly_where_no_rule_keeps_the_error(accuracy: float, icc: float) -> None:
    """The sentence and the advice use the same programme: over every rule of up to 7 votes."""
    for alpha in (0.01, 0.05, 0.1):
        rules = [
            Votes(accept, reject, most)
            for most in range(1, 8)
            for accept in range(1, most + 1)
            for reject in range(1, most + 1)
        ]
        kept = [
            rule
            for rule in rules
            if error_rates(1 - accuracy, rule, icc).accept <= alpha
            and error_rates(accuracy, rule, icc).accept >= 0.5
        ]
        best = best_rule(accuracy, accuracy, icc, alpha=alpha)
        assert bool(unattainable(accuracy, accuracy, icc, alpha=alpha)) is (not kept)
        assert (best is None) is (not kept)
        if best is not None:
            assert best.votes in kept
            assert best.false_reject == pytest.approx(
                min(1 - error_rates(accuracy, rule, icc).accept for rule in kept)
            )


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
