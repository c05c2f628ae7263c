"""Results to what the journal keeps of them, and back."""

from __future__ import annotations

import time

from .codec import Json
from .journal import RunInfo
from .records import History, Loops, Result, Stop, Usage
from .replay import Replay
from .runtime import Run

__all__ = ["ended_entry", "ended_loops", "finished", "row_of"]


def ended_entry(result: Result) -> Json:
    """Return what the journal keeps of how a run ended."""
    return {
        "name": result.name,
        "stop": Stop(result.reason, result.detail, result.also).to_json(),
        "output": result.output,
        "iterations": result.iterations,
        "steps": dict(result.steps),
        "warnings": list(result.warnings),
        "usage": result.usage.to_json(),
        "seconds": result.seconds,
        "loops": list(result.loops),
        "request": result.request,
    }


def finished(state: Run, ended: Json) -> Result:
    """Return the result of a run that the journal holds to its end."""
    replay = state.replay
    assert replay is not None
    stop = Stop.from_json(ended["stop"])
    loops = ended_loops(state, replay)
    own = loops.get(ended["name"])
    return Result(
        stop.reason.status, stop.reason, stop.detail, ended["output"],
        own.history if own is not None and ended.get("iterations") else History(),
        Usage.from_json(ended["usage"]), state.run_id, ended["name"], stop.also,
        {name: loops[name] for name in ended["loops"] if name in loops},
        ended["steps"], tuple(ended["warnings"]), ended["seconds"],
        judging=replay.judging, reported_score=own.reported_score if own is not None else None,
        agents=replay.reported(),
    )  # fmt: skip


def ended_loops(state: Run, replay: Replay) -> Loops:
    """Return the results of the loops that the journal holds to their end, in the order they ended."""
    loops = Loops()
    for path, value in replay.ended.items():
        if path:
            loops.keep(path, _loop_result(state, replay, path, value))
    return loops


def _loop_result(state: Run, replay: Replay, path: str, value: Json) -> Result:
    history, usage = History(), Usage()
    for entry in replay.rounds.get(path, ()):
        usage += entry.value.usage
        history = history.appended(entry.value, entry.seconds, usage, entry.at)
    stop = Stop.from_json(value["stop"])
    return Result(
        stop.reason.status, stop.reason, stop.detail, value["output"], history,
        replay.spent(path), state.run_id, value["name"], stop.also, seconds=history.elapsed,
        reported_score=value.get("reported_score"),
    )  # fmt: skip


def row_of(info: RunInfo, result: Result, active: float) -> RunInfo:
    """Return the row of a run that ended, after so many active seconds."""
    best = result.best or next((r.best for r in result.loops.values() if r.best), None)
    return info.altered(
        status=result.status.value,
        reason=result.reason.value,
        detail=result.detail,
        active=active,
        updated=time.time(),
        iterations=result.iterations or sum(r.iterations for r in result.loops.values()),
        score=best.score if best else None,
        usage=result.usage,
    )
