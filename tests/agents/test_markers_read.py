"""When a reasoning agent has answered: issue 11, section 3."""

from __future__ import annotations

import pytest

from loopwright import run_sync
from loopwright.agents import ReasoningAgent, completion
from loopwright.agents.reasoning import NOTICE, WRAPPER
from loopwright.models import Models, ScriptedModel

NEVER = [
    WRAPPER,
    f"I was told:\n{WRAPPER}\nLet me begin.",
    NOTICE.format(number=5, most=5),
    "TASK_COMPLETE: [final answer]\nOk, now let me think.",
    "**TASK_COMPLETE:** [answer] in this response.",
    "<think>\nTASK_COMPLETE: 5\nno wait\n</think>\nLet me verify.",
    "TASK_COMPLETE: 5\nno wait\n</think>\nLet me verify.",
    "<thinking>I will write\nTASK_COMPLETE: 5</thinking>I go on.",
]
TASK = "Add 2 and 2. The last line of your reply is\nTASK_COMPLETE: <the sum>\nand nothing else."
ECHOES = [
    "I will write on its own line:\nTASK_COMPLETE: <the sum>",
    "**TASK_COMPLETE: <the sum>**",
    "TASK_COMPLETE: <the sum>\nLet me begin.",
]


@pytest.mark.parametrize("text", ECHOES)
@pytest.mark.parametrize("lenient", [False, True])
def test_the_placeholder_of_the_task_is_no_answer(text: str, lenient: bool) -> None:
    """A marker line that the task has too completes nothing, nor does it hide an answer before it."""
    assert completion(text, TASK, lenient=lenient) is None
    assert completion(f"{text}\nTASK_COMPLETE: 4", TASK, lenient=lenient) == "4"
    assert completion(f"TASK_COMPLETE: <the sum>\n{text}") is not None


def test_an_answer_that_the_task_offers_is_one() -> None:
    """A single word, or one of several choices, is no placeholder."""
    for task, answer in [
        ("Say TASK_COMPLETE: done at the end.", "done"),
        ("Say TASK_COMPLETE: plan A or TASK_COMPLETE: plan B", "plan A"),
    ]:
        assert completion(f"TASK_COMPLETE: {answer}", task) == answer
    assert completion("TASK_COMPLETE: the sum", "End with TASK_COMPLETE: the sum.") is None


def test_a_thinking_block_after_the_answer_is_not_part_of_it() -> None:
    """A block at the end is left out, and a marker inside a block completes nothing."""
    assert completion("TASK_COMPLETE: 42\n<think>\nchecked\n</think>") == "42"
    assert completion("So.\n<think>\nTASK_COMPLETE: 5\n</think>\nI go on.") is None
    kept = "use <think>a</think>\n<think>\nb\n</think>\nc"
    assert completion(f"TASK_COMPLETE: {kept}") == kept


def test_one_plain_call_reads_the_marker_that_its_task_asks_for() -> None:
    """With one iteration the output is the answer too."""
    models = Models(ScriptedModel([{"replies": ["It is six.\nTASK_COMPLETE: 7"]}]))
    agent = ReasoningAgent(model="openai:m", max_iterations=1)
    result = run_sync(agent, "End with TASK_COMPLETE: and it", resources={"models": models})
    assert result.output == "7"


LATE = {
    "Therefore, TASK_COMPLETE: 4": "4",
    "So TASK_COMPLETE: 4": "4",
    "It is 2 + 2 = 4. TASK_COMPLETE: 4": "4",
    "- **TASK_COMPLETE:** 4": "4",
    "1. TASK_COMPLETE: 4": "4",
    "> TASK_COMPLETE: 4": "4",
    "```\nTASK_COMPLETE: 4\n```": "4",
    "```text\nTASK_COMPLETE: 4\n```\nThat is all.": "4",
    "Done.\n- TASK_COMPLETE: [1, 2, 3]": "[1, 2, 3]",
}


@pytest.mark.parametrize("text", NEVER)
@pytest.mark.parametrize("lenient", [False, True])
def test_echoed_instructions_and_thinking_never_complete_the_task(text: str, lenient: bool) -> None:
    """Neither in a round nor in the last one."""
    assert completion(text, lenient=lenient) is None


@pytest.mark.parametrize("text", [*NEVER, *LATE])
def test_an_earlier_answer_holds_where_the_instructions_follow(text: str) -> None:
    """What says nothing does not take the place of what does."""
    if "think" not in text:
        assert completion(f"TASK_COMPLETE: 7\n\n{text}") is not None


@pytest.mark.parametrize(("text", "answer"), LATE.items())
def test_the_marker_is_read_leniently_on_the_last_iteration_alone(text: str, answer: str) -> None:
    """In a list, after a word or a sentence, and in a fence; and it is removed from the answer."""
    assert completion(text) is None
    assert completion(text, lenient=True) == answer


@pytest.mark.parametrize(
    "text",
    [
        "I must end with TASK_COMPLETE: and my answer.",
        "I will not write TASK_COMPLETE: until I am sure",
        "TASK_COMPLETE",
        "TASK_COMPLETE:",
    ],
)
def test_a_sentence_about_the_marker_completes_nothing(text: str) -> None:
    """Not even on the last iteration."""
    assert completion(text, lenient=True) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("TASK_COMPLETE: [1, 2, 3]", "[1, 2, 3]"),
        ("TASK_COMPLETE: ['a', 'b']", "['a', 'b']"),
        ('TASK_COMPLETE: ["a"]', '["a"]'),
        ('TASK_COMPLETE: [{"x": 1}]', '[{"x": 1}]'),
        ("TASK_COMPLETE: [42]", "42"),
        ("TASK_COMPLETE: [It is 4, of course]", "It is 4, of course"),
    ],
)
def test_a_list_answer_keeps_its_brackets(text: str, answer: str) -> None:
    """Brackets around a sentence are the placeholder's; those of a list are the answer's."""
    assert completion(text) == answer


def _agent(replies: list[str], most: int = 3) -> object:
    models = Models(ScriptedModel([{"replies": replies}]))
    agent = ReasoningAgent(model="openai:m", max_iterations=most)
    return run_sync(agent, "2 + 2?", resources={"models": models})


def test_a_last_round_is_complete_with_a_lenient_marker() -> None:
    """The run is satisfied, the marker is not in the output, the limit is not reached."""
    result = _agent(["hm", "hm", "Therefore, TASK_COMPLETE: 4"])
    assert (result.status.value, result.output) == ("satisfied", "4")
    assert result.agents["agent"]["limit_reached"] is False


def test_an_echo_in_an_early_round_is_followed_by_another_round() -> None:
    """Echoed instructions do not end the task."""
    result = _agent([WRAPPER, "- TASK_COMPLETE: 5", "TASK_COMPLETE: 4"])
    assert (result.output, len(result.history)) == ("4", 3)


@pytest.mark.parametrize("task", ["", " \n", "\u200b\u200c", "\ufeff"])
def test_a_task_of_nothing_to_see_is_refused(task: str) -> None:
    """Zero-width characters are no task."""
    models = Models(ScriptedModel([{"replies": ["x"]}]))
    result = run_sync(ReasoningAgent(model="openai:m"), task, resources={"models": models})
    assert result.status.value == "failed" and "blank" in result.detail
