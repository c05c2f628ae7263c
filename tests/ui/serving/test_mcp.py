"""The operations as MCP tools, with the clients of the official library."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim, advertise
from pydantic import TypeAdapter

from loopwright.coding.agents.waits import REQUEST, Waits
from loopwright.ui.serving.mcp import WorkflowServer
from loopwright.ui.serving.operations import OPERATIONS
from loopwright.ui.serving.service import Service
from loopwright.ui.serving.tasks import EXTENSION

from .conftest import confirmed, ended, until

ANY: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
MODES = ("auto", "legacy")  # the newest protocol, and the ones with a handshake


class TaskHandle(types.Result):
    """A task as the result of a tool."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class Tasks(ClientExtension):
    """A client of the extension: it hands the task to the caller as it is."""

    identifier = EXTENSION

    def claims(self) -> list[ResultClaim[Any]]:
        async def resolve(handle: TaskHandle, ctx: ClaimContext) -> types.CallToolResult:
            text = types.TextContent(text=handle.task_id)
            return types.CallToolResult(
                content=[text], structured_content={"status": handle.status}
            )

        return [ResultClaim(result_type="task", model=TaskHandle, resolve=resolve)]


async def shows_forms(context: object, params: object) -> types.ElicitResult:
    """Stand for a client that shows forms: the test sends the responses itself."""
    return types.ElicitResult(action="cancel")


class Params(types.RequestParams, extra="allow"):
    """Whatever a request has."""


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    """Send a request of the extension."""
    request = types.Request[Params, str](method=method, params=Params(**params))
    return await client.session.send_request(request, ANY)


