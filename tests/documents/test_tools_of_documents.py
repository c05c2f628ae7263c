"""Tools and servers of documents: declared, told before they run, called, and wrong ones refused."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopwright import MemoryJournal, Reason, Result, Status, run
from loopwright.documents import Settings, load
from loopwright.documents.load import to_native_yaml
from loopwright.errors import DocumentError

ODD = [sys.executable, "-I", str(Path(__file__).parents[1] / "tools" / "misbehaving.py")]
CODE = '''
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b
'''
DOCUMENT: dict[str, Any] = {
    "schema": "loopwright/1",
    "name": "main",
    "model": "openai:gpt-4o",
    "servers": {"odd": {"command": ODD, "only": ["echo", "fail"], "approve": ["fail"]}},
    "tools": {
        "add": {"python": "toolbox:add", "description": "Adds."},
        "run": {"commands": [["echo", "{words...}"]], "env": {"A": "b"}},
    },
    "steps": [{"name": "ask", "prompt": "{{ input }}", "tools": ["add", "run", "odd"]}],
}


def calling(*calls: tuple[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": given} for name, given in calls]}


def folder_of(tmp_path: Path, document: dict[str, Any], replies: list[Any]) -> Path:
    """Write a document with its code and its replies; return its file."""
    (tmp_path / "toolbox.py").write_text(CODE)
    (tmp_path / "replies.yaml").write_text(json.dumps([{"replies": replies or ["ok"]}]))
    file = tmp_path / "main.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def ran(
    tmp_path: Path, document: dict[str, Any], replies: list[Any] | None = None, journal: Any = None
) -> Result:
    file = folder_of(tmp_path, document, replies or [])
    loaded = load(file, Settings(replies=str(tmp_path / "replies.yaml")))
    store = journal or MemoryJournal()
    return asyncio.run(run(loaded.step, "go", journal=store, resources=loaded.resources))


def with_steps(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**DOCUMENT, **more, "steps": list(steps)}


def test_a_prompt_calls_functions_commands_and_servers(tmp_path: Path) -> None:
    """The model's calls go to all three kinds, and its last reply is the output."""
    journal = MemoryJournal()
    first = calling(
        ("add", {"a": 2}), ("run", {"argv": ["echo", "hi"]}), ("echo", {"text": "x"}),
        ("run", {"argv": ["rm", "x"]}),
    )  # fmt: skip
    result = ran(tmp_path, DOCUMENT, [first, "done"], journal)
    assert (result.status, result.output) == (Status.SATISFIED, "done")
    (info,) = asyncio.run(journal.runs())
    recorded = asyncio.run(journal.entries(info.run_id))
    calls = {e.path.rpartition("/")[2]: e.value for e in recorded if "call-" in e.path and e.value}
    assert calls["call-1"] == {"output": 3}
    assert calls["call-2"]["output"] == {"exit_code": 0, "stdout": "hi\n", "stderr": ""}
    assert calls["call-3"] == {"output": "x"}
    assert "call-4" not in calls  # what is not allowed is told to the model, and never begun


def test_a_marked_tool_of_a_server_waits_for_a_person(tmp_path: Path) -> None:
    """`approve` by name suspends the run with the question."""
    result = ran(tmp_path, DOCUMENT, [calling(("fail", {}))])
    assert (result.status, result.reason) == (Status.SUSPENDED, Reason.APPROVAL)
    assert result.request is not None
    assert result.request["tool"] == "fail"


def test_when_the_rounds_are_used_up_the_model_answers_without_tools(tmp_path: Path) -> None:
    """After max_tool_rounds it is asked once more; if it wants tools again the step fails."""
    step = {**DOCUMENT["steps"][0], "max_tool_rounds": 2}
    more = calling(("add", {"a": 1}))
    assert ran(tmp_path, with_steps(step), [more, more, "from that"]).output == "from that"
    result = ran(tmp_path, with_steps(step), [more])
    assert result.status is Status.FAILED
    assert "still calls tools after 2 replies" in result.detail


