"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = [
    "AcceptChanges", "Agents", "CaptureContent", "InDoubt", "InDoubtOption", "InputFile", "InputText", "JournalUrl",
    "Json", "Log", "LoopName", "MaxIterations", "MaxUsd", "Model", "ModelUrl", "Otel", "Replies", "RunId", "RunName", "Sets", "Transcript",
    "Verbose", "Yes",
]  # fmt: skip


class InDoubt(StrEnum):
    """What becomes of a step that is not idempotent and was in flight at a crash."""

    SUSPEND = "suspend"
    RERUN = "rerun"


JournalUrl = Annotated[
    str,
    typer.Option(
        "--journal", metavar="URL", envvar="LOOPWRIGHT_JOURNAL", help="Where runs are kept.",
    ),
]  # fmt: skip
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object to stdout, all else to stderr.")
]
RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of a run, its unique beginning, or: last.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="A line for each effect too.")]
AcceptChanges = Annotated[
    bool,
    typer.Option("--accept-changes", help="Go on although code or document changed since."),
]
InDoubtOption = Annotated[
    InDoubt,
    typer.Option(
        "--in-doubt", help="A step in flight at a crash that may have acted: ask, or rerun."
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A variable of the document; repeatable."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="LOOPWRIGHT_MODEL",
        metavar="PROVIDER:MODEL",
        help="Instead of the document's.",
    ),
]
ModelUrl = Annotated[
    str | None,
    typer.Option(
        "--model-url", envvar="LOOPWRIGHT_MODEL_URL", metavar="URL", help="Where the model answers."
    ),
]
Replies = Annotated[
    str | None,
    typer.Option("--replies", metavar="FILE", help="Answer every model call from a file."),
]
Transcript = Annotated[
    str | None,
    typer.Option("--transcript", metavar="FILE", help="Append a JSON line per model call."),
]
MaxUsd = Annotated[
    float | None, typer.Option("--max-usd", metavar="USD", help="What the run may spend at most.")
]
MaxIterations = Annotated[
    int | None,
    typer.Option(
        "--max-iterations", metavar="N", help="Go on with a loop that used its iterations up."
    ),
]
LoopName = Annotated[
    str, typer.Option("--loop", metavar="NAME", help="Whose iterations; the outermost by default.")
]
Agents = Annotated[
    list[str] | None,
    typer.Option("--agent", metavar="TYPE=MODULE:FUNCTION", help="Runs steps of an outside type."),
]
InputText = Annotated[
    str | None,
    typer.Option(
        "--input", "-i", metavar="TEXT", help="The input; strict JSON {…} or […] is read."
    ),
]
InputFile = Annotated[
    str | None, typer.Option("--input-file", metavar="F", help="A file with the input; - is stdin.")
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Agree to the commands and Python that it runs here.")
]
RunId = Annotated[
    str, typer.Option("--run-id", metavar="ID", help="The id of the run; one on record goes on.")
]
Otel = Annotated[
    str | None,
    typer.Option(
        "--otel",
        metavar="[URL]",
        help="Send traces and metrics to an OTLP/HTTP collector, http://localhost:4318 if none is "
        "named; OTEL_EXPORTER_OTLP_ENDPOINT does so too.",
    ),
]
Log = Annotated[
    str | None,
    typer.Option("--log", metavar="FILE", help="Append JSON log lines; - is stderr."),
]
CaptureContent = Annotated[
    bool,
    typer.Option("--capture-content", help="Inputs, outputs and feedback in traces and log lines."),
]
