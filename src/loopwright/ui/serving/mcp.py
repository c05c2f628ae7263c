"""The operations as tools of an MCP server, over stdio or streamable HTTP on this machine.

A run is a task for a client that declares the extension. Another client that asks for progress is told of it until the
run has ended or needs a person; else the tool returns at once, and the client asks again.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from ...coding.agents.waits import REQUEST
from ...engine.waiting import WaitForm
from ...errors import ConfigurationError, DocumentError, LoopwrightError, listed, nearest
from ...journal.questions import pending
from ...records import codec
from ...records.codec import Json
from ..web.access import MAX_BODY
from .operations import OPERATIONS, Operation
from .service import Arguments, Caller, Service, result_of
from .tasks import (
    EXTENSION,
    TaskParams,
    UpdateParams,
    answer_of,
    input_requests,
    key_of,
    knows,
    status_of,
    task_of,
)

PATH = "/mcp"
_INSTRUCTIONS = (
    "Loops that run until they are satisfied. Call list for the workflows, check before a run that has effects, then run. "
    "A run goes on when you leave: ask status or result with its run_id."
)
# The library prints the tracebacks of requests that a client left.
logging.getLogger("mcp").addHandler(logging.NullHandler())

Context = Any  # of a request; the library's is generic in what its server shares


class WorkflowServer:
    """An MCP server of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.server: Server[Any] = Server(
            "loopwright", version=version("loopwright"), instructions=_INSTRUCTIONS,
            on_list_tools=self._list, on_call_tool=cast("Any", self._call),
        )  # fmt: skip
        self.server.extensions[EXTENSION] = {}
        self.server.add_request_handler("tasks/get", TaskParams, self._get)
        self.server.add_request_handler("tasks/update", UpdateParams, self._update)
        self.server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    async def over_stdio(self) -> None:
        """Serve one client over the standard streams, until it closes them."""
        async with stdio_server() as (reading, writing):
            await self.server.run(reading, writing, self.server.create_initialization_options())

    def over_http(self) -> ASGIApp:
        """Return the application for streamable HTTP; access is the caller's to control."""
        manager = StreamableHTTPSessionManager(app=self.server, max_request_body_size=MAX_BODY)

        @contextlib.asynccontextmanager
        async def life(_: Starlette) -> AsyncIterator[None]:
            async with manager.run():
                yield

        return Starlette(routes=[Route(PATH, StreamableHTTPASGIApp(manager))], lifespan=life)

    async def _list(self, ctx: Context, params: object) -> types.ListToolsResult:
        del ctx, params
        return types.ListToolsResult(tools=[_tool(operation) for operation in _tools().values()])

    async def _call(self, ctx: Context, params: types.CallToolRequestParams) -> Any:
        operation = (tools := _tools()).get(params.name)
        if operation is None:
            hint = nearest(params.name, tools) or listed(params.name, tools)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:80]!r}{hint}")
        try:
            arguments = operation.check(dict(params.arguments or {}))
            if operation.name == "run" and _as_task(ctx):
                info = await self._service.find(await self._service.start(arguments))
                return {"resultType": "task", **task_of(info)}
            return answered(await operation.call(self._service, arguments, _caller(ctx)))
        except DocumentError as error:
            return refused(str(error.problems[0]))
        except LoopwrightError as error:
            return refused(str(error))

    async def _get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        info = await self._task(ctx, params.task_id)
        task = task_of(info)
        if task["status"] == "input_required":
            questions = await pending(self._service.journal, info.run_id)
            task["inputRequests"] = input_requests(questions, ctx.session.client_capabilities)
        elif task["status"] == "completed":
            entries = await self._service.journal.entries(info.run_id)
            result = answered(result_of(info, entries), failed=info.status == "failed")
            task["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return task

    async def _update(self, ctx: Context, params: UpdateParams) -> dict[str, Any]:
        info = await self._task(ctx, params.task_id)
        for question in await pending(self._service.journal, info.run_id):
            response = params.input_responses.get(key_of(question))
            # Other keys are ignored: their questions are answered already.
            if response is None or (value := answer_of(question, response)) is None:
                continue
            arguments = {"run": info.run_id, "path": question.path, "answer": value}
            try:
                await self._service.approve(arguments, _caller(ctx))
            except LoopwrightError as error:
                raise MCPError(types.INVALID_PARAMS, str(error)) from error
        return {}

    async def _cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        info = await self._task(ctx, params.task_id)
        if status_of(info) in ("working", "input_required"):
            await self._service.journal.cancel(info.run_id)
        return {}

    async def _task(self, ctx: Context, task_id: str) -> Any:
        if not knows(ctx.session.client_capabilities):
            required = types.ClientCapabilities(extensions={EXTENSION: {}})
            data = {"requiredCapabilities": required.model_dump(by_alias=True, exclude_none=True)}
            sentence = f"tasks need the extension {EXTENSION}, which the client has not declared"
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, sentence, data)
        try:
            return await self._service.find(task_id)
        except LoopwrightError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error


