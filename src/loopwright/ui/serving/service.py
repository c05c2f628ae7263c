"""What the operations do: list and check the workflows of a folder, start runs, follow them, and answer their questions.

1. Only workflows in the folder can be started, and only their runs can be seen.
2. A run is a process of its own, or with a shared journal a run of the workers. It goes on without its caller.
3. What acts on this machine needs a confirmation, as the command line needs an approval. It is stored as one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ..._home import HOME, TRUST, Home
from ...engine.run import new_run_id
from ...engine.steering import continue_run, hold, steer
from ...errors import (
    ConfigurationError,
    LoopwrightError,
    ReplayMismatch,
    RunLocked,
    RunNotFound,
    nearest,
)
from ...journal import Journal, RunInfo
from ...journal.events import Event
from ...journal.protocol import DAMAGED
from ...journal.questions import answer, pending
from ...journal.views import RunView
from ...records import codec
from ...records.codec import Json, text_of
from ...records.redaction import of_environment
from ..check_report import report_on
from ..consent import actions_text, approve
from ..finding import STATUSES
from ..inputs import input_value
from ..processes import RunProcesses
from ..project import KnownDocument, ProjectFolder
from ..run_summary import is_for_workers, recorded_json, wait_of
from ..sent_events import send_event
from ..sources import RunSource, SourceSettings, load_source
from ..web.access import is_run_id
from .confirmations import Confirmations

if TYPE_CHECKING:
    from ...documents.trust import LocalActions

OVER = ("satisfied", "exhausted", "failed", "impossible", "cancelled")
_POLL = 0.1  # seconds between two looks at a run that somebody waits for
_RUNS = 20  # in a list
_LIMITS = ("max_usd", "max_calls", "max_total_tokens", "max_effects")
# Of the recorded run: the outputs of all iterations would fill the context of a model.
_LEFT_OUT = (
    "source", "fingerprint", "input", "also", "loops", "steps", "outcomes", "usage_by", "active",
)  # fmt: skip

# Not a list of types, which some clients refuse.
INPUT: dict[str, Json] = {
    "anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array", "items": {}}]
}
_TEXT: Json = {"type": "string"}
_SECONDS: Json = {"type": "number", "description": "Seconds since 1970."}
# The fields of a run in a list, with the JSON Schemas of their values.
ROW: dict[str, Json] = {
    "run_id": _TEXT, "name": _TEXT, "status": {"type": "string", "enum": [*STATUSES, DAMAGED]},
    "reason": _TEXT, "detail": _TEXT, "created": _SECONDS, "updated": _SECONDS,
    "iterations": {"type": "integer"}, "score": {"type": ["number", "null"]},
    "usage": {"type": "object", "additionalProperties": {"type": "number"}},
}  # fmt: skip
Arguments = Mapping[str, Json]
Progress = Callable[[float, str], Awaitable[None]]
"""Receives the number of iterations, and what happened in words."""


@dataclass(frozen=True)
class Caller:
    """Who calls an operation, as the records of answers name it, and how it is told of progress if it wants to be."""

    name: str
    progress: Progress | None = None


class Service:
    """The operations on one folder.

    Args:
        folder: the folder of the workflows; their processes start in it.
        journal: the journal of their runs.
        url: its URL.
        note: receives remarks for the person who started the server.
        deliverer: the engine that delivers submitted runs. Default: the default of `submit`.
    """

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        url: str,
        *,
        note: Callable[[str], None],
        deliverer: str = "",
    ) -> None:
        self.folder = folder.resolve()
        self.journal = journal
        self.home = Home(self.folder / HOME)
        self.home.make(required=True)
        self.confirmations = Confirmations(self.home.secret("confirmation"))
        self._url = url
        self._shared = url.startswith(("postgres:", "postgresql:"))
        self._note = note
        self._deliverer = deliverer
        self._project = ProjectFolder(self.folder)
        self._processes = RunProcesses(url, self.folder)
        # A shared journal has runs of other folders, whose callers may choose the same IDs.
        self._name = hashlib.sha256(f"runs of {self.confirmations.key}".encode()).hexdigest()[:12]
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def workflows(self, arguments: Arguments, caller: Caller) -> Json:
        """Return the workflows, and the latest runs."""
        del arguments, caller
        workflows = await asyncio.to_thread(self._workflows)
        rows = [row for row in await self.journal.runs(limit=200) if self.sees(row)][:_RUNS]
        return {"workflows": workflows, "runs": [_row(row) for row in rows]}

    async def check(self, arguments: Arguments, caller: Caller) -> Json:
        """Return the report on a workflow, with its effects and a confirmation of them."""
        del caller
        return await asyncio.to_thread(self._checked, text_of(arguments["workflow"]))

    async def run(self, arguments: Arguments, caller: Caller) -> Json:
        """Start a run, and return its state after the wait."""
        run_id = await self.start(arguments)
        wait = arguments.get("wait", math.inf if caller.progress else 0)
        return await self._followed(run_id, wait, caller.progress)

    async def status(self, arguments: Arguments, caller: Caller) -> Json:
        """Return the row of a run, with its open questions."""
        del caller
        return await self.state(await self.find(arguments["run"]))

    async def result(self, arguments: Arguments, caller: Caller) -> Json:
        """Return a run with its output so far, after the wait."""
        info = await self.find(arguments["run"])
        return await self._followed(info.run_id, arguments.get("wait", 0), caller.progress)

    async def cancel(self, arguments: Arguments, caller: Caller) -> Json:
        """Cancel a run that has not ended."""
        del caller
        info = await self.find(arguments["run"])
        if not await self.journal.cancel(info.run_id):
            raise RunLocked(f"{info.run_id} is {info.status}, so there is nothing to cancel")
        return await self.state(await self.find(info.run_id))

    async def approve(self, arguments: Arguments, caller: Caller) -> Json:
        """Answer an open question, and continue the run if it was the last one."""
        info = await self.find(arguments["run"])
        questions = await pending(self.journal, info.run_id)
        path = text_of(arguments.get("path"))
        if not path and len(questions) > 1:
            paths = ", ".join(question.path for question in questions)
            raise ConfigurationError(
                f"path: {info.run_id} has {len(questions)} open questions; name one of {paths}"
            )
        value = arguments["answer"]
        of_environment(os.environ).refuse("answer", value)
        path = path or next((question.path for question in questions), "")
        await answer(self.journal, info.run_id, path.strip("/"), value, who=caller.name)
        return await self._answered(info.run_id)

    async def _answered(self, run_id: str) -> Json:
        """Continue a run after its last answer; workers continue a submitted one themselves."""
        info = await self.find(run_id)
        # With other open questions it would suspend again at once.
        last = not await pending(self.journal, info.run_id)
        if last and info.status == "suspended" and not is_for_workers(info, self._url):
            await self._processes.launch(["resume", info.run_id])
        return await self.state(await self.find(info.run_id))

    async def steer(self, arguments: Arguments, caller: Caller) -> Json:
        """Give a run a hint for its next iterations."""
        info, text = await self.find(arguments["run"]), arguments["text"]
        of_environment(os.environ).refuse("hint", text)
        hints = await steer(
            info.run_id,
            text,
            journal=self.journal,
            loop=text_of(arguments.get("loop")),
            who=caller.name,
        )
        return {"hint": hints[-1].number}

    async def hold(self, arguments: Arguments, caller: Caller) -> Json:
        """Stop a run before its next effects."""
        info = await self.find(arguments["run"])
        return await self.state(await hold(info.run_id, journal=self.journal, who=caller.name))

    async def go_on(self, arguments: Arguments, caller: Caller) -> Json:
        """End the hold of a run, and continue it."""
        info = await self.find(arguments["run"])
        await continue_run(info.run_id, journal=self.journal, who=caller.name)
        return await self._answered(info.run_id)

    async def signal(self, arguments: Arguments, caller: Caller) -> Json:
        """Store an event, and continue the suspended runs of this folder that wait for it."""
        run, key = text_of(arguments.get("run")), text_of(arguments.get("key"))
        if bool(run) == bool(key):
            raise ConfigurationError("signal: give one of run and key")
        run_id = (await self.find(run)).run_id if run else ""
        event = Event(
            text_of(arguments["name"]), run_id or key, arguments.get("value"), text_of(arguments.get("id")),
            caller.name,
        )  # fmt: skip
        told = await send_event(self.journal, event, run_id)
        same = (told.event.name, told.event.key)
        waits = [row.run for row in await self.journal.waits() if (row.name, row.key) == same]
        for info in [await self.journal.find(waiting) for waiting in dict.fromkeys(waits)]:
            mine = self.sees(info) and not is_for_workers(info, self._url)
            if mine and info.status == "suspended":
                try:
                    await self._processes.launch(["resume", info.run_id, "--on-wait", "leave"])
                except ConfigurationError as error:  # the event is stored, and ends its wait later
                    self._note(f"{info.run_id} was not continued: {error}")
        return {"id": told.event.id, "repeated": told.repeated, "waiting": told.waiting}

    async def start(self, arguments: Arguments) -> str:
        """Start a run and return its ID once it is open; the run of an `id` that exists already is returned as it is.

        Raises:
            ConfigurationError: without a valid confirmation, if one is needed, or if the run is refused.
            ReplayMismatch: if the run of the `id` has another input or workflow.
        """
        key = text_of(arguments.get("id")) or (new_run_id() if self._shared else "")
        if not key:
            return await self._started(arguments, new_run_id())
        # A third of a second, which other runs do not need.
        from ...cluster.shared_runs import run_id_of

        run_id = run_id_of(f"{key}/{self._name}")
        lock = self._starting.setdefault(run_id, asyncio.Lock())
        async with lock:  # two requests at once are one run
            if await self._is_there(run_id, arguments):
                return run_id
            try:
                return await self._started(arguments, run_id, key)
            except LoopwrightError:
                # Another server of this folder was first.
                if await self._is_there(run_id, arguments):
                    return run_id
                raise

    async def find(self, run: Json) -> RunInfo:
        """Return a run that this service sees. Raises RunNotFound."""
        if not is_run_id(text_of(run)):
            raise RunNotFound(f"{text_of(run)[:80]!r} is not a run ID")
        # A caller has the operations, and not the command line.
        hint = "; list has the latest runs"
        try:
            info = await self.journal.find(text_of(run))
        except RunNotFound as error:
            raise RunNotFound(error.what, error.hint and hint) from error
        if not self.sees(info):
            raise RunNotFound(f"{info.run_id} is not a run of the workflows in {self.folder}", hint)
        return info

    def sees(self, info: RunInfo) -> bool:
        """Return whether a run is one of a workflow in this folder."""
        if text_of(info.source.get("submitted_as")).endswith(f"/{self._name}"):
            return True
        file = info.source.get("file")
        return isinstance(file, str) and Path(file).is_relative_to(self.folder)

    async def state(self, info: RunInfo) -> dict[str, Json]:
        """Return the row of a run as it is now, with its open questions and what else it waits for."""
        if info.status == "running":
            info = await self.journal.view(info.run_id, _live)
        state = _row(info)
        if info.status == "suspended":
            questions = await pending(self.journal, info.run_id)
            state["questions"] = [question.to_json() for question in questions]
        if info.queue and (wait := await wait_of(self.journal, info)) is not None:
            state["waits_for"] = wait.text
        return state

    async def _followed(self, run_id: str, wait: float, progress: Progress | None) -> Json:
        """Return a run with its output, once it is over or needs a person, at the latest after `wait` seconds."""
        until = time.monotonic() + wait
        told = -1
        while True:
            info = await self.journal.find(run_id)
            if info.status == "running" and progress is not None:
                info = await self.journal.view(run_id, _live)
            if progress is not None and info.iterations > told:
                told = info.iterations  # it grows with each message, as MCP demands
                await progress(float(told), progress_text(info))
            if is_settled(info) or (left := until - time.monotonic()) <= 0:
                break
            await asyncio.sleep(min(_POLL, left))
        return result_of(info, await self.journal.entries(run_id))

    def _workflows(self) -> list[Json]:
        rows: list[Json] = []
        for document in self._project.documents():
            row: dict[str, Json] = {"workflow": document.file, "name": document.name}
            if document.problem:
                row["problem"] = document.problem
            else:
                row |= {"effects": document.runs, "input": input_schema(document)}
            rows.append(row)
        return rows

    def _checked(self, workflow: str) -> Json:
        file = self._file(workflow)
        report = report_on(str(file), SourceSettings())
        data: dict[str, Json] = {**report, "file": workflow, "effects": None, "confirmation": None}
        if report["plan"] is None:
            return data
        actions = load_source(str(file), SourceSettings(), execute=False).local_actions()
        if actions:
            confirmation, expires = self.confirmations.issue(workflow, actions.digest)
            effects = {
                name: list(getattr(actions, name))
                for name in ("commands", "python", "keys", "files")
            }
            data |= {"effects": effects, "confirmation": confirmation, "expires": expires}
        return data

    async def _started(self, arguments: Arguments, run_id: str, key: str = "") -> str:
        workflow = text_of(arguments["workflow"])
        limits = {name: arguments[name] for name in _LIMITS if name in arguments}
        source, actions = await asyncio.to_thread(self._loaded, workflow, limits)
        if actions and os.environ.get(TRUST) != "all":
            if not (confirmation := text_of(arguments.get("confirmation"))):
                raise ConfigurationError(
                    f"confirmation: {workflow} {actions_text(actions)}; call check, show its effects, and pass its confirmation"
                )
            self.confirmations.accept(workflow, actions.digest, confirmation)
            # By content: what the process finds changed needs another approval.
            approve(actions, self._note)
        if self._shared:
            await self._submitted(source, arguments, key)
            return run_id
        words = ["run", workflow, "--run-id", run_id]
        # One word each: a value that begins with a dash must not become another option.
        words += [f"--{name.replace('_', '-')}={value!r}" for name, value in limits.items()]
        text = None
        if (value := arguments.get("input")) is not None:
            # Through stdin, because other users of the machine can read the command line of a process.
            words += ["--input-file", "-"]
            text = value if isinstance(value, str) else json.dumps(value)
        await self._processes.launch(words, text)
        return run_id

    async def _submitted(self, source: RunSource, arguments: Arguments, key: str) -> None:
        from ...cluster import Submission
        from ...cluster.submit import place
        from ..submitted_source import carried_source

        carried, _ = await asyncio.to_thread(carried_source, source, self._note, yes=False)
        submission = Submission(source.step, source=carried, pinned=not source.needs_python)
        named = [(self._input(source, arguments), f"{key}/{self._name}")]
        await place(submission, named, journal=self.journal, deliverer=self._deliverer)

    def _loaded(
        self, workflow: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[RunSource, LocalActions | None]:
        source = load_source(
            str(self._file(workflow)), SourceSettings(**(limits or {})), execute=False
        )
        return source, source.local_actions()

    def _file(self, workflow: str) -> Path:
        files = self._project.files()
        if workflow not in files:
            raise ConfigurationError(
                f"workflow: there is no workflow {workflow[:200]!r} in {self.folder}{nearest(workflow, files)}"
            )
        return self.folder / workflow

    async def _is_there(self, run_id: str, arguments: Arguments) -> bool:
        """Return whether the run of an `id` exists. Raises ReplayMismatch if it is another one."""
        from ...cluster.shared_runs import exact_run

        info = await exact_run(self.journal, run_id)
        if info is None:
            return False
        source, _ = await asyncio.to_thread(self._loaded, text_of(arguments["workflow"]))
        before, now, other = info.name, source.step.name, "workflow"
        recorded, given = codec.digest(info.input), codec.digest(self._input(source, arguments))
        if recorded != given:
            before, now, other = recorded, given, "input"
        if before != now:
            raise ReplayMismatch(
                f"id: {arguments['id']!r} has a run with another {other}, {run_id}; use another id for another run",
                path="", recorded=before, now=now,
            )  # fmt: skip
        return True

    def _input(self, source: RunSource, arguments: Arguments) -> Json:
        value = arguments.get("input")
        if isinstance(value, str):  # as the command line reads it
            return input_value(value) if value else source.default_input
        return source.default_input if value is None else value


def input_schema(document: KnownDocument) -> dict[str, Json]:
    """Return the JSON Schema of the input of a workflow: that of its declared inputs, or any, with its default."""
    if document.inputs is not None:
        return document.inputs.schema()
    return {**INPUT, "default": document.input}


def is_settled(info: RunInfo) -> bool:
    """Return whether a run is over, waits for a person, or has lost its process."""
    waits = info.status == "suspended" and not info.wake_at
    return info.status in OVER or waits or (info.status == "interrupted" and not info.queue)


def result_of(info: RunInfo, entries: Any) -> dict[str, Json]:
    """Return a run with its output so far."""
    data = recorded_json(info, entries)
    return {key: value for key, value in data.items() if key not in _LEFT_OUT}


def progress_text(info: RunInfo) -> str:
    """Return where a run is in words."""
    score = "" if info.score is None else f", best score {info.score:.2f}"
    return f"{info.status}, {info.iterations} iterations{score}"


def _live(view: RunView) -> RunInfo:
    """Return the row of a running run with its iterations so far."""
    scores = [
        mark.score
        for loop in view.loops()[:8]
        for _, mark in view.outline(loop)
        if mark.score is not None
    ]
    return replace(view.info, iterations=view.total(), score=max(scores, default=None))


def _row(info: RunInfo) -> dict[str, Json]:
    data = info.to_json()
    return {name: data[name] for name in ROW}
