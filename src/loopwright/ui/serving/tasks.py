"""Runs as tasks of MCP: the extension `io.modelcontextprotocol/tasks` (SEP-2663), as of 2026-07-28.

The client library has the mechanism of extensions and not this one, so its messages are here. A run that waits for a
person is `input_required`, with its questions as forms; any other run that has not ended is `working`. Messages that
the server pushes (`notifications/tasks`) are optional, and a client polls.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from mcp_types import ClientCapabilities, RequestParams

from ...journal import RunInfo
from ...journal.questions import Question
from ...records.codec import Json, text_of
from ..inputs import input_value
from .service import OVER, progress_text

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MS = 1000
_APPROVE: dict[str, Json] = {"type": "boolean", "title": "Continue?"}
_REASON: dict[str, Json] = {"type": "string", "title": "Reason, if you refuse"}
# The fields of the forms by the kind of question; the first one must be filled in.
_FORMS: dict[str, dict[str, Json]] = {
    "tool": {"approve": _APPROVE, "reason": _REASON},
    "iteration": {
        "approve": _APPROVE,
        "accept": {"type": "boolean", "title": "Accept this output and end the loop?"},
        "feedback": {"type": "string", "title": "Feedback for the next iteration"},
        "reason": _REASON,
    },
    "limit": {
        "approve": _APPROVE,
        "more": {"type": "integer", "title": "Further iterations"},
        "reason": _REASON,
    },
    "verdict": {"passed": {"type": "boolean", "title": "Is the output good?"}, "reason": _REASON},
    "doubt": {
        "answer": {
            "type": "string",
            "title": "Run it again, or count it as failed",
            "enum": ["rerun", "fail"],
        }
    },
    "free": {"answer": {"type": "string", "title": "Your answer, JSON or text"}},
}
_SHOWN = 4000  # characters of the values of a question in its message


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`: responses by the keys of `input_requests`."""

    input_responses: dict[str, dict[str, Any]]


TaskStatus = Literal["working", "input_required", "completed", "cancelled"]


def status_of(info: RunInfo) -> TaskStatus:
    """Return the status of the task of a run."""
    if info.status == "suspended" and not info.wake_at and info.reason != "waiting":
        return "input_required"
    if info.status == "cancelled":
        return "cancelled"
    return "completed" if info.status in OVER else "working"


def task_of(info: RunInfo) -> dict[str, Json]:
    """Return the task of a run."""
    message = info.detail if info.status in (*OVER, "suspended") else progress_text(info)
    if info.status == "interrupted":
        message = f"its process ended; continue it with: loopwright resume {info.run_id}"
    return {
        "taskId": info.run_id,
        "status": status_of(info),
        "statusMessage": message or info.status,
        "createdAt": _iso(info.created),
        "lastUpdatedAt": _iso(info.updated),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def knows(capabilities: ClientCapabilities | None) -> bool:
    """Return whether a client has declared the extension."""
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def input_requests(
    questions: list[Question], capabilities: ClientCapabilities | None
) -> dict[str, Json]:
    """Return the open questions as forms, none for a client that shows no forms: it uses the tool approve."""
    if capabilities is None or capabilities.elicitation is None:
        return {}
    return {key_of(question): _form(question) for question in questions}


def key_of(question: Question) -> str:
    """Return the key of a question, which no other question of the run has."""
    return f"{question.path}#{question.asked}"


def answer_of(question: Question, response: dict[str, Any]) -> Json:
    """Return the answer in the response to a form; None leaves the question open."""
    if response.get("action") == "decline" and "approve" in _FORMS[question.kind]:
        return {"approve": False}
    content = response.get("content")
    if response.get("action") != "accept" or not isinstance(content, dict):
        return None
    if question.kind in ("doubt", "free"):
        return input_value(text_of(content.get("answer")))
    # What belongs to another choice is no mistake of the person who filled in the form.
    if content.get("approve"):
        used: tuple[str, ...] = ("approve", "feedback", "more")
    else:
        used = ("approve", "accept") if content.get("accept") else ("approve", "passed", "reason")
    fields = {name: content[name] for name in used if content.get(name) not in (None, "")}
    return {**fields, "approve": False} if content.get("accept") else fields


def _form(question: Question) -> Json:
    values = [
        f"{name}: {text_of(value)}"
        for name, value in question.request.items()
        if name not in ("kind", "loop", "iteration") and value not in (None, "")
    ]
    message = "\n".join([question.detail, *values])[:_SHOWN]
    fields = _FORMS[question.kind]
    schema = {"type": "object", "properties": fields, "required": list(fields)[:1]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _iso(seconds: float) -> str:
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
