"""`again`: the document and the settings of a recorded run, as a new run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from ...engine.run import new_run_id
from ...errors import ConfigurationError
from ...journal import RunInfo
from ...journal.questions import Question
from ...records import Result, Status
from ...records.codec import Json, text_of
from ..consent import approved
from ..inputs import read_input
from ..journals import reading
from ..run_summary import UNTIL_DOCUMENT, on_record
from ..sources import RunSource, SourceSettings, load_again
from .many import ManyRunOptions, run_many
from .options import InputFile, InputText, RunName, expanded
from .output import Output
from .run import Job, perform, report
from .telemetry_options import TelemetryOptions

_ENDED = tuple(status.value for status in Status if status is not Status.SUSPENDED)


@expanded
def again(
    options: ManyRunOptions,
    name: RunName = "",
    text: InputText = None,
    input_file: InputFile = None,
) -> int:
    """Run the document of a run again, with the same input and settings, as a new run.

    Options of this command replace the recorded ones: --set gives another input, --input several. With filters such as
    --status it runs all ended runs that match again; it first shows how many, and asks. A new run has the tags of the other one.

    Examples:
        loopwright again last
        loopwright again last --input-file draft.txt --max-calls 80
        loopwright again --status exhausted --source polish.yaml --max-calls 80 --yes
    """
    with Output(as_json=options.as_json) as output:
        edited = text is not None or input_file is not None
        value = read_input(text, input_file, output.note) if edited else None
        if options.selects(name):
            act = functools.partial(_again, value=value, options=options, output=output, quiet=True)
            return run_many(options, _ENDED, "again", lambda run_id: act(run_id)[1], output)
        return report(*_again(name, value=value, options=options, output=output), output)


def _again(
    name: str, *, value: Json, options: ManyRunOptions, output: Output, quiet: bool = False
) -> tuple[Job, Result, list[Question]]:
    """Run a recorded run again, and return the job, the result and the open questions.

    Raises:
        LoopwrightError: if it cannot be run again.
    """
    info, _ = reading(options.journal, lambda store: on_record(store, name))
    file = Path(text_of(info.source.get("file")))
    if "file" in info.source and file.name != UNTIL_DOCUMENT and not file.is_file():
        raise ConfigurationError(
            f"{info.run_id}: its document {file} is gone. Put it back, or run another one: loopwright run FILE"
        )
    load = functools.partial(load_again, info, SourceSettings.of(options), anew=True)
    source = approved(load, output, yes=options.yes)
    telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
    # What `until` records beside the document.
    recorded = {"name": info.name} if info.name != info.step else {}
    recorded |= {name: info.source[name] for name in ("agent", "seed") if name in info.source}
    job = Job(
        source, _input(info, source, value), new_run_id(), options, telemetry_options,
        recorded=recorded, tags=info.tags, quiet=quiet,
    )  # fmt: skip
    return job, *perform(job, output)


def _input(info: RunInfo, source: RunSource, value: Json) -> Json:
    """Return the input of the new run: the recorded one, with what the caller gives instead."""
    if source.inputs is None:
        return info.input if value is None else value
    recorded = info.input if isinstance(info.input, Mapping) else {}
    return source.inputs.complete({**recorded, **source.inputs.named(value)})
