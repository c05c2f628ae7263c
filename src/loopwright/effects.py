"""The protocol of one effect: look in the journal, ask the gates, reserve, record the intent, act,
settle, record.

Rules:

1. Nothing acts on the world before its "started" entry is durable.
2. What goes on is what was recorded: outputs are normalised before anyone sees them.
3. A cancelled effect is not recorded as finished; what it may have cost is settled all the same.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from . import codec
from .codec import Json
from .errors import JournalError, OwnershipLost, ReplayMismatch, StepError, Stopped, Suspended
from .journal import Entry
from .records import NOTHING, Failure, Reason, Usage

if TYPE_CHECKING:
    from .context import Context
    from .runtime import Run

__all__ = ["perform", "unrecorded"]

GRACE = 0.5  # seconds that a cancelled call gets to clean up before it is left behind


async def perform(ctx: Context, path: str, step: Any, value: Json, token: str) -> Json:
    """Perform an effect under the journal's protocol, or hand back what is on record."""
    run, gate = ctx.run, ctx.gate
    fingerprint, asked = "", None
    if run.keeps:
        fingerprint = f"{step.fingerprint}:{token or codec.digest(value)}"
        if run.replay is not None and (known := run.replay.finished.get(path)) is not None:
            return _replayed(run, known, fingerprint)
        # What it sends, where its input does not say it.
        asked = step.asks() if hasattr(step, "asks") else None
    _ask(ctx)
    began = run.now()
    started = Entry("started", path, began, asked, fingerprint)
    doubtful = run.replay is not None and path in run.replay.doubts
    if doubtful and (said := _doubt(run, path, step)) is not None:
        return _settled_by(run, said, started)
    if step.reserve is not None:
        await _promise(ctx, step, value, started)
        began += started.seconds
    run.append(started)
    if run.listeners:
        await _durable(ctx, started, run.settle())
    elif (pending := run.sync()) is not None:
        await _durable(ctx, started, pending)
    inner = ctx.within(path) if step.wants_context else None
    finished = Entry("finished", path, began, None, fingerprint)
    try:
        if gate is None:
            output = await step.act(value, inner)
        else:
            output = await _within(ctx, functools.partial(step.act, value, inner))
        finished.value = output = codec.normalise(output, what="output")
    except BaseException as error:
        _broken(error, ctx, inner, started, finished)
    if inner is not None or started.reserved is not NOTHING:
        _settle(ctx, inner, started, finished)
    finished.seconds = run.now() - began
    run.append(finished)
    if finished.error is not None:
        raise _raised(finished.error)
    return output


async def unrecorded(ctx: Context, name: str, step: Any, value: Json, token: str = "") -> Json:
    """Perform an effect of a run that nobody can ever read: only what it hands on matters."""
    run, path = ctx.run, ctx.path
    if run.cancelled is not None:
        raise Stopped("", run.cancelled)
    try:
        return codec.normalise(await step.act(value, None), what="output")
    except asyncio.CancelledError as error:
        if run.cancelled is not None:
            raise Stopped("", run.cancelled) from None
        if not _unasked(error, ctx):
            raise
        raise _raised(_failure(error, f"{path}/{name}" if path else name)) from error
    except (Exception, SystemExit) as error:
        raise _raised(_failure(error, f"{path}/{name}" if path else name)) from error


def _ask(ctx: Context) -> None:
    """Ask whether anything may begin."""
    if ctx.gate is not None:
        ctx.gate.ask(ctx.run)
    if ctx.run.cancelled is not None:
        raise Stopped("", ctx.run.cancelled)


async def _promise(ctx: Context, step: Any, value: Json, started: Entry) -> None:
    """Promise the worst case of a call in every account, waiting for its turn.

    `started.seconds` says how long that took: a loop began when it asked, not when it was served.
    """
    path = started.path
    try:
        amount = step.reserve(value)
    except Exception as error:  # a function of the user's
        raise _raised(_failure(error, path)) from error
    if not amount:
        return
    try:
        await _within(ctx, functools.partial(ctx.account.reserve, path, amount))
        _ask(ctx)  # again: waiting took time
    except BaseException:
        ctx.account.settle(path, NOTHING)
        raise
    started.reserved = amount
    started.seconds = ctx.run.now() - started.at


async def _durable(ctx: Context, started: Entry, pending: Awaitable[None]) -> None:
    """Wait until the intent is durable; a call that may not begin after that has cost nothing."""
    try:
        await pending
        _ask(ctx)
    except BaseException as error:
        _cut(ctx, started, NOTHING, error)
        raise


def _broken(
    error: BaseException, ctx: Context, inner: Context | None, started: Entry, finished: Entry
) -> None:
    """Make an error part of the record; what is no error of the step goes on up."""
    own = isinstance(error, Exception | SystemExit) and not isinstance(error, JournalError)
    if own or _unasked(error, ctx):
        finished.error = _failure(error, started.path)
        return
    # At the larger of what was seen and what was promised: nobody knows what a cut call cost.
    # One that left to ask a person is no such call: it spent what it said.
    seen = inner.spent if inner is not None else NOTHING
    asks = isinstance(error, Suspended)
    _cut(ctx, started, seen if asks else seen.most(started.reserved), error)
    if isinstance(error, asyncio.CancelledError) and ctx.run.cancelled is not None:
        raise Stopped("", ctx.run.cancelled) from None
    raise error


