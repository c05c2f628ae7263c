"""Agents are truthful about what they did: issue 11, section 3."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from phased_steps import answer, inline, plan, work

from loopwright import Budget, Iteration, MemoryJournal, PhasedAgent, run, run_sync
from loopwright.agents import Capability, ReasoningAgent, executions, lifecycle_of
from loopwright.errors import ConfigurationError, LoopwrightWarning
from loopwright.models import Models, Reply, Request, ScriptedModel
from loopwright.prompts import prompt
from loopwright.records import Usage


class Counts(Capability):
    """Counts the iterations in its context, and nowhere else."""

    async def init(self, agent: Any, context: dict[str, Any]) -> dict[str, Any]:
        return {"count": 0, "seen": []}

    async def start_agent_loop(self, agent: Any, context: dict[str, Any]) -> bool:
        context["count"] += 1
        return True

    async def end_agent_loop(self, agent: Any, context: dict[str, Any]) -> None:
        context["seen"].append(agent.phase)

    async def terminate(self, agent: Any, context: dict[str, Any]) -> dict[str, Any]:
        return {"count": context["count"], "seen": context["seen"]}


def _counting(**fields: Any) -> PhasedAgent:
    given = {"planning": plan, "execution": work, "refinement": answer, "capabilities": [Counts()]}
    return PhasedAgent(**{**given, "max_planning_iterations": 1, **fields})


def test_what_a_capability_stores_in_its_context_survives_iterations() -> None:
    """A counter in `context` advances over iterations and phases."""
    result = run_sync(_counting(), "t")
    told = result.agents["agent"]["terminated"]["Counts"]
    assert told["count"] == 5
    assert told["seen"] == ["planning", *["execution"] * 3, "refinement"]


@pytest.mark.parametrize("dies_at", [1, 2])
def test_what_a_capability_stores_survives_a_resume(tmp_path: Path, dies_at: int) -> None:
    """A run that was interrupted goes on with the context that it had."""
    url = f"sqlite:{tmp_path}/r.db"
    calls: list[int] = []

    @inline
    async def dies(given: Any) -> Any:
        calls.append(1)
        if len(calls) == dies_at + 1:
            raise KeyboardInterrupt
        return f"found {len(given['results'])}"

    with pytest.raises(KeyboardInterrupt):
        run_sync(_counting(execution=dies), "t", journal=url, run_id="r")
    result = run_sync(_counting(execution=dies), "t", journal=url, run_id="r")
    told = result.agents["agent"]["terminated"]["Counts"]
    assert (told["count"], len(told["seen"])) == (5, 5)


def test_a_function_phase_sees_its_earlier_results() -> None:
    """`task["results"]` grows in the execution phase: four parts are looked up, each once."""
    seen: list[Any] = []

    @inline
    def looks(task: Any) -> Any:
        seen.append(list(task["results"]))
        part = task["plan"][len(task["results"])]
        return {"answer": part, "done": len(task["results"]) + 1 == len(task["plan"])}

    @inline
    def plans(task: Any) -> Any:
        return {"plan": list("abcd"), "done": True}

    agent = PhasedAgent(plans, looks, max_execution_iterations=9)
    result = run_sync(agent, "t")
    assert [len(given) for given in seen] == [0, 1, 2, 3]
    assert [given[-1]["answer"] for given in seen[1:]] == ["a", "b", "c"]
    assert result.agents["agent"]["phase_iterations"]["execution"] == 4


def test_a_prompt_phase_sees_its_earlier_results_by_name() -> None:
    """`{{ results }}` of a prompt grows with each iteration of execution too."""
    asked: list[str] = []

    class Model:
        async def complete(self, request: Request, **_: Any) -> Reply:
            asked.append(request.prompt)
            return Reply(f"r{len(asked)}", usage=Usage(1, 1, 1))

    agent = PhasedAgent(
        execution=prompt("Known: {{ results }}", model="openai:m"), max_execution_iterations=3
    )
    run_sync(agent, "t", resources={"models": Models(Model())})
    assert ["r1" in text for text in asked] == [False, True, True]
    assert "r2" in asked[2]


def test_reserved_refinement_leaves_an_iteration_for_execution() -> None:
    """A cap of 3 with one iteration reserved: one for each phase."""
    agent = PhasedAgent(plan, work, answer, max_iterations=3, reserve_refinement=1)
    done = run_sync(agent, "t").agents["agent"]["phase_iterations"]
    assert done == {"planning": 1, "execution": 1, "refinement": 1}


def test_a_token_budget_too_small_for_one_call_is_reported_before_the_first() -> None:
    """The first warning says which phase, how many tokens it has and how many one reply may have."""
    with pytest.warns(LoopwrightWarning, match="tokens of") as caught:
        agent = PhasedAgent(
            prompt("p", model="openai:m"), prompt("e", model="openai:m"), token_budget=100
        )
    assert caught[0].message.code == "budget_too_small"  # type: ignore[union-attr]
    models = Models(ScriptedModel([{"replies": ["x"]}]))
    result = run_sync(agent, "t", resources={"models": models})
    assert result.warnings[0].startswith("budget_too_small: agent: the 10 tokens of planning")
    fits = PhasedAgent(execution=prompt("e", model="openai:m", max_tokens=20), token_budget=1000)
    assert fits.warnings == []


def test_the_result_of_a_phased_agent_has_its_iterations() -> None:
    """`iterations`, `best` and `on_iteration` are those of its phases, numbered over all of them."""
    seen: list[Iteration] = []
    agent = PhasedAgent(
        plan, work, answer, evaluate=lambda output: 0.9 if "2" in str(output) else 0.4,
        on_iteration=seen.append,
    )  # fmt: skip
    journal = MemoryJournal()
    result = run_sync(agent, "t", journal=journal, run_id="r")
    assert result.iterations == result.agents["agent"]["total_iterations"] == 6
    assert [item.number for item in result.history] == [1, 2, 3, 4, 5, 6]
    assert [item.number for item in seen] == [1, 2, 3, 4, 5, 6]
    assert result.best is not None and result.best.output == "found 2"
    again = run_sync(agent, "t", journal=journal, run_id="r")
    assert [item.output for item in again.history] == [item.output for item in result.history]
    assert again.iterations == 6


def test_a_preset_has_its_own_word() -> None:
    """`role` is the persona of a reasoning agent; a phased one has a `preset`, and no `role`."""
    steps = {"planning": plan, "execution": work, "refinement": answer}
    assert PhasedAgent(**steps, preset="qa_specialist").limits["execution"] == 5
    with pytest.raises(TypeError, match="role"):
        PhasedAgent(**steps, role="qa_specialist")


def _events(agent: Any) -> list[tuple[str, str]]:
    async def work() -> Any:
        journal = MemoryJournal()
        await run(agent, "t", journal=journal, run_id="r")
        return await journal.entries("r")

    moments = lifecycle_of(asyncio.run(work())).moments
    return [(moment.path, moment.move.event) for moment in moments]


def test_a_plan_is_complete_after_planning_ran() -> None:
    """`PLAN_COMPLETE` comes with the first work after the planning phase, not with the plan's own."""
    events = _events(PhasedAgent(plan, work, answer, capabilities=[Counts()]))
    (at,) = [path for path, event in events if event == "PLAN_COMPLETE"]
    assert at.startswith("agent/execution/")


