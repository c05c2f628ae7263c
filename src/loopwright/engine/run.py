"""Run a step: a journal in, a Result out. The same run id resumes.

How a run is opened: its id, its row, its journal, and whether it is still the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random as _random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..conditions import Budget, raised_budget
from ..errors import (
    ConfigurationError,
    JournalError,
    OwnershipLost,
    ReplayMismatch,
    StepError,
    Stopped,
    Suspended,
    nearest,
)
from ..journal import Entry, Journal, NoLog, RunInfo, RunLog
from ..journal.inbox import status_of, take_up
from ..journal.open import open_journal
from ..records import Failure, Reason, Result, Status, Stop, codec
from ..records.codec import Json
from .budget import CANNOT_BIND, Account, cannot_bind
from .context import Context
from .leftovers import end_leftovers
from .resume import raise_limit
from .run_record import bounds_of, ended_entry, ended_loops, finished, row_of
from .run_state import (
    Clock,
    Listener,
    Run,
    RunResources,
    SystemClock,
    hearing,
    redactor_of,
)
from .step import CompositeStep, Step, StepLike, as_step

__all__ = [
    "fresh_row",
    "journal_of",
    "new_run_id",
    "open_log",
    "resume",
    "run",
    "run_sync",
]


_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_PAIRS = [a + b for a in _LETTERS for b in _LETTERS]
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def new_run_id() -> str:
    """Return a fresh run id that sorts by time: date, time and 6 random letters and digits."""
    first, rest = divmod(int.from_bytes(os.urandom(8), "big"), len(_PAIRS))
    second, third = divmod(first, len(_PAIRS))
    letters = _PAIRS[rest] + _PAIRS[third] + _PAIRS[second % len(_PAIRS)]
    return _stamp(int(time.time())) + letters


@functools.lru_cache(maxsize=1)  # of a thousand runs at once, most begin in the same second
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(second))


def journal_of(given: Journal | str | None) -> tuple[Journal | None, bool]:
    """Return the journal that is meant, and whether it was opened here."""
    if isinstance(given, str):
        return open_journal(given), True
    if given is not None and not hasattr(given, "open"):
        raise ConfigurationError(
            f"journal: {given!r} is no journal; give one, a URL such as sqlite:runs.db, or None"
        )
    return given, False


def fresh_row(step: Step, value: Json, run_id: str) -> RunInfo:
    """Return the row of a run that begins now.

    Raises:
        ConfigurationError: for an id or an input that cannot be.
    """
    if run_id and not (isinstance(run_id, str) and _ID.fullmatch(run_id)):
        raise ConfigurationError(
            f"run_id: {run_id!r} is not an id; use 1 to 64 letters, digits, - and _"
        )
    try:
        given = codec.normalise(value, what="input")
    except StepError as error:
        raise ConfigurationError(str(error)) from None
    now = time.time()
    return RunInfo(run_id or new_run_id(), step.name, given, created=now, updated=now)


async def open_log(
    store: Journal,
    step: Step,
    fresh: RunInfo,
    value: Json,
    accept_changes: bool,
    takeover: bool,
) -> RunLog:
    """Open the journal of a run.

    Raises:
        JournalError: if it cannot be opened, or holds another run under this id.
    """
    log = await store.open(fresh, takeover=takeover)
    try:
        _check_same(step, fresh, log.info, value, log, accept_changes)
    except ReplayMismatch:
        await log.close(replace(log.info, status=status_of(log.recorded)))
        raise
    if log.recorded:
        await take_up(store, log)
    return log


def _accepted_in(log: RunLog) -> str:
    """Return the fingerprint of the code that was accepted in place of the recorded one, or ""."""
    found = (e for e in reversed(log.recorded) if e.kind == "accepted" and not e.path)
    return next((e.fingerprint for e in found if e.value is None), "")


def _check_same(
    step: Step, fresh: RunInfo, info: RunInfo, value: Json, log: RunLog, accept_changes: bool
) -> None:
    if not log.recorded or accept_changes:
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
    recorded = _accepted_in(log) or info.fingerprint
    if recorded and step.fingerprint != recorded:
        raise ReplayMismatch(
            f"{info.run_id}: {step.name} changed since the run was recorded ({recorded} then, "
            f"{step.fingerprint} now); resume with the old version, or give accept_changes",
            path="", recorded=recorded, now=step.fingerprint,
        )  # fmt: skip


DEBUG = "LOOPWRIGHT_DEBUG"  # of the environment: tracebacks keep the frames inside this package


async def run(
    step: StepLike,
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
        listeners: called with each journal entry once it is durable; or a RunObserver.
        resources: what steps of a kind need, by name; `memory` is a Memory or the URL of one (default:
            that of the journal), `redactor` a `models.Redactor` of the secrets that the run must not
            record (default: that of its models).
        source: how a document can be loaded again, kept with the run.
        accept_changes: go on although code or input changed since the run was recorded.
        in_doubt: `suspend` or `rerun` a step that is not idempotent and was in flight at a crash.
        takeover: take the run even from a live owner.

    Raises:
        JournalError: RunLocked, ReplayMismatch, JournalDamaged, JournalUnavailable.
        ConfigurationError: for a run id or input that cannot be, an input that contains a secret, or a prompt's template with a name
            that nothing supplies.
    """
    made = as_step(step)
    _check_options(budget, in_doubt, listeners, resources)
    if told := made.unsupplied:
        raise ConfigurationError("; ".join(told.values()))
    store, opened = journal_of(journal)
    lent = RunResources(resources, store)
    try:
        fresh = fresh_row(made, value, run_id)
        redactor = redactor_of(lent)
        if redactor is not None:
            redactor.refuse("input", fresh.input)
            redactor.refuse("what the run is started with", source or {})
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
            accept_changes=accept_changes, in_doubt=in_doubt, debug=bool(os.environ.get(DEBUG)),
            redactor=redactor,
        )  # fmt: skip
        state.warnings += failed
        if accept_changes:
            _accept(state, log.info.fingerprint, fresh.fingerprint)
        if budget is not None:
            _cap(state, budget)
            if unbound := cannot_bind(made, budget, "run"):
                state.warn(f"{CANNOT_BIND}: {unbound}")
        try:
            if state.silent:  # nobody can ever read of it: how it ends is all there is
                result = await _outcome(state, made, fresh.input)
            else:
                result = await _drive(state, made, _bounded(log.info, fresh))
            return result.view()
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
    fresh: RunInfo, step: Step, source: dict[str, Json], budget: Budget | None
) -> RunInfo:
    """Return a row with what only a journal has use for: what the step is, and what bounds it."""
    bounds = bounds_of(step, budget)
    kept = {**source, "bounds": bounds} if bounds else source
    return replace(fresh, fingerprint=step.fingerprint, source=kept)


