"""The results of runs that end outside their root step, and of runs that had ended when they were opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from ..errors import StepError
from ..journal.replay import RecordedRun
from ..journal.results import ended_result, loop_result
from ..records import (
    Failure,
    History,
    LoopResults,
    Reason,
    Result,
    Status,
    Stop,
    agents_history,
    item_outcomes,
)
from ..records.codec import Json
from ..records.typed import ValueType
from .effects import retyped
from .loop import Loop
from .loop_declaration import LoopDeclaration
from .run_state import Run
from .step import Step
from .workflow import Workflow

__all__ = ["cut_result", "ended_loops", "failed_result", "finished"]


def finished(state: Run, ended: Json, step: Step) -> Result:
    """Return the result of a run whose end is in the journal.

    Raises:
        ReplayMismatch: if a recorded value no longer fits its declared type.
    """
    replay = state.replay
    assert replay is not None
    result = ended_result(state.run_id, replay, ended, ended_loops(state, replay, step))
    # A workflow may contain a loop of its own name, whose history is not that of the run.
    history = result.history if ended.get("iterations") else History()
    if result.agents.get(result.name, {}).get("kind") == "phased":
        history = _phases(replay, result.name)
    return replace(
        result,
        output=_typed(step.output_type, result.output, step.name),
        history=history,
        steps=_typed_steps(step, result.steps),
        members=step.steps if isinstance(step, Workflow) else {},
    )


def failed_result(error: StepError, state: Run, step: Step) -> Result:
    """Return the result of a run that an error ended; the reason is that of the failed loop, if any."""
    failure: Failure = state.clean(Failure.of("", error, redact=state.redact))
    loop = error.result
    reason = loop.reason if loop is not None and loop.status is Status.FAILED else Reason.ERROR
    detail = f"{failure.path}: {failure.message}" if failure.path else failure.message
    stopped = cut_result(Stop(reason, detail), state, step)
    return replace(stopped, error=failure, cause=error.__cause__)


def cut_result(stop: Stop, state: Run, step: Step) -> Result:
    """Return the result of a run that was ended from outside its root step, with its output so far."""
    own = state.loops.get(step.name)
    if own is not None:
        return replace(own, status=stop.reason.status, reason=stop.reason, detail=stop.detail)
    output = next((r.output for r in reversed(state.loops.values()) if r.output is not None), None)
    return Result(stop.reason.status, stop.reason, stop.detail, output)


def _phases(replay: RecordedRun, path: str) -> History:
    """Return the iterations of the phases of the agent at a path."""
    phases = [
        entries for loop, entries in replay.records.items() if loop.rpartition("/")[0] == path
    ]
    return agents_history([entry.value for entry in entries] for entries in phases)


def _typed(declared: ValueType | None, value: Json, path: str) -> Json:
    return value if declared is None or value is None else retyped(declared, value, path)


def _typed_steps(step: Step, outputs: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the outputs of the steps of a workflow with their declared types."""
    if not isinstance(step, Workflow):
        return outputs
    return {
        name: _typed(step.steps[name].output_type, value, name) if name in step.steps else value
        for name, value in outputs.items()
    }


def _loops_in(step: Step) -> dict[str, LoopDeclaration]:
    """Return the loops and lists inside a step by name; of two with one name the first."""
    loops: dict[str, LoopDeclaration] = {}
    waiting = [step]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, Loop) or getattr(part, "over_list", False):
            loops.setdefault(part.name, cast("LoopDeclaration", part))
        waiting += part.parts()
    return loops


def ended_loops(state: Run, replay: RecordedRun, step: Step) -> LoopResults:
    """Return the results of the loops whose end is in the journal, in the order of their ends."""
    loops = LoopResults()
    # Walking the step takes time, and a run without ended loops has nothing to type.
    declared = _loops_in(step) if replay.ended else {}
    loops.lists = frozenset(replay.lists())  # first: the names of loops in a list depend on it
    for path, value in replay.ended.items():
        if path:
            result = loop_result(state.run_id, replay, path, value)
            loop = declared.get(result.name)
            loops.keep(path, result if loop is None else _typed_result(loop, result))
    return loops


def _typed_result(loop: LoopDeclaration, result: Result) -> Result:
    """Return the recorded result of a loop with the declared types of its values."""
    input_type, output_type = loop.iteration_types
    if all(each is None or each.is_json for each in (input_type, output_type)):
        return result
    history = History()
    for item in result.history:
        value = item.input if input_type is None else input_type.attach(item.input)
        typed = replace(item, input=value, output=_typed(output_type, item.output, result.name))
        history = history.with_iteration(
            typed, result.history.elapsed, result.history.usage, result.history.now
        )
    output = _typed(loop.output_type, result.output, result.name)
    items = [
        row.item if input_type is None else input_type.attach(row.item) for row in result.items
    ]
    return replace(result, output=output, history=history, items=item_outcomes(items, history))
