"""The public functions that run and resume a step, and one run: from its opening to its recorded end.

The same run ID resumes a run. A finished run is returned from its journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as _random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from ..conditions import Budget, raised_budget, tuned_budget
from ..errors import ConfigurationError, JournalError, OwnershipLost, StepError, Stopped, Suspended
from ..journal import Entry, Journal, RunInfo
from ..records import Result, Status
from ..records.codec import Json
from ..records.result import ended_entry, explored_by, failed_part
from .budget import CANNOT_BIND, Account, cannot_bind
from .context import Context
from .leftovers import end_leftovers
from .loop_exploration import check_surroundings
from .past_noise import refuse_past, set_noise
from .programs import program_source
from .resume import raise_limit
from .run_record import (
    ResumeLimits,
    ResumeOptions,
    RunOptions,
    StepWithResources,
    chained,
    check_names,
    check_options,
    journal_of,
    new_run_id,
    open_run,
    progress_listeners,
    row_of,
    with_models,
)
from .run_results import cut_result, ended_loops, failed_result, finished
from .run_state import (
    Clock,
    Listener,
    Run,
    RunResources,
    opened_listeners,
    redactor_of,
    system_clock,
)
from .step import AsyncFunction, CompositeStep, In, Out, Step, StepLike, as_step
from .text_listeners import OnText
from .threads import wait_for
from .tuning import LiveLimits
from .workflow import Workflow

if TYPE_CHECKING:
    from ..models import Models

__all__ = [
    "RunOptions",
    "StepWithResources",
    "new_run_id",
    "resume",
    "resume_sync",
    "run",
    "run_sync",
]


@overload
async def run(
    step: AsyncFunction[In, Out],
    value: In = ...,
    **options: Unpack[RunOptions],
) -> Result[Out]: ...
@overload
async def run(
    step: StepLike[In, Out] | StepWithResources,
    value: In = ...,
    **options: Unpack[RunOptions],
) -> Result[Out]: ...
async def run(
    step: StepLike[In, Out] | StepWithResources,
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
        step: the step or function. Or a document of `loopwright.documents.load`, with its resources,
            source, default input and budget, of which the arguments below replace some.
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
    check_options(budget, in_doubt, listeners, resources)
    resources = with_models(resources, models, model=model, on_text=on_text)
    has_input = value is not None
    if isinstance(step, Step):
        root: Step = step
    elif isinstance(step, StepWithResources):
        resources = chained(resources or {}, step.resources)
        budget = step.budget if budget is None else budget
        source = source or step.source
        value = value if has_input else cast("In", step.default_input)
        root = step.step
    else:
        root = as_step(step)
    check_names(root, resources)
    if root.explores:
        check_surroundings(root)
    shown = (*listeners, *progress_listeners(progress))
    store, opened = journal_of(journal)
    if store is None:
        refuse_past(root)
    # What a program passes beside its step cannot be found again.
    elif not source and resources is None and budget is None:
        source = program_source(step, root)
    run_resources = RunResources(resources, store)
    redactor = redactor_of(run_resources)
    # No context manager around it, and no list as a local variable: the garbage collector visits them
    # in each of 10,000 running loops (the row "loops at once" of `benchmarks.engine`).
    try:
        info, log = await open_run(
            root, value, store, resources=run_resources, redactor=redactor, budget=budget,
            source=source or {}, accept_changes=accept_changes, run_id=run_id, takeover=takeover,
            observed=bool(shown), has_input=has_input,
        )  # fmt: skip
        started, failed = opened_listeners(shown, log)
        state = Run(
            info.run_id, log, clock or system_clock(), random or _random.random,
            listeners=started, resources=run_resources, accept_changes=accept_changes,
            in_doubt=in_doubt, redactor=redactor,
        )  # fmt: skip
        # Not recorded as warnings of the run: they concern the listeners of this process only.
        state.warnings += failed
        try:
            return (await _drive(state, root, info, budget, store)).view()
        finally:
            if state.owned:
                await state.release()
    finally:
        # A journal that the caller passed stays open: it may be used for other runs.
        await _close(run_resources, store if opened else None)


async def _close(resources: RunResources, store: Journal | None) -> None:
    """Close what a run opened: its resources, and then its journal, which they may use."""
    if resources.opened is not None:
        await resources.opened.close()
    if store is not None:
        await store.close()


@overload
def run_sync(
    step: AsyncFunction[In, Out],
    value: In = ...,
    **options: Unpack[RunOptions],
) -> Result[Out]: ...
@overload
def run_sync(
    step: StepLike[In, Out] | StepWithResources,
    value: In = ...,
    **options: Unpack[RunOptions],
) -> Result[Out]: ...
def run_sync(
    step: StepLike[In, Out] | StepWithResources,
    value: In = None,  # type: ignore[assignment]
    **options: Unpack[RunOptions],
) -> Result[Out]:
    """Run a step from synchronous code.

    Args:
        step: the step, function or loaded document.
        value: its input, any JSON value.
        options: the options of `run`.

    Returns:
        The result, as `run` returns it.

    Raises:
        JournalError, ConfigurationError: as `run` does.

    Inside a running event loop, as in a notebook, the run gets a thread with another event loop. It blocks the
    caller's event loop, so outside IPython the result has the warning `blocking_event_loop`.

    Example:
        >>> from loopwright import Loop, MaxIterations, run_sync
        >>> loop = Loop(lambda number: number + 1, until=MaxIterations(3))
        >>> run_sync(loop, 1).iterations
        3
    """
    return wait_for(lambda: run(step, value, **options))


async def resume(
    step: StepLike[Any, Out] | StepWithResources,
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
    """Continue a recorded run, and raise the limit that ended it if you pass a new one.

    Args:
        step: the step or loaded document that was run, unchanged.
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
        ConfigurationError: for a limit that did not end it, or that is not above the used amount.

    Example:
        >>> import asyncio
        >>> from loopwright import Loop, MaxIterations, MemoryJournal, resume, run
        >>> journal, loop = MemoryJournal(), Loop(lambda n: n, name="l", until=MaxIterations(2))
        >>> asyncio.run(run(loop, 1, journal=journal, run_id="r")).iterations
        2
        >>> asyncio.run(resume(loop, "r", journal=journal, max_iterations=3)).iterations
        3
    """
    store, opened = journal_of(journal)
    if store is None:
        raise ConfigurationError("resume: journal: use the journal in which the run is recorded")
    try:
        # Also for a prefix of an ID, which `run` would take as a new ID.
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
    step: StepLike | StepWithResources,
    run_id: str,
    *,
    journal: Journal | str,
    **options: Unpack[ResumeLimits],
) -> Result:
    """Continue a recorded run from synchronous code; see `resume` and `run_sync`.

    Args:
        step: the step or loaded document that was run, unchanged.
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