def test_calls_that_an_interrupt_cut_are_counted(tmp_path: Path) -> None:
    """`interaction_count` counts the call in flight and its repetition."""

    async def work() -> tuple[int, int]:
        from loopwright.journal.open import open_journal

        agent, url = ReasoningAgent(model="openai:m"), f"sqlite:{tmp_path}/r.db"
        hanging = Hanging()
        task = asyncio.create_task(
            run(agent, "t", journal=url, run_id="r", resources={"models": Models(hanging)})
        )
        await hanging.hung.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answers = Models(ScriptedModel([{"replies": ["TASK_COMPLETE: 4"]}]))
        result = await run(agent, "t", journal=url, run_id="r", resources={"models": answers})
        store = open_journal(url)
        found = await executions(store, run_id="r")
        await store.close()
        return result.agents["agent"]["interaction_count"], found[0].interaction_count

    counts = asyncio.run(work())
    assert counts == (3, 3)


class Hanging:
    """A model that answers once and then never."""

    def __init__(self) -> None:
        self.hung = asyncio.Event()
        self.calls = 0

    async def complete(self, request: Request, **_: Any) -> Reply:
        self.calls += 1
        if self.calls == 1:
            return Reply("hm", usage=Usage(1, 1, 1))
        self.hung.set()
        await asyncio.sleep(3600)
        raise AssertionError("cancelled")


def test_an_execution_that_a_budget_ended_has_what_there_is() -> None:
    """`result` is the latest text, without a marker."""

    async def work() -> Any:
        journal = MemoryJournal()
        models = Models(ScriptedModel([{"replies": ["Half of it.", "- TASK_COMPLETE: more"]}]))
        agent = ReasoningAgent(model="openai:m", max_iterations=5)
        await run(
            agent, "t", journal=journal, run_id="r", budget=Budget(calls=1),
            resources={"models": models},
        )  # fmt: skip
        return await executions(journal, run_id="r")

    (found,) = asyncio.run(work())
    assert (found.status, found.result) == ("failed", "Half of it.")
    assert "budget" in found.error


def test_an_unknown_status_of_executions_names_the_valid_ones() -> None:
    """`executions(status="done")` is refused with the list, and the nearest."""
    with pytest.raises(ConfigurationError, match="pending, running, completed, failed"):
        asyncio.run(executions(MemoryJournal(), status="done"))


def test_agents_take_the_limit_of_tool_calls_in_a_reply() -> None:
    """`max_tool_calls_per_reply` of both agents reaches their requests; what is no number is refused."""

    class Asked:
        """A model that keeps what it is asked."""

        def __init__(self) -> None:
            self.most: list[int] = []

        async def complete(self, request: Request, *, on_text: Any = None) -> Reply:
            del on_text
            self.most.append(request.max_tool_calls)
            return Reply("TASK_COMPLETE: 4", usage=Usage(1, 5, 5))

    def look_up(word: str) -> str:
        """Look a word up."""
        return word

    for agent in (
        ReasoningAgent(model="openai:m", tools=[look_up], max_tool_calls_per_reply=5),
        ReasoningAgent(model="openai:m", tools=[look_up], max_tool_calls_per_reply=5, mode="single"),
        PhasedAgent(
            execution=prompt("e", model="openai:m"), tools=[look_up], max_tool_calls_per_reply=5,
            max_execution_iterations=1,
        ),
    ):  # fmt: skip
        model = Asked()
        run_sync(agent, "2 + 2?", resources={"models": Models(model)})
        assert set(model.most) == {5}, agent
    with pytest.raises(ConfigurationError, match="max_tool_calls_per_reply"):
        ReasoningAgent(model="openai:m", max_tool_calls_per_reply=0)
    with pytest.raises(ConfigurationError, match="max_tool_calls_per_reply"):
        PhasedAgent(execution=prompt("e", model="openai:m"), max_tool_calls_per_reply=0)
