"""One effect: the call of a leaf step, performed and recorded, or replayed from the journal.

1. The journal is read before a step acts: a recorded effect is not performed again.
2. No step acts before its "started" entry is durable.
3. The recorded output is the output: it is normalised before any other step receives it.
4. A cancelled effect is not recorded as finished. Its possible cost is settled all the same.
5. Secrets are removed before the output is returned, so that the live run, the journal and a replay
   have the same value.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ..errors import (
    JournalError,
    OwnershipLost,
    ReplayMismatch,
    StepError,
    Stopped,
    StoppedEarly,
    Suspended,
)
from ..journal import Entry
from ..records import NOTHING, Failure, Reason, Usage, codec, is_judging, own_json
from ..records.codec import ATOMS, Json
from ..records.typed import ValueType
from .budgets import OVERSHOOT
from .functions import ANNOTATION_UNREADABLE, UNTYPED_OUTPUT, FunctionTypes, former_fingerprints
from .run_state import Run, acting
from .step import UNREAD, Leaf, Step

if TYPE_CHECKING:
    from .context import Context

__all__ = [
    "being_cancelled",
    "check_same",
    "journaled",
    "perform",
    "recorded",
    "retyped",
    "unrecorded",
]


_DIGEST = 32  # characters of the digest of a long value; that of a short one is its text
_PLAIN = ATOMS | {dict, list, tuple}  # types of values that are JSON, or are made so


async def perform(ctx: Context, path: str, step: Leaf, value: Json, token: str) -> Json:
    """Perform an effect, or return its recorded output."""
    run, replay = ctx.run, ctx.run.replay
    # A digest of the input costs time: without a journal no replay can compare it.
    fingerprint, request = "", None
    if run.keeps:
        fingerprint = f"{step.fingerprint}:{token or codec.digest(value)}"
        if replay is not None and (recorded := replay.finished.get(path)) is not None:
            return _replayed(run, recorded, fingerprint, step)
        # Secrets are removed before the request reaches the journal.
        request = step.asks
        if request is not None:
            request = run.clean(request)
    if ctx.gate is not None or run.cancelled is not None or run.steering is not None:
        _check_allowed(ctx)
    if run.permits is None or not step.counts:
        started = Entry("started", path, run.now(), request, fingerprint)
        return await _act(ctx, step, value, started)
    # Before the intent is recorded: a call that waits for a permit has not begun.
    take = functools.partial(run.permits.take, step)
    taken = await (take() if ctx.gate is None else ctx.gate.limit(run, take))
    try:
        _check_allowed(ctx)  # again: waiting took time
        started = Entry("started", path, run.now(), request, fingerprint)
        return await _act(ctx, step, value, started)
    finally:
        await asyncio.shield(run.permits.give_back(taken, run.account.settled))


async def _act(ctx: Context, step: Leaf, value: Json, started: Entry) -> Json:
    """Record the intent, act, settle and record how it ended."""
    run, gate, path, cause = ctx.run, ctx.gate, started.path, None
    if not _counted(ctx, step) and (
        (settled := await _admitted(ctx, step, value, started)) is not None
    ):
        return settled.value
    run.append(started)
    # Listeners receive an entry only once it is durable, so they cost one more wait.
    pending = run.settle() if run.listeners else run.sync()
    if pending is not None:
        await _durable(ctx, started, pending)
    # Annotations are read at the first call, because they may name classes that are defined later.
    types = step.declared() if step.types is UNREAD else step.types
    inner = ctx.within(path, typed=types is not None) if step.wants_context else None
    began = started.at + started.seconds
    finished = Entry("finished", path, began, None, started.fingerprint)
    try:
        act = step.act if run.stubs is None else acting(run.stubs, step, path)
        if step.finishes:
            act = functools.partial(run.to_its_end, act)
        argument = _argument(types, value)
        if gate is None:
            output = await act(argument, inner)
        else:
            # The path lets a watcher name this step if it blocks the event loop.
            output = await gate.limit(run, functools.partial(act, argument, inner), path)
        if inner is not None and hasattr(inner, "curve"):
            # An evaluation, whatever type the function declares.
            types, output = None, inner.curve.of(output)
        finished.value = output = _written(run, types, output, path)
    except StoppedEarly:
        assert inner is not None
        finished.value = output = _written(run, None, inner.curve.of(), path)
    except BaseException as error:
        # BaseException: a cancelled call must be settled too. `_broken` raises all other errors again.
        _broken(error, ctx, inner, started, finished)
        cause = _cause(error)
    if inner is not None or started.reserved is not NOTHING:
        # A step without a context cannot report usage, so the reserved usage counts.
        usage = inner.spent if inner is not None else started.reserved
        if usage is not NOTHING or started.reserved is not NOTHING:
            finished.usage = usage
            ctx.account.settle(path, usage)
    if (scope := ctx.scope) is not None and scope.files is not None:
        await scope.files.checkpoint(path)
    # Measured after the settlement, so that the entry covers everything that the effect did.
    finished.seconds = run.now() - began
    run.append(finished)
    if ctx.account.capped and finished.usage and (spent := ctx.account.overshot(finished.usage)):
        run.warn(spent, path, code=OVERSHOOT)
    if finished.error is not None:
        try:
            raise finished.error.to_error() from cause
        finally:
            cause = None  # otherwise this frame and its traceback keep each other alive
    return output


def _counted(ctx: Context, step: Leaf) -> bool:
    """Count an effect that needs no other admission; return False for one that does."""
    if ctx.run.replay is not None or step.reserve is not None:
        return False
    # Counted without a limit too, because a person may set one while the run is open.
    if step.counts and (not ctx.run.silent or ctx.account.limited):
        ctx.account.begin()
    return True


async def _admitted(ctx: Context, step: Leaf, value: Json, started: Entry) -> Entry | None:
    """Count the effect and reserve its cost; return the outcome that a person gave instead, or None.

    Raises:
        Suspended: until a person has said what became of an effect that a crash interrupted.
    """
    run, replay, path = ctx.run, ctx.run.replay, started.path
    if replay is not None and path in replay.unsettled:
        # Its first attempt was counted when the account was restored.
        restored = step.in_folder and ctx.scope is not None and ctx.scope.files is not None
        # It may run again if that does no harm, or if the files before it are in place again.
        if not (step.idempotent or restored or run.in_doubt == "rerun"):
            detail = (
                f"{path} was in flight when the process died and may have acted; "
                "say whether to run it again, or mark the step idempotent"
            )
            request = {"kind": "doubt", "step": step.name}
            answer = run.ask(path, request, detail, Reason.NEEDS_ATTENTION)
            if answer is not None and answer != "rerun":
                return _settled_by(run, answer, started, step)
    elif (ctx.account.limited or not run.silent) and step.counts:
        # Counted without a limit too, because a person may set one while the run is open.
        ctx.account.begin()
    if step.reserve is not None:
        # Before "started" is recorded: a call that never fits leaves no effect in doubt.
        await _reserve(ctx, step, value, started)
    return None


def recorded(ctx: Context, name: str, step: Leaf, value: Json, token: str = "") -> Awaitable[Json]:
    """Perform an effect of a loop whose steps are all functions of a value."""
    return perform(ctx, f"{ctx.path}/{name}", step, value, token)


async def journaled(ctx: Context, name: str, step: Leaf, value: Json, token: str = "") -> Json:
    """Perform an effect of a run with a journal whose steps are functions of a value, and which declares no limit.

    `perform` gives the same entries; it asks for each effect what is asked here once for a loop (`LoopRun`).
    """
    run, account, path = ctx.run, ctx.account, f"{ctx.path}/{name}"
    # A person may set a limit while the run is open.
    if (
        ctx.gate is not None
        or account.capped
        or run.cancelled is not None
        or run.steering is not None
    ):
        return await perform(ctx, path, step, value, token)
    fingerprint = f"{step.fingerprint}:{token or codec.digest(value)}" if run.keeps else ""
    began = run.now()
    started = Entry("started", path, began, None, fingerprint)
    if step.counts:
        account.begin()
    run.append(started)
    if (pending := run.sync()) is not None:
        await _durable(ctx, started, pending)
    types = step.declared() if step.types is UNREAD else step.types
    finished = Entry("finished", path, began, None, fingerprint)
    try:
        output = await step.act(_argument(types, value), None)
        finished.value = output = _written(run, types, output, path)
    except BaseException as error:
        _broken(error, ctx, None, started, finished)
        finished.seconds = run.now() - began
        run.append(finished)
        assert finished.error is not None
        raise finished.error.to_error() from _cause(error)
    finished.seconds = run.now() - began
    run.append(finished)
    return output


async def _durable(ctx: Context, started: Entry, pending: Awaitable[None]) -> None:
    """Wait until the intent is durable; an effect that may not begin then is cut, and costs nothing."""
    try:
        await pending
        _check_allowed(ctx)  # again: waiting took time
    except BaseException as error:
        _cut(ctx, started, NOTHING, error)
        raise


async def unrecorded(ctx: Context, name: str, step: Leaf, value: Json, token: str = "") -> Json:
    """Perform an effect of a run without a journal, listeners and limits: only its output matters."""
    # A fast path: without it the row "the same without a journal, to bare" of `benchmarks.engine` is
    # 50 % slower.
    run = ctx.run
    if run.cancelled is not None:
        raise Stopped("", run.cancelled)
    try:
        types = step.declared() if step.types is UNREAD else step.types
        # Most values need no copy and no type, and are read here: two calls more for each effect are 3 % of the
        # instructions of an iteration.
        if type(value) not in ATOMS or (types is not None and types.input is not None):
            value = _argument(types, value)
        output = await step.act(value, None)
        if type(output) in ATOMS and run.redactor is None and (types is None or types.json_output):
            return codec.normalise(output, "output")
        return _written(run, types, output, name)
    except asyncio.CancelledError as error:
        if run.cancelled is not None:
            raise Stopped("", run.cancelled) from None
        if not _is_self_cancelled(error, ctx):
            raise
        raise run.failure(error, ctx.below(name)).to_error() from error
    except (Exception, SystemExit) as error:
        raise run.failure(error, ctx.below(name)).to_error() from _cause(error)


def _argument(types: FunctionTypes | None, value: Json) -> Json:
    """Return the input of a step as a copy: it may change its input, and the record must stay the same."""
    if type(value) in ATOMS and (types is None or types.input is None):
        return value
    return own_json(value) if types is None else types.read(value)


def _written(run: Run, types: FunctionTypes | None, output: object, path: str) -> Json:
    """Return an output as it is recorded: normalised, or in its declared type, and without secrets."""
    redactor = run.redactor
    if types is None or (types.json_output and type(output) in _PLAIN):
        plain = codec.normalise(output, "output")
        return plain if redactor is None else redactor.clean(plain)
    # Here and not when the types are read: only a step that runs deserves a warning.
    if types.problem:
        run.warn(types.problem, code=ANNOTATION_UNREADABLE)
    if (
        type(output) not in _PLAIN
        # An evaluator may return any form of an evaluation.
        and not is_judging(path)
        and (sentence := types.untyped(output))
    ):
        run.warn(sentence, code=UNTYPED_OUTPUT)
    if run.stubs is not None and types.output is not None:  # a rule writes JSON
        return types.output.write_input(output, what="output")
    return types.write(output, None if redactor is None else redactor.clean)


def _check_allowed(ctx: Context) -> None:
    """Raise Stopped if a deadline, a guard or a cancel forbids that anything begins, and Suspended if a hold does."""
    if ctx.gate is not None:
        ctx.gate.check(ctx.run)
    if ctx.run.cancelled is not None:
        raise Stopped("", ctx.run.cancelled)
    ctx.run.check_hold()


async def _reserve(ctx: Context, step: Leaf, value: Json, started: Entry) -> None:
    """Reserve the highest cost of a call in every account, and wait until it fits."""
    run, path = ctx.run, started.path
    assert step.reserve is not None
    try:
        amount = step.reserve(value)
    except Exception as error:  # a user's function
        raise run.failure(error, path).to_error() from error
    if not amount:
        return
    reserve = functools.partial(ctx.account.reserve, path, amount)
    try:
        await (reserve() if ctx.gate is None else ctx.gate.limit(run, reserve))
        _check_allowed(ctx)  # again: waiting took time
    except BaseException:
        ctx.account.settle(path, NOTHING)
        raise
    started.reserved = amount
    # The wait counts as time of the loop: it began when it requested the reservation.
    started.seconds = run.now() - started.at


def _broken(
    error: BaseException,
    ctx: Context,
    inner: Context | None,
    started: Entry,
    finished: Entry,
) -> None:
    """Record an error of the step; raise any other again."""
    # The failure of a journal is not one of the step: the run must end, not adapt.
    is_failure = isinstance(error, Exception | SystemExit) and not isinstance(error, JournalError)
    if is_failure or _is_self_cancelled(error, ctx):
        finished.error = ctx.run.failure(error, started.path)
        return
    # At the larger of what was reported and what was reserved: the cost of a cut call is unknown.
    # A call that suspended to ask a person was not cancelled, and a request that failed before the cancel has
    # its final cost: their reported usage is exact.
    reported = inner.spent if inner is not None else NOTHING
    exact = isinstance(error, Suspended) or (inner is not None and inner.spent_exact)
    usage = reported if exact else reported.settled_at(started.reserved)
    _cut(ctx, started, usage, error)
    if isinstance(error, asyncio.CancelledError):
        if ctx.run.cancelled is not None:
            raise Stopped("", ctx.run.cancelled) from None
        timed = ctx.run.timed
        if timed is not None and started.path.startswith(f"{timed.owner}/"):
            raise timed from None
    raise error


def _is_self_cancelled(error: BaseException, ctx: Context) -> bool:
    """Return whether a step cancelled itself, or a library did; the run and its task are not cancelled."""
    if not isinstance(error, asyncio.CancelledError) or ctx.run.cancelled is not None:
        return False
    return not being_cancelled()


def being_cancelled() -> bool:
    """Return whether the cancellation of the current task is requested."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _cut(ctx: Context, started: Entry, usage: Usage, error: BaseException) -> None:
    """Settle an effect that was begun and has no outcome."""
    ctx.account.settle(started.path, usage)
    if isinstance(error, JournalError | OwnershipLost):
        return  # the journal accepts no entry
    # The effect stays without an outcome: it may have acted, so a resume must decide about it.
    entry = Entry("cut", started.path, started.at, fingerprint=started.fingerprint, usage=usage)
    if isinstance(error, Suspended):
        entry.value = {"asks": error.path}
    entry.seconds = ctx.run.now() - started.at
    ctx.run.append(entry)


