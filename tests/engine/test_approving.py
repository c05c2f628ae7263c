"""Loops that ask between rounds and at their limit."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import (
    Loop,
    MaxIterations,
    MemoryJournal,
    NoImprovement,
    Reason,
    ScoreAtLeast,
    Status,
    Timeout,
    run,
)
from loopwright.errors import ConfigurationError
from loopwright.journal.questions import answer

from .counted_work import Work, asked


async def test_a_person_is_asked_between_rounds_and_may_edit_what_adapt_is_given() -> None:
    """The record is committed, then the question; an edit replaces output and feedback from there on,
    and the score stays."""
    work, journal = Work(), MemoryJournal()
    loop = work.loop(approve="iteration")
    first = await run(loop, "a", journal=journal, run_id="r")
    assert (first.status, first.reason) == (Status.SUSPENDED, Reason.APPROVAL)
    assert first.detail == "refine: iteration 1 is done, score 0.2: go on?"
    question = await asked(journal)
    assert (question.path, question.kind) == ("refine/1/approve", "iteration")
    assert (question.request["output"], question.request["feedback"]) == ("ax", "only 2")
    await answer(
        journal, "r", question.path, {"approve": True, "output": "b", "feedback": "longer"}
    )
    second = await run(loop, journal=journal, run_id="r")
    assert work.adapted == [("b", "longer")]
    assert work.calls == ["a", "b"]
    record = second.history[0]
    assert (record.output, record.feedback, record.score) == ("b", "longer", 0.2)
    await answer(journal, "r", "refine/2/approve", True)
    third = await run(loop, journal=journal, run_id="r")
    assert (third.reason, third.iterations) == (Reason.MAX_ITERATIONS, 3)
    again = await run(loop, journal=journal, run_id="r")
    assert again == third
    assert again.history[0].output == "b"


@pytest.mark.parametrize(
    ("given", "status", "reason", "output"),
    [
        (False, Status.EXHAUSTED, Reason.STOPPED, "ax"),
        ({"approve": False, "reason": "dull"}, Status.EXHAUSTED, Reason.STOPPED, "ax"),
        ({"approve": False, "accept": True}, Status.SATISFIED, Reason.ACCEPTED, "ax"),
        ({"approve": False, "accept": True, "output": "mine"}, Status.SATISFIED, Reason.ACCEPTED, "mine"),
    ],
)  # fmt: skip
async def test_a_person_may_end_it_between_rounds(
    given: Any, status: Status, reason: Reason, output: str
) -> None:
    """Not going on is exhausted with what there is; accepting is satisfied, with the edit if any."""
    work, journal = Work(), MemoryJournal()
    loop = work.loop(approve=["iteration"])
    await run(loop, "a", journal=journal, run_id="r")
    await answer(journal, "r", "refine/1/approve", given)
    result = await run(loop, journal=journal, run_id="r")
    assert (result.status, result.reason, result.output) == (status, reason, output)
    assert (work.calls, result == await run(loop, journal=journal, run_id="r")) == (["a"], True)
    assert isinstance(given, bool) or "reason" not in given or "dull" in result.detail


async def test_success_is_never_asked_about() -> None:
    """A loop that is satisfied in a round ends there, whoever might have been asked."""
    work, journal = Work(), MemoryJournal()
    loop = work.loop(until=ScoreAtLeast(0.2), approve=("iteration", "limit"))
    result = await run(loop, "a", journal=journal, run_id="r")
    assert result.satisfied


async def test_at_its_limit_a_loop_asks_for_more() -> None:
    """Yes raises the limit by so many (by default the same again), no ends it; each time anew."""
    work, journal = Work(), MemoryJournal()
    loop = work.loop(limit=2, approve="limit")
    first = await run(loop, "a", journal=journal, run_id="r")
    assert first.detail == "refine: 2 of 2 iterations used, best 0.3: go on?"
    question = await asked(journal)
    assert (question.path, question.kind, question.request["more"]) == (
        "refine/2/limit",
        "limit",
        2,
    )
    await answer(journal, "r", question.path, {"approve": True, "more": 1})
    await run(loop, journal=journal, run_id="r")
    assert (await asked(journal)).path == "refine/3/limit"
    await answer(journal, "r", "refine/3/limit", True)
    await run(loop, journal=journal, run_id="r")
    assert (await asked(journal)).path == "refine/5/limit"
    await answer(journal, "r", "refine/5/limit", {"approve": False, "reason": "enough"})
    result = await run(loop, journal=journal, run_id="r")
    assert (result.reason, result.iterations) == (Reason.MAX_ITERATIONS, 5)
    assert "a person ended it there: enough" in result.detail
    assert len(work.calls) == 5


async def test_who_raises_the_limit_is_not_asked_about_that_round_again() -> None:
    """With both moments, one answer lets a round at the limit go on."""
    work, journal = Work(), MemoryJournal()
    loop = work.loop(limit=1, approve=("iteration", "limit"))
    await run(loop, "a", journal=journal, run_id="r")
    await answer(journal, "r", "refine/1/limit", {"approve": True, "more": 2})
    await run(loop, journal=journal, run_id="r")
    assert (await asked(journal)).path == "refine/2/approve"


async def test_waiting_for_a_person_uses_no_time() -> None:
    """Section 10: the active seconds, which Timeout counts, stand still while the run is suspended."""
    work, journal = Work(), MemoryJournal()
    loop = work.loop(approve="iteration", guards=Timeout(3600))
    await run(loop, "a", journal=journal, run_id="r")
    before = (await journal.find("r")).active
    await answer(journal, "r", "refine/1/approve", True)
    assert (await journal.find("r")).active == before
    result = await run(loop, journal=journal, run_id="r")
    assert result.seconds < before + 60


async def test_a_question_in_a_loop_in_a_loop_loses_nothing() -> None:
    """The inner loop asks in each round of the outer one; all rounds are run exactly once."""
    work, journal = Work(), MemoryJournal()
    outer = Loop(work.loop(limit=2, approve="iteration"), name="outer", until=MaxIterations(2))
    result = await run(outer, "a", journal=journal, run_id="r")
    paths = []
    while result.status is Status.SUSPENDED:
        question = await asked(journal)
        paths.append(question.path)
        await answer(journal, "r", question.path, True)
        result = await run(outer, journal=journal, run_id="r")
    assert paths == ["outer/1/execute/refine/1/approve", "outer/2/execute/refine/1/approve"] or paths == [
        "outer/1/execute/1/approve", "outer/2/execute/1/approve",
    ]  # fmt: skip
    assert (result.iterations, len(work.calls)) == (2, 4)


def test_only_the_two_moments_can_be_named() -> None:
    """approve names `iteration`, `limit` or both; anything else is refused with the nearest."""
    with pytest.raises(ConfigurationError, match="did you mean 'iteration'"):
        Work().loop(approve="iterations")


async def test_a_plateau_is_no_limit() -> None:
    """With approve: limit only a limit is asked about; a plateau ends the loop."""
    work, journal = Work(), MemoryJournal()
    flat = Loop(
        lambda value: value, lambda output: 0.5, until=NoImprovement(2) | MaxIterations(9),
        name="flat", approve="limit",
    )  # fmt: skip
    result = await run(flat, "a", journal=journal, run_id="r")
    assert (result.reason, work.calls) == (Reason.NO_IMPROVEMENT, [])
