"""The phased agent: an answer that is confident enough ends it, where that is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from phased_steps import agent, counted, inline, lambda_score, play

from loopwright import MemoryJournal, PhasedAgent, Reason, Result, resume, run
from loopwright.evaluators import judge
from loopwright.models import Models, ScriptedModel
from loopwright.testing import run_virtual


@pytest.mark.parametrize(
    ("evaluate", "expected", "reason"),
    [
        (0.8, [2, 1, 0], Reason.CONDITION_MET),
        (0.79, [2, 3, 1], Reason.PHASE_LIMIT),
        (True, [2, 1, 0], Reason.CONDITION_MET),
        (False, [2, 3, 1], Reason.PHASE_LIMIT),
        ({"confidence": 0.95}, [2, 1, 0], Reason.CONDITION_MET),
    ],
)
def test_a_confident_answer_ends_the_agent(
    evaluate: Any, expected: list[int], reason: Reason
) -> None:
    """The evaluator's score is the confidence, from 0 to 1, of what execution and refinement give."""
    result = play(agent(evaluate=lambda_score(evaluate), enable_dynamic_termination=True))
    assert (counted(result), result.reason) == (expected, reason)
    assert result.agents["agent"]["phase"] == ("execution" if expected[2] == 0 else "refinement")


def test_a_raised_limit_is_that_of_the_phase_that_came_last() -> None:
    """Who gives an agent that was not confident enough more iterations gets answers, not plans."""
    journal = MemoryJournal()

    def unsure() -> PhasedAgent:
        return agent(evaluate=lambda_score(0.1), enable_dynamic_termination=True)

    async def further() -> Result:
        first = await run(unsure(), "a", journal=journal, run_id="r")
        assert (counted(first), first.reason) == ([2, 3, 1], Reason.PHASE_LIMIT)
        return await resume(unsure(), "r", journal=journal, max_iterations=3)

    result = run_virtual(further())
    assert (counted(result), result.reason) == ([2, 3, 3], Reason.PHASE_LIMIT)


def test_confidence_counts_only_if_it_is_asked_for() -> None:
    """Without dynamic termination the score chooses the answer, and ends nothing."""
    result = play(agent(evaluate=lambda_score(1.0)))
    assert (counted(result), result.reason) == ([2, 3, 1], Reason.COMPLETED)


@pytest.mark.parametrize(("said", "rounds"), [(0.9, 1), (0.5, 3), (85, 3), ("0.9", 3), (True, 3)])
def test_a_result_may_say_its_own_confidence(said: Any, rounds: int) -> None:
    """Without an evaluator the member `confidence` counts; what is no number from 0 to 1 does not."""

    @inline
    def sure(given: Any) -> Any:
        return {"confidence": said}

    result = play(agent(execution=sure, enable_dynamic_termination=True))
    assert counted(result)[1] == rounds
    assert bool(result.warnings) == (said in (85, "0.9") or said is True)


def test_planning_is_judged_only_where_it_is_named() -> None:
    """A plan is no answer; a mapping of evaluators by phase can say otherwise."""
    judged = {"planning": lambda_score(0.9)}
    result = play(agent(evaluate=judged, enable_dynamic_termination=True))
    assert counted(result) == [1, 0, 0]


async def test_a_judge_is_told_the_task_and_nothing_else_as_the_goal() -> None:
    """The goal of the work is what the agent was given, not the object that a phase is given."""
    told: list[Any] = []
    script = [{"replies": [{"json": {"verdict": "yes", "score": 90, "reason": "it does"}}]}]
    models = Models(ScriptedModel(script), transcript=told.append)
    made = agent(
        evaluate=judge("It is short.", model="openai:any"), enable_dynamic_termination=True
    )
    given = {"input": "Who built it?", "plan": ["look"]}
    result = await run(made, given, resources={"models": models})
    assert counted(result) == [0, 1, 0]
    asked = told[0]["messages"][-1]["content"]
    assert "Goal of the work:\nWho built it?\n" in "\n".join(
        m["content"] for m in told[0]["messages"]
    )
    assert "plan" not in asked
