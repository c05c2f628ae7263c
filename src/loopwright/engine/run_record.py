"""Results to what the journal keeps of them, and back.

What a run is bounded by: each loop's conditions, as recorded with the run for whoever shows it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from ..conditions import Budget
from ..journal import RunInfo
from ..journal.replay import RecordedRun
from ..records import (
    Failure,
    History,
    LoopResults,
    Result,
    Stop,
    Usage,
    agents_history,
    failure_of,
)
from ..records.codec import Json
from .loop import Loop
from .run_state import Run
from .step import Step

__all__ = ["bounds_of", "ended_entry", "ended_loops", "finished", "row_of"]


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
        **({} if result.error is None else {"error": result.error.to_json()}),
    }


def finished(state: Run, ended: Json) -> Result:
    """Return the result of a run that the journal holds to its end."""
    replay = state.replay
    assert replay is not None
    stop = Stop.from_json(ended["stop"])
    loops = ended_loops(state, replay)
    own = loops.get(ended["name"])
    agents = replay.reported()
    history = own.history if own is not None and ended.get("iterations") else History()
    if agents.get(ended["name"], {}).get("kind") == "phased":
        history = _phases(replay, ended["name"])
    return Result(
        stop.reason.status, stop.reason, stop.detail, ended["output"],
        history,
        Usage.from_json(ended["usage"]), state.run_id, ended["name"], stop.also,
        {name: loops[name] for name in ended["loops"] if name in loops},
        ended["steps"], tuple(ended["warnings"]), ended["seconds"],
        judging=replay.judging, reported_score=own.reported_score if own is not None else None,
        agents=agents, outcomes=replay.outcomes(ended["steps"]), total=replay.iterations,
        items=own.items if own is not None else (),
        error=Failure.from_json(ended.get("error")),
    )  # fmt: skip


def _phases(replay: RecordedRun, path: str) -> History:
    """Return the iterations of the phases of the agent at a path."""
    within = [rounds for loop, rounds in replay.rounds.items() if loop.rpartition("/")[0] == path]
    return agents_history([entry.value for entry in rounds] for rounds in within)


def ended_loops(state: Run, replay: RecordedRun) -> LoopResults:
    """Return the results of the loops that the journal holds to their end, in the order they ended."""
    loops = LoopResults()
    loops.lists.update(replay.lists())
    for path, value in replay.ended.items():
        if path:
            loops.keep(path, _loop_result(state, replay, path, value))
    return loops


def _loop_result(state: Run, replay: RecordedRun, path: str, value: Json) -> Result:
    history, usage = History(), Usage()
    for entry in replay.rounds.get(path, ()):
        usage += entry.value.usage
        history = history.appended(entry.value, entry.seconds, usage, entry.at)
    stop = Stop.from_json(value["stop"])
    return Result(
        stop.reason.status, stop.reason, stop.detail, value["output"], history,
        replay.spent(path), state.run_id, value["name"], stop.also, seconds=history.elapsed,
        reported_score=value.get("reported_score"), items=replay.table(path),
        error=failure_of(stop, history),
    )  # fmt: skip


def row_of(info: RunInfo, result: Result, active: float) -> RunInfo:
    """Return the row of a run that ended, after so many active seconds."""
    best = result.best or next((r.best for r in result.loops.values() if r.best), None)
    return replace(
        info,
        status=result.status.value,
        reason=result.reason.value,
        detail=result.detail,
        active=active,
        updated=time.time(),
        iterations=result.total,
        score=best.score if best else None,
        usage=result.usage,
    )


_MOST = 200  # loops told of; a generated workflow may have thousands


def bounds_of(step: Step, budget: Budget | None = None) -> dict[str, Json]:
    """Return the bounds of a step as JSON: `{"budget": {…}, "loops": [{name, within, until}], "lists": [name]}`.

    `within` is the name of the nearest loop around it, `until` its conditions with the guards, each
    as `Condition.to_json` writes it. A step without loops and without a budget has no bounds: {}.
    """
    loops = [told for told, _ in zip(_loops(step, ""), range(_MOST), strict=False)]
    found: dict[str, Json] = {"loops": loops} if loops else {}
    lists = [name for name, _ in zip(_lists(step), range(_MOST), strict=False)]
    if lists:
        found["lists"] = list(dict.fromkeys(lists))
    if budget is not None:
        found["budget"] = budget.to_json()["budget"]
    return found


def _lists(step: Step) -> Iterator[str]:
    """Iterate over the names of the steps that go over a list."""
    if getattr(step, "over_list", False):
        yield step.name
    for part in step.parts():
        yield from _lists(part)


def _loops(step: Step, within: str) -> Iterator[dict[str, Json]]:
    if isinstance(step, Loop):
        told: dict[str, Json] = {"name": step.name, "until": step.bounds}
        yield {**told, "within": within} if within else told
        within = step.name
    for part in step.parts():
        yield from _loops(part, within)
