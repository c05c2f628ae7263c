"""Gates: one that fails ends the look, and nothing overrules it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from checking import found, same

from loopwright import (
    Confirm,
    Criterion,
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    run,
    run_sync,
    step,
)
from loopwright.errors import ConfigurationError
from loopwright.evaluators import check, checklist, gates, score
from loopwright.evaluators.check import verdict


def saying(**fields: Any) -> Any:
    """Return an evaluator that always says the same."""
    return step(lambda value: Evaluation(**fields), inline=True, name="say")


def test_a_failing_gate_ends_the_look_and_cannot_be_overruled() -> None:
    """What comes after is not asked, the score is 0, and the gate's own score is kept."""
    asked: list[str] = []
    judge = check(lambda text: asked.append(text) or Evaluation(1.0, True))
    gate = saying(score=0.9, passed=False, feedback="one test fails")
    evaluation = found(gates(check(min_words=1), gate, judge), "a")
    assert asked == []
    assert (evaluation.score, evaluation.passed) == (0.0, False)
    assert evaluation.feedback == "one test fails"
    assert evaluation.votes == ({"gate": "say", "score": 0.9},)


def test_open_gates_leave_the_last_word_to_the_last() -> None:
    """The score is the last one's, the verdict that of all, criteria and improvements add up."""
    last = saying(score=0.6, passed=False, feedback="dull", improvements=("a joke",))
    evaluation = found(gates(check(min_words=1), last), "a")
    assert (evaluation.score, evaluation.passed) == (0.6, False)
    assert (evaluation.feedback, evaluation.improvements) == ("dull", ("a joke",))
    assert evaluation.criteria == (Criterion("min_words 1", True),)
    assert found(gates(check(min_words=1), saying(score=0.6)), "a").passed is None
    assert found(gates(check(min_words=1), saying(score=0.6, passed=True)), "a").passed is True
    assert found(gates(saying(score=0.7), saying(passed=True)), "a").score == 0.7


def test_an_undecided_gate_leaves_the_whole_undecided() -> None:
    """Nothing after it is asked, and nothing is scored."""
    evaluation = found(gates(score(), saying(score=1.0, passed=True)), "no number")
    assert (evaluation.undecided, evaluation.score, evaluation.passed) == (True, None, None)


def test_what_fails_a_gate_is_never_the_best() -> None:
    """An output that passed its gates outranks one that did not, however well that was liked."""
    outputs = iter(["bad one", "good"])
    tests = check(lambda text: Evaluation(0.95, text == "good"), name="tests")
    loop = Loop(
        step(lambda value: next(outputs), inline=True),
        gates(tests, saying(score=0.1, passed=False)),
        until=MaxIterations(2),
    )
    result = run_sync(loop, "x")
    assert [item.score for item in result.history] == [0.0, 0.1]
    assert result.output == "good"


def test_each_gate_is_an_effect_of_its_own() -> None:
    """Gates of one name get a number; the journal has each."""

    async def recorded() -> list[str]:
        journal = MemoryJournal()
        loop = Loop(same, gates(check(min_words=1), check(min_words=1)), until=Passed(), name="l")
        await run(loop, "x", journal=journal, run_id="r")
        return [e.path for e in await journal.entries("r") if e.kind == "finished"]

    paths = asyncio.run(recorded())
    assert paths == ["l/1/execute", "l/1/evaluate/min_words", "l/1/evaluate/min_words-2"]
    with pytest.raises(ConfigurationError, match="gates: no evaluator"):
        gates()


@pytest.mark.parametrize(
    "several", [gates, lambda *parts: checklist(dict(zip("ab", parts, strict=True)))]
)
def test_what_acts_among_several_is_found(several: Any) -> None:
    """A loop that measures repeatedly refuses an evaluator that may not run twice, also in a list of them."""
    once = step(lambda value: True, name="send", idempotent=False)
    loss = step(lambda value: Evaluation(metrics={"loss": 1.0}), name="loss")
    with pytest.raises(ConfigurationError, match="send must not run twice"):
        Loop(str, several(once, loss), metrics={"loss": "minimise"}, confirm=Confirm())


def test_a_verdict_follows_from_its_criteria() -> None:
    """Without criteria nothing is missing; what is said may be said differently."""
    assert verdict([]) == Evaluation(1.0, True)
    made = verdict([Criterion("a", False)], feedback="f", improvements=["i"])
    assert (made.feedback, made.improvements, made.score) == ("f", ("i",), 0.0)
