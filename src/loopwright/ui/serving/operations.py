"""The table of operations. MCP offers each as a tool, HTTP as a route, and the OpenAPI page describes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from ...errors import ConfigurationError, nearest
from ...records.codec import Json
from ...records.json_schema import problem_with
from .service import INPUT, ROW, Arguments, Caller, Service

Schema = Mapping[str, Json]


@dataclass(frozen=True)
class Operation:
    """An operation.

    Args:
        name: the name of the tool, and the operation ID of the route.
        description: what it does, for people and models.
        call: does it.
        method, path: the route; `{run}` in it is an argument.
        properties: the JSON Schemas of its arguments.
        required: the arguments that must be given.
        changes: whether it starts, ends or continues a run.
        returns: the JSON Schema of its result.
    """

    name: str
    description: str
    call: Callable[[Service, Arguments, Caller], Awaitable[Json]]
    method: str
    path: str
    properties: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    changes: bool = False
    returns: Schema = field(default_factory=lambda: {"type": "object"})

    @property
    def schema(self) -> dict[str, Json]:
        """The JSON Schema of its arguments."""
        return {
            "type": "object", "properties": {name: dict(one) for name, one in self.properties.items()},
            "required": list(self.required), "additionalProperties": False,
        }  # fmt: skip

    def check(self, arguments: Json) -> Arguments:
        """Return valid arguments.

        Raises:
            ConfigurationError: with the first problem.
        """
        if not isinstance(arguments, dict):
            raise ConfigurationError(f"{self.name}: the arguments are not a JSON object")
        for name in arguments:
            if name not in self.properties:
                known = (
                    nearest(name, self.properties) or f"; known here: {', '.join(self.properties)}"
                )
                raise ConfigurationError(f"{self.name}: unknown argument {name[:80]!r}{known}")
        for name in self.required:
            if name not in arguments:
                raise ConfigurationError(f"{self.name}: the argument {name!r} is missing")
        if problem := problem_with(arguments, self.schema):
            raise ConfigurationError(f"{self.name}: {problem.removeprefix('$.')}")
        return arguments


def _text(description: str, longest: int = 2000) -> Schema:
    return {"type": "string", "description": description, "maxLength": longest}


_RUN = _text("Run ID, or its unique beginning.", 64)
_WORKFLOW = _text("A workflow that list returned, such as polish.yaml.")
_WAIT: Schema = {
    "type": "number", "minimum": 0, "maximum": 3600,
    "description": "Seconds to wait until the run has ended or needs an answer. Default: 0.",
}  # fmt: skip


def _limit(what: str) -> Schema:
    return {"type": "integer", "minimum": 1, "description": f"Limit on {what}."}


def _object(fields: Mapping[str, Json], *optional: str) -> dict[str, Json]:
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": dict(fields), "required": required}


_WORKFLOW_ROW = _object(
    {
        "workflow": {"type": "string"}, "name": {"type": "string"},
        "problem": {"type": "string", "description": "Why it cannot be run."},
        "effects": {"type": "string", "description": "Its effects on this machine in words."},
        "input": {"type": "object", "description": "The JSON Schema of its input."},
    },
    "problem", "effects", "input",
)  # fmt: skip
_STATE = _object(
    {
        **ROW, "questions": {"type": "array", "items": {"type": "object"}},
        "waits_for": {"type": "string"},
    },
    "questions", "waits_for",
)  # fmt: skip

OPERATIONS = (
    Operation(
        "list",
        "List the workflows of the folder with their input and their effects on this machine, and the latest runs.",
        Service.workflows, "GET", "/workflows",
        returns=_object({
            "workflows": {"type": "array", "items": _WORKFLOW_ROW},
            "runs": {"type": "array", "items": _object(ROW)},
        }),
    ),
    Operation(
        "check",
        "Report the problems of a workflow, its plan and its effects on this machine. If it has effects, the "
        "confirmation that is returned lets run start it within 15 minutes: show the effects to a person first.",
        Service.check, "GET", "/check", {"workflow": _WORKFLOW}, ("workflow",),
    ),
    Operation(
        "run",
        "Start a run of a workflow and return its state. The run goes on without you: ask status or result later. "
        "With the id of an earlier request nothing is started, and that run is returned.",
        Service.run, "POST", "/runs",
        {
            "workflow": _WORKFLOW,
            "input": {**INPUT, "description": "Input of the run. Default: the input in the workflow."},
            "id": _text("A text of yours that makes the request idempotent: it has one run.", 200),
            "confirmation": _text("The confirmation that check returned, for a workflow with effects."),
            "max_usd": {"type": "number", "exclusiveMinimum": 0, "description": "Limit on the cost, in USD."},
            "max_calls": _limit("model calls"),
            "max_total_tokens": _limit("input and output tokens"),
            "max_effects": _limit("effects: functions, commands, tool calls and model calls"),
            "wait": _WAIT,
        },
        ("workflow",), changes=True,
    ),
    Operation(
        "status",
        "Return the status of a run, its iterations, its cost, and its open questions.",
        Service.status, "GET", "/runs/{run}", {"run": _RUN}, ("run",), returns=_STATE,
    ),
    Operation(
        "result",
        "Return the output of a run and why it ended; of a run that goes on, its best output so far.",
        Service.result, "GET", "/runs/{run}/result", {"run": _RUN, "wait": _WAIT}, ("run",),
    ),
    Operation(
        "cancel",
        "Cancel a run. Its results are kept.",
        Service.cancel, "POST", "/runs/{run}/cancel", {"run": _RUN}, ("run",), changes=True, returns=_STATE,
    ),
    Operation(
        "approve",
        "Answer an open question of a run, in one of the forms that status returns as answers. Questions are for "
        "people: answer what a person decided. After the last answer the run continues.",
        Service.approve, "POST", "/runs/{run}/approve",
        {
            "run": _RUN,
            "path": _text("Path of the question, if there are several."),
            "answer": {"description": 'The answer, such as {"approve": true}.'},
        },
        ("run", "answer"), changes=True, returns=_STATE,
    ),
    Operation(
        "steer",
        "Give a run a hint of a person, which its loops read at the beginning of their next iterations.",
        Service.steer, "POST", "/runs/{run}/steer",
        {
            "run": _RUN, "text": _text("The hint.", 4000),
            "loop": _text("Name or path of the loop that reads it. Default: every loop."),
        },
        ("run", "text"), changes=True, returns=_object({"hint": {"type": "integer"}}),
    ),
    Operation(
        "hold",
        "Stop a run before its next effects, until continue. Calls in flight end.",
        Service.hold, "POST", "/runs/{run}/hold", {"run": _RUN}, ("run",), changes=True, returns=_STATE,
    ),
    Operation(
        "continue",
        "End the hold of a run.",
        Service.go_on, "POST", "/runs/{run}/continue", {"run": _RUN}, ("run",), changes=True, returns=_STATE,
    ),
    Operation(
        "signal",
        "Send an event to the runs that wait for its name and key, now or later. It is stored, each run takes it once, "
        "and a suspended run continues. Send what has happened, not what a run should do.",
        Service.signal, "POST", "/events",
        {
            "name": _text("Name of the event.", 100),
            "run": _text("Run that waits for it without a key; the key is then its ID.", 64),
            "key": _text("Key for which the runs wait.", 200),
            "value": {"description": "Any JSON value: the output of the wait. Default: null."},
            "id": _text("A text of yours that makes the request idempotent: it is one event.", 200),
        },
        ("name",), changes=True,
        returns=_object({
            "id": {"type": "string"}, "repeated": {"type": "boolean", "description": "Whether it was there before."},
            "waiting": {"type": "integer", "description": "How many runs wait for it."},
        }),
    ),
)  # fmt: skip
