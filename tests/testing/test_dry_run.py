"""A dry run takes every result from rules, and nothing acts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loopwright import Budget, Context, Loop, MaxIterations, Passed, Workflow
from loopwright.agents import Capability
from loopwright.agents.capabilities import Hooks
from loopwright.engine.adapters import merge
from loopwright.errors import DocumentError
from loopwright.evaluators import check, test_report
from loopwright.models import ScriptedModel
from loopwright.prompts import prompt
from loopwright.prompts.tool_prompt import tool_prompt
from loopwright.records import Result, Status
from loopwright.testing import dry_run_sync
from loopwright.tools import command_tool, mcp_server, shell, tool


def never(value: Any) -> Any:
    """Fail: a dry run calls no function of the user."""
    raise AssertionError(f"called with {value!r}")


def tried(step: Any, *rules: dict[str, Any], **options: Any) -> Result:
    """Run a step on "x" with rules."""
    return dry_run_sync(step, "x", replies=list(rules), **options)


@pytest.mark.parametrize("output", [None, 0, False, "", [1, {"a": None}], "text"])
def test_the_output_of_a_function_is_that_of_its_rule(output: Any) -> None:
    """Every JSON value can stand for a result, null and false too."""
    assert tried(never, {"output": output}).output == output


def test_an_effect_without_a_rule_is_an_error_that_names_it() -> None:
    """The failure has the kind, the path and a rule to add."""
    result = tried(Workflow("w", {"a": never, "b": never}), {"step": "*/a", "output": 1})
    assert result.status is Status.FAILED
    assert result.error.kind == "no_stub"
    assert result.error.path == "w/b"
    assert "{step: 'w/b', output: …}" in result.error.message


@pytest.mark.parametrize("word", ["timeout", "overloaded"])
def test_an_error_has_the_kind_of_its_rule(word: str) -> None:
    """`error: WORD` fails a function and a command with that kind."""
    for step in (never, shell("false")):
        assert tried(step, {"error": word}).error.kind == word


def test_a_command_does_not_run_and_has_the_exit_code_of_its_rule(tmp_path: Path) -> None:
    """Exit code and output are read as those of the command."""
    touch = f"touch {tmp_path / 'file'}"
    assert tried(shell(touch), {"output": "printed"}).output == "printed"
    assert tried(shell(touch, output="json"), {"output": {"a": 1}}).output == {"a": 1}
    assert tried(shell(touch), {"exit": 2, "output": "bad"}).error.kind == "exit_status"
    assert tried(shell(touch, allow_exit=[2]), {"exit": 2, "output": "bad"}).output == "bad"
    assert list(tmp_path.iterdir()) == []


def test_a_function_has_no_exit_code() -> None:
    """The rule is an error of its own kind."""
    assert tried(never, {"exit": 1}).error.kind == "bad_stub"


def test_a_loop_with_commands_ends_as_its_rules_say() -> None:
    """Iterations have their own rules, and a test report is read from the output."""
    tests = test_report("pytest", report="report.xml")
    rules = (
        {"step": "*/execute", "output": "fixed"},
        {"step": "*/1/evaluate", "exit": 1, "output": "1 failed, 3 passed in 0.1s"},
        {"step": "*/evaluate", "output": "4 passed in 0.1s"},
    )
    result = tried(Loop(never, tests, until=Passed(), guards=MaxIterations(5)), *rules)
    assert [item.score for item in result.history] == [0.75, 1.0]
    assert result.satisfied


def test_checks_and_adapters_call_no_function_of_the_user() -> None:
    """A function inside a check or `merge` is replaced too."""
    loop = Loop(lambda value: value, check(never), merge(never), until=MaxIterations(2))
    rules = (
        {"step": "*/execute", "output": "draft"},
        {"step": "*/evaluate", "output": 0.5},
        {"step": "*/adapt", "output": {"hint": "shorter"}},
    )
    result = tried(loop, *rules)
    assert result.history[1].input == {"input": "x", "hint": "shorter"}
    assert result.history[1].score == 0.5


def test_tools_get_outputs_and_errors_and_approvals_get_answers() -> None:
    """A tool's error reaches the model, and a question to a person is answered by a rule."""
    search = tool(never, name="search", approve=True)
    run = command_tool("run", [["make", "{target}"]])
    calls = [
        {"name": "search", "arguments": {"value": 1}},
        {"name": "run", "arguments": {"argv": ["make", "all"]}},
    ]
    rules: Sequence[dict[str, Any]] = (
        {"replies": [{"tool_calls": calls}, "done"]},
        {"step": "*/approval", "output": True},
        {"step": "*call-1", "error": "not_there"},
        {"step": "*call-2", "exit": 2, "output": "no target"},
    )
    seen: list[dict[str, Any]] = []
    step = tool_prompt("{{ value }}", [search, run], name="p")
    result = tried(
        step,
        *rules,
        listeners=[
            lambda e: seen.append(e.value) if "call-" in e.path and e.kind == "finished" else None
        ],
    )
    assert result.output == "done"
    assert seen[0]["error"]["kind"] == "not_there"
    assert seen[1]["output"] == {"exit_code": 2, "stdout": "no target", "stderr": ""}


