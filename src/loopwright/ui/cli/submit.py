"""`submit`: queue runs for workers, one or many, now, later or on a schedule."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ...cluster import Submission, requeue
from ...cluster.submit import place, wait_until_over
from ...cluster.worker import uses_workspace
from ...errors import ConfigurationError
from ...journal import Journal, RunInfo
from ...journal.protocol import shown_url
from ...journal.questions import pending
from ...journal.replay import recorded_result
from ...records import Result, Status
from ...records.codec import Json, strict_json
from .. import formatting as texts
from ..finding import tags_of
from ..inputs import read_input
from ..journals import DEFAULT, command_line, find_run, opened
from ..read_limits import seconds
from ..run_summary import Returns, result_json, returns_of, wait_of
from ..sources import RunSource, SourceSettings, load_source
from ..submitted_source import carried_source
from . import completion
from .live import report_result
from .many import worst_of
from .options import (
    AsJson,
    Cache,
    DelivererName,
    InputFile,
    InputText,
    JournalUrl,
    Lenient,
    MaxCalls,
    MaxUsd,
    ModelOptions,
    Tags,
    expanded,
)
from .output import Output

REASON_SECONDS = 1.0  # seconds between two looks at why a run waits


@dataclass(frozen=True)
class SubmitOptions(ModelOptions):
    """Options of `submit`."""

    journal: JournalUrl = DEFAULT
    queue: Annotated[
        str,
        typer.Option("--queue", metavar="NAME", help="Queue.", autocompletion=completion.queues),
    ] = "default"
    priority: Annotated[
        int, typer.Option("--priority", metavar="N", help="Higher numbers start first.")
    ] = 0
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Start time, such as 2027-01-31T06:00 in local time or 2027-01-31T06:00Z.",
        ),
    ] = ""
    after: Annotated[
        str, typer.Option("--in", metavar="DURATION", help="Start after a time, such as 5m.")
    ] = ""
    cron: Annotated[
        str,
        typer.Option(
            "--cron", metavar="TIMES", help="Repeat at times in UTC, such as '0 6 * * *'."
        ),
    ] = ""
    id: Annotated[
        str, typer.Option("--id", metavar="ID", help="Submit only one run with this id.")
    ] = ""
    inputs: Annotated[
        str,
        typer.Option(
            "--inputs", metavar="FILE", help="Submit a run for each line of JSON; - is stdin."
        ),
    ] = ""
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the results, with the exit codes of run.")
    ] = False
    cache: Cache = None
    max_usd: MaxUsd = None
    max_calls: MaxCalls = None
    tag: Tags = None
    deliverer: DelivererName = ""
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Answer yes: trust the commands and Python code on this machine."
        ),
    ] = False
    as_json: AsJson = False

    @property
    def is_timed(self) -> bool:
        """Whether the runs have a start time."""
        return bool(self.at or self.after or self.cron)


@expanded
def submit(
    options: SubmitOptions,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Document, or package.module:attribute.")
    ] = "",
    text: InputText = None,
    input_file: InputFile = None,
    lenient: Lenient = False,
    again_run: Annotated[
        str, typer.Option("--again", metavar="RUN", help="Start a suspended or waiting run now.")
    ] = "",
) -> int:
    """Queue runs for the workers of a journal.

    The runs carry the document and its files, so that workers need no copy of them. A step of a Python
    module must be installed on the workers. Commands and Python code run on workers that trust the digest.

    Exit codes: 0 submitted; with --wait those of run, of several runs the worst. Ctrl-C stops waiting, not
    the runs.

    Examples:
        loopwright submit polish.yaml --input-file draft.txt
        loopwright submit polish.yaml --inputs texts.jsonl --queue nightly --wait
        loopwright submit polish.yaml --cron '0 6 * * *' --id reports
    """
    with Output(as_json=options.as_json) as output:
        if bool(file) == bool(again_run):
            raise ConfigurationError("Name either a FILE, or a queued run with --again RUN.")
        if again_run:
            return asyncio.run(_again(options, again_run, output))
        # A submission must not run the code of the document: the workers do, if they trust it.
        source = load_source(
            file, replace(SourceSettings.of(options), lenient=lenient), execute=False
        )
        carried, trust_line = carried_source(source, output.note, yes=options.yes)
        submission = Submission(
            source.step,
            source=carried,
            queue=options.queue,
            priority=options.priority,
            at=_start(options, output),
            delay=seconds("--in", options.after) if options.after else 0.0,
            cron=options.cron,
            tags=tags_of(options.tag),
            # Functions of a document are not imported here, so its fingerprint is not known yet.
            pinned="python" in source.source or not source.needs_python,
        )
        if uses_workspace(source.step):
            output.note(
                f"{source.name} has a workspace: its files stay on the machine of the worker that starts it, "
                "and only workers there continue it"
            )
        inputs = _inputs(options, text, input_file, source, output)
        code = asyncio.run(_submitted(options, submission, inputs, output))
        if trust_line:
            output.note(trust_line)
        return code


def _start(options: SubmitOptions, output: Output) -> float | None:
    """Return when the runs may start; a time that has passed is noted."""
    if sum(map(bool, (options.at, options.after, options.cron))) > 1:
        raise ConfigurationError("--at, --in and --cron exclude each other. Use one of them.")
    if options.cron and not options.id:
        raise ConfigurationError(
            "--cron needs --id NAME: the name of the schedule, to change or cancel it"
        )
    if options.at:
        try:
            moment = dt.datetime.fromisoformat(options.at).timestamp()
        except ValueError:
            raise ConfigurationError(
                f"--at: {options.at!r} is not a time; use one such as 2027-01-31T06:00"
            ) from None
        # Not an error: a command with --id may be repeated after its time.
        if moment <= time.time():
            output.note(f"--at: {texts.start(moment)} has passed; the run may start now")
        return moment
    return None


def _inputs(
    options: SubmitOptions,
    text: str | None,
    input_file: str | None,
    source: RunSource,
    output: Output,
) -> list[tuple[Json, str]]:
    """Return the inputs with their ids."""
    if not options.inputs:
        value = (
            None
            if text is None and input_file is None
            else read_input(text, input_file, output.note)
        )
        if source.inputs is not None:
            return [(source.inputs.complete(value), options.id)]
        return [(source.default_input if value is None else value, options.id)]
    if text is not None or input_file is not None:
        raise ConfigurationError(
            "--inputs, --input and --input-file exclude each other. Use one of them."
        )
    inputs = []
    for number, line in enumerate(_lines(options.inputs), start=1):
        if not line:
            continue
        try:
            value = strict_json(line)
        # A run must not get a broken line as text.
        except (ValueError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise ConfigurationError(
                f"--inputs: line {number} is not JSON: {why}: {line[:60]!r}. Nothing was submitted."
            ) from None
        try:
            value = value if source.inputs is None else source.inputs.complete(value)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"--inputs: line {number}: {error}. Nothing was submitted."
            ) from None
        inputs.append((value, f"{options.id}/{number}" if options.id else ""))
    if not inputs:
        raise ConfigurationError(
            f"--inputs: {options.inputs!r} has no inputs; write one JSON value per line"
        )
    return inputs


def _lines(name: str) -> list[str]:
    try:
        if name == "-":
            raw = typer.get_binary_stream("stdin").read()
        else:
            raw = Path(name).read_bytes()
        # Some editors begin a file with a byte order mark.
        return [line.strip() for line in raw.decode("utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigurationError(f"--inputs: {name!r} cannot be read: {why}") from error


async def _submitted(
    options: SubmitOptions,
    submission: Submission,
    inputs: Sequence[tuple[Json, str]],
    output: Output,
) -> int:
    async with opened(options.journal, create=True) as store:
        placed = await place(submission, inputs, journal=store, deliverer=options.deliverer)
        run_ids = [row.run_id for row, _ in placed]
        if options.wait:
            return await _waited(run_ids, store, options, output)
        # As recorded: an id may have an earlier run.
        row = await store.find(run_ids[0]) if options.is_timed else placed[0][0]
        waits: Returns = {}
        if any(new for _, new in placed):
            # Of a run with a time too: the name of its queue may be mistyped.
            waits = await returns_of(store, [replace(row, status="queued", wake_at=0.0)])
    _report_submitted(placed, row, options, output)
    wait = waits.get(row.run_id)
    if wait is not None and wait.remedy:
        command, *words = wait.remedy
        then = "start one" if command == "worker start" else "let it continue"
        line = command_line(command, "", options.journal, *words)
        output.note(f"{wait.text}; {then}: {line}")
    return 0


def _report_submitted(
    placed: Sequence[tuple[RunInfo, bool]], row: RunInfo, options: SubmitOptions, output: Output
) -> None:
    """Report how many runs are new; `row` is the recorded row of the first one."""
    run_ids = [placed_row.run_id for placed_row, _ in placed]
    existed = sum(not new for _, new in placed)
    if options.as_json:
        output.write_json({"runs": run_ids, "existed": existed})
        return
    later = row.status == "queued" and row.wake_at > time.time()
    starts = f"; start: {texts.start(row.wake_at)}" if later else ""
    if len(placed) == 1:
        done = f"{run_ids[0]} exists already in" if existed else f"submitted {run_ids[0]} to"
        output.write(f"{done} the queue {row.queue}{starts}")
        output.write(("watch: ", "dim"), command_line("watch", run_ids[0], options.journal))
        return
    new = texts.plural(len(placed) - existed, "run")
    output.write(
        f"submitted {new} to the queue {row.queue}{starts}"
        + (f"; {existed} existed already" if existed else "")
    )
    output.write(("workers: ", "dim"), command_line("worker list", "", options.journal))


class _Waits:
    """Writes why runs wait, once for each change of the reason."""

    def __init__(self, store: Journal, output: Output, *, several: bool) -> None:
        self._store = store
        self._output = output
        self._several = several
        self._cause = ""
        # A run that a worker takes at once needs no line.
        self._next = time.monotonic() + REASON_SECONDS

    async def note(self, info: RunInfo) -> None:
        """Receive the row of a run that is not over."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REASON_SECONDS
        wait = await wait_of(self._store, info)
        if wait is not None and wait.cause != self._cause:
            self._output.note(f"{info.run_id}: {wait.text}" if self._several else wait.text)
        self._cause = "" if wait is None else wait.cause


