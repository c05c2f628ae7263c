"""Run a step: a journal in, a Result out. The same run id resumes."""

from __future__ import annotations

import asyncio
import contextlib
import random as _random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .bounds import bounds_of
from .budget import Account
from .codec import Json
from .conditions import Budget, raised_budget
from .context import Context
from .errors import (
    ConfigurationError,
    JournalError,
    OwnershipLost,
    StepError,
    Stopped,
    Suspended,
    nearest,
)
from .journal import Entry, Journal, NoLog, RunInfo, RunLog
from .lending import Lent
from .listening import Listener, hearing
from .opening import fresh_row, journal_of, open_log
from .outcomes import ended_entry, ended_loops, finished, row_of
from .records import Reason, Result, Status, Stop
from .runtime import Clock, Run
from .step import as_step

__all__ = ["SystemClock", "resume", "run", "run_sync"]


class SystemClock:
    """The clock of the running event loop, which a virtual one may drive, and of the machine."""

    __slots__ = ("monotonic",)

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        own = type(loop).time is not asyncio.BaseEventLoop.time  # a loop with a clock of its own
        self.monotonic = loop.time if own else time.monotonic

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Return what to await for a pause."""
        return asyncio.sleep(seconds)


async def run(
    step: Any,
    value: Json = None,
    *,
    journal: Journal | str | None = None,
    run_id: str = "",
    budget: Budget | None = None,
    clock: Clock | None = None,
    random: Callable[[], float] | None = None,
    listeners: Sequence[Listener] = (),
    resources: Mapping[str, Any] | None = None,
    source: dict[str, Json] | None = None,
    accept_changes: bool = False,
    in_doubt: str = "suspend",
    takeover: bool = False,
) -> Result:
    """Run a loop, a workflow or any step to its end and return how it ended.

    Args:
        step: a step, or a function.
        value: its input, any JSON value.
        journal: where to record: a Journal, a URL such as `sqlite:runs.db`, or None: nothing is kept.
        run_id: the run to go on with, if the journal knows it; a finished one is returned.
        budget: a cap on the whole run.
        listeners: called with each journal entry once it is durable; or a Watcher.
        resources: what steps of a kind need, by name; `memory` is a Memory or the URL of one (default:
            that of the journal).
        source: how a document can be loaded again, kept with the run.
        accept_changes: go on although code or input changed since the run was recorded.
        in_doubt: `suspend` or `rerun` a step that is not idempotent and was in flight at a crash.
        takeover: take the run even from a live owner.

    Raises:
        JournalError: RunLocked, ReplayMismatch, JournalDamaged, JournalUnavailable.
        ConfigurationError: for a run id or input that cannot be, or a prompt's template with a name
            that nothing supplies.
    """
    made = as_step(step)
    _check_options(budget, in_doubt, listeners, resources)
    if told := getattr(made, "unsupplied", None):
        raise ConfigurationError("; ".join(told.values()))
    store, opened = journal_of(journal)
    lent = Lent(resources, store)
    try:
        fresh = fresh_row(made, value, run_id)
        log: RunLog
        if store is None:
            log = NoLog(fresh)
        else:
            fresh = _described(fresh, made, source or {}, budget)
            log = await open_log(store, made, fresh, value, accept_changes, takeover)
        heard, failed = hearing(listeners, log)
        state = Run(
            fresh.run_id, log, clock or SystemClock(), random or _random.random,
            listeners=heard, resources=lent,
            accept_changes=accept_changes, in_doubt=in_doubt,
        )  # fmt: skip
        state.warnings += failed
        if budget is not None:
            _cap(state, budget)
        try:
            if state.silent:  # nobody can ever read of it: how it ends is all there is
                return await _outcome(state, made, fresh.input)
            return await _drive(state, made, _bounded(log.info, fresh))
        finally:
            if state.owned:
                await state.release()
    finally:
        if lent.opened is not None:
            await lent.opened.close()
        if opened and store is not None:
            await store.close()


def _check_options(budget: Any, in_doubt: Any, listeners: Any, resources: Any) -> None:
    if budget is not None and not isinstance(budget, Budget):
        raise ConfigurationError(
            f"run: budget: {budget!r} is not a Budget; give one, such as Budget(usd=0.5)"
        )
    words = ("suspend", "rerun")
    if in_doubt not in words:
        hint = nearest(str(in_doubt), words)
        raise ConfigurationError(f"run: in_doubt: {in_doubt!r} is none of suspend, rerun{hint}")
    if resources is not None and not isinstance(resources, Mapping):
        raise ConfigurationError(
            f"run: resources: {resources!r:.60} is no mapping; give names to things, such as {{'model': …}}"
        )
    if callable(listeners):
        raise ConfigurationError(f"run: listeners: {listeners!r} stands alone; give a list")
    for listener in listeners:
        if not callable(listener) and not hasattr(listener, "opened"):
            raise ConfigurationError(f"run: listeners: {listener!r} is not a function")


def _described(
    fresh: RunInfo, step: Any, source: dict[str, Json], budget: Budget | None
) -> RunInfo:
    """Return a row with what only a journal has use for: what the step is, and what bounds it."""
    bounds = bounds_of(step, budget)
    kept = {**source, "bounds": bounds} if bounds else source
    return fresh.altered(fingerprint=step.fingerprint, source=kept)


def _cap(state: Run, budget: Budget) -> None:
    """Put a cap on the whole run, as a person may have raised it."""
    if state.replay is not None and (told := state.replay.raised.get("")):
        budget = raised_budget(budget, told)
    uncapped = state.account
    state.account = Account("", None, budget, uncapped.settled)
    state.account.judging = uncapped.judging


def _bounded(info: RunInfo, fresh: RunInfo) -> RunInfo:
    """Return the row with the bounds of this opening: a resume may have others than at first."""
    bounds = fresh.source.get("bounds")
    if bounds is None or info.source.get("bounds") == bounds:
        return info
    return info.altered(source={**info.source, "bounds": bounds})


def run_sync(step: Any, value: Json = None, **options: Any) -> Result:
    """Run a step from plain code; see `run`.

    Raises:
        ConfigurationError: inside a running event loop, where `await run(…)` is the way.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise ConfigurationError(
            "run_sync cannot be called inside an event loop; use: await run(…)"
        )
    return asyncio.run(run(step, value, **options))


