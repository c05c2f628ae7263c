"""A recorded run as its commands and pages show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import agents
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.questions import Question, open_questions
from ..journal.replay import RecordedRun, recorded_result
from ..records import (
    Iteration,
    Result,
    Status,
)
from ..records.codec import Json, text_of
from .journals import find_run, folder_of
from .run_files import in_place
from .run_sessions import sessions_in

# The recorded name of the document of `until`, which no file has.
UNTIL_DOCUMENT = ".loopwright-until.yaml"


async def on_record(store: Journal, name: str) -> tuple[RunInfo, list[Entry]]:
    """Return a run and its entries, by its ID, the beginning of the ID, or `last`."""
    info = await find_run(store, name)
    entries = await store.entries(info.run_id)
    return in_place(info, entries, folder_of(store)), entries


def origin_of(info: RunInfo) -> str:
    """Return the document, the Python step or the command of a run."""
    file = text_of(info.source.get("file") or "")
    if Path(file).name == UNTIL_DOCUMENT:
        return "loopwright until CHECK -- AGENT"
    return file or text_of(info.source.get("python") or info.source.get("program") or "")


def ended(entries: Sequence[Entry]) -> bool:
    """Return whether the run has ended."""
    return any(entry.kind == "ended" and not entry.path for entry in surviving(entries))


def result_json(result: Result, questions: Sequence[Question] = ()) -> dict[str, Json]:
    """Return the object of `run --json`; for a suspended run, with its open questions."""
    data: dict[str, Json] = dict(result.to_json())
    if questions:
        data["questions"] = [question.to_json() for question in questions]
    return {**data, "request": dict(result.request)} if result.request else data


def recorded_json(info: RunInfo, entries: Sequence[Entry]) -> dict[str, Json]:
    """Return the object of `show --json`: that of `run --json` with the facts of the run's row.

    A run that has not ended has the status `running` or `interrupted`, and no reason.
    """
    data = result_json(recorded_result(info, entries), open_questions(surviving(entries)))
    # A suspended run has a status of `Status` although it has not ended.
    if not ended(entries) and info.status not in list(Status):
        data |= {"status": info.status, "reason": None}
    row = info.to_json()
    if executions := executions_in(info, entries):
        data["executions"] = executions
    if sessions := sessions_in(entries):
        data["sessions"] = [one.to_json() for one in sessions]
    extra = ("name", "input", "created", "updated", "active", "source", "fingerprint")
    return {**data, **{key: row[key] for key in extra}}


def iterations_of(entries: Sequence[Entry]) -> dict[str, list[Iteration]]:
    """Return the iterations of each loop by its path, with the edits of people.

    The loops are in the order of their first iterations.
    """
    loops = RecordedRun(surviving(entries)).records
    return {path: [entry.value for entry in own] for path, own in loops.items()}


def items_of_lists(entries: Sequence[Entry]) -> dict[str, list[Json]]:
    """Return the items of each list by its path."""
    replay = RecordedRun(surviving(entries))
    return {path: replay.items(path) for path in replay.lists()}


def executions_in(info: RunInfo, entries: Sequence[Entry]) -> list[dict[str, Json]]:
    """Return the executions of reasoning agents in a run, as JSON."""
    # The first effect of an execution has this name, so other runs need not load the agents.
    if not any(entry.path.endswith("/begin") for entry in entries):
        return []
    return [one.to_json() for one in agents.execution_of(info, entries)]
