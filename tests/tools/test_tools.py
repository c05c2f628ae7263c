"""Tools: what a function's signature and docstring say, what commands are allowed, what is kept."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loopwright import Context, MemoryJournal, Status, run
from loopwright.errors import ConfigurationError
from loopwright.journal.sqlite import SqliteJournal
from loopwright.models import Models, ScriptedModel
from loopwright.prompts.tool_prompt import tool_prompt, tool_step, tools_of
from loopwright.records.display import PROMPT_CHARS, shown
from loopwright.tools import FunctionTool, Tool, call_tool, command_tool, tool
from loopwright.tools.base import INLINE_BYTES, bounded


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Order(BaseModel):
    item: str
    count: int = 1


async def search(
    query: str,
    limit: Annotated[int, Field(ge=1, le=50)] = 5,
    kind: Literal["web", "news"] = "web",
    *,
    ctx: Context,
) -> list[str]:
    """Search for pages.

    Use it for facts.

    Args:
        query: what to look for,
            in words
        limit (int): how many at most

    Returns:
        The pages.
    """
    return [f"{query} {n}" for n in range(limit)] + [ctx.path, kind]


def test_a_signature_is_the_schema_and_a_docstring_the_description() -> None:
    """Types, defaults and limits become JSON Schema; the context is no argument; the Args section
    describes the arguments."""
    made = tool(search)
    assert made.name == "search"
    assert made.description == "Search for pages.\n\nUse it for facts."
    assert made.schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {"title": "Query", "type": "string", "description": "what to look for, in words"},
            "limit": {
                "title": "Limit", "type": "integer", "minimum": 1, "maximum": 50, "default": 5,
                "description": "how many at most",
            },
            "kind": {"title": "Kind", "type": "string", "enum": ["web", "news"], "default": "web"},
        },
    }  # fmt: skip


def called(made: Any, arguments: Any) -> Any:
    """Run one call of a tool as a step."""
    return asyncio.run(run(tool_step(made), arguments, journal=MemoryJournal()))


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ({"query": "a", "limit": 1}, ["a 0", "search/call", "web"]),
        ({"query": "b", "kind": "news", "limit": 1}, ["b 0", "search/call", "news"]),
    ],
)
def test_a_function_is_called_with_its_arguments_and_the_context(given: Any, output: Any) -> None:
    """Defaults are filled in, and a parameter of type Context is the call's own."""
    assert called(tool(search), given).output == output


def test_arguments_become_the_types_of_the_signature() -> None:
    """Dataclasses, models and enumerations arrive as such, and models return as JSON."""

    def take(point: Point, order: Order, color: Color) -> Order:
        assert isinstance(point, Point)
        assert color is Color.RED
        return Order(item=order.item, count=point.x)

    made = {"point": {"x": 3}, "order": {"item": "pen"}, "color": "red"}
    assert called(tool(take), made).output == {"item": "pen", "count": 3}


def anything(*words: str) -> None: ...
def positional(word: str, /) -> None: ...
def strange(word: asyncio.Future[int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (anything, "words: models call tools by name"),
        (positional, "word: models call tools by name"),
        (strange, "the type of a parameter has no JSON Schema"),
        (lambda x: x, "is not a valid name"),
    ],
)
def test_a_signature_that_no_model_can_call_is_refused(function: Any, says: str) -> None:
    """What could not be called by name with JSON is told when the tool is made."""
    with pytest.raises(ConfigurationError, match=says):
        tool(function)


ALLOWED = [
    ["git", "status"],
    ["git", "log", "--oneline", "-n", "{count}", "{paths...}"],
    ["git", "log", "--since={date}"],
    ["find", "{folder}", "-name", "{pattern}"],
    ["grep", "-r", "--", "{pattern:any}", "."],
    ["cp", "{files...}", "backup/"],
    ["ls", "{options...:any}"],
]