def _accept(state: Run, recorded: str, now: str) -> None:
    """Record that a run goes on with changed code: it need not be accepted at every resume."""
    replay = state.replay
    if replay is not None and "" not in replay.ended:
        known = replay.accepted.get("", recorded)
        if known and known != now:
            state.append(Entry("accepted", "", state.now(), fingerprint=now))


def _cap(state: Run, budget: Budget) -> None:
    """Put a cap on the whole run, as a person may have raised it."""
    if state.replay is not None and (told := state.replay.raised.get("")):
        budget = raised_budget(budget, told)
    uncapped = state.account
    state.account = Account("", None, budget, uncapped.settled)
    if state.replay is not None and state.account.limited:
        state.account.effects = state.replay.effects("")
    state.account.judging = uncapped.judging


def _bounded(info: RunInfo, fresh: RunInfo) -> RunInfo:
    """Return the row with the bounds of this opening: a resume may have others than at first."""
    bounds = fresh.source.get("bounds")
    if bounds is None or info.source.get("bounds") == bounds:
        return info
    return replace(info, source={**info.source, "bounds": bounds})


def run_sync(step: StepLike, value: Json = None, **options: Any) -> Result:
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
    step: StepLike,
    run_id: str,
    *,
    journal: Journal | str,
    max_iterations: int | None = None,
    max_usd: float | None = None,
    max_calls: int | None = None,
    max_total_tokens: int | None = None,
    max_effects: int | None = None,
    **options: Any,
) -> Result:
    """Go on with a recorded run; see `run`.

    `max_iterations`, `max_usd`, `max_calls`, `max_total_tokens` and `max_effects` raise the limit that
    ended it first: see `reopening.raise_limit`.

    Raises:
        RunNotFound: if the journal has no such run.
        ConfigurationError: for a limit that did not end it, or is not above what is used.
    """
    store, opened = journal_of(journal)
    if store is None:
        raise ConfigurationError("resume: it needs the journal that the run was recorded in")
    try:
        info = await store.find(run_id)
        limits = {
            "max_iterations": max_iterations, "max_usd": max_usd, "max_calls": max_calls,
            "max_total_tokens": max_total_tokens, "max_effects": max_effects,
        }  # fmt: skip
        if any(most is not None for most in limits.values()):
            await raise_limit(store, info.run_id, **limits)  # type: ignore[arg-type]
        return await run(step, journal=store, run_id=info.run_id, **options)
    finally:
        if opened:
            await store.close()


