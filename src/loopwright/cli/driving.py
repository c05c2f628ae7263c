"""Driving a run from the command line: watched, interruptible, told at its end."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ..approvals import Question, pending
from ..codec import Json
from ..conditions import Budget
from ..errors import RunNotFound
from ..journal import Entry, Journal
from ..records import Result, Status
from ..run import run
from . import texts
from .journals import opened, shown_url
from .observing import Observing
from .output import Output
from .recorded import recorded, result_json
from .signals import Signals, leave
from .sources import Source
from .telling import tell_interrupted, tell_result
from .views import View, view_of

__all__ = ["Job", "drive"]


@dataclass(frozen=True)
class Job:
    """A run to drive: what, on which input, under which id, and how it may go on.

    `value` None is the recorded input of a run on record, else the source's own.
    """

    source: Source
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
            output, verbose=job.verbose, cap=_cap(job.source), seconds=seconds, beside=job.observing.on_terminal
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


def _cap(source: Source) -> Budget | None:
    """Return what the run may spend: the cap on it, else that of its outermost loop."""
    if source.budget is not None:
        return source.budget
    own = getattr(source.step, "budget", None)
    return own if isinstance(own, Budget) else None


def _watching(job: Job, view: View) -> Mapping[str, Any]:
    """Return the resources of the run, with the view as who hears what models say."""
    heard: dict[str, Any] = {"on_text": view.hear_text}
    return ChainMap(heard, cast("MutableMapping[str, Any]", job.source.resources))


async def _watched(job: Job, store: Journal, view: View, signals: Signals) -> Result:
    async with view:
        task = asyncio.ensure_future(
            run(
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
