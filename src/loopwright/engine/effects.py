"""The protocol of one effect: look in the journal, ask the gates, reserve, record the intent, act,
settle, record.

Rules:

1. Nothing acts on the world before its "started" entry is durable.
2. What goes on is what was recorded: outputs are normalised before anyone sees them.
3. A cancelled effect is not recorded as finished; what it may have cost is settled all the same.
4. This is the boundary at which secrets are taken out: before the value is handed on, so that the
   live run, the journal, a replay and everyone who reads of it have the same value.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import (
    JournalError,
    OwnershipLost,
    ReplayMismatch,
    StepError,
    Stopped,
    Suspended,
)
from ..journal import Entry, is_note
from ..records import NOTHING, Failure, Reason, Usage, codec, own
from ..records.codec import Json
from ..records.tracebacks import described
from .blocking import watch
from .reporting import OVERSHOOT
from .step import Leaf

if TYPE_CHECKING:
    from .context import Context
    from .run_state import Run

__all__ = ["being_cancelled", "perform", "unrecorded"]


GRACE = 0.5  # seconds that a cancelled call gets to clean up before it is left behind


async def perform(ctx: Context, path: str, step: Leaf, value: Json, token: str) -> Json:
    """Perform an effect under the journal's protocol, or hand back what is on record."""
    run, gate = ctx.run, ctx.gate
    fingerprint, asked, cause = "", None, None
    if run.keeps:
        fingerprint = f"{step.fingerprint}:{token or codec.digest(value)}"
        if run.replay is not None and (known := run.replay.finished.get(path)) is not None:
            return _replayed(run, known, fingerprint)
        # What it sends, where its input does not say it.
        asked = run.clean(step.asks())
    _ask(ctx)
    began = run.now()
    started = Entry("started", path, began, asked, fingerprint)
    doubtful = run.replay is not None and path in run.replay.doubts
    if doubtful and (said := _doubt(run, path, step)) is not None:
        return _settled_by(run, said, started)
    if ctx.account.limited and not doubtful and not is_note(step.fingerprint):
        ctx.account.begin()  # one in doubt was counted when it was found on record
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
        # Who acts gets a copy: what it does to it changes nothing that is recorded.
        given = value if type(value) in codec.ATOMS else own(value)
        if gate is None:
            output = await step.act(given, inner)
        else:
            output = await _within(ctx, functools.partial(step.act, given, inner), path)
        output = codec.normalise(output, what="output")
        if run.redactor is not None:
            output = run.redactor.clean(output)
        finished.value = output
    except BaseException as error:
        _broken(error, ctx, inner, started, finished)
        cause = _cause(error)
    if inner is not None or started.reserved is not NOTHING:
        _settle(ctx, inner, started, finished)
    finished.seconds = run.now() - began
    run.append(finished)
    if ctx.account.capped and finished.usage and (told := ctx.account.overshot(finished.usage)):
        run.warn(f"{OVERSHOOT}: {path}: {told}")
    if finished.error is not None:
        try:
            raise _raised(finished.error) from cause
        finally:
            cause = None  # or this frame and its traceback would hold each other
    return output


async def unrecorded(ctx: Context, name: str, step: Leaf, value: Json, token: str = "") -> Json:
    """Perform an effect of a run that nobody can ever read: only what it hands on matters."""
    run, path = ctx.run, ctx.path
    if run.cancelled is not None:
        raise Stopped("", run.cancelled)
    try:
        given = value if type(value) in codec.ATOMS else own(value)
        output = codec.normalise(await step.act(given, None), what="output")
        return output if run.redactor is None else run.redactor.clean(output)
    except asyncio.CancelledError as error:
        if run.cancelled is not None:
            raise Stopped("", run.cancelled) from None
        if not _unasked(error, ctx):
            raise
        raise _raised(_failure(error, f"{path}/{name}" if path else name, run)) from error
    except (Exception, SystemExit) as error:
        raise _raised(_failure(error, f"{path}/{name}" if path else name, run)) from _cause(error)


def _ask(ctx: Context) -> None:
    """Ask whether anything may begin."""
    if ctx.gate is not None:
        ctx.gate.ask(ctx.run)
    if ctx.run.cancelled is not None:
        raise Stopped("", ctx.run.cancelled)


async def _promise(ctx: Context, step: Leaf, value: Json, started: Entry) -> None:
    """Promise the worst case of a call in every account, waiting for its turn.

    `started.seconds` says how long that took: a loop began when it asked, not when it was served.
    """
    path = started.path
    assert step.reserve is not None
    try:
        amount = step.reserve(value)
    except Exception as error:  # a function of the user's
        raise _raised(_failure(error, path, ctx.run)) from error
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
        finished.error = _failure(error, started.path, ctx.run)
        return
    # At the larger of what was seen and what was promised: nobody knows what a cut call cost.
    # One that left to ask a person is no such call: it spent what it said.
    seen = inner.spent if inner is not None else NOTHING
    asks = isinstance(error, Suspended)
    _cut(ctx, started, seen if asks else seen.settled_at(started.reserved), error)
    if isinstance(error, asyncio.CancelledError) and ctx.run.cancelled is not None:
        raise Stopped("", ctx.run.cancelled) from None
    raise error


