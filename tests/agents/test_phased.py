"""The phased agent: its counters, its caps and why it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    PhasedAgent,
    Reason,
    Result,
    Status,
    Timeout,
    Usage,
    Workflow,
    resume,
    run,
    step,
)
from loopwright.agents.presets import ROLES
from loopwright.errors import ConfigurationError
from loopwright.evaluators.judge import judge
from loopwright.models import Models, ScriptedModel
from loopwright.testing import run_virtual

NAMES = ("planning", "execution", "refinement")


def inline(function: Any) -> Any:
    """Return a function as a step that virtual time can run."""
    return step(function, inline=True)


@inline
def plan(given: Any) -> Any:
    return f"plan for {given['input']}"


@inline
def work(given: Any, ctx: Context) -> Any:
    return f"found {ctx.iteration}"


@inline
def answer(given: Any, ctx: Context) -> Any:
    return f"answer {ctx.iteration} from {len(given['results'])}"


def agent(**fields: Any) -> PhasedAgent:
    """Return an agent whose phases never are done by themselves."""
    return PhasedAgent(**{"planning": plan, "execution": work, "refinement": answer, **fields})


def limits(planning: int, execution: int, refinement: int) -> dict[str, int]:
    """Return the three limits by name."""
    given = zip(NAMES, (planning, execution, refinement), strict=True)
    return {f"max_{phase}_iterations": limit for phase, limit in given}


def play(made: Any, value: Any = "task", **options: Any) -> Result:
    """Run an agent in virtual time."""
    return run_virtual(run(made, value, **options))


def counted(result: Result) -> list[int]:
    """Return the iterations of the three phases."""
    return [result.agents["agent"]["phase_iterations"][phase] for phase in NAMES]


# The formula.


@pytest.mark.parametrize(
    ("given", "explicit", "total", "effective"),
    [
        ((1, 5, 2), None, 8, 9),  # the text of the format says 8, its formula 9
        ((2, 3, 1), None, 6, 7),
        ((1, 1, 1), None, 3, 4),
        ((1, 0, 0), None, 1, 2),
        ((5, 10, 4), None, 19, 20),
        ((5, 10, 5), None, 20, 22),
        ((10, 30, 19), None, 59, 64),
        ((1, 5, 2), 5, 8, 5),
        ((1, 5, 2), 8, 8, 8),
        ((3, 8, 3), 15, 14, 15),
    ],
)
def test_the_effective_cap_is_the_sum_and_a_tenth_more(
    given: tuple[int, int, int], explicit: int | None, total: int, effective: int
) -> None:
    """sum + max(1, int(sum * 0.1)), and an explicit cap wins."""
    made = agent(**limits(*given), max_iterations=explicit)
    assert (made.phase_sum, made.max_iterations_effective) == (total, effective)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_runs_its_phases_to_their_limits(role: str) -> None:
    """By default the cap never binds: the run takes exactly the sum of the phases."""
    made = agent(role=role)
    result = play(made)
    assert counted(result) == [made.limits[phase] for phase in NAMES]
    report = result.agents["agent"]
    assert report["total_iterations"] == report["phase_sum"] == made.phase_sum
    assert (result.status, result.reason) == (Status.SATISFIED, Reason.COMPLETED)
    assert result.warnings == ()


def test_complexity_is_over_the_role_and_what_is_given_over_both() -> None:
    """high is 2, 3, 2 in 300 s and low 1, 1, 1 in 120 s, whatever the role; arguments win."""
    high = agent(role="qa_specialist", task_complexity="high", max_planning_iterations=4)
    assert list(high.limits.values()) == [4, 3, 2]
    assert high.max_duration_seconds == 300
    low = agent(task_complexity="low", max_duration_seconds=7)
    assert (low.phase_sum, low.max_duration_seconds) == (3, 7)
    assert agent(role="qa_specialist", task_complexity="medium").phase_sum == 8


# What passes from phase to phase.


def test_each_phase_is_given_what_the_ones_before_made() -> None:
    """Plan and results reach later phases; previous and feedback the later rounds of a phase."""
    result = play(agent(role="qa_specialist", evaluate=lambda_score(0.4)))
    execution = result.loops["execution"].history
    assert execution[0].input["plan"] == "plan for task"
    assert [item.input["previous"] for item in execution] == [
        None,
        *(f"found {n}" for n in range(1, 5)),
    ]
    refined = result.loops["refinement"].history[0].input
    assert (refined["input"], len(refined["results"])) == ("task", 5)
    assert result.output == "answer 1 from 5"  # the best score, the earliest on ties


def lambda_score(score: Any) -> Any:
    """Return an evaluator with one answer."""

    async def evaluate(output: Any) -> Any:
        return score

    return evaluate


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


# Leaving a phase.


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

    result = play(agent(execution=done, role="qa_specialist"))
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


# The cap of the whole.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"role": "qa_specialist", "max_iterations": 5}, [1, 4, 0]),
        ({**limits(1, 2, 1), "max_iterations": 3}, [1, 2, 0]),
        ({"max_iterations": 3}, [2, 1, 0]),
        ({"role": "qa_specialist", "max_iterations": 5, "reserve_refinement": True}, [1, 3, 1]),
        ({"role": "qa_specialist", "max_iterations": 5, "reserve_refinement": 2}, [1, 2, 2]),
        ({"max_iterations": 1, "reserve_refinement": 1}, [0, 0, 1]),
        ({"max_iterations": 2, "reserve_refinement": 5}, [1, 0, 1]),
    ],
)
def test_a_cap_below_the_sum_is_told_and_refinement_can_be_reserved(
    fields: dict[str, Any], expected: list[int]
) -> None:
    """The configurations that the format's project ships starve refinement: that is a warning, and
    a reserve keeps the answer."""
    result = play(agent(**fields))
    assert counted(result) == expected
    whole = expected == [1, 2, 2]  # every phase had its turn, refinement to its limit
    assert result.reason is (Reason.COMPLETED if whole else Reason.MAX_ITERATIONS)
    assert "below the" in result.warnings[0]
    assert (result.output or "").startswith("answer" if expected[2] else "found")


def test_a_cap_that_is_the_sum_ends_like_the_phases() -> None:
    """The cap is met in the last round of refinement: that is the end of the work, not a cut."""
    result = play(agent(max_iterations=6))
    assert (counted(result), result.reason, result.warnings) == ([2, 3, 1], Reason.COMPLETED, ())


# Confidence.


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


# Time, tokens, failure.


def test_the_duration_cancels_the_call_in_flight_and_keeps_what_there_is() -> None:
    """The deadline is one for all phases, and acts inside a round."""
    cancelled: list[str] = []

    async def slow(given: Any, ctx: Context) -> Any:
        try:
            await asyncio.sleep(4)
        except asyncio.CancelledError:
            cancelled.append(ctx.path)
            raise
        return f"slow {ctx.iteration}"

    result = play(agent(execution=slow, max_duration_seconds=10))
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.TIMEOUT)
    assert cancelled == ["agent/execution/3/execute"]
    assert (result.output, counted(result), result.seconds) == ("slow 2", [2, 3, 0], 10.0)


def test_a_loop_around_the_agent_binds_it() -> None:
    """The timeout of an outer loop ends the agent too, and its output is not lost."""

    async def slow(given: Any, ctx: Context) -> Any:
        await asyncio.sleep(4)
        return f"slow {ctx.iteration}"

    result = play(
        Loop(agent(execution=slow), guards=Timeout(10), until=MaxIterations(3), name="outer")
    )
    assert (result.reason, result.output) == (Reason.TIMEOUT, "slow 2")


def test_the_agent_is_a_step_like_any_other() -> None:
    """In a workflow its answer goes to the next step."""
    whole = Workflow(
        "flow",
        {"agent": agent(), "after": inline(lambda value: f"<{value}>")},
        needs={"after": ["agent"]},
    )
    assert play(whole).output == "<answer 1 from 3>"


def spending(tokens: int) -> Any:
    """Return a step that spends tokens, and reserves them first."""
    usage = Usage(calls=1, input_tokens=tokens)

    async def spend(given: Any, ctx: Context) -> Any:
        ctx.spend(usage)
        return f"{given['phase']} {ctx.iteration}"

    return step(spend, reserve=usage)


@pytest.mark.parametrize("rollover", [False, True])
def test_tokens_are_shared_out_by_phase(rollover: bool) -> None:
    """10, 40 and 50 % each: a phase without tokens left is followed by the next.

    A round that was begun and whose call did not fit counts, as in every loop.
    """
    made = PhasedAgent(
        spending(100), spending(190), spending(150), **limits(9, 9, 9),
        token_budget=1000, token_rollover=rollover,
    )  # fmt: skip
    result = play(made)
    assert counted(result) == [1, 2 + 1, 3 + 1]
    assert result.reason is Reason.BUDGET
    assert made.tokens == {"planning": 100, "execution": 400, "refinement": 500}


def test_what_a_phase_leaves_over_can_roll_over() -> None:
    """Planning and execution spend little: refinement gets the rest of theirs."""
    fields: Any = {**limits(1, 1, 9), "token_budget": 1000}
    phases = (spending(50), spending(100), spending(150))
    assert counted(play(PhasedAgent(*phases, **fields))) == [1, 1, 3 + 1]
    again = play(PhasedAgent(*phases, **fields, token_rollover=True))
    assert counted(again) == [1, 1, 5 + 1]


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


# The record.


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


def test_the_configurations_of_the_format_are_taken_as_they_are() -> None:
    """The three example configurations run: two warn of nothing, none starves refinement."""
    for fields, expected in (
        ({"max_iterations": 5, **limits(1, 3, 1)}, [1, 3, 1]),
        ({"max_iterations": 10, **limits(2, 5, 2)}, [2, 5, 2]),
        ({"max_iterations": 15, **limits(3, 8, 3)}, [3, 8, 3]),
    ):
        result = play(agent(**fields))
        assert (counted(result), result.warnings) == (expected, ())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_iterations": 0}, "phased agent: max_iterations: 0"),
        (limits(0, 0, 0), "no phase has an iteration"),
        ({"max_planning_iterations": -1}, "max_planning_iterations: -1"),
        ({"max_planning_iterations": 1001}, "give at most 1000"),
        ({"max_planning_iterations": True}, "max_planning_iterations"),
        ({"role": "qa_specalist"}, "did you mean 'qa_specialist'"),
        ({"task_complexity": "hihg"}, "did you mean 'high'"),
        ({"min_confidence_threshold": 85}, "min_confidence_threshold: 85"),
        ({"max_duration_seconds": 0}, "max_duration_seconds: 0"),
        ({"token_budget": 0}, "token_budget: 0"),
        ({"token_split": (0.5, 0.6, 0.1)}, "add up to more than 1"),
        ({"token_split": (0.5, 0.5)}, "give three shares"),
        ({"token_budget": 5}, "planning has no tokens"),
        ({"planning": None, "max_planning_iterations": 2}, "there is no planning step"),
        ({"evaluate": {"exection": 1}}, "did you mean 'execution'"),
        ({"name": "a/b"}, "slash"),
        ({"capabilities": [object()]}, "is not a capability"),
        ({"tools": [print]}, "only a prompt calls tools"),
        ({"planning": 3}, "3 cannot be a step"),
    ],
)  # fmt: skip
def test_what_could_not_mean_anything_is_refused(fields: dict[str, Any], message: str) -> None:
    """Wrong settings are an error when the agent is made, with the value and what to do."""
    with pytest.raises(ConfigurationError, match=message):
        agent(**fields)


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