def _cause(error: BaseException) -> BaseException | None:
    """Return the exception that was raised first, if it is wrapped in the error of an inner step."""
    inner = isinstance(error, StepError) and error.traceback and error.__cause__ is not None
    return error.__cause__ if inner else error


def _replayed(run: Run, recorded: Entry, fingerprint: str, step: Leaf) -> Json:
    """Return the recorded output, or raise the recorded error.

    Raises:
        ReplayMismatch: if the step or its input changed, unless that was accepted.
    """
    check_same(run, recorded, fingerprint, step)
    if recorded.error is not None:
        raise recorded.error.to_error()
    declared = step.output_type
    return recorded.value if declared is None else retyped(declared, recorded.value, recorded.path)


def check_same(run: Run, recorded: Entry, fingerprint: str, step: Step) -> None:
    """Raise ReplayMismatch if a step or its input is not the recorded one, unless that was accepted."""
    if not recorded.fingerprint or recorded.fingerprint == fingerprint:
        return
    assert run.replay is not None
    accepted = run.replay.accepted.get(recorded.path) == fingerprint
    code, _, given = recorded.fingerprint.partition(":")
    # The step may have had that fingerprint in a former version; the input must be the same.
    same = given == fingerprint.partition(":")[2]
    if not accepted and not (same and code in former_fingerprints(step)):
        _refuse_change(run, recorded, fingerprint, step)


