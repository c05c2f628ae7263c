"""A recorded run, ended or not, as a Result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import agents
from ..engine.run_record import ended_result, loop_result
from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.questions import Question, open_questions
from ..journal.replay import RecordedRun
from ..records import (
    History,
    Iteration,
    LoopResults,
    Reason,
    Result,
    Status,
    Stop,
    failure_of,
)
from ..records.codec import Json, text_of
from .journals import find_run
from .run_sessions import sessions_in

# The recorded name of the document of `until`, which no file has.
UNTIL_DOCUMENT = ".loopwright-until.yaml"
_OPEN = {
    "queued": "no worker has started it yet",
    "running": "a process is running it",
    "interrupted": "its process has ended; the recorded results are kept",
}


async def on_record(store: Journal, name: str) -> tuple[RunInfo, list[Entry]]:
    """Return a run and its entries, by its ID, the beginning of the ID, or `last`."""
    info = await find_run(store, name)
    return info, await store.entries(info.run_id)


def origin_of(info: RunInfo) -> str:
    """Return the document, the Python step or the command of a run."""
    file = text_of(info.source.get("file") or "")
    if Path(file).name == UNTIL_DOCUMENT:
        return "loopwright until CHECK -- AGENT"
    return file or text_of(info.source.get("python") or "")


def ended(entries: Sequence[Entry]) -> bool:
    """Return whether the run has ended."""
    return any(entry.kind == "ended" and not entry.path for entry in surviving(entries))


def recorded(info: RunInfo, entries: Sequence[Entry], detail: str = "") -> Result:
    """Return the Result of a recorded run.

    A run that has not ended counts as cancelled, with `detail`; its output is the best so far.
    """
    replay = RecordedRun(surviving(entries))
    loops = _loops(info, replay)
    end = replay.ended.get("") or _suspended(info, entries)
    # The outermost loop has the name of the run.
    own = loops.get(end["name"] if end is not None else info.name)
    workspace = _workspace(info.name, replay) or (own.workspace if own is not None else None)
    if end is not None:
        result = ended_result(info.run_id, replay, end, loops)
        return replace(result, workspace=workspace, request=end.get("request"))
    # A Result needs a status of an end; readers of JSON get the real status from `recorded_json`.
    stop = Stop(Reason.CANCELLED, detail or _OPEN.get(info.status, "the run has not ended"))
    outputs = (loop.output for loop in reversed(loops.values()) if loop.output is not None)
    return Result(
        **_ended_by(stop),
        output=own.output if own else next(outputs, None),
        usage=replay.spent(""),
        name=info.name,
        loops=loops,
        seconds=max(info.active, replay.active),
        outcomes=replay.outcomes(),
        history=own.history if own is not None else History(),
        run_id=info.run_id,
        judging=replay.judging,
        agents=replay.reported(),
        items=own.items if own is not None else (),
        total=replay.iterations,
        workspace=workspace,
    )


def _workspace(path: str, replay: RecordedRun) -> Mapping[str, Json] | None:
    """Return where the files of a workflow with a workspace are, as in its result."""
    names = ("workspace", "placed", "merged")
    entries = [replay.finished.get(f"{path}/{name}") for name in names]
    values = [entry.value for entry in entries if entry is not None]
    if len(values) < len(names) or "folder" not in values[0]:
        return None
    begun, placed, merged = values
    where = {"folder": begun["folder"], "base": begun["commit"], "iteration": 0}
    return {**where, **{key: placed[key] for key in ("commit", "tree")}, **merged}


def _loops(info: RunInfo, replay: RecordedRun) -> LoopResults:
    """Return the loops of a run, ended ones first, in the order of their ends."""
    loops = LoopResults()
    loops.lists = frozenset(replay.lists())
    ended_paths = [path for path in replay.ended if path]
    for path in [*ended_paths, *(path for path in replay.records if path not in replay.ended)]:
        loops.keep(path, _loop(info, replay, path))
    return loops


def _ended_by(stop: Stop) -> dict[str, Any]:
    return {"status": stop.reason.status, "reason": stop.reason, "detail": stop.detail}


def _suspended(info: RunInfo, entries: Sequence[Entry]) -> Json:
    """Return the recorded end of a run that is still suspended."""
    if info.status != Status.SUSPENDED:
        return None
    return next((e.value for e in reversed(entries) if e.kind == "suspended" and not e.path), None)


def _loop(info: RunInfo, replay: RecordedRun, path: str) -> Result:
    end = replay.ended.get(path)
    if end is not None:
        return loop_result(info.run_id, replay, path, end)
    history, explored = replay.history(path)
    stop = Stop(Reason.CANCELLED, f"the loop has not ended; the run is {info.status}")
    return Result(
        **_ended_by(stop),
        output=history.best.output if history.best else None,
        history=history,
        usage=replay.spent(path),
        run_id=info.run_id,
        name=path.rsplit("/", 1)[-1],
        seconds=history.elapsed,
        explored_iterations=explored,
        items=replay.table(path),
        error=failure_of(stop, history),
    )


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
    data = result_json(recorded(info, entries), open_questions(surviving(entries)))
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
