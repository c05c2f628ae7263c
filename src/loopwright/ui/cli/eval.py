"""`eval`: run a task on the cases of a data set, compare the scores with a baseline, and decide by a gate."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ...datasets.results import recorded_rows
from ...documents.schema.datasets import share_of
from ...engine.run import new_run_id
from ...errors import ConfigurationError
from ...records import Result, codec
from ...records.codec import Json
from .. import formatting as texts
from ..consent import approved
from ..evaluations import recorded_evaluation, with_baseline
from ..export import exported
from ..finding import tags_of
from ..journals import command_line, reading
from ..run_summary import on_record
from ..sources import SourceSettings, load_again, load_source
from . import completion
from .evaluation import write_evaluation
from .export import write_file
from .live import continuation_line, report_failure
from .options import RunCommandOptions, RunId, Seed, Tags, expanded
from .output import Output
from .run import Job, perform, report
from .telemetry_options import TelemetryOptions

GATE = 3  # exit code of a gate that is not met


@dataclass(frozen=True)
class EvalOptions(RunCommandOptions):
    """Options of `eval`."""

    use: Annotated[
        list[str] | None,
        typer.Option(
            "--use",
            metavar="SPLIT",
            help="Split to run: train, validation or test; repeatable.  [default: the document's]",
        ),
    ] = None
    sample: Annotated[
        int | None,
        typer.Option("--sample", metavar="N", min=1, help="Run N cases, drawn by the seed."),
    ] = None
    repeat: Annotated[
        int | None, typer.Option("--repeat", metavar="K", min=1, help="Run each case K times.")
    ] = None
    at_once: Annotated[
        int | None,
        typer.Option("--at-once", metavar="N", min=1, help="Maximum at a time: cases."),
    ] = None
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline",
            metavar="RUN",
            help="Earlier evaluation to compare with, case by case.",
            autocompletion=completion.runs,
        ),
    ] = ""
    min_score: Annotated[
        float | None, typer.Option("--min-score", metavar="X", help="Gate: minimum mean score.")
    ] = None
    min_lower: Annotated[
        float | None,
        typer.Option(
            "--min-lower", metavar="X", help="Gate: minimum of the lower limit of the mean score."
        ),
    ] = None
    max_drop: Annotated[
        float | None,
        typer.Option(
            "--max-drop", metavar="X", help="Gate: how far the score may fall below the baseline."
        ),
    ] = None
    max_errors: Annotated[
        str,
        typer.Option(
            "--max-errors",
            metavar="P",
            help="Share of errors above which there is no score, such as 5%.",
        ),
    ] = ""
    cases_out: Annotated[
        Path | None,
        typer.Option("--cases-out", metavar="F.jsonl", help="Output: a JSON line per case."),
    ] = None
    junit: Annotated[
        Path | None,
        typer.Option(
            "--junit", metavar="F.xml", help="Output: the cases as a report in JUnit's XML."
        ),
    ] = None

    def changes(self) -> dict[str, Json]:
        """Return what these options change in the evaluation of the document.

        Raises:
            ConfigurationError: for a limit that is not from 0 to 1.
        """
        gate = {
            "mean_at_least": ("--min-score", self.min_score),
            "lower_at_least": ("--min-lower", self.min_lower),
            "max_drop": ("--max-drop", self.max_drop),
        }
        limits = {
            name: codec.number(option, value, minimum=0, maximum=1)
            for name, (option, value) in gate.items()
            if value is not None
        }
        given = {
            "use": self.use, "sample": self.sample, "repeat": self.repeat, "at_once": self.at_once,
            "most": _share(self.max_errors), "baseline": self.baseline, "gate": limits,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value not in (None, "", {}, [])}

    def files(self) -> Iterator[tuple[str, Path]]:
        """Iterate over (option, file) of the files to write.

        Raises:
            ConfigurationError: for a file in a folder that does not exist.
        """
        for option, file in (("--cases-out", self.cases_out), ("--junit", self.junit)):
            if file is not None:
                if not file.parent.is_dir():
                    raise ConfigurationError(f"{option}: there is no folder {file.parent}")
                yield option, file


def _share(text: str) -> float | None:
    try:
        return share_of(text) if text else None
    except ValueError:
        raise ConfigurationError(
            f"--max-errors: {text!r} is not a share; write a percentage such as 5%, or a number from 0 to 1"
        ) from None


@expanded
def eval(  # noqa: A001
    file: Annotated[str, typer.Argument(metavar="FILE", help="Document with an evaluation.")],
    options: EvalOptions,
    resume: Annotated[
        str,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Resume the run at once: that evaluation, with its settings; no case is scored twice.",
            autocompletion=completion.runs,
        ),
    ] = "",
    run_id: RunId = "",
    tag: Tags = None,
    seed: Seed = None,
) -> int:
    """Run a task on the cases of a data set, and score its outputs.

    With --baseline the scores are compared with those of an earlier run, case by case. Options of the gate replace the
    limits of the document.

    Exit codes: 0 gate met or none, 3 gate not met, 1 too many errors, 2 wrong command line or document, 4 suspended,
    130 interrupted.

    Examples:
        loopwright eval answers.yaml
        loopwright eval answers.yaml --baseline last --max-drop 0.02
        loopwright eval answers.yaml --use test --min-lower 0.75 --junit cases.xml
    """
    with Output(as_json=options.as_json) as output:
        if options.journal.startswith("memory:"):
            raise ConfigurationError("--journal memory: does not keep the cases; name a file")
        files, changes = list(options.files()), options.changes()
        settings = replace(SourceSettings.of(options), evaluation=changes)
        load = functools.partial(load_source, file, settings)
        if resume:
            info, _ = reading(options.journal, lambda store: on_record(store, resume))
            if info.source.get("file") != os.path.realpath(file) or "eval" not in info.source:
                raise ConfigurationError(f"--resume: {info.run_id} is not an evaluation of {file}")
            run_id, load = info.run_id, functools.partial(load_again, info, settings)
        source = approved(load, output, yes=options.yes)
        if (wanted := source.source.get("eval")) is None:
            raise ConfigurationError(
                f"{file}: this document has no `eval`; to run its steps: loopwright run {file}"
            )
        recorded: dict[str, Json] = {} if seed is None else {"seed": seed}
        if name := wanted.get("baseline"):
            before, entries = reading(options.journal, lambda store: on_record(store, name))
            if not recorded_rows(entries):
                raise ConfigurationError(
                    f"--baseline: {before.run_id} has no cases to compare with; name an evaluation that has ended"
                )
            # The ID, because `last` will be another run.
            recorded["eval"] = {**wanted, "baseline": before.run_id}
        elif options.max_drop is not None:
            raise ConfigurationError(
                "--max-drop compares with a baseline; name a run with --baseline"
            )
        telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
        job = Job(
            source, None, run_id or new_run_id(), options, telemetry_options,
            recorded=recorded, tags=tags_of(tag),
        )  # fmt: skip
        return report(job, *perform(job, output), output, files)


def report_evaluation(
    outcome: Result, wanted: Json, url: str, output: Output, files: Iterable[tuple[str, Path]]
) -> int:
    """Write the files and the report of an evaluation that has ended, and return the exit code.

    `wanted` are its settings, such as the gate.
    """
    info, entries, before = reading(url, lambda store: with_baseline(store, outcome.run_id, wanted))
    for option, file in files:
        write_file(
            option,
            file,
            exported("junit" if option == "--junit" else "cases.jsonl", info, entries, None),
        )
    shown = recorded_evaluation(info, entries, before)
    if output.as_json:
        output.write_json(shown.to_json())
    else:
        write_evaluation(shown, info, output)
        for row in shown.errors:
            place = texts.one_line(row["place"] or row["id"])
            output.write((f"errored: {place}: {texts.one_line(row['error'])}", "red"), wrap=True)
        if outcome.error is not None:
            output.write((texts.one_line(outcome.error.message), "red"), wrap=True)
        report_failure(outcome, output, command_line("show", info.run_id, url, "--traceback"))
        output.write(("details: ", "dim"), command_line("show", info.run_id, url))
        if line := continuation_line(outcome, info, url):
            output.write(("continue: ", "dim"), line)
    if not outcome.satisfied:
        return outcome.status.exit_code
    return GATE if shown.gate is not None and not shown.gate["ok"] else 0