@pytest.mark.parametrize(
    ("step", "output"),
    [
        ({"tool": "add", "arguments": {"a": 1, "b": "{{ 1 + 1 }}"}}, 3),
        ({"tool": "odd.echo", "arguments": {"text": "{{ input }}!"}}, "go!"),
        ({"tool": "add", "input": {"a": 5}}, 6),
    ],
)
def test_a_step_calls_a_tool(tmp_path: Path, step: dict[str, Any], output: Any) -> None:
    """`tool:` calls one with its arguments, or with its input."""
    assert ran(tmp_path, with_steps({"name": "one", **step})).output == output


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"tool": "add", "arguments": {"a": "x"}}, "add: a: Input should be a valid integer"),
        ({"tool": "run", "arguments": {"argv": ["ls"]}}, "'ls' is not allowed"),
    ],
)
def test_a_call_that_fails_fails_its_step(tmp_path: Path, step: dict[str, Any], says: str) -> None:
    """A tool's error is the step's failure, with its words."""
    result = ran(tmp_path, with_steps({"name": "one", **step}))
    assert result.status is Status.FAILED
    assert says in result.detail


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": [{"name": "a", "prompt": "x", "tools": ["ad"]}]}, "there is no tool or server 'ad'; did you mean 'add'?"),
        ({"steps": [{"name": "a", "prompt": "x", "tools": ["add.x"]}]}, "'add' is a tool, not a server; only servers contain tools"),
        ({"steps": [{"name": "a", "tool": "odd"}]}, "'odd' is a server; name one of its tools: odd.NAME"),
        ({"steps": [{"name": "a", "set": 1, "tools": ["add"]}]}, "tools belongs to prompt, not to set"),
        ({"steps": [{"name": "a", "prompt": "x", "arguments": {}}]}, "arguments belongs to tool, not to prompt"),
        ({"steps": [{"name": "a", "prompt": "x", "max_tool_rounds": 3}]}, "max_tool_rounds needs tools"),
        ({"steps": [{"name": "a", "prompt": "x", "tools": ["add"], "conversation": "carried"}]}, "a prompt with tools cannot carry its conversation; remove tools or conversation"),
        ({"servers": {"x": {}}}, "needs exactly one of command and url"),
        ({"servers": {"x": {"url": "http://h", "env": {"A": "b"}}}}, "env belongs to command"),
        ({"servers": {"x": {"url": "ftp://h"}}}, "is not an http or https address"),
        ({"servers": {"add": {"command": ["y"]}}}, "'add' is already the name of a server"),
        ({"tools": {"a b": {"commands": [["x"]]}}}, "'a b' is not a valid tool name"),
        ({"tools": {"x": {"python": "toolbox:ad"}}}, "did you mean 'add'?"),
        ({"tools": {"x": {"python": "toolbox:add", "cwd": "."}}}, "cwd belongs to commands, not to python"),
        ({"tools": {"x": {"python": "toolbox:add", "pass_env": ["A"]}}}, "pass_env belongs to commands, not to python"),
        ({"tools": {"x": {"commands": [["{program}"]]}}}, "the program cannot be a placeholder"),
        ({"tools": {"x": {"commands": [["x"]], "pass_env": ["A B"]}}}, "is not a list of variable names"),
        ({"steps": [{"name": "a", "tool": "add", "pass_env": ["A"]}]}, "pass_env applies to commands, and 'add' is not a command"),
        ({"steps": [{"name": "a", "set": 1, "pass_env": ["A"]}]}, "pass_env belongs to shell or tool, not to set"),
        ({"tools": {"x": {}}}, "needs exactly one of python and commands"),
    ],
)  # fmt: skip
def test_wrong_tools_are_problems(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """Each is told with its place before anything runs."""
    file = folder_of(tmp_path, {**DOCUMENT, **change}, [])
    with pytest.raises(DocumentError) as caught:
        load(file, Settings(execute=False))
    assert says in str(caught.value)


PASSING: dict[str, Any] = {
    **DOCUMENT,
    "servers": {},
    "tools": {"env": {"commands": [["env"]], "pass_env": ["TOOL_KEY"]}},
    "steps": [
        {"name": "shell", "shell": "env", "pass_env": ["SHELL_KEY"]},
        {"name": "tool", "tool": "env", "arguments": {"argv": ["env"]}, "pass_env": "STEP_KEY"},
    ],
}


def test_variables_are_handed_on_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands as steps and as tools are given the variables that pass_env names, and no others."""
    for name in ("TOOL_KEY", "SHELL_KEY", "STEP_KEY", "OTHER_KEY"):
        monkeypatch.setenv(name, "k")
    both = {"name": "both", "set": ["{{ shell }}", "{{ tool.stdout }}"]}
    shell, tool = ran(tmp_path, {**PASSING, "steps": [*PASSING["steps"], both]}).output
    assert [name for name in ("TOOL", "SHELL", "STEP", "OTHER") if f"{name}_KEY=" in shell] == [
        "SHELL"
    ]
    assert [name for name in ("TOOL", "SHELL", "STEP", "OTHER") if f"{name}_KEY=" in tool] == [
        "TOOL",
        "STEP",
    ]


def test_variables_that_are_handed_on_are_agreed_to(tmp_path: Path) -> None:
    """Their names are told, and another name is another agreement."""
    loaded = load(folder_of(tmp_path, PASSING, []), Settings(execute=False))
    assert {"TOOL_KEY", "SHELL_KEY", "STEP_KEY"} <= set(loaded.plan()["environment"])  # type: ignore[arg-type]
    before = loaded.local_actions().digest
    steps = [{**PASSING["steps"][0], "pass_env": ["ANOTHER_KEY"]}, PASSING["steps"][1]]
    changed = load(folder_of(tmp_path, {**PASSING, "steps": steps}, []), Settings(execute=False))
    assert changed.local_actions().digest != before


def test_what_would_run_is_told_and_agreed_to_first(tmp_path: Path) -> None:
    """Servers, allowed commands and functions are in the plan and in what trust asks about."""
    remote = {"url": "https://example.org/mcp", "token_env": "REMOTE_TOKEN"}
    servers = {**DOCUMENT["servers"], "remote": remote}
    loaded = load(
        folder_of(tmp_path, {**DOCUMENT, "servers": servers}, []), Settings(execute=False)
    )
    plan: Any = loaded.plan()
    assert " ".join(ODD) in plan["commands"]
    assert "echo '{words...}'" in plan["commands"]
    assert plan["python"] == ["toolbox:add"]
    assert "example.org" in plan["hosts"]
    assert "REMOTE_TOKEN" in plan["environment"]
    assert plan["worst_case_calls"] == 9
    actions = loaded.local_actions()
    assert "connect to https://example.org/mcp" in actions.commands
    assert any("misbehaving.py" in command for command in actions.commands)


V2 = """\
$schema: workflow/v2.0
name: main
execution: {provider: openai, model: m, servers: [odd], max_iterations: 3}
steps:
  - {name: a, run: "{{input}}"}
  - {name: b, run: plain, servers: []}
"""


@pytest.mark.parametrize("name", ["server_config.json", "mcp.json", "config.yaml"])
def test_servers_of_workflow_v2_run(tmp_path: Path, name: str) -> None:
    """The file that MCP clients share says how they are started; steps inherit or override them."""
    servers = {"odd": {"command": ODD[0], "args": ODD[1:], "env": {"MODE": "x"}}}
    (tmp_path / name).write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / "main.yaml").write_text(V2)
    script = [
        {"step": "*/a/*", "replies": [calling(("echo", {"text": "seen"})), "told"]},
        {"replies": ["second"]},
    ]
    (tmp_path / "replies.yaml").write_text(json.dumps(script))
    loaded = load(tmp_path / "main.yaml", Settings(replies=str(tmp_path / "replies.yaml")))
    journal = MemoryJournal()
    result = asyncio.run(run(loaded.step, "go", journal=journal, resources=loaded.resources))
    assert result.output == "second"
    (info,) = asyncio.run(journal.runs())
    recorded = asyncio.run(journal.entries(info.run_id))
    assert {"output": "seen"} in [entry.value for entry in recorded]
    (document,) = loaded.documents.values()
    assert document.steps[0].max_tool_rounds == 3
    assert document.steps[1].tools is None
    assert any("misbehaving.py" in command for command in loaded.local_actions().commands)
    assert "servers:" in to_native_yaml(document)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('{"mcpServers": {"od": {"command": "x"}}}', "server_config.json has no server 'odd'; did you mean 'od'?"),
        ('{"mcpServers": {"odd": {"args": []}}}', 'server_config.json: odd: expected "command"'),
        ('{"mcpServers": {"odd": 3}}', "expected a mapping with command or url"),
        ("{", "no file defines the server 'odd'"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_servers_is_told(tmp_path: Path, config: str, says: str) -> None:
    """What is wrong is told at the place in the document that names the server."""
    (tmp_path / "server_config.json").write_text(config)
    (tmp_path / "main.yaml").write_text(V2)
    with pytest.raises(DocumentError) as caught:
        load(tmp_path / "main.yaml")
    assert says in str(caught.value)
    assert "main.yaml:3:" in str(caught.value)
