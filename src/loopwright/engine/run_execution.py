"""One run: its journal is opened, its root step runs to its end, and its result is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from functools import partial

from ..conditions import Budget, raised_budget, tuned_budget
from ..errors import (
    ConfigurationError,
    JournalError,
    OwnershipLost,
    ReplayMismatch,
    StepError,
    Stopped,
    Suspended,
)
from ..journal import Entry, Journal, NoLog, RunInfo, RunLog
from ..journal.inbox import status_of, take_up
from ..journal.results import ended_entry, explored_by
from ..records import Failure, Reason, Result, Status, Stop, codec
from ..records.codec import Json
from ..records.redaction import Redactor, secrets_in
from .budget import CANNOT_BIND, Account, cannot_bind
from .context import Context
from .leftovers import end_leftovers
from .past_noise import set_noise
from .run_record import (
    bounded,
    described,
    ended_loops,
    finished,
    fresh_row,
    row_of,
)
from .run_state import Run, RunResources, redactor_of
from .step import CompositeStep, Step
from .tuning import LiveLimits
from .workflow import Workflow

__all__ = ["drive", "open_run"]


async def open_run(
    step: Step,
    value: Json,
    store: Journal | None,
    *,
    resources: RunResources,
    budget: Budget | None,
    source: Mapping[str, Json],
    accept_changes: bool,
    run_id: str,
    takeover: bool,
    observed: bool,
    has_input: bool,
) -> tuple[RunInfo, RunLog]:
    """Open the journal of a run; return the row of a new run, and the log.

    `has_input` is whether the caller passed the value: a default is not compared with a recorded input.

    Raises:
        JournalError: if it cannot be opened, or holds another run under this ID.
    """
    fresh = fresh_row(step, value, run_id)
    redactor = redactor_of(resources)
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
        return fresh, log
    try:
        if not accept_changes:
            _check_same(log, step, fresh, has_input=has_input)
    except ReplayMismatch:
        # Released with its former status: the run is as it was before this attempt.
        await log.close(replace(log.info, status=status_of(log.recorded)))
        raise
    # Answers that were posted while no process ran it become entries before the replay.
    await take_up(store, log)
    return fresh, log


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


def drive(
    state: Run, step: Step, fresh: RunInfo, budget: Budget | None, store: Journal | None
) -> Coroutine[object, object, Result]:
    """Return the coroutine that runs the step to its end."""
    info = state.log.info
    if state.accept_changes:
        _accept(state, info.fingerprint, fresh.fingerprint)
    if budget is not None or state.tuned is not None:
        budget = _cap(state, budget)
    if budget is not None and (unbound := cannot_bind(step, budget, "run")):
        state.warn(unbound, code=CANNOT_BIND)
    if state.silent:  # it has no record, so only its result matters
        return _outcome(state, step, fresh.input)
    return _drive(state, step, bounded(info, fresh), store)


def _accepted_in(log: RunLog) -> str:
    """Return the fingerprint of the code that was accepted instead of the recorded one, or ""."""
    accepted = (e for e in reversed(log.recorded) if e.kind == "accepted" and not e.path)
    return next((e.fingerprint for e in accepted if e.value is None), "")


def _accept(state: Run, recorded: str, now: str) -> None:
    """Record that a run continues with changed code, so that it is accepted once and not at each resume."""
    replay = state.replay
    if replay is not None and "" not in replay.ended:
        accepted = replay.accepted.get("", recorded)
        if accepted and accepted != now:
            state.append(Entry("accepted", "", state.now(), fingerprint=now))


def _cap(state: Run, budget: Budget | None) -> Budget | None:
    """Limit the run by a budget, with the caps that a person changed; return that budget."""
    if budget is not None and state.replay is not None and (limits := state.replay.raised.get("")):
        budget = raised_budget(budget, limits)
    if state.tuned is not None and (limits := state.tuned.of("")):
        budget = tuned_budget(budget, limits)
    uncapped = state.account
    recorded = None if state.replay is None else state.replay.effects
    state.account = Account("", None, budget, uncapped.settled, recorded)
    state.account.judging = uncapped.judging
    return budget


async def _drive(state: Run, step: Step, info: RunInfo, store: Journal | None) -> Result:
    """Run the root step, record how the run ended, and release the run."""
    replay = state.replay
    if replay is not None and "" in replay.ended:
        result = finished(state, replay.ended[""], step)
        await state.log.close(row_of(info, result, replay.active))
        return result
    # Before anything is repeated: two processes must not work on the same files.
    if replay is not None and replay.unsettled and state.log.keeps_values:
        await _end_leftovers(state)
    # Loops inside an ended loop do not run again, but the result shows them.
    if replay is not None:
        state.loops = ended_loops(state, replay, step)
    _listen(state, store)
    try:
        if step.reads_past:
            await set_noise(state, step, store)
        result = await _outcome(state, step, _typed_input(step, info.input))
        _stop_reading(state)
        kind = "suspended" if result.status is Status.SUSPENDED else "ended"
        state.append(Entry(kind, "", state.now(), value=ended_entry(result)))
        await state.settle()
    except BaseException as error:  # of any kind: the lease must be released
        _stop_reading(state)
        await _interrupted(state, info, error)
        if state.lost and isinstance(error, asyncio.CancelledError):
            await _uncancel(asyncio.current_task())
            raise OwnershipLost(f"{state.run_id}: another owner took this run over") from None
        raise
    if not state.log.silent:
        await state.log.close(row_of(info, result, state.now()))
    return result


def _listen(state: Run, store: Journal | None) -> None:
    """Let the journal notify the run of a cancellation, another owner and new limits."""
    if state.log.silent:
        return
    state.log.on_cancel = state.cancel
    state.log.on_lost = state.lose
    if store is not None:
        state.log.on_posted = partial(_read_limits, state, store)


def _read_limits(state: Run, store: Journal) -> None:
    """Read and apply the new limits of an open run; most runs get none."""
    if state.limits is None:
        state.limits = LiveLimits(state, partial(store.inbox, state.run_id))
    state.limits.read()


def _stop_reading(state: Run) -> None:
    """Read no further limits: the end of the run is recorded next, and nothing may follow it."""
    if not state.log.silent:
        state.log.on_posted = None
    if state.limits is not None:
        state.limits.close()


async def _end_leftovers(state: Run) -> None:
    """End the processes of an earlier attempt of the run, and warn of those that remain."""
    if pids := await end_leftovers(state.token):
        numbers = ", ".join(map(str, pids))
        sentence = f"processes of an earlier attempt of this run cannot be ended: {numbers}"
        state.warn(sentence, code="processes_left")


def _typed_input(step: Step, value: Json) -> Json:
    """Return the recorded input of a run with the type that its step declares."""
    declared = step.input_type
    return value if declared is None or value is None else declared.attach(value)


async def _interrupted(state: Run, info: RunInfo, error: BaseException) -> None:
    """Release a run that was interrupted, with its active time."""
    if state.log.silent:
        return
    if not isinstance(error, JournalError | OwnershipLost):
        state.append(Entry("interrupted", "", state.now()))
    row = replace(
        info,
        status="interrupted",
        active=state.now(),
        updated=state.clock.wall(),
        iterations=state.iterations,
        score=state.score,
        usage=state.account.settled,
    )
    # Shielded: a second cancellation must not leave the run locked by a live process.
    await asyncio.shield(state.log.close(row))


async def _uncancel(task: asyncio.Task[object] | None) -> None:
    """Take back the cancellation of the task by which a run is cancelled, delivered or pending."""
    assert task is not None
    # A pending cancellation is delivered at the next await.
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    if task.uncancel():  # the task is cancelled too, not only the run
        raise asyncio.CancelledError


async def _outcome(state: Run, step: Step, value: Json) -> Result:
    """Run the root step and return how it ended; until then a cancel reaches the current task."""
    request = None
    task = state.task = asyncio.current_task()
    try:
        if isinstance(step, CompositeStep):
            result = await step.run(value, Context(state, step.name, None, state.account, None))
        else:
            ctx = Context(state, "", None, state.account, None)
            result = await ctx.outcome(step.name, step, value)
    except StepError as error:
        result = _failed(error, state, step)
    except (Stopped, asyncio.CancelledError) as error:
        result = _cut(state.stopped_by(error).stop, state, step)
    except Suspended as suspended:
        request = state.clean({"path": suspended.path, **suspended.request})
        if state.log.silent:
            state.warn(
                "a run without a journal cannot receive answers; use one: journal='sqlite:…'",
                code="no_journal",
            )
        result = _cut(state.cleaned_stop(suspended.stop), state, step)
    finally:
        state.task = None  # a later cancel must not reach the caller's task
    if state.cancelled is not None:
        await _uncancel(task)
    account = state.account
    failed = _failed_part(result, state)
    return Result(
        result.status,
        result.reason,
        result.detail,
        result.output,
        result.history,
        usage=account.settled,
        run_id=state.run_id,
        name=step.name,
        also=result.also,
        loops=state.loops,
        steps=state.steps,
        agents=state.agents,
        warnings=state.warnings,
        seconds=state.now(),
        request=request,
        judging=account.judging,
        reported_score=result.reported_score,
        explored_iterations=explored_by(result, state.loops),
        items=result.items,
        outcomes=state.outcomes,
        total=state.iterations,
        error=failed.error,
        cause=failed.cause,
        workspace=result.workspace,
        held_out=result.held_out,
        members=step.steps if isinstance(step, Workflow) else {},
    )


def _failed(error: StepError, state: Run, step: Step) -> Result:
    """Return the result of a run that an error ended; the reason is that of the failed loop, if any."""
    failure: Failure = state.clean(Failure.of("", error, redact=state.redact))
    loop = error.result
    reason = loop.reason if loop is not None and loop.status is Status.FAILED else Reason.ERROR
    detail = f"{failure.path}: {failure.message}" if failure.path else failure.message
    stopped = _cut(Stop(reason, detail), state, step)
    return replace(stopped, error=failure, cause=error.__cause__)


def _failed_part(result: Result, state: Run) -> Result:
    """Return the result whose failure ended a run: its own, else that of the loop that failed last."""
    if result.error is not None or result.status is not Status.FAILED:
        return result
    loops = (loop for loop in reversed(state.loops.values()) if loop.error is not None)
    return next(loops, result)


def _cut(stop: Stop, state: Run, step: Step) -> Result:
    """Return the result of a run that was ended from outside its root step, with its output so far."""
    own = state.loops.get(step.name)
    if own is not None:
        return replace(own, status=stop.reason.status, reason=stop.reason, detail=stop.detail)
    output = next((r.output for r in reversed(state.loops.values()) if r.output is not None), None)
    return Result(stop.reason.status, stop.reason, stop.detail, output)
