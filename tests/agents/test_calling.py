"""A model with tools: what is called, what it is told, and what the journal has of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tool_steps import answer, entries, talk, wants

from loopwright import MemoryJournal, Reason, Status
from loopwright.errors import StepError
from loopwright.tools import tool


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def last_message(result: Any, back: int = 2) -> Any:
    return result.output["messages"][-back]


def test_calls_are_made_and_told_until_the_model_answers() -> None:
    """Each reply's calls are made and told, the last reply is handed on with all of it."""
    journal = MemoryJournal()
    result = talk([add], [wants(("add", {"a": 1, "b": 2})), "it is 3"], journal)
    told = result.output
    assert (told["text"], told["rounds"], told["limit_reached"]) == ("it is 3", 2, False)
    assert told["tool_calls"] == [{"tool": "add", "arguments": {"a": 1, "b": 2}, "output": 3}]
    assert [m["role"] for m in told["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert told["messages"][2]["content"] == "3"
    assert entries(journal) == [
        "talk/agent/round-1/attempt-1", "talk/agent/round-1/call-1", "talk/agent/round-2/attempt-1",
    ]  # fmt: skip


def test_calls_of_one_reply_run_at_the_same_time_and_are_told_in_order() -> None:
    """Two calls that wait for each other both return, in the order in which they were asked."""
    here: list[int] = []
    both = asyncio.Event()

    async def meet(n: int) -> int:
        here.append(n)
        if len(here) == 2:
            both.set()
        await both.wait()
        return n

    result = talk([meet], [wants(("meet", {"n": 1}), ("meet", {"n": 2})), "done"])
    assert [call["output"] for call in result.output["tool_calls"]] == [1, 2]


def broken() -> None:
    raise ValueError("no such\n  thing")


def refused() -> None:
    raise StepError("not now", kind="busy")


@tool(timeout=0.01)
async def hanging() -> None:
    await asyncio.Event().wait()


@tool(limit=2000)
def loud() -> str:
    return "x" * 2_000_001


def unjson() -> object:
    return object()


@pytest.mark.parametrize(
    ("called", "given", "kind", "says"),
    [
        ("ad", {}, "unknown_tool", "did you mean 'add'?"),
        ("add", {"a": 1}, "invalid_arguments", "b: Field required"),
        ("add", {"a": 1, "b": 2, "c": 3}, "invalid_arguments", "c: Extra inputs"),
        ("add", [1, 2], "invalid_arguments", "not an object"),
        ("broken", {}, "ValueError", "ValueError: no such thing"),
        ("refused", {}, "busy", "not now"),
        ("hanging", {}, "timeout", "longer than 0.01 s"),
        ("loud", {}, "output_too_large", "2,000,001 bytes"),
        ("unjson", {}, "not_json", "object"),
    ],
)
def test_what_goes_wrong_with_a_call_is_told_to_the_model(
    called: str, given: Any, kind: str, says: str
) -> None:
    """Unknown tools, wrong arguments, exceptions, hangs and floods are data, never an exception."""
    tools = [add, broken, refused, hanging, loud, unjson]
    result = talk(tools, [wants((called, given)), "I see"])
    assert (result.status, result.output["text"]) == (Status.SATISFIED, "I see")
    error = result.output["tool_calls"][0]["error"]
    assert error["kind"] == kind
    assert says in error["message"]
    assert says in last_message(result)["content"].replace("\\", "")


def test_the_last_permitted_reply_s_calls_are_not_made() -> None:
    """With max_rounds=2 the second reply's calls are refused, in the conversation too."""
    again = wants(("add", {"a": 1, "b": 1}))
    result = talk([add], [again], max_rounds=2)
    told = result.output
    assert (told["rounds"], told["limit_reached"]) == (2, True)
    assert [call.get("output") for call in told["tool_calls"]] == [2, None]
    assert told["tool_calls"][1]["error"]["kind"] == "limit"
    assert told["messages"][-1]["role"] == "tool"


@pytest.mark.parametrize("size", [31_999, 32_001, 600_000, 2_000_000])
def test_what_re_enters_a_prompt_has_at_most_32000_characters(size: int) -> None:
    """Longer results are cut with a marker that says how many bytes are missing; the journal keeps
    up to 1 MiB of them."""

    def read() -> str:
        return "ä" * size

    result = talk([read], [wants(("read", {})), "ok"])
    content = last_message(result)["content"]
    call = result.output["tool_calls"][0]
    assert len(content) <= 32_000
    assert ("bytes omitted ...]" in content) == (size > 32_000)
    assert len(call["output"].encode()) <= 1024 * 1024
    assert ("omitted" in call) == (size * 2 > 1024 * 1024)
    if "omitted" in call:
        assert call["omitted"]["bytes"] == size * 2


@pytest.mark.parametrize(
    ("answered", "output", "error"),
    [
        ({"approve": True}, 3, None),
        (True, 3, None),
        ({"approve": True, "arguments": {"a": 10, "b": 20}}, 30, None),
        ({"approve": False, "reason": "too dear"}, None, "too dear"),
        ({"approve": "yes"}, None, "no reason"),
        ("never", None, "never"),
        ({"approve": True, "arguments": {"a": "x"}}, None, "as a person changed them"),
    ],
)
def test_an_approval_waits_for_a_person_and_survives_restarts(
    answered: Any, output: Any, error: str | None
) -> None:
    """A tool with `approve` suspends before it acts; the answer lets it act once, with the
    arguments that the person saw or gave, or is told to the model as a refusal."""
    made: list[int] = []

    @tool(approve=True)
    def pay(a: int, b: int) -> int:
        made.append(a + b)
        return a + b

    script = [wants(("pay", {"a": 1, "b": 2}), ("add", {"a": 1, "b": 1})), "done"]
    journal = MemoryJournal()
    for _ in range(2):  # asked again after each restart
        result = talk([pay, add], script, journal)
        assert (result.status, result.reason) == (Status.SUSPENDED, Reason.APPROVAL)
    assert result.request == {
        "path": "talk/agent/round-1/call-1/approval",
        "kind": "tool",
        "tool": "pay",
        "arguments": {"a": 1, "b": 2},
        "question": 'call pay with {"a":1,"b":2}?',
    }
    answer(journal, "talk/agent/round-1/call-1/approval", answered)
    for _ in range(2):
        result = talk([pay, add], script, journal)
        assert result.output["text"] == "done"
    call, other = result.output["tool_calls"]
    assert call.get("output") == output
    assert made == ([output] if output else [])
    assert other["output"] == 2
    if error:
        assert error in call["error"]["message"]


class Crash(BaseException):
    """The process dies."""


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_call_in_flight_at_a_crash_runs_again_only_if_it_may(idempotent: bool) -> None:
    """An idempotent tool is called again; any other suspends the run as needs_attention."""
    send, made = crashing(idempotent)
    script = [wants(("send", {"n": 7})), "sent"]
    journal = crashed(send, script)
    result = talk([send], script, journal)
    if idempotent:
        assert (result.output["text"], made) == ("sent", [7, 7])
    else:
        assert (result.status, result.reason) == (Status.SUSPENDED, Reason.NEEDS_ATTENTION)
        assert made == [7]


def crashing(idempotent: bool) -> tuple[Any, list[int]]:
    """Return a tool in whose first call the process dies, and the list of its calls."""
    made: list[int] = []

    @tool(idempotent=idempotent)
    async def send(n: int) -> int:
        made.append(n)
        if len(made) == 1:
            raise Crash
        return n

    return send, made


def crashed(send: Any, script: list[Any]) -> MemoryJournal:
    journal = MemoryJournal()
    with pytest.raises(Crash):
        talk([send], script, journal)
    journal.crash()
    return journal


@pytest.mark.parametrize(
    ("said", "call", "times"),
    [
        ("rerun", {"output": 7}, 2),
        ("fail", {"error": "a person said that it failed"}, 1),
        ({"output": "it had been sent"}, {"output": "it had been sent"}, 1),
    ],
)
def test_a_person_settles_a_call_in_doubt(said: Any, call: Any, times: int) -> None:
    """It is called again, it failed, or it returned what the person says: the model is told so."""
    send, made = crashing(False)
    script = [wants(("send", {"n": 7})), "done"]
    journal = crashed(send, script)
    assert talk([send], script, journal).reason is Reason.NEEDS_ATTENTION
    answer(journal, "talk/agent/round-1/call-1", said)
    for _ in range(2):
        result = talk([send], script, journal)
        assert (result.output["text"], len(made)) == ("done", times)
        (told,) = result.output["tool_calls"]
        if "error" in call:
            assert call["error"] in told["error"]["message"]
        else:
            assert told["output"] == call["output"]