async def resume(
    step: Any,
    run_id: str,
    *,
    journal: Journal | str,
    max_iterations: int | None = None,
    max_usd: float | None = None,
    **options: Any,
) -> Result:
    """Go on with a recorded run; see `run`.

    `max_iterations` and `max_usd` raise the limit that ended it first: see `reopening.raise_limit`.

    Raises:
        RunNotFound: if the journal has no such run.
        ConfigurationError: for a limit that did not end it, or is not above what is used.
    """
    store, opened = journal_of(journal)
    if store is None:
        raise ConfigurationError("resume: it needs the journal that the run was recorded in")
    try:
        info = await store.find(run_id)
        if max_iterations is not None or max_usd is not None:
            from .reopening import raise_limit  # only who raises a limit pays for loading it

            await raise_limit(store, info.run_id, max_iterations=max_iterations, max_usd=max_usd)
        return await run(step, journal=store, run_id=info.run_id, **options)
    finally:
        if opened:
            await store.close()


async def _drive(state: Run, step: Any, info: RunInfo) -> Result:
    """Run the root step, record how the run ended, and give the run back."""
    replay = state.replay
    if replay is not None and "" in replay.ended:
        result = finished(state, replay.ended[""])
        await state.log.close(row_of(info, result, replay.active))
        return result
    if replay is not None:  # loops inside an ended one are not run again, and still are its loops
        state.loops = ended_loops(state, replay)
    if not state.log.silent:
        state.log.on_cancel = state.cancel
    try:
        result = await _outcome(state, step, info.input)
        kind = "suspended" if result.status is Status.SUSPENDED else "ended"
        state.append(Entry(kind, "", state.now(), value=ended_entry(result)))
        await state.settle()
    except BaseException as error:
        await _interrupted(state, info, error)
        raise
    if not state.log.silent:
        await state.log.close(row_of(info, result, state.now()))
    return result


async def _interrupted(state: Run, info: RunInfo, error: BaseException) -> None:
    """Give back a run that was interrupted, with the time that it was alive."""
    if state.log.silent:
        return
    if not isinstance(error, JournalError | OwnershipLost):
        state.append(Entry("interrupted", "", state.now()))
    row = info.altered(
        status="interrupted",
        active=state.now(),
        updated=state.clock.wall(),
        iterations=state.rounds,
        score=state.score,
        usage=state.account.settled,
    )
    await asyncio.shield(state.log.close(row))


async def _forgive(task: asyncio.Task[Any] | None) -> None:
    """Take back the cancellation by which a run was asked to end, delivered or still pending."""
    assert task is not None
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    if task.uncancel():  # someone else wants the task itself to end
        raise asyncio.CancelledError


async def _outcome(state: Run, step: Any, value: Json) -> Result:
    """Run the root step and return how it ended; until then a cancel reaches the present task."""
    ctx = Context(state, "", None, state.account, None)
    request = None
    task = state.task = asyncio.current_task()
    try:
        if step.effect:
            result = await ctx.outcome(step.name, step, value)
        else:
            result = await step.run(value, ctx.child(step.name))
    except StepError as error:
        result = _cut(
            Stop(Reason.ERROR, f"{error.path}: {error}" if error.path else str(error)), state, step
        )
    except (Stopped, asyncio.CancelledError) as error:
        result = _cut(state.stopped_by(error).stop, state, step)
    except Suspended as suspended:
        request = {"path": suspended.path, **suspended.request}
        if state.log.silent:
            state.warn("without a journal nobody can answer; give the run one: journal='sqlite:…'")
        result = _cut(suspended.stop, state, step)
    finally:
        state.task = None  # it is over: a cancel comes too late
    if state.cancelled is not None:
        await _forgive(task)
    account = state.account
    return Result(
        result.status, result.reason, result.detail, result.output, result.history,
        account.settled, state.run_id, step.name, result.also, state.loops, state.steps,
        agents=state.agents, warnings=state.warnings, seconds=state.now(), request=request,
        judging=account.judging, reported_score=result.reported_score,
    )  # fmt: skip


def _cut(stop: Stop, state: Run, step: Any) -> Result:
    """Return the result of a run that did not come to its own end, with what it has so far."""
    own = state.loops.get(step.name)
    if own is not None:
        return replace(own, status=stop.reason.status, reason=stop.reason, detail=stop.detail)
    output = next((r.output for r in reversed(state.loops.values()) if r.output is not None), None)
    return Result(stop.reason.status, stop.reason, stop.detail, output)