def test_a_tool_without_a_rule_ends_the_run() -> None:
    """The model does not receive the missing rule as a result of the tool."""
    call = {"tool_calls": [{"name": "search", "arguments": {"value": 1}}]}
    step = tool_prompt("{{ value }}", [tool(never, name="search")], name="p")
    assert tried(step, {"replies": [call, "done"]}).error.kind == "no_stub"


def test_budgets_bind_as_in_a_real_run() -> None:
    """Model calls of a dry run count."""
    loop = Loop(prompt("{{ value }}"), until=MaxIterations(5))
    result = tried(loop, {"replies": ["a"]}, budget=Budget(calls=2))
    assert (result.reason.value, result.usage.calls) == ("budget", 2)


def test_hooks_of_capabilities_are_replaced() -> None:
    """The output of the rule is the answer of the hook."""

    class Own(Capability):
        async def process_prompt(self, *args: Any) -> str:
            return str(never(args))

    ((_, hook),) = Hooks((Own(),)).of("process_prompt")
    assert hook.stub == "Python function"
    assert hook.stubbed(True) == {"answer": True}


def test_a_function_that_calls_steps_is_one_effect() -> None:
    """Its rule stands for everything in it."""

    async def outer(value: Any, ctx: Context) -> Any:
        return await ctx.call("inner", never, value)

    assert tried(outer, {"output": 1}).output == 1


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("- {step: a}", "has no result"),
        ("- {step: a, output: 1, replies: [b]}", "write two rules"),
        ("- {step: a, output: 1, prompt: b}", "write two rules"),
        ("- {step: a, exit: one}", "is not an exit code"),
        ("- {step: a, exit: 999}", "is not an exit code"),
        ("- {step: a, error: 'two words'}", "give a word such as timeout"),
        ("- {step: a, error: bad, exit: 1}", "error stands alone"),
        ("- {step: a, outptu: 1}", "did you mean 'output'"),
    ],
)
def test_wrong_rules_are_problems_with_places(rules: str, message: str) -> None:
    """Each problem has its line and says what to write."""
    with pytest.raises(DocumentError) as raised:
        ScriptedModel(rules)
    (problem,) = raised.value.problems
    assert problem.line == 1
    assert message in problem.message


def test_an_mcp_server_is_not_started() -> None:
    """Its list of tools and their results come from rules."""
    server = mcp_server("files", ["does-not-exist"])
    listing = [{"name": "read", "description": "Read.", "inputSchema": {"type": "object"}}]
    call = {"tool_calls": [{"name": "read", "arguments": {"path": "a"}}]}
    rules = (
        {"step": "*files/tools-1", "output": listing},
        {"step": "*/call-1", "output": "content"},
        {"replies": [call, "done"]},
    )
    step = tool_prompt("{{ value }}", [server], name="p")
    assert tried(step, *rules).output == "done"
    assert tried(step, *rules[1:]).error.kind == "no_stub"


@pytest.mark.parametrize(
    ("answer", "reason", "iterations"),
    [
        (True, "max_iterations", 3),
        ({"approve": True}, "max_iterations", 3),
        ({"accept": True}, "accepted", 1),
        (False, "stopped", 1),
        ("not yet", "stopped", 1),
    ],
)
def test_a_rule_answers_the_questions_of_a_loop(answer: Any, reason: str, iterations: int) -> None:
    """Approval, acceptance and refusal; at the limit an approval does not raise it."""
    loop = Loop(never, until=MaxIterations(3), approve=("iteration", "limit"))
    rules = (
        {"step": "*/execute", "output": 1},
        {"step": "*/approve", "output": answer},
        {"step": "*/limit", "output": True},
    )
    result = tried(loop, *rules)
    assert (result.reason.value, result.iterations) == (reason, iterations)