async def _waited(
    run_ids: Sequence[str], store: Journal, options: SubmitOptions, output: Output
) -> int:
    """Wait for runs, report them, and return the exit code of the worst."""
    several = len(run_ids) > 1
    subject = texts.plural(len(run_ids), "run") if several else run_ids[0]
    output.note(f"waiting for {subject} in {shown_url(options.journal)}")
    results: list[Result] = []
    waits = _Waits(store, output, several=several)
    try:
        for run_id in run_ids:
            info = await wait_until_over(run_id, journal=store, note=waits.note)
            results.append(recorded_result(info, await store.entries(run_id)))
    except asyncio.CancelledError:  # Ctrl-C
        where = ("worker list", "") if several else ("watch", run_ids[0])
        output.note(
            f"stopped waiting; the run{'s continue; workers' if several else ' continues; watch'}: "
            f"{command_line(*where, options.journal)}"
        )
        raise
    if several and options.as_json:
        output.write_json({"runs": [result_json(result) for result in results]})
    elif several:
        for result in results:
            output.write(f"{result.run_id}: {result.status.value}: {texts.one_line(result.detail)}")
    else:
        questions = (
            await pending(store, run_ids[0]) if results[0].status is Status.SUSPENDED else []
        )
        if options.as_json:
            output.write_json(result_json(results[0], questions))
        else:
            report_result(results[0], output, options.journal, questions, info=info)
    return worst_of(results).exit_code


async def _again(options: SubmitOptions, name: str, output: Output) -> int:
    async with opened(options.journal) as store:
        info: RunInfo = await find_run(store, name)
        await requeue(info.run_id, journal=store)
    output.write(f"{info.run_id} starts again in the queue {info.queue or options.queue}")
    return 0
