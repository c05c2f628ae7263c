"""A client of the Agent Client Protocol (ACP): it gives one prompt to an agent and prints its events.

    python -P acp_client.py [--session ID] [--permissions P] [--model M] [--prompt TEXT] -- PROGRAM [WORD...]

This is a program of its own, so that it runs with the agent under the supervisor and in the sandbox: a file that it
reads or writes for the agent is one that the agent could reach itself. Without `--prompt` the prompt is standard input.
It needs the extra `acp`, and imports nothing of the package. It prints one JSON object on each line:

- `{"type": "session", "session": ID, "agent": "NAME VERSION"}`; the ID is "" if the agent cannot continue a session.
- `{"type": "update", "update": {…}}`: a notification of the agent, as the protocol has it; `earlier` is true before the prompt.
- `{"type": "denied", "tool": TITLE, "kind": KIND}`: an action that the permissions do not allow.
- `{"type": "wrote", "path": PATH}`: a file that was written for the agent.
- `{"type": "error", "message": TEXT}`: the request failed. `{"type": "end", "stop": REASON, "usage": {…}}`: it did not.

Rules:

1. Nobody is asked. `read` allows the kinds of actions that change nothing, `edit` also those that edit files or run
   commands, `full` all of them. Always once: an agent must not keep an answer beyond the call.
2. Files are inside of the working folder, also behind links, and `read` writes none.
3. An interrupt becomes `session/cancel`; the answer to it still reports what the call spent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, Agent, RequestError, connect_to_agent, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    ToolCallUpdate,
    WriteTextFileResponse,
)

__all__: list[str] = []

LINE_BYTES = 16 * 1024 * 1024  # of one message
FILE_BYTES = 16 * 1024 * 1024  # of one file that is read for the agent
REST = 1.0  # seconds in which an agent may end by itself, and then after SIGTERM
READING = frozenset({"read", "search", "think", "fetch"})
EDITING = READING | {"edit", "delete", "move", "execute", "other"}


def emit(event: str, /, **data: Any) -> None:
    """Print an event at once."""
    sys.stdout.write(json.dumps({"type": event, **data}) + "\n")
    sys.stdout.flush()


class Client:
    """The answers to the requests of the agent."""

    def __init__(self, permissions: str, folder: Path) -> None:
        self.permissions, self.folder = permissions, folder.resolve()
        self.prompted = False
        self.kinds: dict[str, str] = {}  # by tool call

    def on_connect(self, conn: Agent) -> None:
        """Nothing is needed of the connection."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Print what the agent reports."""
        data = update.model_dump(mode="json", by_alias=True, exclude_none=True)
        if kind := data.get("kind"):
            self.kinds[data["toolCallId"]] = kind
        emit("update", update=data, **({} if self.prompted else {"earlier": True}))

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Answer with the permissions of the call."""
        kind = tool_call.kind or self.kinds.get(tool_call.tool_call_id) or "other"
        allowed = self.permissions == "full" or kind in (
            READING if self.permissions == "read" else EDITING
        )
        if not allowed:
            emit("denied", tool=tool_call.title or tool_call.tool_call_id, kind=kind)
        wanted = ("allow_once", "allow_always") if allowed else ("reject_once", "reject_always")
        chosen = next((o for name in wanted for o in options if o.kind == name), None)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        outcome = AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return RequestPermissionResponse(outcome=outcome)

    def _inside(self, path: str) -> Path:
        place = (self.folder / path).resolve()
        if not place.is_relative_to(self.folder):
            raise RequestError.invalid_params({"path": f"{path} is outside of the working folder"})
        return place

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> ReadTextFileResponse:
        """Return the content of a file, or some of its lines."""
        place = self._inside(path)
        try:
            with place.open(encoding="utf-8") as file:
                text = file.read(FILE_BYTES)
        except FileNotFoundError:
            raise RequestError.resource_not_found(path) from None
        except (OSError, ValueError) as error:
            raise RequestError.invalid_params({"path": f"{path}: {error}"}) from None
        if line is not None or limit is not None:
            first = max(0, (line or 1) - 1)
            lines = text.splitlines(keepends=True)
            text = "".join(lines[first:] if limit is None else lines[first : first + limit])
        return ReadTextFileResponse(content=text)

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> WriteTextFileResponse:
        """Write a file."""
        place = self._inside(path)
        if self.permissions == "read":
            emit("denied", tool=f"write {path}", kind="edit")
            raise RequestError.invalid_params({"path": "this call may not change files"})
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8")
        except OSError as error:
            raise RequestError.invalid_params({"path": f"{path}: {error}"}) from None
        emit("wrote", path=str(place))
        return WriteTextFileResponse()


async def converse(process: Process, options: Mapping[str, str], prompt: str) -> None:
    """Give the prompt to the agent, in a new session or in an earlier one, and print how it ended."""
    permissions, model = options["--permissions"], options.get("--model", "")
    client = Client(permissions, Path.cwd())
    agent = connect_to_agent(client, process.stdin, process.stdout)  # type: ignore[arg-type]
    files = FileSystemCapabilities(read_text_file=True, write_text_file=permissions != "read")
    begun = await agent.initialize(
        protocol_version=PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(fs=files),
        client_info=Implementation(name="loopwright", version="1"),
    )
    if begun.protocol_version != PROTOCOL_VERSION:
        emit(
            "error",
            message=f"it speaks version {begun.protocol_version} of ACP, and not {PROTOCOL_VERSION}",
        )
        return
    able = begun.agent_capabilities
    resumes = bool(
        able and able.session_capabilities and able.session_capabilities.resume is not None
    )
    loads = bool(able and able.load_session)
    session, folder = options.get("--session", ""), str(Path.cwd())
    opened: Any
    if session and (resumes or loads):
        open_session = agent.load_session if loads else agent.resume_session
        try:
            opened = await open_session(cwd=folder, session_id=session, mcp_servers=[])
        except RequestError as error:
            emit("error", message=f"no session {session}: {said(error)}")
            return
    else:
        opened = await agent.new_session(cwd=folder, mcp_servers=[])
        session = opened.session_id
    info = begun.agent_info
    emit(
        "session",
        session=session if resumes or loads else "",
        agent="" if info is None else f"{info.name} {info.version}",
    )
    if model and not await choose_model(agent, session, opened, model):
        return
    loop = asyncio.get_running_loop()
    cancels: list[asyncio.Task[None]] = []
    loop.add_signal_handler(
        signal.SIGINT, lambda: cancels.append(loop.create_task(agent.cancel(session)))
    )
    client.prompted = True
    answer = await agent.prompt(session_id=session, prompt=[text_block(prompt)])
    usage = answer.usage
    emit(
        "end",
        stop=answer.stop_reason,
        usage=None if usage is None else usage.model_dump(mode="json", exclude_none=True),
    )


async def choose_model(agent: Any, session: str, opened: Any, model: str) -> bool:
    """Choose the model of a session; without such a choice the call fails, and does not use another model."""
    choices = (opened and opened.config_options) or []
    choice = next((one for one in choices if one.category == "model"), None)
    if choice is None:
        emit(
            "error",
            message="unknown model: the agent offers no choice of models; name it in args or env",
        )
        return False
    try:
        await agent.set_config_option(config_id=choice.id, session_id=session, value=model)
    except RequestError as error:
        emit("error", message=f"unknown model {model}: {said(error)}")
        return False
    return True


def said(error: RequestError) -> str:
    """Return the words of an error: agents put the cause into its data."""
    data = "" if error.data is None else json.dumps(error.data, ensure_ascii=False)
    return f"{error} {data}".strip()


async def leave(process: Process) -> None:
    """End the agent, which first may write its session down."""
    if process.stdin is not None:
        process.stdin.close()
    for number in (None, signal.SIGTERM):
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), REST)
            return


async def main(words: list[str]) -> int:
    """Run the client and return its exit code: that of an agent that ended by itself."""
    options = {}
    while words[0] != "--":
        options[words[0]], words = words[1], words[2:]
    try:
        # In a session of its own: an interrupt must reach the agent as `session/cancel` only.
        process = await asyncio.create_subprocess_exec(
            *words[1:], stdin=PIPE, stdout=PIPE, limit=LINE_BYTES, start_new_session=True
        )
    except OSError as error:
        emit("error", message=f"{words[1]} cannot be started: {error.strerror}")
        return 0
    try:
        await converse(process, options, options.get("--prompt") or sys.stdin.read())
    except RequestError as error:
        emit("error", message=said(error))
    except ConnectionError:  # it ended without an answer
        await leave(process)
        return process.returncode or 0
    await leave(process)
    return 0


if __name__ == "__main__":
    # Tracebacks of the library about lines that are no messages would hide what the agent itself says.
    logging.disable()
    sys.exit(asyncio.run(main(sys.argv[1:])))
