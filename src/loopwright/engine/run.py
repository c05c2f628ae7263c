"""Run a step: its journal is opened, the step is driven to its end, and its result is recorded.

The same run ID resumes a run. A finished run is returned from its journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random as _random
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

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
from .logs import log_listener
from .resume import raise_limit
from .run_record import (
    bounded,
    described,
    ended_entry,
    ended_loops,
    finished,
    fresh_row,
    new_run_id,
    row_of,
)
from .run_state import (
    Clock,
    Listener,
    Run,
    RunResources,
    SystemClock,
    opened_listeners,
    redactor_of,
)
from .step import MODEL_NAME, CompositeStep, In, Out, Step, StepLike, as_step
from .synchronous import wait_for
from .text_listeners import OnText, model_call, text_listener
from .workflow import Workflow

if TYPE_CHECKING:
    from ..models import Models

__all__ = ["RunOptions", "new_run_id", "resume", "resume_sync", "run", "run_sync"]

DEBUG = "LOOPWRIGHT_DEBUG"  # environment variable: tracebacks keep the frames inside this package


class ResumeOptions(TypedDict, total=False):
    """The options of `run` that `resume` passes on."""

    budget: Budget | None
    clock: Clock | None
    random: Callable[[], float] | None
    listeners: Sequence[Listener]
    models: Models | None
    model: str
    on_text: OnText | None
    progress: bool | Listener
    resources: Mapping[str, Any] | None
    source: Mapping[str, Json] | None
    accept_changes: bool
    in_doubt: str
    takeover: bool


class ResumeLimits(ResumeOptions, total=False):
    """The options of `resume`, which explains them."""

    max_iterations: int | None
    max_usd: float | None
    max_calls: int | None
    max_total_tokens: int | None
    max_effects: int | None


class RunOptions(ResumeOptions, total=False):
    """The options of `run`, which explains them."""

    journal: Journal | str | None
    run_id: str


async def run(
    step: StepLike[In, Out],
    value: In = None,  # type: ignore[assignment]
    *,
    journal: Journal | str | None = None,
    run_id: str = "",
    budget: Budget | None = None,
    clock: Clock | None = None,
    random: Callable[[], float] | None = None,
    listeners: Sequence[Listener] = (),
    models: Models | None = None,
    model: str = "",
    on_text: OnText | None = None,
    progress: bool | Listener = False,
    resources: Mapping[str, Any] | None = None,
    source: Mapping[str, Json] | None = None,
    accept_changes: bool = False,
    in_doubt: str = "suspend",
    takeover: bool = False,
) -> Result[Out]:
    """Run a loop, a workflow, any other step or a function to its end.

    Args:
        step: the step or function.
        value: its input, any JSON value.
        journal: where the run is recorded: a Journal, a URL such as `sqlite:runs.db`, or None (nothing).
        run_id: the run to create or resume, 1 to 64 letters, digits, - and _. Default: a new ID.
        budget: the most that the run may spend. Default: no limit.
        clock: the source of time. Default: the clock of the event loop.
        random: returns a number from 0 to 1, for delays between attempts. Default: `random.random`.
        listeners: called with each journal entry once it is durable; a RunObserver may be one too.
        models: the models that prompts call. Default: those of all providers, with the keys in the
            environment; see `loopwright.models.Models`.
        model: the model of prompts that name none, such as `openai:gpt-4o-mini`. Default: that of
            `models`, which is the environment variable LOOPWRIGHT_MODEL unless you set another.
        on_text: receives the text of models as it arrives, `f(text)` or `f(text, call)` with `call.path`
            and `call.attempt`; thinking is left out. Its failure is a warning.
        progress: True shows the iterations while they end: rows on a terminal, a display in a notebook,
            lines on a pipe. Or a listener of `loopwright.progress`. Default: False.
        resources: models, tools and other objects that steps need, by name. `memory` is a Memory or its
            URL (default: that of the journal), `redactor` removes secrets (default: that of the models).
        source: how to load a document again; it is recorded with the run.
        accept_changes: resume although the code or the input changed since the run was recorded.
        in_doubt: `suspend` or `rerun` a step that is not idempotent and was in flight at a crash.
        takeover: take the run from the process that owns it, even if that is alive.

    Returns:
        The result: status, reason, output, history, usage and warnings.

    Raises:
        JournalError: if the journal is locked, damaged or unavailable, or holds another run.
        ConfigurationError: for an invalid option or input, or an input that contains a secret.

    Example:
        >>> import asyncio
        >>> from loopwright import run
        >>> asyncio.run(run(lambda name: f"Hello {name}", "Ann")).output
        'Hello Ann'
    """
    root = as_step(step)
    _check_options(budget, in_doubt, listeners, resources)
    resources = _with_models(resources, models, model=model, on_text=on_text)
    if missing := _missing_names(root, resources):
        raise ConfigurationError("; ".join(missing))
    store, opened = _journal_of(journal)
    held = RunResources(resources, store)
    try:
        request = _Request(
            root, value, store, held, budget, source=source or {}, accept_changes=accept_changes
        )
        shown = [*listeners, *_progress(progress)]
        fresh, log = await request.open(run_id, takeover=takeover, observed=bool(shown))
        begun, failed = opened_listeners(shown, log)
        if (logging := log_listener(log.info)) is not None:
            begun.append(logging)
        state = Run(
            fresh.run_id,
            log,
            clock or SystemClock(),
            random or _random.random,
            listeners=begun,
            resources=held,
            accept_changes=accept_changes,
            in_doubt=in_doubt,
            debug=bool(os.environ.get(DEBUG)),
            redactor=redactor_of(held),
        )
        state.warnings += failed
        return await request.drive(state, fresh)
    finally:
        if held.opened is not None:
            await held.opened.close()
        if opened and store is not None:
            await store.close()


def _progress(progress: bool | Listener) -> list[Listener]:
    """Return the listeners that show the progress of a run."""
    if progress is True:
        # By name: progress stands above the engine, and loads rich or IPython.
        return [importlib.import_module("loopwright.progress").automatic()]
    if progress is False:
        return []
    if not callable(progress) and not hasattr(progress, "opened"):
        raise ConfigurationError(
            f"run: progress: {progress!r:.60} is not a listener; use True, False or one of "
            "loopwright.progress, such as tqdm_bar()"
        )
    return [progress]


def run_sync(
    step: StepLike[In, Out],
    value: In = None,  # type: ignore[assignment]
    **options: Unpack[RunOptions],
) -> Result[Out]:
    """Run a step from synchronous code.

    Args:
        step: the step or function.
        value: its input, any JSON value.
        options: the options of `run`.

    Returns:
        The result, as `run` returns it.

    Raises:
        JournalError, ConfigurationError: as `run` does.

    Inside a running event loop, as in a notebook, the run has a thread with another event loop. The caller's
    event loop does nothing else meanwhile, so the result has the warning `blocking_event_loop` outside IPython.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> loop = Loop(lambda number: number + 1, until=MaxIterations(3))
        >>> run_sync(loop, 1).iterations
        3
    """
    return wait_for(lambda: run(step, value, **options))


async def resume(
    step: StepLike[Any, Out],
    run_id: str,
    *,
    journal: Journal | str,
    max_iterations: int | None = None,
    max_usd: float | None = None,
    max_calls: int | None = None,
    max_total_tokens: int | None = None,
    max_effects: int | None = None,
    **options: Unpack[ResumeOptions],
) -> Result[Out]:
    """Continue a recorded run; first raise the limit that ended it, if one is given.

    Args:
        step: the step that was run, unchanged.
        run_id: the run.
        journal: the Journal or the URL in which it is recorded.
        max_iterations: the new limit of the loop that used up its iterations.
        max_usd: the new limit in US dollars of the budget that was used up.
        max_calls: the same in model calls.
        max_total_tokens: the same in input and output tokens together.
        max_effects: the same in effects.
        options: other options of `run`.

    Returns:
        The result, as `run` returns it.

    Raises:
        RunNotFound: if the journal has no such run.
        ConfigurationError: for a limit that did not end it, or that is not above what is used.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, resume, run
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(2))
        >>> asyncio.run(run(loop, 1, journal=journal, run_id="r")).iterations
        2
        >>> asyncio.run(resume(loop, "r", journal=journal, max_iterations=3)).iterations
        3
    """
    store, opened = _journal_of(journal)
    if store is None:
        raise ConfigurationError("resume: it needs the journal that the run was recorded in")
    try:
        info = await store.find(run_id)
        limits = (max_iterations, max_usd, max_calls, max_total_tokens, max_effects)
        if any(limit is not None for limit in limits):
            await raise_limit(
                store,
                info.run_id,
                max_iterations=max_iterations,
                max_usd=max_usd,
                max_calls=max_calls,
                max_total_tokens=max_total_tokens,
                max_effects=max_effects,
            )
        return await run(step, journal=store, run_id=info.run_id, **options)
    finally:
        if opened:
            await store.close()


def resume_sync(
    step: StepLike, run_id: str, *, journal: Journal | str, **options: Unpack[ResumeLimits]
) -> Result:
    """Continue a recorded run from synchronous code; see `resume` and `run_sync`.

    Args:
        step: the step that was run, unchanged.
        run_id: the run.
        journal: the Journal or the URL in which it is recorded.
        options: the limits and options of `resume`.

    Returns:
        The result, as `run` returns it.

    Raises:
        RunNotFound, ConfigurationError: as `resume` does.

    Example:
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, resume_sync, run_sync
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(2))
        >>> run_sync(loop, 1, journal=journal, run_id="r").iterations
        2
        >>> resume_sync(loop, "r", journal=journal, max_iterations=3).iterations
        3
    """
    return wait_for(lambda: resume(step, run_id, journal=journal, **options))


def _with_models(
    resources: Mapping[str, Any] | None,
    models: Models | None,
    *,
    model: str,
    on_text: OnText | None,
) -> Mapping[str, Any] | None:
    """Return the resources with the models and the text listener of a run."""
    own: dict[str, Any] = {}
    if models is not None:
        if not hasattr(models, "resolve"):
            raise ConfigurationError(
                f"run: models: {models!r:.60} is not a Models; give one, such as Models(…)"
            )
        own["models"] = models
    if model:
        own["model"] = model
    if on_text is not None:
        listener = text_listener(on_text)
        own["on_text"] = lambda path, text: listener(text, model_call(path))
    if not own:
        return resources
    for name in own if resources is not None else ():
        if name in cast("Mapping[str, Any]", resources):
            raise ConfigurationError(
                f"run: {name}: is given twice; leave it out of resources, or out of the call"
            )
    # A chain, because a copy would load resources that no step may need.
    return ChainMap(own, cast("MutableMapping[str, Any]", resources)) if resources else own


def _missing_names(root: Step, resources: Mapping[str, Any] | None) -> list[str]:
    """Return a sentence for each name of a template or model that this run does not supply."""
    missing = root.unsupplied
    if not missing:
        return []
    names = getattr((resources or {}).get("models"), "names", {})
    return [
        f"{sentence}{nearest(name.removeprefix(MODEL_NAME), names) if names else ''}"
        for name, sentence in missing.items()
        if not name.startswith(MODEL_NAME) or name.removeprefix(MODEL_NAME) not in names
    ]


def _journal_of(journal: Journal | str | None) -> tuple[Journal | None, bool]:
    """Return a journal, and whether it was opened here."""
    if isinstance(journal, str):
        return open_journal(journal), True
    if journal is not None and not hasattr(journal, "open"):
        raise ConfigurationError(
            f"journal: {journal!r} is not a journal; use a Journal, a URL such as sqlite:runs.db, "
            "or None"
        )
    return journal, False


def _check_options(
    budget: object, in_doubt: object, listeners: Sequence[Listener], resources: object
) -> None:
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
            f"run: resources: {resources!r:.60} is not a mapping; give names to objects, such as {{'model': …}}"
        )
    if callable(listeners):
        raise ConfigurationError(f"run: listeners: {listeners!r} is not a list; give a list")
    for listener in listeners:
        if not callable(listener) and not hasattr(listener, "opened"):
            raise ConfigurationError(f"run: listeners: {listener!r} is not a function")


@dataclass(frozen=True, slots=True)
class _Request:
    """A run as its caller asked for it."""

    step: Step
    value: Json
    store: Journal | None
    resources: RunResources
    budget: Budget | None
    source: Mapping[str, Json]
    accept_changes: bool

    async def open(
        self, run_id: str, *, takeover: bool, observed: bool = False
    ) -> tuple[RunInfo, RunLog]:
        """Open the journal of the run; return the row of a run that begins now, and the log.

        Raises:
            JournalError: if it cannot be opened, or holds another run under this ID.
        """
        fresh = fresh_row(self.step, self.value, run_id)
        redactor = redactor_of(self.resources)
        if redactor is not None:
            redactor.refuse("input", fresh.input)
            redactor.refuse("the source of the run", self.source)
        if self.store is not None or observed:  # listeners may read the limits
            fresh = described(fresh, self.step, self.source, self.budget)
        if self.store is None:
            return fresh, NoLog(fresh)
        log = await self.store.open(fresh, takeover=takeover)
        try:
            self._check_same(fresh, log)
        except ReplayMismatch:
            await log.close(replace(log.info, status=status_of(log.recorded)))
            raise
        if log.recorded:
            await take_up(self.store, log)
        return fresh, log

    def _check_same(self, fresh: RunInfo, log: RunLog) -> None:
        """Raise ReplayMismatch if the log holds a run of another step or input."""
        info, step = log.info, self.step
        if not log.recorded or self.accept_changes:
            return
        if self.value is not None and codec.digest(fresh.input) != codec.digest(info.input):
            before, now = codec.digest(info.input), codec.digest(fresh.input)
            raise ReplayMismatch(
                f"{info.run_id}: its input was {before} when it was recorded, now it is {now}; "
                "resume without an input, or use another run id",
                path="",
                recorded=before,
                now=now,
            )
        if info.name != step.name:
            raise ReplayMismatch(
                f"{info.run_id}: it was recorded as {info.name!r}, not as {step.name!r}; "
                "resume with the step of that name, or use another run id",
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

    async def drive(self, state: Run, fresh: RunInfo) -> Result:
        """Run the step to its end, as the caller sees it, and release what was opened for it."""
        info, budget = state.log.info, self.budget
        if self.accept_changes:
            _accept(state, info.fingerprint, fresh.fingerprint)
        if budget is not None:
            _cap(state, budget)
            if unbound := cannot_bind(self.step, budget, "run"):
                state.warn(unbound, code=CANNOT_BIND)
        try:
            if state.silent:  # nobody can ever read it, so only its result matters
                result = await _outcome(state, self.step, fresh.input)
            else:
                result = await _drive(state, self.step, bounded(info, fresh))
            return result.view()
        finally:
            if state.owned:
                await state.release()


def _accepted_in(log: RunLog) -> str:
    """Return the fingerprint of the code that was accepted instead of the recorded one, or ""."""
    accepted = (e for e in reversed(log.recorded) if e.kind == "accepted" and not e.path)
    return next((e.fingerprint for e in accepted if e.value is None), "")


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


async def _drive(state: Run, step: Step, info: RunInfo) -> Result:
    """Run the root step, record how the run ended, and give the run back."""
    replay = state.replay
    if replay is not None and "" in replay.ended:
        result = finished(state, replay.ended[""], step)
        await state.log.close(row_of(info, result, replay.active))
        return result
    if replay is not None and replay.doubts and state.log.keeps_values:
        left = await end_leftovers(state.token)
        if left:
            numbers = ", ".join(map(str, left))
            sentence = f"processes of an earlier attempt of this run cannot be ended: {numbers}"
            state.warn(sentence, code="processes_left")
    if replay is not None:  # loops inside an ended one are not run again, and still are its loops
        state.loops = ended_loops(state, replay, step)
    if not state.log.silent:
        state.log.on_cancel = state.cancel
    try:
        result = await _outcome(state, step, _typed_input(step, info.input))
        kind = "suspended" if result.status is Status.SUSPENDED else "ended"
        state.append(Entry(kind, "", state.now(), value=ended_entry(result)))
        await state.settle()
    except BaseException as error:
        await _interrupted(state, info, error)
        raise
    if not state.log.silent:
        await state.log.close(row_of(info, result, state.now()))
    return result


def _typed_input(step: Step, value: Json) -> Json:
    """Return the recorded input of a run with the type that its step declares."""
    declared = step.input_type
    return value if declared is None or value is None else declared.attach(value)


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


async def _forgive(task: asyncio.Task[object] | None) -> None:
    """Take back the cancellation by which a run was asked to end, delivered or still pending."""
    assert task is not None
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    if task.uncancel():  # someone else wants the task itself to end
        raise asyncio.CancelledError


async def _outcome(state: Run, step: Step, value: Json) -> Result:
    """Run the root step and return how it ended; until then a cancel reaches the current task."""
    ctx = Context(state, "", None, state.account, None)
    request = None
    task = state.task = asyncio.current_task()
    try:
        if isinstance(step, CompositeStep):
            result = await step.run(value, ctx.child(step.name))
        else:
            result = await ctx.outcome(step.name, step, value)
    except StepError as error:
        result = _failed(error, state, step)
    except (Stopped, asyncio.CancelledError) as error:
        result = _cut(state.stopped_by(error).stop, state, step)
    except Suspended as suspended:
        request = state.clean({"path": suspended.path, **suspended.request})
        if state.log.silent:
            sentence = (
                "the question needs a journal for its answer; pass journal='sqlite:PATH' to the run"
            )
            state.warn(sentence, code="no_journal")
        result = _cut(state.cleaned_stop(suspended.stop), state, step)
    finally:
        state.task = None  # it is over: a cancel comes too late
    if state.cancelled is not None:
        await _forgive(task)
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
        items=result.items,
        outcomes=state.outcomes,
        total=state.rounds,
        error=failed.error,
        cause=failed.cause,
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
    failed = (loop for loop in reversed(state.loops.values()) if loop.error is not None)
    return next(failed, result)


def _cut(stop: Stop, state: Run, step: Step) -> Result:
    """Return the result of a run that was ended from outside its root step, with its output so far."""
    own = state.loops.get(step.name)
    if own is not None:
        return replace(own, status=stop.reason.status, reason=stop.reason, detail=stop.detail)
    output = next((r.output for r in reversed(state.loops.values()) if r.output is not None), None)
    return Result(stop.reason.status, stop.reason, stop.detail, output)