def _unasked(error: BaseException, ctx: Context) -> bool:
    """Return whether a step was cancelled though nobody cancelled the run: by itself, or by what it
    used."""
    if not isinstance(error, asyncio.CancelledError) or ctx.run.cancelled is not None:
        return False
    task = asyncio.current_task()
    return task is not None and not task.cancelling()


def _settle(ctx: Context, inner: Context | None, started: Entry, finished: Entry) -> None:
    # Who has no context cannot say what it spent: then it is what was promised.
    usage = inner.spent if inner is not None else started.reserved
    if usage is not NOTHING or started.reserved is not NOTHING:
        finished.usage = usage
        ctx.account.settle(started.path, usage)


def _cut(ctx: Context, started: Entry, usage: Usage, error: BaseException) -> None:
    """Settle an effect that was begun and has no outcome."""
    ctx.account.settle(started.path, usage)
    if isinstance(error, JournalError | OwnershipLost):
        return  # there is nothing to write to
    seconds = ctx.run.now() - started.at
    asks = {"asks": error.path} if isinstance(error, Suspended) else None
    ctx.run.append(
        Entry(
            "cut",
            started.path,
            started.at,
            asks,
            fingerprint=started.fingerprint,
            usage=usage,
            seconds=seconds,
        )
    )


def _failure(error: BaseException, path: str) -> Failure:
    if isinstance(error, StepError):
        where = error.path or path
        told = error.retry_after
        return Failure("", error.kind, _words(error), where, error.retryable, told)
    what = _words(error)[:2000]
    name = type(error).__name__
    return Failure("", name, f"{name}: {what}" if what else name, path)


def _words(error: BaseException) -> str:
    try:
        words: str = codec.normalise(str(error))
    except Exception:  # an error that cannot even be printed
        return ""
    return words


def _raised(failure: Failure) -> StepError:
    return StepError(
        failure.message,
        path=failure.path,
        kind=failure.kind,
        retryable=failure.retryable,
        retry_after=failure.retry_after,
    )


def _replayed(run: Run, known: Entry, fingerprint: str) -> Json:
    if known.fingerprint and known.fingerprint != fingerprint:
        _refuse_change(run, known, fingerprint)
    if known.error is not None:
        raise _raised(known.error)
    return known.value


def _refuse_change(run: Run, known: Entry, fingerprint: str) -> None:
    if run.accept_changes:
        run.append(Entry("accepted", known.path, run.now(), fingerprint=fingerprint))
        return
    (was, was_input), (now, now_input) = (f.split(":", 1) for f in (known.fingerprint, fingerprint))
    what = "the step's code" if was != now else "its input"
    raise ReplayMismatch(
        f"{known.path}: {what} changed since it was recorded "
        f"({was if was != now else was_input} then, {now if was != now else now_input} now); "
        "resume with the old version, rewind to before it, or give accept_changes",
        path=known.path,
        recorded=known.fingerprint,
        now=fingerprint,
    )


def _doubt(run: Run, path: str, step: Any) -> Json:
    """Return None if an effect in doubt may run again, else how a person settled it.

    Raises:
        Suspended: until a person says which of the two.
    """
    if step.idempotent or run.in_doubt == "rerun":
        return None
    detail = (
        f"{path} was in flight when the process died and may have acted; "
        "say whether to run it again, or mark the step idempotent"
    )
    request = {"kind": "doubt", "step": step.name}
    said = run.ask(path, request, detail, Reason.NEEDS_ATTENTION)
    return None if said == "rerun" else said


def _settled_by(run: Run, said: Json, started: Entry) -> Json:
    """Record the outcome that a person gave an effect in doubt; it counts as what it promised."""
    assert run.replay is not None
    path, doubt = started.path, run.replay.doubts[started.path]
    finished = Entry("finished", path, run.now(), fingerprint=started.fingerprint)
    finished.usage = doubt.reserved
    if isinstance(said, dict):
        finished.value = said["output"]
    else:
        told = "it was in flight when the process died, and a person said that it failed"
        finished.error = Failure("", "in_doubt", told, path, retryable=False)
    run.append(finished)
    if finished.error is not None:
        raise _raised(finished.error)
    return finished.value


async def _within(ctx: Context, work: Callable[[], Awaitable[Any]]) -> Json:
    """Do `work` inside the nearest deadline: cancel it there, and leave it if it will not go."""
    gate = ctx.gate
    if gate is None:
        return await work()
    left = gate.remaining(ctx.run)
    if left == math.inf:
        return await work()
    task = asyncio.create_task(_contained(work))
    try:
        await asyncio.wait({task}, timeout=max(0.0, left))
    except asyncio.CancelledError:
        await _leave(task)
        raise
    if task.done():
        return task.result()
    await _leave(task)
    gate.ask(ctx.run)
    raise gate.expired(ctx.run)  # the clock and the timer disagree by a hair


async def _contained(work: Callable[[], Awaitable[Any]]) -> Any:
    """Do `work` in a task of its own, where SystemExit would end the event loop."""
    try:
        return await work()
    except SystemExit as error:
        raise _raised(_failure(error, "")) from error


async def _leave(task: asyncio.Task[Any]) -> None:
    """Cancel a task and give it GRACE seconds; what does not end by then is left behind."""
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    if not task.done():
        asyncio.tasks._unregister_task(task)  # or asyncio.run would wait for it at its end
    elif not task.cancelled():
        task.exception()  # seen: it ended some other way while being cancelled
