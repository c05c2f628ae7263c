"""The phased agent: what passes from phase to phase, when a phase is left, and the record of it."""

from __future__ import annotations

from typing import Any

import pytest
from phased_steps import NAMES, agent, counted, inline, lambda_score, play

from loopwright import Context, MemoryJournal, Reason, Result, Status, Workflow, run
from loopwright.testing import run_virtual


def test_each_phase_is_given_what_the_ones_before_made() -> None:
    """Plan and results reach later phases; previous and feedback the later rounds of a phase."""
    result = play(agent(preset="qa_specialist", evaluate=lambda_score(0.4)))
    execution = result.loops["execution"].history
    assert execution[0].input["plan"] == "plan for task"
    assert [item.input["previous"] for item in execution] == [
        None,
        *(f"found {n}" for n in range(1, 5)),
    ]
    refined = result.loops["refinement"].history[0].input
    assert (refined["input"], len(refined["results"])) == ("task", 5)
    assert result.output == "answer 1 from 5"  # the best score, the earliest on ties


def test_the_answer_is_the_member_of_that_name() -> None:
    """Of an object with `plan` or `answer` only that member goes on."""

    @inline
    def planned(given: Any) -> Any:
        return {"plan": ["a", "b"], "why": "…"}

    @inline
    def answered(given: Any) -> Any:
        return {"answer": given["plan"], "sources": 3}

    result = play(agent(planning=planned, refinement=answered))
    assert result.output == ["a", "b"]


def test_a_plan_that_comes_with_the_input_skips_planning() -> None:
    """A coordinator's plan is taken as it is."""
    result = play(agent(), {"input": "task", "plan": ["look"]})
    assert counted(result) == [0, 3, 1]
    given = result.loops["execution"].history[0].input
    assert (given["input"], given["plan"]) == ("task", ["look"])


@pytest.mark.parametrize(
    ("said", "rounds"),
    [
        (True, 1),
        ("yes", 1),
        ("TRUE", 1),
        (False, 5),
        ("NO", 5),
        ("no", 5),
        ("perhaps", 5),
        (None, 5),
        (1, 1),
    ],
)
def test_a_result_that_says_done_leaves_the_phase(said: Any, rounds: int) -> None:
    """`done` is read strictly: "NO" is no, and what is neither yes nor no is no."""

    @inline
    def done(given: Any) -> Any:
        return {"done": said}

    result = play(agent(execution=done, preset="qa_specialist"))
    assert counted(result) == [1, rounds, 2]
    assert result.satisfied


def test_a_phase_may_be_entered_again() -> None:
    """`next_phase` goes back; each visit has the phase's own limit, and the counters add up."""

    @inline
    def unhappy(given: Any, ctx: Context) -> Any:
        return {"next_phase": "execution"} if len(given["results"]) < 6 else "good"

    result = play(agent(refinement=unhappy, max_iterations=20))
    report = result.agents["agent"]
    assert counted(result) == [2, 6, 2]
    assert [(v["phase"], v["visit"], v["iterations"]) for v in report["visits"]] == [
        ("planning", 1, 2), ("execution", 1, 3), ("refinement", 1, 1),
        ("execution", 2, 3), ("refinement", 2, 1),
    ]  # fmt: skip
    assert result.output == "good"
    assert set(result.loops) == {*NAMES, "execution-2", "refinement-2"}


def test_going_back_for_ever_ends_at_the_cap() -> None:
    """The cap of the whole binds over all visits."""

    @inline
    def unhappy(given: Any) -> Any:
        return {"next_phase": "planning"}

    result = play(agent(refinement=unhappy))
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.MAX_ITERATIONS)
    assert result.agents["agent"]["total_iterations"] == 7


@pytest.mark.parametrize("skipped", NAMES)
def test_a_phase_with_a_limit_of_0_or_no_step_is_skipped(skipped: str) -> None:
    """0 means skip, not once."""
    for fields in ({f"max_{skipped}_iterations": 0}, {skipped: None}):
        result = play(agent(**fields))
        assert dict(zip(NAMES, counted(result), strict=True))[skipped] == 0
        assert result.satisfied
        assert result.output is not None


def test_the_agent_is_a_step_like_any_other() -> None:
    """In a workflow its answer goes to the next step."""
    whole = Workflow(
        "flow",
        {"agent": agent(), "after": inline(lambda value: f"<{value}>")},
        needs={"after": ["agent"]},
    )
    assert play(whole).output == "<answer 1 from 3>"


def test_a_failing_phase_fails_the_agent_and_says_where() -> None:
    """Under halt the first error ends it; what was produced is in its loops."""

    @inline
    def broken(given: Any) -> Any:
        raise ValueError("no network")

    result = play(agent(execution=broken))
    assert (result.status, result.reason) == (Status.FAILED, Reason.ERROR)
    assert result.detail == "execution: iteration 1: execute: ValueError: no network"
    assert result.agents["agent"]["phase"] == "execution"
    assert result.output == "plan for task"
    again = play(agent(execution=broken, on_failure="continue"))
    assert again.reason is Reason.REPEATED_FAILURE


def test_a_finished_run_is_told_again_with_its_report() -> None:
    """The report is in the journal: a run asked for again is the same to the byte."""

    async def twice() -> tuple[Result, Result]:
        journal = MemoryJournal()
        first = await run(agent(), "task", journal=journal, run_id="r")
        return first, await run(agent(), "task", journal=journal, run_id="r")

    first, again = run_virtual(twice())
    assert first.to_json() == again.to_json()
    report = first.agents["agent"]
    assert report["ended_by"] == "completed"
    assert report["detail"] == "the phases ran: planning 2, execution 3, refinement 1"
    assert report["visits"][1] == {
        "phase": "execution", "visit": 1, "iterations": 3, "reason": "phase_limit",
        "detail": "3 of 3 phase iterations used", "tokens": 0,
    }  # fmt: skip


def test_an_answer_of_nothing_is_none() -> None:
    """A phase whose answer is null gave none: the phase before keeps the last word."""

    @inline
    def found(given: Any) -> Any:
        return {"answer": "found"}

    @inline
    def nothing(given: Any) -> Any:
        return {"answer": None}

    assert play(agent(execution=found, refinement=nothing)).output == "found"


def test_a_phase_that_there_is_not_is_told() -> None:
    """A misspelt `next_phase` leads nowhere, and is a warning with the one that was meant."""

    @inline
    def lost(given: Any) -> Any:
        return {"next_phase": "planing", "answer": "x"}

    result = play(agent(refinement=lost))
    assert result.output == "x"
    assert result.warnings == (
        "unknown_phase: agent: refinement: there is no phase 'planing'; did you mean 'planning'?",
    )
