"""`run` and `resume`: drive a run and watch it.

Driving a run from the command line: watched, interruptible, told at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, cast

import typer

from ...conditions import Budget
from ...engine.resume import raise_limit
from ...engine.run import new_run_id
from ...engine.run import run as run_step
from ...errors import RunNotFound
from ...journal import Entry, Journal, RunInfo
from ...journal.questions import Question, pending
from ...records import Reason, Result, Status
from ...records.codec import Json
from .. import formatting as texts
from ..inputs import read_input
from ..journals import DEFAULT, opened, reading, shown_url
from ..run_summary import ended, on_record, recorded, result_json
from ..sources import Given, RunSource, load_again, load_source
from ..trust import agreed
from .live import RunDisplay, tells_conditions, view_of
from .options import (
    AcceptChanges,
    Agents,
    AsJson,
    CaptureContent,
    InDoubt,
    InDoubtOption,
    InputFile,
    InputText,
    JournalUrl,
    Lenient,
    Log,
    LoopName,
    MaxCalls,
    MaxEffects,
    MaxIterations,
    MaxTotalTokens,
    MaxUsd,
    Model,
    ModelUrl,
    Otel,
    Replies,
    RunId,
    RunName,
    Sets,
    Transcript,
    Verbose,
    Yes,
)
from .output import Output
from .result import tell_interrupted, tell_result
from .signals import Signals, leave
from .telemetry import Observing

__all__ = ["Job", "drive", "resume", "run"]


@dataclass(frozen=True)
class Job:
    """A run to drive: what, on which input, under which id, and how it may go on.

    `value` None is the recorded input of a run on record, else the source's own.
    """

    source: RunSource
    value: Json
    run_id: str
    url: str
    accept_changes: bool = False
    in_doubt: str = "suspend"
    verbose: bool = False
    observing: Observing = field(default_factory=Observing)
    listeners: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Interrupted:
    """What is on record of a run that a signal ended; None if nothing is."""

    result: Result | None


def drive(job: Job, output: Output) -> int:
    """Run a job to its end, tell how it ended, and return the exit code.

    Raises:
        LoopwrightError: if the run cannot begin or go on.
    """
    for note in job.source.notes:
        output.note(f"note: {note}")
    questions: list[Question] = []
    with contextlib.ExitStack() as stack, asyncio.Runner() as runner:
        listeners = stack.enter_context(job.observing.listeners(output))
        job = replace(job, listeners=tuple(listeners))
        with Signals(output) as signals:
            outcome = runner.run(_driven(job, output, signals, questions))
            if isinstance(outcome, _Interrupted):
                tell_interrupted(outcome.result, output, signals.heard, job.url)
                stack.close()
                # Threads of steps may still run and would hold the process; the run is written.
                leave(output)
        if output.as_json:
            output.give(result_json(outcome, questions))
        else:
            tell_result(outcome, output, job.url, questions)
    return outcome.status.exit_code


async def _driven(
    job: Job, output: Output, signals: Signals, questions: list[Question]
) -> Result | _Interrupted:
    async with opened(job.url, create=True) as store:
        seconds = getattr(job.source.step, "seconds", math.inf)
        view = view_of(
            output, verbose=job.verbose, conditions=tells_conditions(job.source.source),
            cap=_cap(job.source), seconds=seconds, beside=job.observing.on_terminal,
        )  # fmt: skip
        before = await _recorded(store, job.run_id)
        verb = "goes on as" if before else "is"
        name = texts.one_line(job.source.name)
        view.recall(f"{name} {verb} run {job.run_id} in {shown_url(job.url)}", before)
        try:
            value = job.source.default_input if job.value is None and not before else job.value
            result = await _watched(replace(job, value=value), store, view, signals)
            if result.status is Status.SUSPENDED:
                questions += await pending(store, job.run_id)
            return result
        except asyncio.CancelledError:
            if not signals.heard:
                raise
            entries = await _recorded(store, job.run_id)
            if not entries:
                return _Interrupted(None)
            info = await store.find(job.run_id)
            return _Interrupted(recorded(info, entries, f"stopped by {signals.heard}"))


def _cap(source: RunSource) -> Budget | None:
    """Return what the run may spend: the cap on it, else that of its outermost loop."""
    if source.budget is not None:
        return source.budget
    own = getattr(source.step, "budget", None)
    return own if isinstance(own, Budget) else None


def _watching(job: Job, view: RunDisplay) -> Mapping[str, Any]:
    """Return the resources of the run, with the view as who hears what models say."""
    heard: dict[str, Any] = {"on_text": view.hear_text}
    return ChainMap(heard, cast("MutableMapping[str, Any]", job.source.resources))


async def _watched(job: Job, store: Journal, view: RunDisplay, signals: Signals) -> Result:
    async with view:
        task = asyncio.ensure_future(
            run_step(
                job.source.step, job.value, journal=store, run_id=job.run_id,
                budget=job.source.budget, listeners=[view.hear, *job.listeners], resources=_watching(job, view),
                source=job.source.source, accept_changes=job.accept_changes, in_doubt=job.in_doubt,
            )
        )  # fmt: skip
        signals.watch(task)
        return await task


async def _recorded(store: Journal, run_id: str) -> list[Entry]:
    """Return the entries of a run by its whole id; none if the journal does not know it."""
    try:
        info = await store.find(run_id)
    except RunNotFound:
        return []
    return await store.entries(run_id) if info.run_id == run_id else []


def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A document, or package.module:attribute.")
    ],
    text: InputText = None,
    input_file: InputFile = None,
    sets: Sets = None,
    journal: JournalUrl = DEFAULT,
    run_id: RunId = "",
    model: Model = None,
    model_url: ModelUrl = None,
    max_usd: MaxUsd = None,
    max_calls: MaxCalls = None,
    max_total_tokens: MaxTotalTokens = None,
    max_effects: MaxEffects = None,
    agents: Agents = None,
    lenient: Lenient = False,
    replies: Replies = None,
    transcript: Transcript = None,
    accept_changes: AcceptChanges = False,
    in_doubt: InDoubtOption = InDoubt.SUSPEND,
    otel: Otel = None,
    log: Log = None,
    capture_content: CaptureContent = False,
    yes: Yes = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> int:
    """Run a document to its end, or a step of a Python module: package.module:attribute.

    Its input is --input, --input-file or what is piped to stdin, else the document's own. Exit
    codes: 0 satisfied, 3 exhausted (a limit ended it), 1 failed, 4 suspended (it waits for a person
    or a quota), 130 cancelled or interrupted, 2 a wrong command line or document.
    """
    with Output(as_json=as_json) as output:
        given = Given.of(
            sets, agents, model=model, model_url=model_url, replies=replies,
            transcript=transcript, max_usd=max_usd, max_calls=max_calls, lenient=lenient,
            max_total_tokens=max_total_tokens, max_effects=max_effects,
        )  # fmt: skip
        source = agreed(functools.partial(load_source, file, given), output, yes=yes)
        value = read_input(text, input_file, output.note)
        observing = Observing(otel, log, capture_content)
        job = Job(
            source=source,
            value=value,
            run_id=run_id or new_run_id(),
            url=journal,
            accept_changes=accept_changes,
            in_doubt=in_doubt,
            verbose=verbose,
            observing=observing,
        )
        return drive(job, output)


def resume(
    name: RunName,
    journal: JournalUrl = DEFAULT,
    sets: Sets = None,
    model: Model = None,
    model_url: ModelUrl = None,
    max_usd: MaxUsd = None,
    max_calls: MaxCalls = None,
    max_total_tokens: MaxTotalTokens = None,
    max_effects: MaxEffects = None,
    max_iterations: MaxIterations = None,
    loop: LoopName = "",
    agents: Agents = None,
    replies: Replies = None,
    transcript: Transcript = None,
    accept_changes: AcceptChanges = False,
    in_doubt: InDoubtOption = InDoubt.SUSPEND,
    otel: Otel = None,
    log: Log = None,
    capture_content: CaptureContent = False,
    yes: Yes = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> int:
    """Go on with a run that was interrupted or suspended; tell again how a finished one ended.

    What the run was started with is on record; an option given here is used instead. One that a limit
    ended goes on if the option of that limit raises it (--max-iterations, --max-usd, --max-calls,
    --max-total-tokens, --max-effects); that is on record then.
    """
    with Output(as_json=as_json) as output:
        given = Given.of(
            sets, agents, model=model, model_url=model_url, replies=replies,
            transcript=transcript, max_usd=max_usd, max_calls=max_calls,
            max_total_tokens=max_total_tokens, max_effects=max_effects,
        )  # fmt: skip
        info, entries = reading(
            journal, lambda store: _reopened(store, name, max_iterations, given.limits(), loop)
        )
        if ended(entries):
            return _told(recorded(info, entries), journal, output)
        source = agreed(functools.partial(load_again, info, given), output, yes=yes)
        observing = Observing(otel, log, capture_content)
        job = Job(
            source=source,
            value=None,
            run_id=info.run_id,
            url=journal,
            accept_changes=accept_changes,
            in_doubt=in_doubt,
            verbose=verbose,
            observing=observing,
        )
        return drive(job, output)


async def _reopened(
    store: Journal, name: str, max_iterations: int | None, limits: dict[str, Any], loop: str
) -> tuple[RunInfo, list[Entry]]:
    """Return a run on record, gone back to before the end that a limit made, if that is raised."""
    info, entries = await on_record(store, name)
    if info.reason != Reason.BUDGET:
        limits = {}  # a cap like any other, of what is to come
    limits = {name: value for name, value in limits.items() if value is not None}
    if max_iterations is None and not limits:
        return info, entries
    await raise_limit(store, info.run_id, max_iterations=max_iterations, loop=loop, **limits)
    return await on_record(store, info.run_id)


def _told(result: Result, url: str, output: Output) -> int:
    """Tell how a run had ended: a finished one is never run again, nor its document needed."""
    if output.as_json:
        output.give(result_json(result))
    else:
        tell_result(result, output, url)
    return result.status.exit_code