async def _wait_for(_service: Service, arguments: Arguments, _caller: Caller) -> Json:
    if "command" not in arguments:  # the step of the agent knows whether it permits commands
        WaitForm.of(arguments, "wait_for")
    try:
        Path(os.environ[REQUEST]).write_text(codec.encode(arguments), "utf-8")
    except OSError as error:
        raise ConfigurationError(f"wait_for: {REQUEST} cannot be written: {error}") from error
    return {"next": "end your turn now; you will be continued with the result"}


_WAIT_FOR = Operation(
    "wait_for",
    "Wait for something outside, such as CI, a deployment or a long job, in place of polling and sleeping. Give one of "
    "for, at, event, file and command, and a timeout. Then end your turn; you will be continued with the result.",
    _wait_for, "", "",
    {
        "for": {"type": "string", "description": "A duration, such as 10m."},
        "at": {"type": "string", "description": "A time with an offset, such as 2026-12-01T08:00+01:00."},
        "event": {"type": "string", "description": "The name of an event that another program sends."},
        "key": {"type": "string", "description": "The key of the event, such as a commit. Default: the ID of the run."},
        "file": {"type": "string", "description": "The path of a file that will be there, in the working folder."},
        "command": {
            "type": "array", "items": {"type": "string"}, "minItems": 1,
            "description": "The words of a command, if the task permits it. It is run again until it exits with 0.",
        },
        "timeout": {"type": "string", "description": "After this time you are continued without it, such as 1h."},
    },
)  # fmt: skip


def _tools() -> dict[str, Operation]:
    """Return the tools by name. A coding agent that may wait gives its MCP servers the file of its request."""
    more = (_WAIT_FOR,) if os.environ.get(REQUEST) else ()
    return {operation.name: operation for operation in (*OPERATIONS, *more)}


def answered(value: Json, *, failed: bool = False) -> types.CallToolResult:
    """Return the result of a tool: its JSON as text and as structure."""
    text = codec.encode(value)
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=value, is_error=failed
    )


def refused(sentence: str) -> types.CallToolResult:
    """Return the result of a tool that did nothing, with the reason."""
    return types.CallToolResult(content=[types.TextContent(text=sentence)], is_error=True)


def _as_task(ctx: Context) -> bool:
    # An older protocol has no place for the result of an extension.
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and knows(
        ctx.session.client_capabilities
    )


def _caller(ctx: Context) -> Caller:
    info = ctx.session.client_params
    name = (
        f"{info.client_info.name} over MCP"
        if info is not None and info.client_info
        else "a program over MCP"
    )
    if not (ctx.meta or {}).get("progress_token"):
        return Caller(name)

    async def progress(iterations: float, text: str) -> None:
        await ctx.session.report_progress(iterations, None, text)

    return Caller(name, progress)


def _tool(operation: Operation) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=not operation.changes,
        destructive_hint=operation.changes,
        open_world_hint=operation.changes,
    )
    return types.Tool(
        name=operation.name,
        description=operation.description,
        input_schema=operation.schema,
        annotations=hints,
    )
