"""The records of a run: the row with which it is opened, the entry of its end, and its results.

A row contains the bounds of a run, which are the conditions of each loop, for lists and pages.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from ..conditions import Budget
from ..errors import ConfigurationError, ReplayMismatch, StepError
from ..journal import Journal, NoLog, RunInfo, RunLog
from ..journal.inbox import status_of, take_up
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
    codec,
    item_outcomes,
)
from ..records.codec import Json
from ..records.redaction import Redactor, secrets_in
from ..records.typed import ValueType
from .effects import retyped
from .loop import Loop
from .loop_declaration import LoopDeclaration
from .run_state import Run, RunResources
from .step import CompositeStep, Leaf, Step
from .workflow import Workflow

__all__ = [
    "cut_result",
    "described",
    "ended_loops",
    "failed_result",
    "finished",
    "fresh_row",
    "new_run_id",
    "open_run",
    "row_of",
    "valid_run_id",
]

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def new_run_id() -> str:
    """Return a new run ID that sorts by time: date, time and 6 random letters and digits."""
    # From the system and not from `random`, whose seed may be the same in two processes.
    number = int.from_bytes(os.urandom(8), "big")
    letters = "".join(_LETTERS[number // 36**place % 36] for place in range(6))
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + letters


def valid_run_id(run_id: str) -> str:
    """Return a run ID; "" stands for a new one. Raises ConfigurationError."""
    if run_id and not (isinstance(run_id, str) and _ID.fullmatch(run_id)):
        raise ConfigurationError(
            f"run_id: {run_id!r} is not a run ID; use 1 to 64 letters, digits, - and _"
        )
    return run_id


def fresh_row(step: Step, value: Json, run_id: str) -> RunInfo:
    """Return the row of a new run.

    Raises:
        ConfigurationError: for an invalid run ID or input.
    """
    valid_run_id(run_id)
    declared = step.input_type
    try:
        if declared is None:
            recorded_input = codec.normalise(value, what="input")
        else:
            recorded_input = declared.write_input(value)
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    now = time.time()
    return RunInfo(run_id or new_run_id(), step.name, recorded_input, created=now, updated=now)


def described(
    fresh: RunInfo, step: Step, source: Mapping[str, Json], budget: Budget | None
) -> RunInfo:
    """Return a row with the fields that only a journal needs: the step's fingerprint, and its bounds."""
    bounds = _bounds_of(step, budget)
    described_source = {**source, "bounds": bounds} if bounds else dict(source)
    return replace(fresh, fingerprint=step.fingerprint, source=described_source)


def _bounded(info: RunInfo, fresh: RunInfo) -> RunInfo:
    """Return the row with the bounds of this opening: a resume may have others than the first one."""
    bounds = fresh.source.get("bounds")
    if bounds is None or info.source.get("bounds") == bounds:
        return info
    return replace(info, source={**info.source, "bounds": bounds})


async def open_run(
    step: Step,
    value: Json,
    store: Journal | None,
    *,
    resources: RunResources,
    redactor: Redactor | None,
    budget: Budget | None,
    source: Mapping[str, Json],
    accept_changes: bool,
    run_id: str,
    takeover: bool,
    observed: bool,
    has_input: bool,
) -> tuple[RunInfo, RunLog]:
    """Open the journal of a run; return its row, with the bounds of this opening, and the log.

    `has_input` is whether the caller passed the value: a default is not compared with a recorded input.

    Raises:
        JournalError: if it cannot be opened, or holds another run under this ID.
    """
    fresh = fresh_row(step, value, run_id)
    if redactor is None and step.asks_model and "models" not in resources:
        # The default models read these keys at the first call, when the input is on record.
        redactor = Redactor(secrets_in(os.environ))
    if redactor is not None:
        # Refused, not redacted: a run cannot compute with a replaced input.
        redactor.refuse("input", fresh.input)
        redactor.refuse("the source of the run", source)
    if store is not None or observed:  # listeners may read the limits
        fresh = described(fresh, step, source, budget)
    if store is None:
        return fresh, NoLog(fresh)
    log = await store.open(fresh, takeover=takeover)
    if not log.recorded:
        if "forked" in log.info.source and log.info.epoch > 1:
            await log.close(replace(log.info, status="interrupted"))
            raise ConfigurationError(
                f"{log.info.run_id}: the process that forked it ended before its entries were written; "
                "fork again with another run ID"
            )
        if log.info.queue:  # limits may have been changed before it started
            await take_up(store, log)
        return _bounded(log.info, fresh), log
    try:
        if not accept_changes:
            _check_same(log, step, fresh, has_input=has_input)
    except ReplayMismatch:
        # Released with its former status: the run is as it was before this attempt.
        await log.close(replace(log.info, status=status_of(log.recorded)))
        raise
    # Answers that were posted while no process ran it become entries before the replay.
    await take_up(store, log)
    return _bounded(log.info, fresh), log


