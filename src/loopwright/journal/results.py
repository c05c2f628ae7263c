"""The result of a recorded run, ended or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..records import (
    Failure,
    History,
    LoopResults,
    Reason,
    Result,
    Status,
    Stop,
    Usage,
    failure_of,
)
from ..records.codec import Json
from ..records.result import explored_by
from .entries import Entry, surviving
from .protocol import RunInfo
from .replay import RecordedRun

__all__ = ["ended_result", "loop_result", "recorded_result"]

_OPEN = {
    "queued": "no worker has started it yet",
    "running": "a process is running it",
    "interrupted": "its process has ended; the recorded results are kept",
}


def recorded_result(info: RunInfo, entries: Sequence[Entry], detail: str = "") -> Result:
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


def ended_result(
    run_id: str, replay: RecordedRun, ended: Json, loops: Mapping[str, Result]
) -> Result:
    """Return the result in the entry of a run's end, with values without their declared types."""
    stop, own = Stop.from_json(ended["stop"]), loops.get(ended["name"])
    return Result(
        stop.reason.status,
        stop.reason,
        stop.detail,
        ended["output"],
        own.history if own is not None else History(),
        usage=Usage.from_json(ended["usage"]),
        run_id=run_id,
        name=ended["name"],
        also=stop.also,
        loops={name: loops[name] for name in ended["loops"] if name in loops},
        steps=ended["steps"],
        warnings=tuple(ended["warnings"]),
        seconds=ended["seconds"],
        judging=replay.judging,
        reported_score=own.reported_score if own is not None else None,
        held_out=own.held_out if own is not None else None,
        explored_iterations=explored_by(own, loops),
        agents=replay.reported(),
        outcomes=replay.outcomes(ended["steps"]),
        total=replay.iterations,
        items=own.items if own is not None else (),
        error=Failure.from_json(ended.get("error")),
        workspace=ended.get("workspace"),
    )


def loop_result(run_id: str, replay: RecordedRun, path: str, value: Json) -> Result:
    """Return the result in the entry of a loop's end, with values without their declared types."""
    history, explored = replay.history(path)
    stop = Stop.from_json(value["stop"])
    return Result(
        stop.reason.status,
        stop.reason,
        stop.detail,
        value["output"],
        history,
        usage=replay.spent(path),
        run_id=run_id,
        name=value["name"],
        also=stop.also,
        seconds=history.elapsed,
        reported_score=value.get("reported_score"),
        held_out=value.get("held_out"),
        explored_iterations=explored,
        items=replay.table(path),
        error=failure_of(stop, history),
        workspace=value.get("workspace"),
    )
