"""The public functions that run and resume a step, with their options and the checks of these.

The same run ID resumes a run. A finished run is returned from its journal.
"""

from __future__ import annotations

import importlib
import random as _random
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack, cast, runtime_checkable

from ..conditions import Budget
from ..errors import ConfigurationError, nearest
from ..journal import Journal
from ..journal.open import open_journal
from ..records import Result
from ..records.codec import Json
from .loop_exploration import check_surroundings
from .past_noise import refuse_past
from .resume import raise_limit
from .run_execution import drive, open_run
from .run_record import new_run_id
from .run_state import (
    Clock,
    Listener,
    Run,
    RunResources,
    opened_listeners,
    redactor_of,
    system_clock,
)
from .step import MODEL_NAME, In, Out, Step, StepLike, as_step
from .synchronous import wait_for
from .text_listeners import OnText, model_call, text_listener

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


@runtime_checkable
class StepWithResources(Protocol):
    """A step with the objects that it needs, such as a loaded document."""

    @property
    def step(self) -> Step: ...
    @property
    def default_input(self) -> Json: ...
    @property
    def budget(self) -> Budget | None: ...
    @property
    def resources(self) -> Mapping[str, Any]: ...
    @property
    def source(self) -> Mapping[str, Json]: ...


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
    _check_options(budget, in_doubt, listeners, resources)
    resources = _with_models(resources, models, model=model, on_text=on_text)
    has_input = value is not None
    if not isinstance(step, Step) and isinstance(step, StepWithResources):
        resources = _chained(resources or {}, step.resources)
        budget = step.budget if budget is None else budget
        source = source or step.source
        value = value if has_input else cast("In", step.default_input)
        root = step.step
    else:
        root = as_step(step)
    _check_names(root, resources)
    if root.explores:
        check_surroundings(root)
    store, opened = _journal_of(journal)
    if store is None:
        refuse_past(root)
    run_resources = RunResources(resources, store)
    # No context manager around it, and no list as a local variable: the garbage collector visits them
    # in each of 10,000 running loops (the row "loops at once" of `benchmarks.engine`).
    try:
        shown = (*listeners, *_progress(progress))
        fresh, log = await open_run(
            root, value, store, resources=run_resources, budget=budget, source=source or {},
            accept_changes=accept_changes, run_id=run_id, takeover=takeover, observed=bool(shown),
            has_input=has_input,
        )  # fmt: skip
        started, failed = opened_listeners(shown, log)
        state = Run(
            fresh.run_id, log, clock or system_clock(), random or _random.random,
            listeners=started, resources=run_resources, accept_changes=accept_changes,
            in_doubt=in_doubt, redactor=redactor_of(run_resources),
        )  # fmt: skip
        # Not recorded as warnings of the run: they concern the listeners of this process only.
        state.warnings += failed
        try:
            return (await drive(state, root, fresh, budget, store)).view()
        finally:
            if state.owned:
                await state.release()
    finally:
        # A journal that the caller passed stays open: it may be used for other runs.
        await _close(run_resources, store if opened else None)


def _chained(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    # No copy, which would load resources that no step may need. Nothing is written to it.
    return ChainMap(*(cast("MutableMapping[str, Any]", part) for part in (first, second)))


async def _close(resources: RunResources, store: Journal | None) -> None:
    """Close what a run opened: its resources, and then its journal, which they may use."""
    if resources.opened is not None:
        await resources.opened.close()
    if store is not None:
        await store.close()


def _progress(progress: bool | Listener) -> list[Listener]:
    """Return the listeners that show the progress of a run."""
    if progress is True:
        # By name: progress is a layer above the engine, and loads rich or IPython.
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
    store, opened = _journal_of(journal)
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
                f"run: models: {models!r:.60} is not a Models; use one, such as Models(…)"
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
            raise ConfigurationError(f"run: {name}: it is also in resources; remove one of the two")
    # A chain, because a copy would load resources that no step may need.
    return ChainMap(own, cast("MutableMapping[str, Any]", resources)) if resources else own


def _check_names(root: Step, resources: Mapping[str, Any] | None) -> None:
    """Raise ConfigurationError for the names of templates and models that this run does not supply."""
    missing = root.unsupplied
    if not missing:
        return
    names = getattr((resources or {}).get("models"), "names", {})
    sentences = [
        f"{sentence}{nearest(name.removeprefix(MODEL_NAME), names) if names else ''}"
        for name, sentence in missing.items()
        if not name.startswith(MODEL_NAME) or name.removeprefix(MODEL_NAME) not in names
    ]
    if sentences:
        raise ConfigurationError("; ".join(sentences))


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
            f"run: budget: {budget!r} is not a Budget; use one, such as Budget(usd=0.5)"
        )
    words = ("suspend", "rerun")
    if in_doubt not in words:
        hint = nearest(str(in_doubt), words)
        raise ConfigurationError(f"run: in_doubt: {in_doubt!r} is neither suspend nor rerun{hint}")
    if resources is not None and not isinstance(resources, Mapping):
        raise ConfigurationError(
            f"run: resources: {resources!r:.60} is not a mapping; use objects by name, such as {{'model': …}}"
        )
    if callable(listeners):
        raise ConfigurationError(f"run: listeners: {listeners!r} is not a list; use a list")
    for listener in listeners:
        if not callable(listener) and not hasattr(listener, "opened"):
            raise ConfigurationError(f"run: listeners: {listener!r} is not a function")
