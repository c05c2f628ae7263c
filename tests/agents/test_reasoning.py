"""The reasoning agent: one conversation, its marker, its notice, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from reasoning_talk import NOTICE, Conversation, report

from loopwright import MemoryJournal, Reason, ReasoningAgent, Status, run
from loopwright.agents import executions
from loopwright.engine.run_record import raise_limit
from loopwright.errors import ConfigurationError
from loopwright.models import Models, ScriptedModel
from loopwright.tools import tool

# The conversation.


async def test_it_reasons_in_one_conversation_until_it_says_that_it_is_done() -> None:
    """Each call sees all that was said; the marker ends it, and the answer is what follows it."""
    talk = Conversation(
        "Let me think about 6.", "Building on that, 6 x 7.", "Therefore:\n**TASK_COMPLETE:** [42]"
    )
    result = await talk.ask(ReasoningAgent())
    assert (result.status, result.reason, result.output) == (
        Status.SATISFIED,
        Reason.CONDITION_MET,
        "42",
    )
    assert result.iterations == 3
    roles = [[message["role"] for message in row["messages"]] for row in talk.told]
    assert roles[0] == ["system", "user"]
    assert roles[2] == ["system", "user", "assistant", "user", "assistant", "user"]
    said = [m["content"] for m in talk.told[2]["messages"]]
    assert said[1] == "What is 6 x 7?"
    assert (said[2], said[4]) == ("Let me think about 6.", "Building on that, 6 x 7.")
    assert "TASK_COMPLETE: [final answer]" in said[0]
    assert "limit_reached" in report(result)
    assert report(result)["limit_reached"] is False


async def test_who_it_is_comes_before_the_instructions() -> None:
    """Role, goal, backstory and system, a template, are the head of the system message."""
    talk = Conversation("TASK_COMPLETE: 1")
    made = ReasoningAgent(
        "Solve: {{ value.question }}", role="a mathematician", goal="be exact",
        backstory="You taught for years.", system="Answer {{ value }} only.",
    )  # fmt: skip
    await talk.ask(made, {"question": "1 x 1"})
    system, user = (m["content"] for m in talk.told[0]["messages"])
    assert system.startswith(
        "You are a mathematician.\n\nYour goal: be exact\n\nYou taught for years.\n\nAnswer Solve: 1 x 1 only."
    )
    assert user == "Solve: 1 x 1"


async def test_templates_have_the_iteration() -> None:
    """The task and the system message name the iteration and the maximum; the task is that of iteration 1."""
    talk = Conversation("thinking", "TASK_COMPLETE: 1")
    text = "{{ iteration }} of {{ max_iterations }}"
    await talk.ask(ReasoningAgent(f"Task {text}", system=f"System {text}.", max_iterations=3))
    systems = [told["messages"][0]["content"] for told in talk.told]
    assert talk.users()[0] == "Task 1 of 3"
    assert [text.partition(".")[0] for text in systems] == ["System 1 of 3", "System 2 of 3"]


@pytest.mark.parametrize("most", [2, 3, 5])
async def test_the_last_permitted_call_is_told_that_it_is_the_last(most: int) -> None:
    """The notice is part of the user's message of that round, with the seed's words, and of no other."""
    talk = Conversation("thinking", "more")
    result = await talk.ask(ReasoningAgent(max_iterations=most))
    assert len(talk.told) == most
    assert talk.users()[-1].endswith("\n\n" + NOTICE.format(most, most))
    assert not any("IMPORTANT" in text for text in talk.users()[:-1])
    assert (result.status, result.reason) == (Status.EXHAUSTED, Reason.MAX_ITERATIONS)
    assert (result.output, report(result)["limit_reached"]) == ("more", True)


async def test_the_notice_may_come_earlier() -> None:
    """With a lead of 3 the two rounds before the last are told how far they are."""
    talk = Conversation("thinking")
    await talk.ask(ReasoningAgent(max_iterations=4, notice_lead=3))
    tails = [text.rpartition("\n\n")[2][:41] for text in talk.users()]
    assert tails[0] == "What is 6 x 7?"
    assert tails[1:] == [f"IMPORTANT: This is iteration {n} of 4 maxim" for n in (2, 3, 4)]
    assert "Work towards" in talk.users()[1]
    assert "You MUST" in talk.users()[3]


@pytest.mark.parametrize(
    ("fields", "output"),
    [({"max_iterations": 1}, "42"), ({"mode": "single"}, "TASK_COMPLETE: 42")],
)
async def test_a_single_step_is_one_plain_call(fields: dict[str, Any], output: str) -> None:
    """No wrapper and no notice; a marker is read where the agent has iterations, even if it is one."""
    talk = Conversation("TASK_COMPLETE: 42")
    result = await talk.ask(ReasoningAgent(**fields))
    assert talk.told[0]["messages"] == [{"role": "user", "content": "What is 6 x 7?"}]
    assert (result.status, result.output) == (Status.SATISFIED, output)
    assert (report(result)["interaction_count"], report(result)["limit_reached"]) == (1, False)


async def test_a_marker_in_the_prompt_does_not_count() -> None:
    """What the user wrote, quoted back whole, is no answer."""
    task = "Say\nTASK_COMPLETE: yes\nin the end."
    talk = Conversation(f"You want:\n{task}\nI think.", "TASK_COMPLETE: my own")
    result = await talk.ask(ReasoningAgent(), task)
    assert (result.output, result.iterations) == ("my own", 2)


@tool(idempotent=True)
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def test_it_may_call_tools_and_remembers_what_they_said() -> None:
    """The calls of a round and their answers are part of the conversation of the next."""
    call = {"tool_calls": [{"name": "multiply", "arguments": {"a": 6, "b": 7}}]}
    talk = Conversation("Let me multiply.", call, "It is 42.", "TASK_COMPLETE: 42")
    journal = MemoryJournal()
    result = await talk.ask(ReasoningAgent(tools=[multiply]), journal=journal, run_id="r")
    assert (result.output, report(result)["interaction_count"], result.iterations) == ("42", 4, 3)
    roles = [message["role"] for message in talk.told[-1]["messages"]]
    assert roles == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert talk.told[-1]["messages"][5]["content"] == "42"
    again = await talk.ask(ReasoningAgent(tools=[multiply]), None, journal=journal, run_id="r")
    assert again.to_json() == result.to_json()


async def test_a_person_may_raise_the_limit_of_an_agent_that_used_it_up() -> None:
    """It goes on in the same conversation, and the notice counts to the new limit."""
    talk, journal = Conversation("one", "two", "three", "TASK_COMPLETE: 4"), MemoryJournal()
    made = ReasoningAgent(max_iterations=2)
    first = await talk.ask(made, journal=journal, run_id="r")
    assert (first.output, report(first)["limit_reached"]) == ("two", True)
    await raise_limit(journal, "r", max_iterations=4)
    models = Models(ScriptedModel(talk.script), transcript=talk.told.append)
    models.model.continued("r", await journal.entries("r"))
    again = await run(
        made, journal=journal, run_id="r", resources={"models": models, "model": "openai:any"}
    )
    assert (again.output, again.satisfied, report(again)["limit_reached"]) == ("4", True, False)
    assert report(again)["interaction_count"] == 4
    assert talk.users()[-1].endswith(NOTICE.format(4, 4))
    (found,) = await executions(journal)
    assert (found.result, found.limit_reached) == ("4", False)


# What is wrong.


@pytest.mark.parametrize(
    ("task", "words"),
    [("", "the task is blank"), (" \n\t", "the task is blank"), (None, "the task is of type NoneType"),
     (42, "the task is of type int"), ("x" * 10_001, "10001 characters, and the maximum is 10000")],
)  # fmt: skip
async def test_a_task_that_cannot_be_is_refused_before_a_call_is_paid(
    task: Any, words: str
) -> None:
    """Blank, too long, no text: the run fails with a sentence, and the execution with it."""
    talk, journal = Conversation("never"), MemoryJournal()
    result = await talk.ask(ReasoningAgent(), task, journal=journal)
    assert (result.status, talk.told) == (Status.FAILED, [])
    assert words in result.detail
    (found,) = await executions(journal)
    assert (found.status, found.interaction_count, found.completed_at is not None) == (
        "failed",
        0,
        True,
    )
    assert words in found.error


async def test_ten_thousand_characters_are_a_setting() -> None:
    """Exactly the limit is allowed, and the limit is configurable."""
    assert (await Conversation("TASK_COMPLETE: 1").ask(ReasoningAgent(), "x" * 10_000)).satisfied
    assert (
        await Conversation("1").ask(ReasoningAgent(max_prompt_chars=3), "four")
    ).status is Status.FAILED
    assert (
        await Conversation("TASK_COMPLETE: 1").ask(
            ReasoningAgent(max_prompt_chars=20_000), "x" * 10_001
        )
    ).satisfied


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_iterations": 0}, "max_iterations: 0"),
        ({"mode": "singel"}, "did you mean 'single'"),
        ({"notice_lead": 0}, "notice_lead: 0"),
        ({"max_prompt_chars": 0}, "max_prompt_chars: 0"),
        ({"name": ""}, "use a text without a slash"),
        ({"max_iterations": 1001}, "use at most 1000"),
    ],
)
def test_settings_that_could_not_mean_anything_are_refused(fields: Any, words: str) -> None:
    """Wrong settings are an error when the agent is made."""
    with pytest.raises(ConfigurationError, match=words):
        ReasoningAgent(**fields)