def said(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.parametrize("mode", MODES)
async def test_each_operation_is_a_tool(service: Service, mode: str) -> None:
    """Names, schemas and hints are those of the table, the result is text and structure, and refusals are results."""
    async with Client(WorkflowServer(service).server, mode=mode) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == [one.name for one in OPERATIONS]
        assert [tool.input_schema for tool in listed.tools] == [one.schema for one in OPERATIONS]
        result = await client.call_tool("list", {})
        assert result.structured_content is not None
        assert len(result.structured_content["workflows"]) == 4
        assert not result.is_error
        refused = {
            "run: unknown argument 'x'": ("run", {"workflow": "plain.yaml", "x": 1}),
            "workflow: there is no workflow '../plain.yaml'": (
                "run",
                {"workflow": "../plain.yaml"},
            ),
            "confirmation: acts.yaml runs 1 command": ("run", {"workflow": "acts.yaml"}),
            "there is no run 'nothing' in this journal; list has the latest runs": (
                "status",
                {"run": "nothing"},
            ),
        }
        for sentence, (name, arguments) in refused.items():
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert sentence in said(result)
            # The caller has tools, and no command line.
            assert "loopwright runs" not in said(result)
        with pytest.raises(MCPError, match="there is no tool 'runn'; did you mean 'run'"):
            await client.call_tool("runn", {})
    assert await service.journal.runs() == []


async def test_an_agent_that_may_wait_has_a_tool_for_it(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only with the file of its call in the environment; the request is then read as one that it wrote itself."""
    request = {"event": "ci-finished", "key": "9f3c", "timeout": "2h"}
    async with Client(WorkflowServer(service).server) as client:
        assert "wait_for" not in [tool.name for tool in (await client.list_tools()).tools]
        with pytest.raises(MCPError, match="there is no tool 'wait_for'"):
            await client.call_tool("wait_for", request)
        monkeypatch.setenv(REQUEST, str(tmp_path / "wait.json"))
        assert (await client.list_tools()).tools[-1].name == "wait_for"
        for wrong in ({}, {"event": ""}, {"for": "soon"}, {"url": "http://127.0.0.1"}):
            assert (await client.call_tool("wait_for", wrong)).is_error
        assert Waits().request("", tmp_path) is None
        for asked in (request, {"command": ["true"], "timeout": "1m"}):
            result = await client.call_tool("wait_for", asked)
            assert "end your turn now; you will be continued with the result" in said(result)
            assert Waits().request("I wait for CI.", tmp_path) == asked
        monkeypatch.setenv(REQUEST, str(tmp_path / "gone" / "wait.json"))
        assert "cannot be written" in said(await client.call_tool("wait_for", request))


async def test_a_run_is_a_task_with_its_questions_as_forms(service: Service) -> None:
    """It is `input_required` while it waits for a person, goes on with the answer, and has its result at the end."""
    server = WorkflowServer(service).server
    async with Client(
        server, mode=MODES[0], extensions=[Tasks()], elicitation_callback=shows_forms
    ) as client:
        assert EXTENSION in (client.server_capabilities.extensions or {})
        created = await client.call_tool("run", {"workflow": "asks.yaml", "id": "one"})
        task_id = said(created)
        # A repeated request is the same task.
        assert (
            said(await client.call_tool("run", {"workflow": "asks.yaml", "id": "one"})) == task_id
        )

        async def status() -> dict[str, Any]:
            return await ask(client, "tasks/get", taskId=task_id)

        async def is_asked() -> bool:
            return (await status())["status"] == "input_required"

        await until(is_asked)
        task = await status()
        assert (task["resultType"], task["ttlMs"]) == ("complete", None)
        ((key, form),) = task["inputRequests"].items()
        assert form["method"] == "elicitation/create"
        assert form["params"]["requestedSchema"]["required"] == ["approve"]
        types.ElicitRequest.model_validate(form)
        # Keys that are not open, and forms that a person closes, change nothing.
        ignored = {"nothing#1": {"action": "accept", "content": {}}, key: {"action": "cancel"}}
        await ask(client, "tasks/update", taskId=task_id, inputResponses=ignored)
        assert (await status())["inputRequests"] == task["inputRequests"]
        content = {"approve": True, "feedback": "", "accept": False, "reason": "not used"}
        response = {key: {"action": "accept", "content": content}}
        await ask(client, "tasks/update", taskId=task_id, inputResponses=response)

        async def has_result() -> bool:
            return (await status())["status"] == "completed"

        await until(has_result)
        done = types.CallToolResult.model_validate((await status())["result"])
        assert done.structured_content is not None
        assert (done.structured_content["output"], done.is_error) == ("xx", False)
        await ask(client, "tasks/cancel", taskId=task_id)  # is acknowledged, and changes nothing
        assert (await status())["status"] == "completed"
        with pytest.raises(MCPError, match="there is no run 'nothing' .*; list has the latest"):
            await ask(client, "tasks/get", taskId="nothing")


async def test_a_task_is_cancelled(service: Service) -> None:
    """The status follows when the process has ended."""
    confirmation = await confirmed(service, "slow.yaml")
    async with Client(
        WorkflowServer(service).server, mode=MODES[0], extensions=[Tasks()]
    ) as client:
        arguments = {"workflow": "slow.yaml", "confirmation": confirmation}
        task_id = said(await client.call_tool("run", arguments))
        assert (await ask(client, "tasks/get", taskId=task_id))["status"] == "working"
        await ask(client, "tasks/cancel", taskId=task_id)

        async def is_cancelled() -> bool:
            return (await ask(client, "tasks/get", taskId=task_id))["status"] == "cancelled"

        await until(is_cancelled)


async def test_tasks_are_for_those_who_know_them(service: Service) -> None:
    """Without the extension, or in an older protocol, a run returns its state, and a task is refused."""
    server = WorkflowServer(service).server
    async with Client(server, mode=MODES[0]) as client:
        result = await client.call_tool("run", {"workflow": "plain.yaml", "wait": 60})
        assert result.structured_content is not None
        assert result.structured_content["output"] == "Hello hello"
        run_id = result.structured_content["run_id"]
        with pytest.raises(MCPError) as error:
            await ask(client, "tasks/get", taskId=run_id)
        assert error.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    async with Client(server, mode="legacy", extensions=[advertise(EXTENSION)]) as client:
        result = await client.call_tool("run", {"workflow": "plain.yaml"})
        assert result.structured_content is not None
        assert result.structured_content["run_id"] != run_id


async def test_a_client_without_forms_answers_by_the_tool(service: Service) -> None:
    """It gets no form that it could not show, the question is in the status, and the tool answers it."""
    async with Client(
        WorkflowServer(service).server, mode=MODES[0], extensions=[Tasks()]
    ) as client:
        task_id = said(await client.call_tool("run", {"workflow": "asks.yaml"}))

        async def is_asked() -> bool:
            return (await ask(client, "tasks/get", taskId=task_id))["status"] == "input_required"

        await until(is_asked)
        assert (await ask(client, "tasks/get", taskId=task_id))["inputRequests"] == {}
        answer = {"run": task_id, "answer": {"approve": False, "accept": True}}
        assert not (await client.call_tool("approve", answer)).is_error
    await ended(service)
    assert (await service.journal.find(task_id)).status == "satisfied"


async def test_progress_is_told_until_the_end(service: Service) -> None:
    """A client that asks for progress hears of each iteration and gets the result; the numbers grow."""
    told: list[float] = []

    async def progress(number: float, total: float | None, message: str | None) -> None:
        told.append(number)

    async with Client(WorkflowServer(service).server, mode="legacy") as client:
        confirmation = await confirmed(service, "acts.yaml")
        arguments = {"workflow": "acts.yaml", "confirmation": confirmation}
        result = await client.call_tool("run", arguments, progress_callback=progress)
        assert result.structured_content is not None
        assert result.structured_content["status"] == "satisfied"
    assert told
    assert told == sorted(set(told))


async def test_a_run_outlives_the_client_and_the_server(service: Service, folder: Path) -> None:
    """Over stdio, as a client starts it: the client leaves while the run goes on, and another one asks for it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOPWRIGHT")}
    command = ["-P", "-m", "loopwright", "mcp", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=command, cwd="/", env=kept)
    text = (folder / "acts.yaml").read_text()
    waits = text.replace("echo $WORD", "while [ ! -e go ]; do sleep 0.05; done; echo $WORD")
    (folder / "acts.yaml").write_text(waits, "utf-8")
    async with Client(server) as client:
        checked = await client.call_tool("check", {"workflow": "acts.yaml"})
        assert checked.structured_content is not None
        confirmation = checked.structured_content["confirmation"]
        arguments = {
            "workflow": "acts.yaml",
            "confirmation": confirmation,
            "id": "one",
            "input": "Ada",
        }
        started = await client.call_tool("run", arguments)
        assert started.structured_content is not None
        assert started.structured_content["status"] == "running"
    (folder / "go").touch()
    async with Client(WorkflowServer(service).server) as client:
        result = await client.call_tool("run", {**arguments, "wait": 60})
        assert result.structured_content is not None
        assert result.structured_content["run_id"] == started.structured_content["run_id"]
        assert result.structured_content["output"] == "Ada"