@pytest.mark.parametrize(
    ("argv", "fine"),
    [
        (["git", "status"], True),
        (["git", "status", "-s"], False),
        (["git"], False),
        (["git", "push"], False),
        (["git", "log", "--oneline", "-n", "3"], True),
        (["git", "log", "--oneline", "-n", "3", "a", "b c; rm -rf /"], True),
        (["git", "log", "--oneline", "-n", "3", "--output=FILE"], False),
        (["git", "log", "--oneline", "-n", "-3"], False),
        (["git", "log", "--output=FILE"], False),
        (["git", "log", "--since=yesterday"], True),
        (["git", "log", "--since=yesterday", "--output=FILE"], False),
        (["find", ".", "-name", "*.py"], True),
        (["find", ".", "-name", "*.py", "-exec", "rm", "{}", "+"], False),
        (["find", "-delete", "-name", "x"], False),
        (["grep", "-r", "--", "-x", "."], True),
        (["cp", "a", "b", "backup/"], True),
        (["cp", "backup/"], True),
        (["cp", "--target-directory=/", "backup/"], False),
        (["cp", "a", "elsewhere/"], False),
        (["ls"], True),
        (["ls", "-la", "x"], True),
        (["sh", "-c", "echo"], False),
        (["/bin/ls"], False),
        ([], False),
        ("git status", False),
        ([["git", "status"]], False),
    ],
)
def test_only_whole_commands_of_the_list_are_called(argv: Any, fine: bool) -> None:
    """A beginning is no permission: each word is of the list, or stands at one of its free places."""
    assert (command_tool("run", ALLOWED).problem_with({"argv": argv}) == "") is fine


def test_the_refusal_names_what_is_allowed() -> None:
    """A model is told the commands, with their places."""
    said = command_tool("git", [["git", "log", "{path}"]]).problem_with({"argv": ["git", "log"]})
    assert said == "'git log' is not allowed; only these are: git log {path}"


def test_a_command_returns_its_exit_code_and_both_streams() -> None:
    """A failing command is no error: the model sees how it ended; words are not parsed again."""
    made = command_tool("run", [[sys.executable, "-c", "{code}", "{word}"]])
    code = "import sys; print(sys.argv[1]); print(sys.stdin.read(), file=sys.stderr); sys.exit(3)"
    given = {"argv": [sys.executable, "-c", code, "$(id) ; *"], "stdin": "in"}
    assert called(made, given).output == {
        "exit_code": 3,
        "stdout": "$(id) ; *\n",
        "stderr": "in\n",
    }


