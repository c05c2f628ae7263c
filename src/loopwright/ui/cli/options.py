"""The options that several commands share.

A command takes a class of options as its parameter `options`; `expanded` makes each field an option of
the command line, so that names, help and defaults stand once.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, get_type_hints

import typer

from ..journals import DEFAULT
from . import completion

DEFAULT_COLLECTOR = "http://localhost:4318"
VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"  # of the OpenTelemetry specification, read by all its SDKs
_URLS = ("http://", "https://")


class InDoubt(StrEnum):
    """Treatment of a step that is not idempotent and was in progress at a crash."""

    SUSPEND = "suspend"
    RERUN = "rerun"


class OnWait(StrEnum):
    """What the process of a run does while all of the run waits."""

    STAY = "stay"
    LEAVE = "leave"


JournalUrl = Annotated[
    str,
    typer.Option("--journal", metavar="URL", envvar="LOOPWRIGHT_JOURNAL", help="Journal of runs."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object to stdout and messages to stderr.")
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Run ID, its unique beginning, or last.",
        autocompletion=completion.runs,
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print a line for each effect.")]
InputText = Annotated[
    str | None,
    typer.Option("--input", "-i", metavar="TEXT", help="Input. JSON {…} or […] is parsed."),
]
InputFile = Annotated[
    str | None, typer.Option("--input-file", metavar="FILE", help="Input file; - reads stdin.")
]
Lenient = Annotated[
    bool,
    typer.Option(
        "--lenient",
        help="Other dialects: accept a fragment and keep unknown placeholders as text.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Change nothing: take the results of models, commands, Python functions and tools from --replies, "
        "and keep no journal.",
    ),
]
RunId = Annotated[
    str, typer.Option("--run-id", metavar="ID", help="Run ID. An existing run is resumed.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", min=0, help="Seed of what the run draws.  [default: from its ID]"
    ),
]
MaxIterations = Annotated[
    int | None,
    typer.Option(
        "--max-iterations", metavar="N", help="Limit on iterations: raise that of a loop."
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME=VALUE", help="Tag of the run; repeatable."),
]
DelivererName = Annotated[
    str,
    typer.Option(
        "--deliverer",
        envvar="LOOPWRIGHT_DELIVERER",
        metavar="NAME[:ADDRESS]",
        help="Engine that delivers runs: pgqueuer, celery, temporal or dbos.  [default: pgqueuer]",
    ),
]
LoopName = Annotated[
    str,
    typer.Option("--loop", metavar="NAME", help="Name or path of the loop.  [default: outermost]"),
]


MaxUsd = Annotated[
    float | None, typer.Option("--max-usd", metavar="USD", help="Limit on the cost, in USD.")
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", metavar="N", help="Limit on model calls.")
]
ModelUrl = Annotated[
    str | None,
    typer.Option(
        "--model-url",
        envvar="LOOPWRIGHT_MODEL_URL",
        metavar="URL",
        help="Address of the model's API.",
    ),
]
WhenInDoubt = Annotated[
    InDoubt,
    typer.Option(
        "--in-doubt",
        help="After a crash, for a step that may have acted: suspend and ask, or run it again.",
    ),
]
Collector = Annotated[
    str | None,
    typer.Option(
        "--otel",
        metavar="[URL]",
        help=f"Send traces and metrics to an OTLP/HTTP collector, by default {VARIABLE} or "
        f"{DEFAULT_COLLECTOR}.",
    ),
]


@dataclass(frozen=True)
class DocumentOptions:
    """Options of every command that loads a document."""

    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Input or variable of the document; repeatable.",
            autocompletion=completion.inputs,
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            envvar="LOOPWRIGHT_MODEL",
            metavar="PROVIDER:MODEL",
            help="Model, instead of the document's.",
        ),
    ] = None
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            metavar="TYPE=MODULE:FUNCTION",
            help="Function that runs steps of an external type; repeatable.",
        ),
    ] = None


@dataclass(frozen=True)
class ModelOptions(DocumentOptions):
    """The same, where models may be called."""

    model_url: ModelUrl = None
    replies: Annotated[
        str | None,
        typer.Option("--replies", metavar="FILE", help="Take model replies from a file."),
    ] = None


Cache = Annotated[
    bool | None,
    typer.Option(
        "--cache/--no-cache",
        help="Keep replies of models in the journal for equal requests, where the document does not say; or never.",
    ),
]


@dataclass(frozen=True)
class RunCommandOptions(ModelOptions):
    """Options of `run` and `resume`."""

    journal: JournalUrl = DEFAULT
    cache: Cache = None
    max_usd: MaxUsd = None
    max_calls: MaxCalls = None
    max_total_tokens: Annotated[
        int | None,
        typer.Option("--max-total-tokens", metavar="N", help="Limit on input and output tokens."),
    ] = None
    max_effects: Annotated[
        int | None,
        typer.Option(
            "--max-effects",
            metavar="N",
            help="Limit on effects: functions, commands, tool calls and model calls.",
        ),
    ] = None
    transcript: Annotated[
        str | None,
        typer.Option("--transcript", metavar="FILE", help="Append a JSON line per model call."),
    ] = None
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="Resume although the code or document has changed."),
    ] = False
    in_doubt: WhenInDoubt = InDoubt.SUSPEND
    on_wait: Annotated[
        OnWait,
        typer.Option(
            "--on-wait", help="While all of the run waits: stay, or end and leave it suspended."
        ),
    ] = OnWait.STAY
    otel: Collector = None
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="FILE", help="Append JSON log lines; - writes to stderr."),
    ] = None
    capture_content: Annotated[
        bool,
        typer.Option(
            "--capture-content", help="Include inputs, outputs and feedback in traces and logs."
        ),
    ] = False
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Answer yes: approve the commands and Python code in this document."
        ),
    ] = False
    verbose: Verbose = False
    as_json: AsJson = False


def expanded(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command whose parameter `options` is replaced by the fields of its class."""
    hints = get_type_hints(command, include_extras=True)
    of_fields = get_type_hints(hints["options"], include_extras=True)
    parameters = [
        # Keywords, so that options with and without defaults can be in any order.
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "options"
    ]
    parameters += [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=of_fields[one.name],
        )
        for one in fields(hints["options"])
    ]

    @functools.wraps(command)
    def call(**values: object) -> int:
        options = {name: values.pop(name) for name in of_fields}
        return command(options=hints["options"](**options), **values)

    # The parser reads the signature and the annotations.
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def with_collector(arguments: Sequence[str]) -> list[str]:
    """Return a command line with a URL after each `--otel` that has none.

    >>> with_collector(["run", "--otel", "polish.yaml"])
    ['run', '--otel=http://localhost:4318', 'polish.yaml']
    """
    words = list(arguments)
    # Words after "--" are arguments, even if they look like options.
    end = words.index("--") if "--" in words else len(words)
    for place in [n for n, word in enumerate(words[:end]) if word == "--otel"]:
        if not words[place + 1 : place + 2] or not words[place + 1].startswith(_URLS):
            url = os.environ.get(VARIABLE) or DEFAULT_COLLECTOR
            words[place] = f"--otel={url}"
    return words
