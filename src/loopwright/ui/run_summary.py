"""A run as its journal holds it, ended or not, in the shape of a Result."""

from __future__ import annotations

from collections.abc import Sequence

from ..journal import Entry, Journal, RunInfo, surviving
from ..journal.questions import Question, open_questions
from ..journal.replay import RecordedRun
from ..records import (
    Failure,
    History,
    Iteration,
    LoopResults,
    Reason,
    Result,
    Status,
    Stop,
    Usage,
    failure_of,
)
from ..records.codec import Json
from .journals import find_run

__all__ = [
    "ended", "executions_in", "items_of_lists", "on_record", "recorded", "recorded_json", "result_json", "rounds_of",
]  # fmt: skip

_OPEN = {
    "running": "a process is running it now",
    "interrupted": "its process was stopped or is gone; what it did is kept",
}


async def on_record(store: Journal, name: str) -> tuple[RunInfo, list[Entry]]:
    """Return the row and the entries of a run by its id, the beginning of it, or `last`."""
    info = await find_run(store, name)
    return info, await store.entries(info.run_id)


def ended(entries: Sequence[Entry]) -> bool:
    """Return whether the run came to its end."""
    return any(entry.kind == "ended" and not entry.path for entry in surviving(entries))


def recorded(info: RunInfo, entries: Sequence[Entry], detail: str = "") -> Result:
    """Return what the journal holds of a run.

    One that has not ended is told as cancelled, with `detail`; its output is the best so far.
    """
    replay = RecordedRun(surviving(entries))
    names = {path: str(end["name"]) for path, end in replay.ended.items()}
    loops = LoopResults()
    loops.lists.update(replay.lists())
    for path in _as_they_ended(replay):
        name = names.get(path) or path.rsplit("/", 1)[-1]
        loops.keep(path, _loop(info, replay, path, name))
    end = replay.ended.get("") or _suspended(info, entries)
    if end is not None:
        return _whole(info, end, loops, replay)
    stop = Stop(Reason.CANCELLED, detail or _OPEN.get(info.status, "it has not ended"))
    own = loops.get(info.name)
    output = next(
        (loop.output for loop in reversed(loops.values()) if loop.output is not None), None
    )
    return Result(
        status=stop.reason.status,
        reason=stop.reason,
        detail=stop.detail,
        output=own.output if own else output,
        history=own.history if own else History(),
        usage=replay.spent(""),
        run_id=info.run_id,
        name=info.name,
        loops=loops,
        seconds=max(info.active, replay.active),
        judging=replay.judging,
        agents=replay.reported(),
        items=own.items if own else (),
        outcomes=replay.outcomes(),
        total=replay.iterations,
    )


def _as_they_ended(replay: RecordedRun) -> list[str]:
    """Return the paths of loops in the order in which they ended, then those that are open."""
    ended = [path for path in replay.ended if path]
    return [*ended, *(path for path in replay.rounds if path not in replay.ended)]


def _suspended(info: RunInfo, entries: Sequence[Entry]) -> Json:
    """Return what was recorded when the run was suspended, if it still is."""
    if info.status != Status.SUSPENDED:
        return None
    return next((e.value for e in reversed(entries) if e.kind == "suspended" and not e.path), None)


def _whole(info: RunInfo, end: Json, loops: LoopResults, replay: RecordedRun) -> Result:
    stop = Stop.from_json(end["stop"])
    own = loops.get(end["name"])
    return Result(
        status=stop.reason.status,
        reason=stop.reason,
        detail=stop.detail,
        output=end["output"],
        history=own.history if own is not None else History(),
        usage=Usage.from_json(end["usage"]),
        run_id=info.run_id,
        name=end["name"],
        also=stop.also,
        loops={n: loops[n] for n in end["loops"] if n in loops},
        steps=end["steps"],
        warnings=tuple(end["warnings"]),
        seconds=end["seconds"],
        request=end.get("request"),
        judging=replay.judging,
        reported_score=own.reported_score if own is not None else None,
        agents=replay.reported(),
        items=own.items if own is not None else (),
        outcomes=replay.outcomes(end["steps"]),
        total=replay.iterations,
        error=Failure.from_json(end.get("error")),
    )


def _loop(info: RunInfo, replay: RecordedRun, path: str, name: str) -> Result:
    history, usage = History(), Usage()
    for entry in replay.rounds.get(path, ()):
        usage += entry.value.usage
        history = history.appended(entry.value, entry.seconds, usage, entry.at)
    end = replay.ended.get(path)
    if end is not None:
        stop, output = Stop.from_json(end["stop"]), end["output"]
        reported = end.get("reported_score")
    else:
        stop = Stop(Reason.CANCELLED, f"it has not ended: the run is {info.status}")
        output = history.best.output if history.best else None
        reported = None
    return Result(
        status=stop.reason.status,
        reason=stop.reason,
        detail=stop.detail,
        output=output,
        history=history,
        usage=replay.spent(path),
        run_id=info.run_id,
        name=name,
        also=stop.also,
        seconds=history.elapsed,
        reported_score=reported,
        items=replay.table(path),
        error=failure_of(stop, history),
    )


def result_json(result: Result, questions: Sequence[Question] = ()) -> dict[str, Json]:
    """Return the one object of `run --json`; a suspended run's says what it asks too."""
    data: dict[str, Json] = dict(result.to_json())
    if questions:
        data["questions"] = [question.to_json() for question in questions]
    return {**data, "request": dict(result.request)} if result.request else data


def recorded_json(info: RunInfo, entries: Sequence[Entry]) -> dict[str, Json]:
    """Return a run as `show --json` gives it: as `run --json` did, with what is known of the run.

    A run that has not ended has the status of its row, `running` or `interrupted`, and no reason.
    """
    data = result_json(recorded(info, entries), open_questions(surviving(entries)))
    if not ended(entries) and info.status not in list(Status):
        data |= {"status": info.status, "reason": None}
    row = info.to_json()
    if found := executions_in(info, entries):
        data["executions"] = found
    extra = ("name", "input", "created", "updated", "active", "source", "fingerprint")
    return {**data, **{key: row[key] for key in extra}}


def rounds_of(entries: Sequence[Entry]) -> dict[str, list[Iteration]]:
    """Return the iterations of each loop by its path, loops in the order of their first one.

    One that a person edited is returned as edited.
    """
    rounds = RecordedRun(surviving(entries)).rounds
    return {path: [entry.value for entry in found] for path, found in rounds.items()}


def items_of_lists(entries: Sequence[Entry]) -> dict[str, list[Json]]:
    """Return the items of each list by its path."""
    replay = RecordedRun(surviving(entries))
    return {path: replay.items(path) for path in replay.lists()}


def executions_in(info: RunInfo, entries: Sequence[Entry]) -> list[dict[str, Json]]:
    """Return the executions of reasoning agents in a run, as JSON."""
    if not any(entry.path.endswith("/begin") for entry in entries):
        return []  # only a run with agents pays for loading them
    from ..agents.reasoning.executions import execution_of

    return [one.to_json() for one in execution_of(info, entries)]
