"""Run a step: a journal in, a Result out. The same run id resumes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random as _random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import codec
from .bounds import bounds_of
from .budget import Account
from .codec import Json
from .conditions import Budget, raised_budget
from .context import Context
from .errors import (
    ConfigurationError,
    JournalError,
    OwnershipLost,
    ReplayMismatch,
    StepError,
    Stopped,
    Suspended,
)
from .journal import Entry, Journal, NoLog, RunInfo, RunLog
from .lending import Lent
from .listening import Listener, hearing
from .outcomes import ended_entry, ended_loops, finished, row_of
from .records import Reason, Result, Status, Stop
from .reopening import raise_limit
from .runtime import Clock, Run
from .step import as_step

__all__ = ["SystemClock", "resume", "run", "run_sync"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_PAIRS = [a + b for a in _LETTERS for b in _LETTERS]
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


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


def new_run_id() -> str:
    """Return a fresh run id that sorts by time: date, time and 6 random letters and digits."""
    first, rest = divmod(int.from_bytes(os.urandom(8), "big"), len(_PAIRS))
    second, third = divmod(first, len(_PAIRS))
    letters = _PAIRS[rest] + _PAIRS[third] + _PAIRS[second % len(_PAIRS)]
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + letters


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
        ConfigurationError: for a run id or input that cannot be.
    """
    made = as_step(step)
    store, opened = _journal(journal)
    lent = Lent(resources, store)
    try:
        fresh = _fresh(made, value, run_id, source)
        if store is not None and (bounds := bounds_of(made, budget)):
            fresh = replace(fresh, source={**fresh.source, "bounds": bounds})
        log = await _open(store, made, fresh, value, accept_changes, takeover)
        heard, failed = hearing(listeners, log)
        state = Run(
            fresh.run_id, log, clock or SystemClock(), random or _random.random,
            listeners=heard, resources=lent,
            accept_changes=accept_changes, in_doubt=in_doubt,
        )  # fmt: skip
        state.warnings += failed
        if budget is not None:
            if state.replay is not None and (told := state.replay.raised.get("")):
                budget = raised_budget(budget, told)
            uncapped = state.account
            state.account = Account("", None, budget, uncapped.settled)
            state.account.judging = uncapped.judging
        row = log.info
        if "bounds" in fresh.source:  # those of a resume may be others than the run had at first
            bounds = {"bounds": fresh.source["bounds"]}
            row = replace(row, source={**row.source, **bounds})
        try:
            return await _drive(state, made, row)
        finally:
            if state.owned:
                await state.release()
    finally:
        await lent.close()
        if opened and store is not None:
            await store.close()


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
    store, opened = _journal(journal)
    assert store is not None
    try:
        info = await store.find(run_id)
        if max_iterations is not None or max_usd is not None:
            await raise_limit(store, info.run_id, max_iterations=max_iterations, max_usd=max_usd)
        return await run(step, journal=store, run_id=info.run_id, **options)
    finally:
        if opened:
            await store.close()


def _journal(given: Journal | str | None) -> tuple[Journal | None, bool]:
    if isinstance(given, str):
        # Only who asks for a store by its URL pays for loading it.
        from .stores import open_journal

        return open_journal(given), True
    return given, False


def _fresh(step: Any, value: Json, run_id: str, source: dict[str, Json] | None) -> RunInfo:
    if run_id and not _ID.fullmatch(run_id):
        raise ConfigurationError(
            f"run_id: {run_id!r} is not an id; use 1 to 64 letters, digits, - and _"
        )
    try:
        given = codec.normalise(value, what="input")
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    now = time.time()
    return RunInfo(
        run_id or new_run_id(),
        step.name,
        given,
        "",
        source or {},
        created=now,
        updated=now,
    )


async def _open(
    store: Journal | None,
    step: Any,
    fresh: RunInfo,
    value: Json,
    accept_changes: bool,
    takeover: bool,
) -> RunLog:
    if store is None:
        return NoLog(fresh)
    fresh = replace(fresh, fingerprint=step.fingerprint)
    log = await store.open(fresh, takeover=takeover)
    try:
        _check_same(step, fresh, log.info, value, log, accept_changes)
    except ReplayMismatch:
        await log.close(replace(log.info, status="interrupted"))
        raise
    return log


def _check_same(
    step: Any, fresh: RunInfo, info: RunInfo, value: Json, log: RunLog, accept_changes: bool
) -> None:
    if (
        not log.recorded
        or accept_changes
        or any(e.kind == "ended" and not e.path for e in log.recorded)
    ):
        return
    if value is not None and codec.digest(fresh.input) != codec.digest(info.input):
        raise ReplayMismatch(
            f"{info.run_id}: its input was {codec.digest(info.input)} when it was recorded, now it is "
            f"{codec.digest(fresh.input)}; resume without an input, or use another run id",
            path="", recorded=codec.digest(info.input), now=codec.digest(fresh.input),
        )  # fmt: skip
    if info.name != step.name:
        raise ReplayMismatch(
            f"{info.run_id}: it was recorded as {info.name!r}, not as {step.name!r}; "
            "resume with the step of that name, or use another run id",
            path="", recorded=info.name, now=step.name,
        )  # fmt: skip
    if info.fingerprint and step.fingerprint != info.fingerprint:
        raise ReplayMismatch(
            f"{info.run_id}: {step.name} changed since the run was recorded ({info.fingerprint} then, "
            f"{step.fingerprint} now); resume with the old version, or give accept_changes",
            path="", recorded=info.fingerprint, now=step.fingerprint,
        )  # fmt: skip


async def _drive(state: Run, step: Any, info: RunInfo) -> Result:
    """Run the root step, record how the run ended, and give the run back."""
    replay = state.replay
    if replay is not None and "" in replay.ended:
        result = finished(state, replay.ended[""])
        await state.log.close(row_of(info, result, replay.active))
        return result
    if replay is not None:  # loops inside an ended one are not run again, and still are its loops
        state.loops.update(ended_loops(state, replay))
    state.task = asyncio.current_task()
    if not state.log.silent:
        state.log.on_cancel = state.cancel
    try:
        result = await _outcome(state, step, info.input)
        state.task = None  # it is over: a cancel comes too late
        if not state.silent:
            kind = "suspended" if result.status is Status.SUSPENDED else "ended"
            state.append(Entry(kind, "", state.now(), value=ended_entry(result)))
            await state.settle()
    except BaseException as error:
        state.task = None
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
    row = replace(
        info,
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
    ctx = Context(state, "", None, state.account, None)
    request = None
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
        result = _cut(suspended.stop, state, step)
    if state.cancelled is not None:
        await _forgive(state.task)
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
