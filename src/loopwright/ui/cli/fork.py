"""`fork`: a new run over the recorded beginning of another one."""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import typer

from ...engine.fork import Forked, last_iteration
from ...engine.fork import fork as forked
from ...engine.run import new_run_id
from ...errors import ConfigurationError, RunLocked, RunNotFound
from ...journal import Journal, RunInfo
from ...journal.protocol import kept_by_fork
from ..consent import Load, approved
from ..formatting import spent
from ..journals import find_run, folder_of, reading
from ..run_files import in_place
from ..sources import SourceSettings, load_again, load_source, refuse_inputs
from . import completion
from .options import RunCommandOptions, RunName, expanded
from .output import Output
from .rewind import full_path
from .run import Job, drive
from .telemetry_options import TelemetryOptions


@expanded
def fork(
    name: RunName,
    options: RunCommandOptions,
    at: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="Path from which the new run repeats the steps, such as refine/3.  "
            "[default: the start of the last iteration]",
            autocompletion=completion.paths,
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Run ID. It must be new.")
    ] = None,
    doc: Annotated[
        str | None, typer.Option("--doc", metavar="FILE", help="Document of the new run.")
    ] = None,
) -> int:
    """Run again from a recorded point, as a new run over the same beginning.

    The results before the path are taken from the other run and are not executed or stored again. Their
    cost is shown as inherited. Options such as --model, --max-usd and --set for a variable apply from the path onward;
    the input and the declared inputs are those of the other run.

    Examples:
        loopwright fork last
        loopwright fork last improve/2 --run-id second --replies replies.yaml
    """
    with Output(as_json=options.as_json) as output:
        settings = SourceSettings.of(options)
        for option, text in (("PATH", at), ("--run-id", run_id), ("--doc", doc)):
            # An empty variable of a script: the default would be another fork than the intended one.
            if text is not None and not text.strip(" /"):
                raise ConfigurationError(
                    f"{option}: {text!r} is empty; give a value, or leave it out"
                )

        async def look(store: Journal) -> tuple[RunInfo, str]:
            with suppress(RunNotFound):
                if run_id and (await store.find(run_id)).run_id == run_id:
                    raise ConfigurationError(f"--run-id: there is a run {run_id}; use another ID")
            info = await find_run(store, name)
            if info.status == "running":
                raise RunLocked(
                    f"{info.run_id}: it is running; wait for its end or cancel it, then fork it"
                )
            entries = await store.entries(info.run_id)
            path = await full_path(store, info.run_id, at.strip("/")) if at else ""
            path = path or last_iteration(info.run_id, entries)
            # Before the document is loaded: an unknown path is the likelier mistake.
            kept_by_fork(entries, path)
            return in_place(info, entries, folder_of(store)), path

        info, path = reading(options.journal, look)
        load: Load = functools.partial(load_again, info, settings)
        if doc:
            load = functools.partial(load_source, doc, settings)
        source = approved(load, output, yes=options.yes)
        refuse_inputs(info, source, settings)
        if source.step.name != info.step:
            raise ConfigurationError(
                f"--doc: {doc} is named {source.step.name!r}, and {info.run_id} was recorded as {info.step!r}; "
                "give it that name"
            )
        new_id = run_id or new_run_id()

        async def work(store: Journal) -> Forked:
            return await forked(
                info.run_id, journal=store, at=path, new_id=new_id, source=source.source
            )

        done = reading(options.journal, work)
        inherited = spent(done.inherited)
        output.note(
            f"{done.run_id} continues {info.run_id} from {path}"
            + (f", {inherited} inherited" if inherited else "")
        )
        # The recorded results stay although settings changed: that is what a fork is for.
        accepting = replace(options, accept_changes=True)
        telemetry_options = TelemetryOptions(options.otel, options.log, options.capture_content)
        return drive(Job(source, None, done.run_id, accepting, telemetry_options), output)
