"""Tool calls are bounded: issue 11, section 5."""

from __future__ import annotations

from typing import Any

from loopwright import Budget, Loop, MaxIterations, run_sync
from loopwright.models import Models, ScriptedModel
from loopwright.prompts.tool_prompt import tool_prompt
from loopwright.records import Reason
from loopwright.tools import tool


def _talk(replies: list[Any], **options: Any) -> Any:
    made: list[int] = []

    @tool
    async def add(n: int) -> int:
        """Add."""
        made.append(n)
        return n

    budget = options.pop("budget", None)
    step = tool_prompt("Go.", [add], model="openai:m", name="p", **options)
    models = Models(ScriptedModel([{"replies": replies}]))
    loop = Loop(step, until=MaxIterations(1), name="l")
    return run_sync(loop, "x", resources={"models": models}, budget=budget), made


def _calls(number: int) -> dict[str, Any]:
    return {"tool_calls": [{"name": "add", "arguments": {"n": n}} for n in range(number)]}


def test_a_reply_with_more_than_128_calls_is_refused_and_asked_for_again() -> None:
    """None of its calls is made; the model is asked again, and told what was wrong."""
    result, made = _talk([_calls(129), "done"])
    assert (result.output, made) == ("done", [])
    result, made = _talk([_calls(128), "done"])
    assert (result.output, len(made)) == ("done", 128)


def test_the_limit_of_calls_per_reply_is_a_setting() -> None:
    """`max_tool_calls_per_reply` in Python; a reply at the limit is taken."""
    assert _talk([_calls(3), "done"], max_tool_calls_per_reply=2)[1] == []
    assert len(_talk([_calls(2), "done"], max_tool_calls_per_reply=2)[1]) == 2


def test_tool_calls_count_against_the_limit_of_effects() -> None:
    """A budget of effects bounds what one reply may do, with the attempt that asked for it."""
    result, made = _talk([_calls(100), "done"], budget=Budget(effects=11))
    assert (result.reason, len(made)) == (Reason.BUDGET, 10)
    assert "11 of 11 effects" in result.detail