def test_a_command_is_given_the_variables_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is without keys, but for those of `pass_env`."""
    monkeypatch.setenv("A_KEY", "k1")
    monkeypatch.setenv("ANOTHER_KEY", "k2")
    made = command_tool("env", [["env"]], pass_env=["A_KEY", "NOT_SET"])
    said = called(made, {"argv": ["env"]}).output["stdout"]
    assert "A_KEY=k1\n" in said
    assert "ANOTHER_KEY" not in said
    assert "NOT_SET" not in said
    assert (
        "ANOTHER_KEY=k2"
        in called(made.passing(["ANOTHER_KEY"]), {"argv": ["env"]}).output["stdout"]
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([], "list the allowed commands"),
        (["echo"], "list the allowed commands"),
        ([[]], "is not a command. Use a list of words"),
        ([["a"], []], "is not a command. Use a list of words"),
        ([["{program}"]], "the program cannot be a placeholder"),
        ([["a", "{b...}", "{c...}"]], "two placeholders stand for any number of words"),
        (
            [["a", "--b={c...}"]],
            "'--b={c...}': a placeholder for any number of words cannot follow other text",
        ),
    ],
)
def test_a_list_that_allows_nothing_is_refused(wrong: Any, says: str) -> None:
    """Each allowed command is a list of words, of which the first names the program."""
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        command_tool("run", wrong)


@pytest.mark.parametrize("wrong", ["A_KEY", ["A KEY"], ["A=B"], [""]])
def test_what_cannot_be_a_variable_is_refused(wrong: Any) -> None:
    """`pass_env` is a list of names."""
    with pytest.raises(ConfigurationError, match="is not a list of variable names"):
        command_tool("run", [["env"]], pass_env=wrong)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.integers(0, 60_000))
def test_whatever_a_tool_returns_fits_into_the_journal_and_the_prompt(
    word: str, times: int
) -> None:
    """At most 1 MiB is kept and 32,000 characters shown, and what is left out is counted exactly."""
    text = (word or "x").encode("utf-8", "replace").decode() * times
    inline, omitted = bounded(text)
    assert isinstance(inline, str)
    assert len(inline.encode()) <= INLINE_BYTES
    assert bool(omitted) == (len(text.encode()) > INLINE_BYTES)
    seen = shown(text)
    assert len(seen) <= PROMPT_CHARS
    if len(text) > PROMPT_CHARS:
        head, _, rest = seen.partition("\n[... ")
        count, _, tail = rest.partition(" bytes omitted ...]\n")
        assert int(count) == len(text.encode()) - len(head.encode()) - len(tail.encode())
    else:
        assert seen == text


class Desk:
    """A set of tools."""

    fingerprint = "desk"

    def __init__(self, name: str) -> None:
        self.name = name

    async def tools(self, ctx: Context) -> list[Tool]:
        del ctx
        return [FunctionTool(search), FunctionTool(search, name=f"only_{self.name}")]


def test_tools_of_two_sets_with_one_name_are_told_apart() -> None:
    """A name that two sets share is called set__name; without a set it is refused."""

    async def names(value: Any, ctx: Context) -> list[str]:
        return list(await tools_of(ctx, value))

    async def both(value: Any, ctx: Context) -> list[str]:
        del value
        return list(await tools_of(ctx, [Desk("a"), Desk("b")]))

    found = asyncio.run(run(both, journal=MemoryJournal())).output
    assert found == ["a__search", "only_a", "b__search", "only_b"]

    async def twice(value: Any, ctx: Context) -> list[str]:
        del value
        return list(await tools_of(ctx, [search, search]))

    result = asyncio.run(run(twice, journal=MemoryJournal()))
    assert "two are called 'search'" in result.detail


def test_a_prompt_with_tools_is_a_step_of_python() -> None:
    """tool_prompt asks, calls and reads: structured output too."""
    script = [
        {"tool_calls": [{"name": "search", "arguments": {"query": "x", "limit": 1}}]},
        {"json": {"found": 1}},
    ]
    step = tool_prompt(
        "Find {{ value }}.", [search], model="openai:m",
        schema={"type": "object", "required": ["found"]},
    )  # fmt: skip
    resources = {"models": Models(ScriptedModel([{"replies": script}]))}
    result = asyncio.run(run(step, "x", journal=MemoryJournal(), resources=resources))
    assert (result.status, result.output) == (Status.SATISFIED, {"found": 1})


def test_a_long_result_is_on_record_whole_and_goes_on_by_its_ends(tmp_path: Path) -> None:
    """Above 1 MiB who calls gets the ends and the size; the journal has all of it, as one file; a
    tool as a step hands on the whole."""
    whole = "".join(f"line {n}\n" for n in range(300_000))

    @tool
    def read() -> str:
        """Read."""
        return whole

    async def calling(value: Any, ctx: Context) -> Any:
        return await call_tool(ctx, "read", read, {})

    async def job() -> None:
        async with SqliteJournal(tmp_path / "runs.db") as journal:
            told = (await run(calling, None, journal=journal, run_id="one")).output
            assert set(told) == {"tool", "arguments", "output", "omitted"}
            assert told["output"].startswith(whole[:1000]) and told["output"].endswith(
                whole[-1000:]
            )
            assert len(told["output"]) <= INLINE_BYTES
            assert told["omitted"]["bytes"] == len(whole)
            kept_ = [e.value for e in await journal.entries("one") if e.path.endswith("/read")]
            assert [value["whole"] for value in kept_ if value and "whole" in value] == [whole]
            assert (await run(read, {}, journal=journal, run_id="two")).output == whole
        files = [f for f in (tmp_path / "runs.db.files").rglob("*") if f.is_file()]
        assert any(f.stat().st_size > len(whole) for f in files)

    asyncio.run(job())
