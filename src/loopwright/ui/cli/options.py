"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

__all__ = [
    "AcceptChanges",
    "Agents",
    "AsJson",
    "CaptureContent",
    "InDoubt",
    "InDoubtOption",
    "InputFile",
    "InputText",
    "JournalUrl",
    "Lenient",
    "Log",
    "LoopName",
    "MaxCalls",
    "MaxEffects",
    "MaxIterations",
    "MaxTotalTokens",
    "MaxUsd",
    "Model",
    "ModelUrl",
    "Otel",
    "Replies",
    "RunId",
    "RunName",
    "Sets",
    "Transcript",
    "Verbose",
    "Yes",
    "with_collector",
]  # fmt: skip

DEFAULT_COLLECTOR = "http://localhost:4318"
VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_URLS = ("http://", "https://")


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
AsJson = Annotated[
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
Lenient = Annotated[
    bool,
    typer.Option(
        "--lenient",
        help="Of another dialect: take a fragment, and leave placeholders that nothing supplies as they are.",
    ),
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
MaxCalls = Annotated[
    int | None,
    typer.Option("--max-calls", metavar="N", help="How many model calls the run may make at most."),
]
MaxTotalTokens = Annotated[
    int | None,
    typer.Option(
        "--max-total-tokens",
        metavar="N",
        help="How many tokens the run may use at most, in and out.",
    ),
]
MaxEffects = Annotated[
    int | None,
    typer.Option(
        "--max-effects",
        metavar="N",
        help="How many effects the run may have at most: functions, commands, tool and model calls.",
    ),
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


def with_collector(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the collector said wherever `--otel` stands without a URL.

    >>> with_collector(["run", "--otel", "polish.yaml"])
    ['run', '--otel=http://localhost:4318', 'polish.yaml']
    """
    found = list(arguments)
    end = found.index("--") if "--" in found else len(found)
    for place in [n for n, word in enumerate(found[:end]) if word == "--otel"]:
        if not found[place + 1 : place + 2] or not found[place + 1].startswith(_URLS):
            url = os.environ.get(VARIABLE) or DEFAULT_COLLECTOR
            found[place] = f"--otel={url}"
    return found