def retyped(declared: ValueType, value: Json, path: str) -> Json:
    """Return a recorded value with its declared type.

    Raises:
        ReplayMismatch: if it no longer fits.
    """
    if problem := declared.check(value):
        raise ReplayMismatch(
            f"{path}: the recorded value is no longer a {declared.name}: {problem}; give new fields "
            "a default, resume with the old version, or rewind to before it",
            path=path,
            recorded="",
            now=declared.name,
        )
    return declared.attach(value)


def _refuse_change(run: Run, recorded: Entry, fingerprint: str, step: Step) -> None:
    if run.accept_changes:
        run.append(Entry("accepted", recorded.path, run.now(), fingerprint=fingerprint))
        return
    # The message says which of the two changed, because the remedies differ.
    code_before, input_before = recorded.fingerprint.split(":", 1)
    code_now, input_now = fingerprint.split(":", 1)
    changed = f"the {step.noun} {step.name} changed since it was recorded"
    if code_before == code_now:
        assert run.replay is not None
        before = run.replay.requests.get(recorded.path)
        now = run.clean(step.asks) or {} if isinstance(step, Leaf) else {}
        keys = [key for key in now if before is not None and before.get(key) != now[key]]
        changed = f"{', '.join(keys) or 'its input'} changed since it was recorded"
        if not keys and len(input_before) < _DIGEST > len(input_now):
            changed += f" ({input_before} then, {input_now} now)"
    raise ReplayMismatch(
        f"{recorded.path}: {changed}; "
        "resume with the old version, rewind to before it, or give accept_changes",
        path=recorded.path,
        recorded=recorded.fingerprint,
        now=fingerprint,
    )


def _settled_by(run: Run, answer: Json, started: Entry, step: Leaf) -> Entry:
    """Record a person's answer as the outcome of an effect, at the cost that was reserved."""
    assert run.replay is not None
    path, attempted = started.path, run.replay.unsettled[started.path]
    finished = Entry("finished", path, run.now(), fingerprint=started.fingerprint)
    # The first attempt may have been billed in full.
    finished.usage = attempted.reserved.at_most()
    if isinstance(answer, dict):
        finished.value = answer["output"]
        if (declared := step.output_type) is not None:
            finished.value = declared.attach(finished.value)
    else:
        message = "it was in flight when the process died, and a person said that it failed"
        finished.error = Failure("", "in_doubt", message, path, retryable=False)
    run.append(finished)
    if finished.error is not None:
        raise finished.error.to_error()
    return finished
