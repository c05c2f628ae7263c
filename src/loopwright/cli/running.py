"""`run` and `resume`: drive a run and watch it."""

from __future__ import annotations

from typing import Annotated

import typer

from ..journal import Entry, Journal, RunInfo
from ..opening import new_run_id
from ..records import Reason, Result
from ..reopening import raise_limit
from .driving import Job, drive
from .inputs import read_input
from .journals import DEFAULT, reading
from .observing import Observing
from .options import (
    AcceptChanges,
    Agents,
    CaptureContent,
    InDoubt,
    InDoubtOption,
    InputFile,
    InputText,
    JournalUrl,
    Json,
    Log,
    LoopName,
    MaxIterations,
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
from .recorded import ended, on_record, recorded, result_json
from .sources import Given, load_again, load_source
from .telling import tell_result
from .trusting import agreed

__all__ = ["resume", "run"]


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
    as_json: Json = False,
) -> int:
    """Run a document to its end, or a step of a Python module: package.module:attribute.

    Its input is --input, --input-file or what is piped to stdin, else the document's own. Exit
    codes: 0 satisfied, 3 exhausted (a limit ended it), 1 failed, 4 suspended (it waits for a person
    or a quota), 130 cancelled or interrupted, 2 a wrong command line or document.
    """
    with Output(as_json=as_json) as output:
        given = Given.of(
            sets, agents, model=model, model_url=model_url, replies=replies,
            transcript=transcript, max_usd=max_usd,
        )  # fmt: skip
        source = agreed(lambda now: load_source(file, given, execute=now), output, yes=yes)
        value = read_input(text, input_file, output)
        observing = Observing(otel, log, capture_content)
        job = Job(
            source, value, run_id or new_run_id(), journal, accept_changes, in_doubt, verbose, observing
        )  # fmt: skip
        return drive(job, output)


def resume(
    name: RunName,
    journal: JournalUrl = DEFAULT,
    sets: Sets = None,
    model: Model = None,
    model_url: ModelUrl = None,
    max_usd: MaxUsd = None,
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
    as_json: Json = False,
) -> int:
    """Go on with a run that was interrupted or suspended; tell again how a finished one ended.

    What the run was started with is on record; an option given here is used instead. One that a limit
    ended goes on if --max-iterations or --max-usd raises that limit; that is on record then.
    """
    with Output(as_json=as_json) as output:
        given = Given.of(
            sets, agents, model=model, model_url=model_url, replies=replies,
            transcript=transcript, max_usd=max_usd,
        )  # fmt: skip
        info, entries = reading(
            journal, lambda store: _reopened(store, name, max_iterations, max_usd, loop)
        )
        if ended(entries):
            return _told(recorded(info, entries), journal, output)
        source = agreed(lambda now: load_again(info, given, execute=now), output, yes=yes)
        observing = Observing(otel, log, capture_content)
        job = Job(
            source, None, info.run_id, journal, accept_changes, in_doubt, verbose, observing
        )  # fmt: skip
        return drive(job, output)


async def _reopened(
    store: Journal, name: str, max_iterations: int | None, max_usd: float | None, loop: str
) -> tuple[RunInfo, list[Entry]]:
    """Return a run on record, gone back to before the end that a limit made, if that is raised."""
    info, entries = await on_record(store, name)
    if info.reason != Reason.BUDGET:
        max_usd = None  # a cap like any other, of what is to come
    if max_iterations is None and max_usd is None:
        return info, entries
    await raise_limit(store, info.run_id, max_iterations=max_iterations, max_usd=max_usd, loop=loop)
    return await on_record(store, info.run_id)


def _told(result: Result, url: str, output: Output) -> int:
    """Tell how a run had ended: a finished one is never run again, nor its document needed."""
    if output.as_json:
        output.give(result_json(result))
    else:
        tell_result(result, output, url)
    return result.status.exit_code