def _check_same(log: RunLog, step: Step, fresh: RunInfo, *, has_input: bool) -> None:
    """Raise ReplayMismatch if the log holds a run of another step or input."""
    info = log.info
    if has_input and codec.digest(fresh.input) != codec.digest(info.input):
        before, now = codec.digest(info.input), codec.digest(fresh.input)
        raise ReplayMismatch(
            f"{info.run_id}: its input was {before} when it was recorded, now it is {now}; "
            "resume without an input, or use another run ID",
            path="",
            recorded=before,
            now=now,
        )
    if info.name != step.name:
        raise ReplayMismatch(
            f"{info.run_id}: it was recorded as {info.name!r}, not as {step.name!r}; "
            "resume with the step of that name, or use another run ID",
            path="",
            recorded=info.name,
            now=step.name,
        )
    recorded = _accepted_in(log) or info.fingerprint
    if recorded and step.fingerprint != recorded:
        raise ReplayMismatch(
            f"{info.run_id}: {step.name} changed since the run was recorded ({recorded} then, "
            f"{step.fingerprint} now); resume with the old version, or give accept_changes",
            path="",
            recorded=recorded,
            now=step.fingerprint,
        )


def _accepted_in(log: RunLog) -> str:
    """Return the fingerprint of the code that was accepted instead of the recorded one, or ""."""
    accepted = (e for e in reversed(log.recorded) if e.kind == "accepted" and not e.path)
    return next((e.fingerprint for e in accepted if e.value is None), "")


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


def row_of(info: RunInfo, result: Result, active: float) -> RunInfo:
    """Return the row of a run that ended; `active` are its active seconds."""
    inner = (r.history.best for r in result.loops.values() if r.history.best)
    best = result.history.best or next(inner, None)
    return replace(
        info,
        status=result.status.value,
        reason=result.reason.value,
        detail=result.detail,
        active=active,
        updated=time.time(),
        iterations=result.total,
        score=best.evaluation.score if best and best.evaluation else None,
        usage=result.usage,
    )


_MAX_NAMES = 200  # loops and lists in a row; a generated workflow may have thousands


def _bounds_of(step: Step, budget: Budget | None = None) -> dict[str, Json]:
    """Return the bounds of a step as JSON: `{"budget": {…}, "loops": [{name, within, until}], "lists": [name],
    "at_once": {name: n}}`.

    `within` is the name of the nearest loop around it, `until` its conditions with the guards, each
    as `Condition.to_json` writes it. `at_once` has the steps whose number of jobs at a time can be tuned.
    A step without loops and without a budget has no bounds: {}.
    """
    loops: list[Json] = []
    lists: dict[str, None] = {}
    at_once: dict[str, int] = {}
    _collect(step, loops, lists, at_once)
    bounds: dict[str, Json] = {"loops": loops[:_MAX_NAMES]} if loops else {}
    if lists:
        bounds["lists"] = list(lists)[:_MAX_NAMES]
    if at_once:
        bounds["at_once"] = dict(list(at_once.items())[:_MAX_NAMES])
    if budget is not None:
        bounds["budget"] = budget.to_json()["budget"]
    return bounds


def _collect(
    step: Step,
    loops: list[Json],
    lists: dict[str, None],
    at_once: dict[str, int],
    *,
    within: str = "",
    in_folder: bool = False,
) -> None:
    """Add the loops and lists inside a step, and the jobs at a time of its steps that can have another number."""
    over_list = getattr(step, "over_list", False)
    if over_list:
        lists[step.name] = None
    if isinstance(step, Loop):
        loop: dict[str, Json] = {"name": step.name, "until": step.bounds}
        loops.append({**loop, "within": within} if within else loop)
        within = step.name
    most = getattr(step, "at_once", None)
    # Items of a list are independent, unless they work on the same files. Other steps that run one at a
    # time may use the results of those before.
    adjustable = over_list and not in_folder
    if isinstance(step, CompositeStep) and isinstance(most, int) and (most > 1 or adjustable):
        at_once.setdefault(step.name, most)
    in_folder = in_folder or getattr(step, "workspace", None) is not None
    for part in () if isinstance(step, Leaf) else step.parts():
        _collect(part, loops, lists, at_once, within=within, in_folder=in_folder)
