"""A run as its journal holds it, ended or not, in the shape of a Result."""

from __future__ import annotations

from collections.abc import Sequence

from ..approvals import Question, open_questions
from ..codec import Json
from ..journal import Entry, Journal, RunInfo, surviving
from ..records import History, Reason, Result, Status, Stop, Usage
from ..replay import Replay
from .agents import executions_in
from .journals import find_run

__all__ = ["ended", "on_record", "recorded", "recorded_json", "result_json"]

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
    replay = Replay(surviving(entries))
    names = {path: str(end["name"]) for path, end in replay.ended.items()}
    loops: dict[str, Result] = {}
    for path in replay.rounds:
        name = names.get(path) or path.rsplit("/", 1)[-1]
        loops.pop(name, None)
        loops[name] = _loop(info, replay, path, name)
    end = replay.ended.get("") or _suspended(info, entries)
    if end is not None:
        return _whole(info, end, loops, replay)
    stop = Stop(Reason.CANCELLED, detail or _OPEN.get(info.status, "it has not ended"))
    own = loops.get(info.name)
    output = next(
        (loop.output for loop in reversed(loops.values()) if loop.output is not None), None
    )
    return Result(
        stop.reason.status, stop.reason, stop.detail, own.output if own else output,
        own.history if own else History(), replay.spent(""), info.run_id, info.name,
        loops=loops, seconds=max(info.active, replay.active), judging=replay.judging,
        agents=replay.reported(),
    )  # fmt: skip


def _suspended(info: RunInfo, entries: Sequence[Entry]) -> Json:
    """Return what was recorded when the run was suspended, if it still is."""
    if info.status != Status.SUSPENDED:
        return None
    return next((e.value for e in reversed(entries) if e.kind == "suspended" and not e.path), None)


def _whole(info: RunInfo, end: Json, loops: dict[str, Result], replay: Replay) -> Result:
    stop = Stop.from_json(end["stop"])
    own = loops.get(end["name"])
    return Result(
        stop.reason.status, stop.reason, stop.detail, end["output"],
        own.history if own is not None else History(), Usage.from_json(end["usage"]),
        info.run_id, end["name"], stop.also, {n: loops[n] for n in end["loops"] if n in loops},
        end["steps"], tuple(end["warnings"]), end["seconds"], end.get("request"), replay.judging,
        own.reported_score if own is not None else None, replay.reported(),
    )  # fmt: skip


def _loop(info: RunInfo, replay: Replay, path: str, name: str) -> Result:
    history, usage = History(), Usage()
    for entry in replay.rounds[path]:
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
        stop.reason.status, stop.reason, stop.detail, output, history, replay.spent(path),
        info.run_id, name, stop.also, seconds=history.elapsed, reported_score=reported,
    )  # fmt: skip


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
