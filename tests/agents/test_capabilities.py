"""Capabilities: what goes through them, what they may end, and that they never lose a run."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import MemoryJournal, PhasedAgent, Reason, Result, run, step
from loopwright.agents import AgentState, Capability
from loopwright.models import Models, ScriptedModel
from loopwright.prompts import prompt
from loopwright.testing import run_virtual
from loopwright.tools import tool


def work(given: Any) -> Any:
    """Do something that shows what it was given."""
    return f"{given['phase']}: {given.get('hint', 'no hint')}"


WORK = step(work, inline=True)


def play(*capabilities: Any, **fields: Any) -> Result:
    """Run an agent of three functions with capabilities in virtual time."""
    made = PhasedAgent(
        WORK, WORK, WORK, preset="qa_specialist", capabilities=capabilities, **fields
    )
    return run_virtual(run(made, "task"))


def counted(result: Result) -> list[int]:
    """Return the iterations of the phases."""
    return [*result.agents["agent"]["phase_iterations"].values()]


class Told(Capability):
    """Writes down which hook was called when; its list is of this process only."""

    name = "told"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _note(self, hook: str, agent: AgentState) -> None:
        self.calls.append(f"{hook} {agent.phase} {agent.iteration or ''}".strip())

    async def init(self, agent: AgentState, context: Any) -> Any:
        self._note("init", agent)
        return {"seen": agent.input}

    async def start_agent_loop(self, agent: AgentState, context: Any) -> bool:
        self._note("start", agent)
        assert context == {"seen": "task"}
        return True

    async def process_action(self, agent: AgentState, context: Any, action: Any) -> Any:
        self._note("action", agent)
        return action

    async def process_result(
        self, agent: AgentState, context: Any, response: Any, action: Any, result: Any
    ) -> Any:
        self._note("result", agent)
        return result

    async def process_new_memories(
        self, agent: AgentState, context: Any, response: Any, result: Any, memories: Any
    ) -> Any:
        self._note("memories", agent)
        return memories

    async def end_agent_loop(self, agent: AgentState, context: Any) -> None:
        self._note("end", agent)

    async def should_terminate(self, agent: AgentState, context: Any, response: Any) -> bool:
        self._note("should", agent)
        return False

    async def terminate(self, agent: AgentState, context: Any) -> Any:
        self._note("terminate", agent)
        return {"calls": len(self.calls)}


def test_the_hooks_are_called_in_the_order_of_the_format() -> None:
    """init once, every hook of an iteration in turn, terminate once at the end."""
    told = Told()
    result = play(told, max_iterations=2)
    once = ["start", "action", "result", "memories", "should", "end"]
    places = ["planning 1", "execution 1"]
    inside = [f"{hook} {place}" for place in places for hook in once]
    assert told.calls == ["init", *inside, "terminate execution"]
    assert result.agents["agent"]["terminated"] == {"told": {"calls": len(told.calls)}}


class Changing(Capability):
    """Gives the phase a hint, and marks what comes of it."""

    async def process_action(self, agent: AgentState, context: Any, action: Any) -> Any:
        return {**action, "arguments": {**action["arguments"], "hint": "look left"}}

    def process_result(
        self, agent: Any, context: Any, response: Any, action: Any, result: Any
    ) -> Any:
        return f"{result}!"


async def test_what_goes_through_can_be_changed() -> None:
    """Action and result are what the capability makes of them; hooks may be plain functions."""
    made = PhasedAgent(WORK, WORK, WORK, capabilities=[Changing()])
    assert (await run(made, "task")).output == "refinement: look left!"


class After(Capability):
    """Ends the agent when it remembers enough."""

    def __init__(self, most: int, answer: Any = True) -> None:
        self.most, self.answer = most, answer

    async def should_terminate(self, agent: AgentState, context: Any, response: Any) -> Any:
        return self.answer if len(agent.memory) >= self.most else False


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        (After(2), [1, 2, 0]),
        (After(0), [1, 0, 0]),
        (After(0, "NO"), [1, 5, 2]),
        (After(0, "yes"), [1, 0, 0]),
    ],
)
def test_a_capability_that_asks_to_terminate_is_heeded(
    capability: Any, expected: list[int]
) -> None:
    """should_terminate ends the agent after the round, in any phase; "NO" is no."""
    result = play(capability)
    assert counted(result) == expected
    if expected[2] == 0:
        assert result.reason is Reason.CONDITION_MET
        assert "the capability After asked to terminate" in result.detail
        assert result.output is not None


class Gate(Capability):
    """Lets no iteration begin after the second."""

    async def start_agent_loop(self, agent: AgentState, context: Any) -> bool:
        return agent.current_iteration < 2


def test_an_iteration_that_may_not_begin_ends_the_agent() -> None:
    """start_agent_loop is heeded: nothing is done, nothing is counted, what there is is returned."""
    result = play(Gate())
    assert counted(result) == [1, 1, 0]
    assert (result.reason, result.output) == (Reason.CONDITION_MET, "execution: no hint")
    assert result.detail == "the capability Gate allows no further iteration"


class Broken(Capability):
    """Fails wherever it can."""

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith(("init", "start", "process", "end", "should", "terminate")):
            return _failing
        return found

    for _name in ("init", "start_agent_loop", "process_action", "process_result", "should_terminate",
                  "process_new_memories", "end_agent_loop", "terminate"):  # fmt: skip
        locals()[_name] = lambda *_: None


async def _failing(*_: Any) -> Any:
    raise RuntimeError("capability down")


def test_a_capability_that_fails_never_loses_the_run() -> None:
    """Every error of a hook is a warning, and what it was given goes on."""
    result = play(Broken())
    assert counted(result) == [1, 5, 2]
    assert result.reason is Reason.COMPLETED
    assert any(
        "failed in process_result: RuntimeError: capability down" in w for w in result.warnings
    )


class Odd(Capability):
    """Returns what no hook may return."""

    async def init(self, agent: Any, context: Any) -> Any:
        return 3

    async def process_new_memories(
        self, agent: Any, context: Any, response: Any, result: Any, memories: Any
    ) -> Any:
        return "none"

    async def should_terminate(self, agent: Any, context: Any, response: Any) -> Any:
        return "perhaps"


def test_answers_that_mean_nothing_are_warnings() -> None:
    """No object, no list, neither yes nor no: the usual is done."""
    result = play(Odd())
    assert counted(result) == [1, 5, 2]
    told = "\n".join(result.warnings)
    for words in ("which is not an object", "which is not a list", "neither yes nor no"):
        assert words in told


SCRIPT: list[dict[str, Any]] = [
    {"step": "*planning*", "replies": ["look it up"]},
    {
        "step": "*execution*",
        "replies": [{"tool_calls": [{"name": "look", "arguments": {"word": "fox"}}]}, "a fox"],
    },
    {"step": "*refinement*", "replies": ["An answer about a fox."]},
]


@tool(idempotent=True)
async def look(word: str) -> str:
    """Look a word up."""
    return f"{word} is an animal"


class Watching(Capability):
    """Changes everything that goes to and comes from models and tools."""

    async def process_prompt(self, agent: Any, context: Any, prompt: str) -> str:
        return f"Be brief.\n{prompt}"

    async def process_response(self, agent: Any, context: Any, response: Any) -> Any:
        return f"{response} [{agent.phase}]"

    async def process_action(self, agent: Any, context: Any, action: Any) -> Any:
        assert action["name"] == "look"
        return {**action, "arguments": {"word": "red " + action["arguments"]["word"]}}

    async def process_result(
        self, agent: Any, context: Any, response: Any, action: Any, result: Any
    ) -> Any:
        return f"({result})"


async def test_prompts_and_tools_go_through_capabilities() -> None:
    """Prompt, response, action and result of a phase that asks a model, and of each of its tools."""
    told: list[Any] = []
    models = Models(ScriptedModel(SCRIPT), transcript=told.append)
    made = PhasedAgent(
        prompt("Plan: {{ task }}", model="openai:a"),
        prompt("Do: {{ plan }}", model="openai:a"),
        prompt("Answer {{ task }} with {{ results }}", model="openai:a"),
        max_planning_iterations=1, max_execution_iterations=1,
        tools=[look], capabilities=[Watching()],
    )  # fmt: skip
    journal = MemoryJournal()
    result = await run(
        made, "What is a fox?", journal=journal, run_id="r", resources={"models": models}
    )
    assert result.output == "An answer about a fox. [refinement]"
    first = [row["messages"][0]["content"] for row in told]
    assert first[0] == "Be brief.\nPlan: What is a fox?"
    assert first[1] == "Be brief.\nDo: look it up [planning]"
    assert told[2]["messages"][-1]["content"] == "(red fox is an animal)"
    assert first[3].startswith("Be brief.\nAnswer What is a fox? with ")
    again = await run(made, journal=journal, run_id="r", resources={"models": models})
    assert again.to_json() == result.to_json()
