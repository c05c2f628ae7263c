"""`run` and `resume`: drive a run, watch it, let signals interrupt it, and report how it ended.

`--otel` and `--log` give its traces, metrics and log lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import time
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ...conditions import Budget
from ...engine.run import new_run_id
from ...engine.run import run as run_step
from ...engine.run_record import bounds_of, raise_limit, raises_of
from ...engine.run_state import Listener
from ...errors import ConfigurationError, DocumentError, JournalError, RunNotFound
from ...journal import Entry, Journal, RunInfo
from ...journal.protocol import shown_url
from ...journal.questions import Question, pending
from ...journal.replay import recorded_result
from ...journal.rewinding import discard_failed
from ...records import Reason, Result, Status
from ...records.codec import Json, text_of
from ...records.redaction import of_environment
from .. import formatting as texts
from ..consent import approved
from ..finding import tags_of
from ..inputs import opening_report, read_input
from ..journals import command_line, opened, reading
from ..run_summary import ended, in_doubt, on_record, result_json
from ..sources import RunSource, SourceSettings, documents_module, load_again, load_source
from .live import (
    continuation_line,
    ending_text,
    report_failure,
    report_interruption,
    report_result,
    reports_conditions,
    view_of,
)
from .many import ManyRunOptions, run_each, run_many
from .options import (
    DryRun,
    InputFile,
    InputText,
    Lenient,
    LoopName,
    MaxIterations,
    OnWait,
    RunCommandOptions,
    RunId,
    RunName,
    Seed,
    Tags,
    expanded,
)
from .output import Output, Signals, exit_at_once
from .telemetry_options import TelemetryOptions

MEMORY = "memory:"  # the journal of a dry run
_WATCH = 0.5  # seconds between two looks for runs whose wait is over


@dataclass(frozen=True)
class Job:
    """A run to drive. `value` None stands for the recorded input, or for the source's default.

    `raised` are the limits to raise first, with `loop` as `raise_limit` takes them; `recorded` is what the source of the
    run has too, such as its name. `remark` ends its first line. A `quiet` one is not shown while it runs.
    """

    source: RunSource
    value: Json
    run_id: str
    options: RunCommandOptions
    telemetry_options: TelemetryOptions
    listeners: tuple[Listener, ...] = ()
    raised: Mapping[str, Any] = field(default_factory=dict)
    recorded: Mapping[str, Json] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""
    quiet: bool = False


@dataclass(frozen=True)
class _Interrupted:
    """The recorded part of a run that a signal ended; None if the journal holds none of it."""

    result: Result | None
    had_entries: bool = True
    doubt: Sequence[str] = ()


def drive(job: Job, output: Output) -> int:
    """Run a job to its end, report how it ended, and return the exit code.

    Raises:
        LoopwrightError: if the run cannot start or resume.
    """
    return report(job, *perform(job, output), output)


def report(
    job: Job,
    outcome: Result,
    questions: list[Question],
    output: Output,
    files: Iterable[tuple[str, Path]] = (),
) -> int:
    """Report how a job ended, and return the exit code; `files` are those of an evaluation to write, by option."""
    url = job.options.journal
    if "eval" in job.source.source and not questions and not url.startswith(MEMORY):
        from .eval import report_evaluation  # for the few runs that are evaluations of data sets

        wanted = job.recorded.get("eval") or job.source.source["eval"]
        return report_evaluation(outcome, wanted, url, output, files)
    if output.as_json:
        output.write_json(result_json(outcome, questions))
    else:
        source = {"python": "", "replies": job.source.source.get("replies")}
        info = RunInfo(outcome.run_id, outcome.name, source=source)
        report_result(outcome, output, job.options.journal, questions, info=info)
    return outcome.status.exit_code


def perform(job: Job, output: Output) -> tuple[Result, list[Question]]:
    """Run a job to its end, and return its result with the open questions; a signal ends the process.

    Raises:
        LoopwrightError: if the run cannot start or resume.
    """
    for note in () if job.quiet else job.source.notes:
        output.note(f"note: {note}")
    questions: list[Question] = []
    with contextlib.ExitStack() as stack, asyncio.Runner() as runner:
        listeners = stack.enter_context(job.telemetry_options.listeners(output))
        if (report := opening_report()) is not None:
            listeners.append(report)
        job = replace(job, listeners=tuple(listeners))
        with Signals(output) as signals:
            outcome = runner.run(_run_job(job, output, signals, questions))
            if isinstance(outcome, _Interrupted):
                report_interruption(
                    outcome.result,
                    output,
                    job.options.journal,
                    cause=signals.received,
                    source=job.source.source,
                    had_entries=outcome.had_entries,
                    doubt=outcome.doubt,
                )
                stack.close()
                # Threads of steps may still run and would hold the process; the run is written.
                exit_at_once(output)
        return outcome, questions


async def _run_job(
    job: Job, output: Output, signals: Signals, questions: list[Question]
) -> Result | _Interrupted:
    async with opened(job.options.journal, create=True) as store:
        if job.raised:
            source, same = job.source, not job.options.accept_changes
            step = source.step if same else None
            of_environment(os.environ).refuse("the source of the run", source.source)
            await raise_limit(store, job.run_id, step=step, source=source.source, **job.raised)
        # The budget of the run, or else that of its outermost loop.
        cap = job.source.budget
        if cap is None:
            cap = getattr(job.source.step, "budget", None)
        view = view_of(
            output,
            verbose=job.options.verbose,
            conditions=reports_conditions(job.source.source),
            cap=cap if isinstance(cap, Budget) else None,
            seconds=getattr(job.source.step, "seconds", math.inf),
            shared=job.telemetry_options.on_terminal or job.quiet,
        )
        before = await _entries_of(store, job.run_id)
        state = "resuming run" if before else "run"
        name = texts.one_line(text_of(job.recorded.get("name") or job.source.name))
        if not job.quiet:
            where = shown_url(job.options.journal)
            bounds = bounds_of(job.source.step)
            if "eval" in job.source.source:
                from ..evaluations import step_of  # for the few runs that are evaluations

                if (plan := step_of(job.source.step)) is not None:
                    bounds["cases"] = plan.total
            title = f"{name}: {state} {job.run_id} in {where}{job.remark}"
            view.recall(title, before, bounds, rerun=job.options.in_doubt == "rerun")
        try:
            value = job.source.default_input if job.value is None and not before else job.value
            text_to_view: dict[str, Any] = {"on_text": view.show_text}
            # A chain, because copying the resources of a Python step would load its models.
            resources = ChainMap(
                text_to_view, cast("MutableMapping[str, Any]", job.source.resources)
            )
            async with view:
                task = asyncio.ensure_future(
                    run_step(
                        job.source.step,
                        value,
                        journal=store,
                        run_id=job.run_id,
                        tags=_tags(job),
                        budget=job.source.budget,
                        listeners=[*([] if job.quiet else [view.show_entry]), *job.listeners],
                        resources=resources,
                        source={**job.source.source, **job.recorded},
                        accept_changes=job.options.accept_changes,
                        in_doubt=job.options.in_doubt,
                        on_wait=job.options.on_wait,
                    )
                )
                signals.watch(task)
                result = await task
            if result.status is Status.SUSPENDED:
                questions += await pending(store, job.run_id)
            return result
        except asyncio.CancelledError:
            # Without a signal, a person cancelled the run through the journal.
            if not signals.received:
                raise
            entries = await _entries_of(store, job.run_id)
            if not entries:
                # The database may have been deleted under the run: then there were entries.
                return _Interrupted(None, view.has_entries)
            info = await store.find(job.run_id)
            result = recorded_result(info, entries, f"stopped by {signals.received}")
            return _Interrupted(result, doubt=in_doubt(info, entries))


def _tags(job: Job) -> dict[str, str]:
    """Return the tags of the run, and the one by which lists know that its replies are scripted."""
    scripted = {"replies": "scripted"} if job.source.source.get("replies") else {}
    return {**job.tags, **scripted}


async def _entries_of(store: Journal, run_id: str) -> list[Entry]:
    """Return the entries of a run by its full ID; none if the journal does not hold it."""
    try:
        info = await store.find(run_id)
    except RunNotFound:
        return []
    return await store.entries(run_id) if info.run_id == run_id else []


@expanded
def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Document, or package.module:attribute.")
    ],
    options: RunCommandOptions,
    text: InputText = None,
    input_file: InputFile = None,
    run_id: RunId = "",
    tag: Tags = None,
    lenient: Lenient = False,
    dry_run: DryRun = False,
    seed: Seed = None,
) -> int:
    """Run a document, or a step of a Python module (package.module:attribute).

    The input is --input, --input-file or piped stdin, or else the document's default. With a FILE, this help lists
    the inputs that the document declares: --set gives one of them, --input an object with several.

    With --dry-run, nothing acts: rules in the file of --replies give the results of model calls,
    commands, Python functions and tools. The journal is in memory.

    Exit codes: 0 satisfied, 3 exhausted, 1 failed, 5 impossible, 4 suspended, 130 cancelled or
    interrupted, 2 wrong command line or document.

    Examples:
        loopwright run polish.yaml --input-file draft.txt
        loopwright run polish.yaml --input 'A long text' --max-usd 0.50
        loopwright run polish.yaml --input-file draft.txt --replies replies.yaml --json
    """
    with Output(as_json=options.as_json) as output:
        tags = tags_of(tag)
        settings = replace(SourceSettings.of(options), lenient=lenient)
        load = functools.partial(load_source, file, settings)
        # Without rules every effect would fail, one after another.
        if dry_run and not options.replies:
            raise ConfigurationError(
                "--dry-run needs --replies FILE with rules for models, commands, functions and tools"
            )
        if dry_run:
            source = documents_module().without_effects(load(execute=False))
            options = replace(options, journal=MEMORY)
        else:
            source = approved(load, output, yes=options.yes)
        # The file of a list is missing for certain, and an earlier step would be paid for nothing.
        missing = source.missing(offline=True)
        if gone := [one for one in missing if one.path.endswith(".each.items")]:
            raise DocumentError(gone)
        # After the approval: the answer and the input may both come from stdin.
        value = read_input(text, input_file, output.note)
        # Before anything is written; a recorded run has its inputs.
        if source.inputs is not None and not (run_id and value is None):
            value = source.inputs.complete(value)
        telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
        recorded = {} if seed is None else {"seed": seed}
        job = Job(
            source, value, run_id or new_run_id(), options, telemetry_options,
            recorded=recorded, tags=tags,
        )  # fmt: skip
        return drive(job, output)


@expanded
def retry(
    options: ManyRunOptions,
    name: RunName = "",
    item: Annotated[
        list[int] | None,
        typer.Option(
            "--item",
            metavar="N",
            help="One item of a list: do only this, which failed, again; repeatable.",
        ),
    ] = None,
) -> int:
    """Do again what failed in a run, and keep what succeeded.

    That is the failed step, the latest failed iterations of a loop, or all failed items of a list. If the run is
    refused before it begins, such as for a changed document, nothing has changed. With filters such as --status
    it does so for all failed runs that match; it first shows how many, and asks.

    Examples:
        loopwright retry last
        loopwright retry last --item 3
        loopwright retry --status failed --source polish.yaml --yes
    """
    with Output(as_json=options.as_json) as output:
        if options.selects(name):
            if item:
                raise ConfigurationError("--item is for one RUN")
            act = functools.partial(_retried, items=(), options=options, output=output, quiet=True)
            return run_many(options, ("failed",), "retry", lambda run_id: act(run_id)[1], output)
        return report(*_retried(name, items=item or (), options=options, output=output), output)


def _retried(
    name: str,
    *,
    items: Collection[int],
    options: RunCommandOptions,
    output: Output,
    quiet: bool = False,
) -> tuple[Job, Result, list[Question]]:
    """Do again what failed in a run, and return the job, the result and the open questions.

    Raises:
        LoopwrightError: if it cannot; the run is as it was before.
    """
    settings = SourceSettings.of(options)
    info, _ = reading(options.journal, lambda store: on_record(store, name))
    # Before anything is discarded: whether the run can continue here at all.
    source = approved(functools.partial(load_again, info, settings), output, yes=options.yes)
    done = reading(options.journal, lambda store: discard_failed(store, info.run_id, items))
    telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
    # Shown once the run has begun, because it may be refused, such as for a changed document.
    remark = f"; it does again what failed: {texts.discarded(done)}"
    job = Job(source, None, info.run_id, options, telemetry_options, remark=remark, quiet=quiet)
    try:
        return job, *perform(job, output)
    except (ConfigurationError, JournalError):
        with contextlib.suppress(JournalError):  # it began, and keeps what it has done
            reading(options.journal, lambda store: store.rewind(info.run_id, undo=True))
        raise


@expanded
def resume(
    options: RunCommandOptions,
    name: RunName = "",
    max_iterations: MaxIterations = None,
    loop: LoopName = "",
    due: Annotated[
        bool,
        typer.Option(
            "--due", help="Resume all runs whose wait is over; each is left at its next wait."
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="With --due: stay, and resume runs as their waits end.")
    ] = False,
) -> int:
    """Resume a run that was interrupted or suspended. A finished run is only reported.

    With --due, all suspended runs whose wait is over continue: its time has come, its event is there, or its command,
    file or URL is to be checked again.

    The run keeps its recorded options; options of this command replace them. To continue a run that
    a limit ended, raise that limit: --max-iterations, --max-usd, --max-calls, --max-total-tokens or
    --max-effects. The new limit is recorded.

    Examples:
        loopwright resume last
        loopwright resume last --max-iterations 8 --accept-changes
        loopwright resume --due
    """
    if not due:
        if not name or watch:
            with Output(as_json=options.as_json):
                raise ConfigurationError("--watch needs --due" if watch else "give RUN, or --due")
        return resume_run(name, options, max_iterations=max_iterations, loop=loop)
    with Output(as_json=options.as_json) as output:
        if name or loop or max_iterations is not None:
            raise ConfigurationError("--due takes no RUN and no limit of iterations")
        act = functools.partial(
            _continued, options=replace(options, on_wait=OnWait.LEAVE), output=output
        )
        if watch:
            output.note("runs continue as their waits end; Ctrl-C ends this command")
        seen: dict[str, float] = {}
        while True:
            try:
                rows = reading(options.journal, _due)
            except RunNotFound:
                if not watch:
                    raise
                rows = []  # its first run makes the journal
            # A run that was refused is as it was, and is not tried again until it has changed.
            rows = [row for row in rows if seen.get(row.run_id) != row.updated]
            seen |= {row.run_id: row.updated for row in rows}
            if rows or not watch:
                code = run_each(
                    rows, "resume", act, output, none="no wait of a suspended run is over"
                )
            if not watch:
                return code
            time.sleep(_WATCH)


async def _due(store: Journal) -> list[RunInfo]:
    """Return the runs without a process whose wait or whose pause for a quota is over."""
    ids = dict.fromkeys(wait.run for wait in await store.waits(due=time.time()))
    rows = [await store.find(run_id) for run_id in ids]
    for row in await store.runs(status="suspended", limit=1000):
        if row.reason in (Reason.THROTTLED, Reason.QUOTA):
            request = (await store.result(row.run_id)).request
            if isinstance(request, dict) and request.get("until", math.inf) <= time.time():
                rows.append(row)
    # The process of an interrupted one was killed before the run took what ended its wait.
    statuses = ("suspended", "interrupted")
    rows = [row for row in rows if row.status in statuses]
    from ...engine.steering import Steering  # few commands need it

    # The row keeps the reason after the end of the hold, until the run is resumed.
    return [
        row
        for row in rows
        if row.reason != Reason.HELD or not Steering(await store.inbox(row.run_id)).held
    ]


def _continued(name: str, *, options: RunCommandOptions, output: Output) -> Result:
    """Resume a run quietly, and return its result."""
    info, _ = reading(options.journal, lambda store: on_record(store, name))
    load = functools.partial(load_again, info, SourceSettings.of(options))
    source = approved(load, output, yes=options.yes)
    telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
    job = Job(source, None, info.run_id, options, telemetry_options, quiet=True)
    return perform(job, output)[0]


def resume_run(
    name: str, options: RunCommandOptions, *, max_iterations: int | None = None, loop: str = ""
) -> int:
    """Resume a run by its name on the command line, and return the exit code."""
    with Output(as_json=options.as_json) as output:
        settings = SourceSettings.of(options)
        raised = {name: value for name, value in settings.limits().items() if value is not None}
        if max_iterations is not None:
            raised["max_iterations"] = max_iterations
        info, entries = reading(options.journal, lambda store: on_record(store, name))
        # A budget that did not end it is a cap on the rest of the run, not a raise.
        if info.reason != Reason.BUDGET:
            raised = {key: value for key, value in raised.items() if key == "max_iterations"}
        # Now for the refusal of a wrong one; recorded once all else is known to be right.
        raises_of(info.run_id, entries, raised, loop)
        # A finished run needs neither its document nor an approval.
        if not raised and ended(entries):
            result = recorded_result(info, entries)
            if output.as_json:
                output.write_json(result_json(result))
                return result.status.exit_code
            output.write(
                f"nothing was run: {info.run_id} has ended: {ending_text(result, scripted=info.scripted)}",
                wrap=True,
            )
            report_failure(
                result, output, command_line("show", info.run_id, options.journal, "--traceback")
            )
            output.write(("details: ", "dim"), command_line("show", info.run_id, options.journal))
            if line := continuation_line(result, info, options.journal):
                output.write(("continue: ", "dim"), line)
            return result.status.exit_code
        source = approved(functools.partial(load_again, info, settings), output, yes=options.yes)
        telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
        limits = {**raised, "loop": loop} if raised else {}
        job = Job(source, None, info.run_id, options, telemetry_options, raised=limits)
        return drive(job, output)