def _unasked(error: BaseException, ctx: Context) -> bool:
    """Return whether a step was cancelled though nobody cancelled the run: by itself, or by what it
    used."""
    if not isinstance(error, asyncio.CancelledError) or ctx.run.cancelled is not None:
        return False
    return not being_cancelled()


def being_cancelled() -> bool:
    """Return whether someone asked for the present task to be cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


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


def _failure(error: BaseException, path: str, run: Run) -> Failure:
    """Return what is kept of an error: a sentence, and the user's frames behind it; no secret."""
    kept: Failure = run.clean(_kept(error, path, run))
    return kept


def _kept(error: BaseException, path: str, run: Run) -> Failure:
    if isinstance(error, StepError):
        found = Failure.of("", error, path, run.redact)
        if error.traceback:  # that of an inner step stands
            return found
        exception, traceback = _described(error, run, own=False)
        return replace(found, exception=exception, traceback=traceback)
    exception, traceback = _described(error, run)
    what = codec.error_text(error, run.redact)[:2000]
    name = type(error).__name__
    message = f"{name}: {what}" if what else name
    return Failure("", name, message, path, exception=exception, traceback=traceback)


def _described(error: BaseException, run: Run, *, own: bool = True) -> tuple[str, str]:
    exception, traceback = described(error, whole=run.debug, own=own, redact=run.redact)
    return codec.normalise(exception), codec.normalise(traceback)


def _cause(error: BaseException) -> BaseException | None:
    """Return the exception that was raised first, where the error of an inner step stands for it."""
    inner = isinstance(error, StepError) and error.traceback and error.__cause__ is not None
    return error.__cause__ if inner else error


def _raised(failure: Failure) -> StepError:
    return StepError(
        failure.message,
        path=failure.path,
        kind=failure.kind,
        retryable=failure.retryable,
        retry_after=failure.retry_after,
        exception=failure.exception,
        traceback=failure.traceback,
    )


def _replayed(run: Run, known: Entry, fingerprint: str) -> Json:
    if known.fingerprint and known.fingerprint != fingerprint:
        assert run.replay is not None
        if run.replay.accepted.get(known.path) != fingerprint:
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


def _doubt(run: Run, path: str, step: Leaf) -> Json:
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
    finished.usage = doubt.reserved.at_most()
    if isinstance(said, dict):
        finished.value = said["output"]
    else:
        told = "it was in flight when the process died, and a person said that it failed"
        finished.error = Failure("", "in_doubt", told, path, retryable=False)
    run.append(finished)
    if finished.error is not None:
        raise _raised(finished.error)
    return finished.value


async def _within(ctx: Context, work: Callable[[], Awaitable[Any]], path: str = "") -> Json:
    """Do `work` inside the nearest deadline: cancel it there, and leave it if it will not go.

    With a path it is watched: what holds the event loop past the deadline is reported.
    """
    gate = ctx.gate
    if gate is None:
        return await work()
    left = gate.remaining(ctx.run)
    if left == math.inf:
        return await work()
    watched = watch(path, max(0.0, left)) if path else None
    body = _Leavable(_contained(work, ctx.run))
    task = asyncio.create_task(body)
    try:
        await asyncio.wait({task}, timeout=max(0.0, left))
        if task.done():
            return task.result()
        await _leave(task, body)
    except asyncio.CancelledError:
        await _leave(task, body)
        raise
    finally:
        if watched is not None and (report := watched.end()):
            ctx.run.warn(report)
    gate.ask(ctx.run)
    raise gate.expired(ctx.run)  # the clock and the timer disagree by a hair


async def _contained(work: Callable[[], Awaitable[Any]], run: Run) -> Any:
    """Do `work` in a task of its own, where SystemExit would end the event loop."""
    try:
        return await work()
    except SystemExit as error:
        raise _raised(_failure(error, "", run)) from error


class _Leavable(Coroutine[Any, Any, Any]):
    """A coroutine that can be left behind: it goes on by itself, and ends at the next cancel whatever it does.

    So `asyncio.run`, which cancels at its end what is left and waits for it, does not wait for one
    that ignores that.
    """

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner
        self.left = False

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        return self._inner.send(value)

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        if self.left and isinstance(error, asyncio.CancelledError):
            self.close()
            raise error
        return self._inner.throw(error)

    def close(self) -> None:
        with contextlib.suppress(BaseException):  # it ignores this too
            self._inner.close()


async def _leave(task: asyncio.Task[Any], body: _Leavable) -> None:
    """Cancel a task and give it GRACE seconds; what does not end by then is left behind."""
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE)
    body.left = True
    if task.done() and not task.cancelled():
        task.exception()  # seen: it ended some other way while being cancelled