def _drive(
    state: Run, step: Step, info: RunInfo, budget: Budget | None, store: Journal | None
) -> Coroutine[object, object, Result]:
    """Return the coroutine that runs the step to its end."""
    if state.accept_changes:
        _accept(state, info.fingerprint, step.fingerprint)
    if budget is not None or state.tuned is not None:
        budget = _cap(state, budget)
    if budget is not None and (unbound := cannot_bind(step, budget, "run")):
        state.warn(unbound, code=CANNOT_BIND)
    if state.silent:  # it has no record, so only its result matters
        return _outcome(state, step, info.input)
    return _recorded(state, step, info, store)


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


async def _recorded(state: Run, step: Step, info: RunInfo, store: Journal | None) -> Result:
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
        kind = "suspended" if result.status is Status.SUSPENDED else "ended"
        state.append(Entry(kind, "", result.seconds, value=ended_entry(result)))
        # Listeners receive the end before the run is released. Without them, one commit does both.
        if state.listeners:
            await state.settle()
        committed = state.sync()
    except BaseException as error:  # of any kind: the lease must be released
        _stop_reading(state)
        await _interrupted(state, info, error)
        if state.lost and isinstance(error, asyncio.CancelledError):
            await _uncancel(asyncio.current_task())
            raise OwnershipLost(f"{state.run_id}: another owner took this run over") from None
        raise
    if not state.log.silent:
        try:
            await state.log.close(row_of(info, result, state.now()))
        finally:
            # `close` is silent if another owner has the run, but its end is not recorded then.
            if committed is not None:
                await committed
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
    if state.ending:
        return
    if state.limits is None:
        state.limits = LiveLimits(state, partial(store.inbox, state.run_id))
    state.limits.read()


def _stop_reading(state: Run) -> None:
    """Read no further limits: the end of the run is recorded next, and nothing may follow it."""
    state.ending = True
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
        result = failed_result(error, state, step)
    except (Stopped, asyncio.CancelledError) as error:
        result = cut_result(state.stopped_by(error).stop, state, step)
    except Suspended as suspended:
        request = state.clean({"path": suspended.path, **suspended.request})
        if state.log.silent:
            state.warn(
                "a run without a journal cannot receive answers; use one: journal='sqlite:…'",
                code="no_journal",
            )
        result = cut_result(state.cleaned_stop(suspended.stop), state, step)
    finally:
        state.task = None  # a later cancel must not reach the caller's task
    if state.cancelled is not None:
        await _uncancel(task)
    _stop_reading(state)
    account, seconds = state.account, state.now()
    failed = failed_part(result, state.loops)
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
        seconds=seconds,
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