async def _drive(state: Run, step: Step, info: RunInfo) -> Result:
    """Run the root step, record how the run ended, and give the run back."""
    replay = state.replay
    if replay is not None and "" in replay.ended:
        result = finished(state, replay.ended[""])
        await state.log.close(row_of(info, result, replay.active))
        return result
    if replay is not None and replay.doubts and state.log.keeps_values:
        left = await end_leftovers(state.token)
        if left:
            numbers = ", ".join(map(str, left))
            state.warn(f"processes of an earlier attempt of this run cannot be ended: {numbers}")
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


async def _outcome(state: Run, step: Step, value: Json) -> Result:
    """Run the root step and return how it ended; until then a cancel reaches the present task."""
    ctx = Context(state, "", None, state.account, None)
    request = None
    task = state.task = asyncio.current_task()
    try:
        if isinstance(step, CompositeStep):
            result = await step.run(value, ctx.child(step.name))
        else:
            result = await ctx.outcome(step.name, step, value)
    except StepError as error:
        failure, cause = state.clean(Failure.of("", error, redact=state.redact)), error.__cause__
        of = error.result  # of a loop that failed, whose reason it is
        reason = of.reason if of is not None and of.status is Status.FAILED else Reason.ERROR
        words = f"{failure.path}: {failure.message}" if failure.path else failure.message
        stopped = _cut(Stop(reason, words), state, step)
        result = replace(stopped, error=failure, cause=cause)
    except (Stopped, asyncio.CancelledError) as error:
        result = _cut(state.stopped_by(error).stop, state, step)
    except Suspended as suspended:
        request = state.clean({"path": suspended.path, **suspended.request})
        if state.log.silent:
            state.warn("without a journal nobody can answer; give the run one: journal='sqlite:…'")
        result = _cut(state.cleaned_stop(suspended.stop), state, step)
    finally:
        state.task = None  # it is over: a cancel comes too late
    if state.cancelled is not None:
        await _forgive(task)
    account = state.account
    failed = _failed_part(result, state)
    return Result(
        result.status, result.reason, result.detail, result.output, result.history,
        account.settled, state.run_id, step.name, result.also, state.loops, state.steps,
        agents=state.agents, warnings=state.warnings, seconds=state.now(), request=request,
        judging=account.judging, reported_score=result.reported_score, items=result.items,
        outcomes=state.outcomes, total=state.rounds, error=failed.error, cause=failed.cause,
    )  # fmt: skip


def _failed_part(result: Result, state: Run) -> Result:
    """Return whose failure ended a run: its own, else that of the loop that failed last."""
    if result.error is not None or result.status is not Status.FAILED:
        return result
    failed = (loop for loop in reversed(state.loops.values()) if loop.error is not None)
    return next(failed, result)


def _cut(stop: Stop, state: Run, step: Step) -> Result:
    """Return the result of a run that did not come to its own end, with what it has so far."""
    own = state.loops.get(step.name)
    if own is not None:
        return replace(own, status=stop.reason.status, reason=stop.reason, detail=stop.detail)
    output = next((r.output for r in reversed(state.loops.values()) if r.output is not None), None)
    return Result(stop.reason.status, stop.reason, stop.detail, output)
